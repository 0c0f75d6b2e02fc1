// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Many kicks of a vCPU that runs, halts and exits in turn: KFS_KICKS by fd
 * (20,000; make stress: 1,000,000), a quarter of that by ioctl and by two
 * kickers at once. Each is answered within a second, or the test says where
 * the thread was.
 */
#include <sched.h>

#include "kicktest.h"
#include "kselftest_harness.h"

KEEP_TEXT_STILL()

#define KICKERS	2

FIXTURE(kick_stress) {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	struct kguest *g;
	struct krun run;
	int dev, fd;
};

FIXTURE_SETUP(kick_stress)
{
	struct gvm_opts opts = { .irqchip = true };

	REQUIRE_MODULE();
	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
	ASSERT_EQ(0, gvm_create(&self->vm, &opts));
	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &self->vcpu));
	self->g = gvm_alloc(&self->vm, sizeof(*self->g), 64);
	self->g->spin = 300;
	self->fd = kick_create(self->dev, self->vcpu->fd, 0);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, kick_live(self->dev));
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_mixed, self->g, GVM_RING0));
	self->run.wake_halted = true;
}

FIXTURE_TEARDOWN(kick_stress)
{
	gvm_destroy(&self->vm);
	close(self->fd);
	close(self->dev);
}

static uint64_t kicks_asked(void)
{
	const char *text = getenv("KFS_KICKS");

	return text ? strtoull(text, NULL, 0) : 20000;
}

struct kicker {
	FIXTURE_DATA(kick_stress) *self;
	bool by_ioctl;
	uint64_t kicks, done;
	uint32_t seed;
	bool lost;
};

/* xorshift: distances from each other of every order of magnitude. */
static uint32_t next(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	*seed ^= *seed << 5;
	return *seed;
}

static void *kicker(void *arg)
{
	struct kicker *k = arg;

	for (k->done = 0; k->done < k->kicks; k->done++) {
		uint32_t n = next(&k->seed) & ((1U << next(&k->seed) % 17) - 1);
		uint32_t event;

		while (n--)
			__asm__ volatile("" : : : "memory");
		event = krun_post(&k->self->run);
		if (k->by_ioctl)
			user_exit(k->self->vcpu->fd, 0);
		else
			kick_write(k->self->fd, 1);
		if (!krun_answered(&k->self->run, event)) {
			k->lost = true;
			break;
		}
	}
	return NULL;
}

static void stress(struct __test_metadata *_metadata,
		   FIXTURE_DATA(kick_stress) *self, int kickers, bool by_ioctl,
		   uint64_t kicks)
{
	struct kicker k[KICKERS];
	pthread_t thread[KICKERS];
	uint64_t start = now_ns(), sum = 0;
	int i;

	ASSERT_EQ(0, krun_start(&self->run, self->vcpu));
	for (i = 0; i < kickers; i++) {
		k[i] = (struct kicker){
			.self = self, .by_ioctl = by_ioctl ^ (i & 1),
			.kicks = kicks / kickers, .seed = 4711 + i,
		};
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, kicker, &k[i]));
	}
	for (i = 0; i < kickers; i++) {
		pthread_join(thread[i], NULL);
		sum += k[i].done;
		EXPECT_FALSE(k[i].lost) {
			TH_LOG("kick %llu of kicker %d got lost: %s",
			       (unsigned long long)k[i].done, i,
			       krun_describe(&self->run));
		}
	}
	if (kickers == 1)
		EXPECT_EQ(sum, self->run.kicked);
	EXPECT_LT(self->run.stray, sum / 1000 + 1);
	EXPECT_LT(0, self->run.exits);
	TH_LOG("%llu kicks, %llu taken, %llu stray EINTR, %llu exits, %u halts, %llu ms",
	       (unsigned long long)sum, (unsigned long long)self->run.kicked,
	       (unsigned long long)self->run.stray,
	       (unsigned long long)self->run.exits, self->g->halts,
	       (unsigned long long)(now_ns() - start) / 1000000);
	EXPECT_EQ(0, krun_stop(&self->run, self->fd));
}

TEST_F_TIMEOUT(kick_stress, by_fd, 1500)
{
	stress(_metadata, self, 1, false, kicks_asked());
}

TEST_F_TIMEOUT(kick_stress, by_ioctl, 1500)
{
	stress(_metadata, self, 1, true, kicks_asked() / 4);
}

TEST_F_TIMEOUT(kick_stress, by_both_at_once, 1500)
{
	stress(_metadata, self, 2, false, kicks_asked() / 4);
}

TEST_HARNESS_MAIN
