// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The library's kick: the same API and the same tests with the module and
 * without it (no device: a signal and immediate_exit).
 */
#include "kicktest.h"
#include "kfs_kick.h"
#include "kselftest_harness.h"

KEEP_TEXT_STILL()

#define VCPUS	2

/* A VMM's vCPU as the header's example has it. */
struct vcpu {
	struct gvm_vcpu *v;
	struct kguest *g;
	struct kfs_kicker *kick;
	pthread_t thread;
	uint32_t posted, seen;
	bool stop;
	uint64_t kicked, stray;
	int error;
};

FIXTURE(kick_lib) {
	struct gvm vm;
	struct vcpu vcpu[VCPUS];
	struct kfs_kicker kick[VCPUS];	/* one beside the other: kfs_kick_all */
	int dev, vm_kick;
};

FIXTURE_VARIANT(kick_lib) {
	bool module;
};

FIXTURE_VARIANT_ADD(kick_lib, by_module) { .module = true };
FIXTURE_VARIANT_ADD(kick_lib, by_signal) { .module = false };

FIXTURE_SETUP(kick_lib)
{
	int i;

	REQUIRE_MODULE();
	self->dev = variant->module ? kfs_open() : -ENOENT;
	ASSERT_EQ(0, gvm_create(&self->vm, NULL))
		TH_LOG("%s", gvm_strerror(&self->vm));
	for (i = 0; i < VCPUS; i++) {
		struct vcpu *v = &self->vcpu[i];

		ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &v->v));
		v->g = gvm_alloc(&self->vm, sizeof(*v->g), 64);
		v->kick = &self->kick[i];
		ASSERT_EQ(variant->module,
			  kfs_kick_open(v->kick, self->dev, v->v->fd,
					v->v->run, SIGUSR1));
		ASSERT_EQ(0, gvm_set_entry(v->v, guest_spin, v->g, GVM_RING0));
	}
	self->vm_kick = kfs_kick_open_vm(self->dev, self->vm.vm_fd);
	ASSERT_EQ(variant->module, self->vm_kick >= 0);
}

FIXTURE_TEARDOWN(kick_lib)
{
	int i;

	for (i = 0; i < VCPUS; i++)
		kfs_kick_close(&self->kick[i]);
	gvm_destroy(&self->vm);
	if (self->vm_kick >= 0)
		close(self->vm_kick);
	if (self->dev >= 0)
		close(self->dev);
}

static void *vcpu_loop(void *arg)
{
	struct vcpu *v = arg;

	kfs_kick_enter(v->kick);
	while (!__atomic_load_n(&v->stop, __ATOMIC_SEQ_CST)) {
		int err = gvm_run(v->v);

		if (err == -EINTR && kfs_kicked(v->v->run)) {
			v->kicked++;
			word_set(&v->seen, __atomic_load_n(&v->posted,
							   __ATOMIC_SEQ_CST));
		} else if (err == -EINTR) {
			v->stray++;
		} else if (err) {
			v->error = err;
			break;
		}
	}
	kfs_kick_leave(v->kick);
	return NULL;
}

static bool answered(struct vcpu *v, uint32_t event)
{
	return word_reached(&v->seen, event);
}

static uint32_t post(struct vcpu *v)
{
	return __atomic_add_fetch(&v->posted, 1, __ATOMIC_SEQ_CST);
}

static int stop(struct vcpu *v)
{
	__atomic_store_n(&v->stop, true, __ATOMIC_SEQ_CST);
	kfs_kick(v->kick);
	pthread_join(v->thread, NULL);
	return v->error;
}

TEST_F(kick_lib, one_by_one)
{
	struct vcpu *v = &self->vcpu[0];
	int i;

	ASSERT_EQ(0, pthread_create(&v->thread, NULL, vcpu_loop, v));
	for (i = 0; i < 2000; i++) {
		uint32_t event = post(v);

		ASSERT_LE(0, kfs_kick(v->kick));
		ASSERT_TRUE(answered(v, event));
	}
	EXPECT_EQ(2000, v->kicked);
	if (variant->module) {
		EXPECT_EQ(2000, kfs_kick_count(v->kick));
		EXPECT_EQ(0, kfs_kick_count(v->kick));
		EXPECT_GE(2, v->stray);
	} else {
		EXPECT_EQ(-EOPNOTSUPP, kfs_kick_count(v->kick));
	}
	EXPECT_EQ(0, stop(v));
}

