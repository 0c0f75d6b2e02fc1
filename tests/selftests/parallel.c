// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Two vCPUs in two threads, each making calls whose results say who made them:
 * none lost, none crossed. 200,000 each on a machine of two CPUs, fewer where
 * they only take turns.
 */
#include "kfstest.h"
#include "kselftest_harness.h"

#define VCPUS	2
#define STEP	8		/* bytes of the file for each value */
#define FILE_VALUES	512	/* of each vCPU's part */

struct worker {
	struct gvm_vcpu *vcpu;
	pthread_t thread;
	int err;
	uint32_t result;
	/* Guest-visible: */
	uint64_t count;
	int64_t tid;
	int64_t pid;
	int fd;
	unsigned int id;
	uint64_t got;
	uint64_t calls;
	uint64_t bad;
	int64_t first_bad;
} __attribute__((aligned(128)));

/* Static, so that guests see them. */
static struct worker workers[VCPUS];
static pthread_barrier_t barrier;

static uint64_t value_at(unsigned int id, uint64_t i)
{
	return (id + 1) * 0x1000000ULL + i;
}

static void check(struct worker *w, bool good, int64_t ret)
{
	w->calls++;
	if (!good && !w->bad++)
		w->first_bad = ret;
}

static uint32_t guest_work(struct worker *w)
{
	uint64_t i, at;
	int64_t ret;

	while (w->calls < w->count) {
		ret = gvm_hypercall(KFS_HC_SYSCALL, SYS_gettid, 0, 0, 0, 0, 0,
				    0);
		check(w, ret == w->tid, ret);
		ret = gvm_hypercall(KFS_HC_SYSCALL, SYS_getpid, 0, 0, 0, 0, 0,
				    0);
		check(w, ret == w->pid, ret);

		i = w->calls % FILE_VALUES;
		at = (w->id * FILE_VALUES + i) * STEP;
		w->got = 0;
		ret = gvm_hypercall(KFS_HC_SYSCALL, SYS_pread64, w->fd,
				    (uintptr_t)&w->got, STEP, at, 0, 0);
		check(w, ret == STEP && w->got == value_at(w->id, i), ret);
		/* An errno that only this vCPU gets. */
		ret = gvm_hypercall(KFS_HC_SYSCALL, SYS_lseek,
				    w->id ? w->fd : 9999, 0, w->id ? 99 : 0, 0,
				    0, 0);
		check(w, ret == (w->id ? -EINVAL : -EBADF), ret);
	}
	return 0x600d;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	w->tid = syscall(SYS_gettid);
	w->err = gvm_set_entry(w->vcpu, guest_work, w, GVM_RING0);
	pthread_barrier_wait(&barrier);
	if (!w->err)
		w->err = gvm_run_to_done(w->vcpu, &w->result);
	return NULL;
}

FIXTURE(parallel) {
	struct tvm t;
	int fd;
};

FIXTURE_SETUP(parallel)
{
	unsigned int id;
	uint64_t i;

	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, 0, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	self->fd = open("/tmp/kfs-parallel", O_RDWR | O_CREAT | O_TRUNC, 0600);
	ASSERT_LE(0, self->fd);
	for (id = 0; id < VCPUS; id++)
		for (i = 0; i < FILE_VALUES; i++) {
			uint64_t v = value_at(id, i);

			ASSERT_EQ(sizeof(v), write(self->fd, &v, sizeof(v)));
		}
}

FIXTURE_TEARDOWN(parallel)
{
	tvm_destroy(&self->t);
	close(self->fd);
	unlink("/tmp/kfs-parallel");
}

TEST_F_TIMEOUT(parallel, no_result_lost_or_crossed, 240)
{
	uint64_t count = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 200000 : 20000;
	struct kfs_vm_stats st;
	unsigned int i;

	ASSERT_EQ(0, pthread_barrier_init(&barrier, NULL, VCPUS));
	for (i = 0; i < VCPUS; i++) {
		struct worker *w = &workers[i];

		*w = (struct worker){ .vcpu = self->t.vcpu, .count = count,
				      .pid = getpid(), .fd = self->fd,
				      .id = i };
		if (i) {
			ASSERT_EQ(0, gvm_vcpu_create(&self->t.vm, &w->vcpu))
				TH_LOG("%s", gvm_strerror(&self->t.vm));
		}
	}
	for (i = 0; i < VCPUS; i++) {
		ASSERT_EQ(0, pthread_create(&workers[i].thread, NULL,
					    worker_main, &workers[i]));
	}
	for (i = 0; i < VCPUS; i++) {
		struct worker *w = &workers[i];

		ASSERT_EQ(0, pthread_join(w->thread, NULL));
		EXPECT_EQ(0, w->err) TH_LOG("%s", gvm_strerror(&self->t.vm));
		EXPECT_EQ(0x600d, w->result);
		EXPECT_EQ(count, w->calls);
		EXPECT_EQ(0, w->bad)
			TH_LOG("vCPU %u: first wrong result %lld", i,
			       (long long)w->first_bad);
	}
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(VCPUS * count, st.ran);
	EXPECT_EQ(VCPUS, st.vcpus);
	EXPECT_EQ(0, declined_sum(&st) + st.denied);
	EXPECT_EQ(0, st.in_call);
	EXPECT_NE(workers[0].tid, workers[1].tid);
}

/* One vCPU waits in a call while the other goes on making its own. */
static uint32_t guest_read(struct tcall *c)
{
	c->ret = gvm_hypercall(KFS_HC_SYSCALL, SYS_read, c->args[0], c->args[1],
			       1, 0, 0, 0);
	return 0x600d;
}

static void *run_vcpu(void *arg)
{
	uint32_t value = 0;

	gvm_run_to_done(arg, &value);
	return (void *)(uintptr_t)value;
}

TEST_F(parallel, one_waits_the_other_goes_on)
{
	struct gvm_vcpu *waiting;
	struct kfs_vm_stats st;
	struct tcall *c;
	pthread_t thread;
	unsigned int i;
	void *value;
	char byte;
	int p[2];

	ASSERT_EQ(0, pipe(p));
	ASSERT_EQ(0, gvm_vcpu_create(&self->t.vm, &waiting))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	c = gvm_alloc(&self->t.vm, sizeof(*c), 64);
	c->args[0] = p[0];
	c->args[1] = U(&byte);
	ASSERT_EQ(0, gvm_set_entry(waiting, guest_read, c, GVM_RING0));
	ASSERT_EQ(0, pthread_create(&thread, NULL, run_vcpu, waiting));
	ASSERT_TRUE(wait_in_call(self->t.ctl, 1));
	for (i = 0; i < 1000; i++) {
		ASSERT_EQ(getpid(), tvm_call0(&self->t, SYS_getpid));
	}
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(1, st.in_call);
	/* The guest of one vCPU wakes the other's. */
	EXPECT_EQ(1, tvm_call(&self->t, SYS_write, p[1], U("w"), 1, 0, 0, 0));
	ASSERT_EQ(0, pthread_join(thread, &value));
	EXPECT_EQ((void *)0x600d, value);
	EXPECT_EQ(1, c->ret);
	EXPECT_EQ('w', byte);
}

TEST_HARNESS_MAIN