/* Nobody runs it yet: the kick waits for the first KVM_RUN. */
TEST_F(kick_lib, before_the_thread)
{
	struct vcpu *v = &self->vcpu[0];
	uint32_t event = post(v);

	EXPECT_EQ(0, kfs_kick(v->kick));
	EXPECT_EQ(0, kfs_kick(v->kick));
	ASSERT_EQ(0, pthread_create(&v->thread, NULL, vcpu_loop, v));
	EXPECT_TRUE(answered(v, event));
	EXPECT_EQ(0, stop(v));
	EXPECT_LE(1, v->kicked);
}

TEST_F(kick_lib, all)
{
	uint32_t event[VCPUS];
	int round, i;

	for (i = 0; i < VCPUS; i++) {
		ASSERT_EQ(0, pthread_create(&self->vcpu[i].thread, NULL,
					    vcpu_loop, &self->vcpu[i]));
	}
	for (round = 0; round < 200; round++) {
		for (i = 0; i < VCPUS; i++)
			event[i] = post(&self->vcpu[i]);
		ASSERT_LE(0, kfs_kick_all(self->vm_kick, self->kick, VCPUS));
		for (i = 0; i < VCPUS; i++) {
			ASSERT_TRUE(answered(&self->vcpu[i], event[i]));
		}
	}
	for (i = 0; i < VCPUS; i++) {
		EXPECT_EQ(0, stop(&self->vcpu[i]));
	}
}

static struct kfs_kicker *handler_kick;

static void kicking_handler(int sig)
{
	(void)sig;
	kfs_kick(handler_kick);
}

TEST_F(kick_lib, from_a_handler)
{
	struct sigaction sa = { .sa_handler = kicking_handler };
	struct vcpu *v = &self->vcpu[0];
	uint32_t event;

	handler_kick = v->kick;
	sigaction(SIGUSR2, &sa, NULL);
	ASSERT_EQ(0, pthread_create(&v->thread, NULL, vcpu_loop, v));
	ASSERT_TRUE(wait_u32(&v->g->turns, 1000));
	event = post(v);
	errno = 4711;
	raise(SIGUSR2);
	EXPECT_EQ(4711, errno);
	EXPECT_TRUE(answered(v, event));
	EXPECT_EQ(0, stop(v));
}

/* kfs_kicked() takes a kick once, and knows when there is none. */
TEST_F(kick_lib, kicked)
{
	struct kvm_run *run = self->vcpu[0].v->run;

	EXPECT_EQ(0, kfs_kicked(run));
	EXPECT_EQ(0, kfs_kick(self->vcpu[0].kick));
	EXPECT_EQ(-EINTR, gvm_run(self->vcpu[0].v));
	EXPECT_EQ(1, kfs_kicked(run));
	EXPECT_EQ(0, run->immediate_exit);
	EXPECT_EQ(0, kfs_kicked(run));
}

TEST_F(kick_lib, errors)
{
	struct kfs_kicker k;

	/* Without the device and without a signal there is no way. */
	EXPECT_EQ(-ENOENT, kfs_kick_open(&k, -ENOENT, 0, NULL, 0));
	if (!variant->module)
		return;
	/* A mistake is told, not papered over with signals. */
	EXPECT_EQ(-EINVAL, kfs_kick_open(&k, self->dev, self->vm.vm_fd,
					 self->vcpu[0].v->run, SIGUSR1));
	EXPECT_EQ(-EBADF, kfs_kick_open(&k, self->dev, 12345,
					self->vcpu[0].v->run, SIGUSR1));
	EXPECT_EQ(-EINVAL, kfs_kick_open_vm(self->dev, self->vcpu[0].v->fd));
}

static void own_handler(int sig)
{
	(void)sig;
}

TEST_F(kick_lib, own_handler_stays)
{
	struct sigaction sa = { .sa_handler = own_handler };
	struct vcpu *v = &self->vcpu[0];
	struct kfs_kicker k;

	sigaction(SIGUSR2, &sa, NULL);
	ASSERT_LE(0, kfs_kick_open(&k, self->dev, v->v->fd, v->v->run, SIGUSR2));
	sigaction(SIGUSR2, NULL, &sa);
	EXPECT_TRUE(sa.sa_handler == own_handler);
	kfs_kick_close(&k);
}

TEST_HARNESS_MAIN
