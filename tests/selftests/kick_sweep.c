// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Phase sweeps: the vCPU's thread alternates between user space, KVM_RUN and
 * guest code, and the kick comes after 0, 1, 2 ... steps of that way. Each is
 * answered within a second, or the test names the phase in which one died.
 *
 * By timer: one step is one nanosecond, which with counting clocks is one
 * instruction; the kicker has the higher priority, so with preempt=full it
 * runs in the middle of the kernel. By delay loop and by tracepoint: two CPUs.
 */
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/timerfd.h>

#include "kicktest.h"
#include "kselftest_harness.h"

KEEP_TEXT_STILL()

FIXTURE(kick_sweep) {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	struct kguest *g;
	int dev, fd;
};

FIXTURE_SETUP(kick_sweep)
{
	struct gvm_opts opts = { .irqchip = true };

	REQUIRE_MODULE();
	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
	ASSERT_EQ(0, gvm_create(&self->vm, &opts));
	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &self->vcpu));
	self->g = gvm_alloc(&self->vm, sizeof(*self->g), 64);
	self->fd = kick_create(self->dev, self->vcpu->fd, 0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(kick_sweep)
{
	gvm_destroy(&self->vm);
	close(self->fd);
	close(self->dev);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static int pin_to_first_cpu(struct krun *k)
{
	(void)k;
	pin(0);
	return 0;
}

static uint64_t steps_asked(uint64_t dflt)
{
	const char *text = getenv("KFS_STEPS");

	return text ? strtoull(text, NULL, 0) : dflt;
}

/* ---- By timer ---------------------------------------------------------------- */
/*
 * The vCPU's thread arms the timer when it has taken a kick, and the next kick
 * comes `delay` later: step 0 is always the same place of its way.
 */
struct timed {
	int timer;
	uint64_t delay;
};

static void arm(struct krun *k)
{
	struct timed *t = k->data;
	uint64_t delay = __atomic_load_n(&t->delay, __ATOMIC_SEQ_CST);
	struct itimerspec when = {
		.it_value = { delay / 1000000000, delay % 1000000000 },
	};

	if (timerfd_settime(t->timer, 0, &when, NULL))
		abort();
}

static int arm_first(struct krun *k)
{
	arm(k);
	return 0;
}

static void sweep_by_timer(struct __test_metadata *_metadata,
			   FIXTURE_DATA(kick_sweep) *self, void *guest,
			   uint64_t steps)
{
	struct sched_param high = { .sched_priority = 10 };
	struct timed t = { .delay = 1 };
	struct krun k = {
		.setup = arm_first, .acked = arm, .data = &t,
		.wake_halted = true,
	};
	uint64_t step, expired;

	t.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	ASSERT_LE(0, t.timer);
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest, self->g, GVM_RING0));
	ASSERT_EQ(0, krun_start(&k, self->vcpu));
	/* The vCPU's thread keeps the priority it was made with. */
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_FIFO, &high));
	for (step = 1; step <= steps; step++) {
		uint32_t event;

		ASSERT_EQ(8, read(t.timer, &expired, 8));
		__atomic_store_n(&t.delay, step, __ATOMIC_SEQ_CST);
		event = krun_post(&k);
		ASSERT_LE(0, kick_fd(self->fd));
		ASSERT_TRUE(krun_answered(&k, event)) {
			TH_LOG("died at step %llu: %s",
			       (unsigned long long)step - 1,
			       krun_describe(&k));
		}
	}
	EXPECT_EQ(steps, k.kicked);
	EXPECT_GE(steps / 1000 + 1, k.stray);
	TH_LOG("%llu steps, %llu exits, %llu stray EINTR",
	       (unsigned long long)steps, (unsigned long long)k.exits,
	       (unsigned long long)k.stray);
	EXPECT_EQ(0, krun_stop(&k, self->fd));
	close(t.timer);
}

TEST_F_TIMEOUT(kick_sweep, by_timer_exits, 240)
{
	sweep_by_timer(_metadata, self, guest_exits, steps_asked(12000));
}

TEST_F_TIMEOUT(kick_sweep, by_timer_halts, 240)
{
	sweep_by_timer(_metadata, self, guest_halt, steps_asked(12000));
}

TEST_F_TIMEOUT(kick_sweep, by_timer_spins, 240)
{
	sweep_by_timer(_metadata, self, guest_spin, steps_asked(12000));
}

/* ---- By delay loop ------------------------------------------------------------ */
static void delay_loop(uint64_t n)
{
	while (n--)
		__asm__ volatile("" : : : "memory");
}

/* Kicks `step` turns after the thread was seen to enter or leave KVM_RUN. */
static void sweep_by_loop(struct __test_metadata *_metadata,
			  FIXTURE_DATA(kick_sweep) *self, void *guest,
			  enum kphase phase)
{
	struct krun k = { .wake_halted = true };
	uint64_t step, steps = steps_asked(4000);

	if (online_cpus() < 2)
		SKIP(return, "needs two CPUs: the parallel machine");
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest, self->g, GVM_RING0));
	ASSERT_EQ(0, krun_start(&k, self->vcpu));
	for (step = 0; step < steps; step++) {
		uint64_t spins = 1000000;
		uint32_t event = krun_post(&k);

		while (__atomic_load_n(&k.phase, __ATOMIC_ACQUIRE) != phase &&
		       spins--)
			;
		delay_loop(step % 1000);
		ASSERT_LE(0, kick_fd(self->fd));
		ASSERT_TRUE(krun_answered(&k, event)) {
			TH_LOG("died at step %llu: %s",
			       (unsigned long long)step, krun_describe(&k));
		}
	}
	EXPECT_GE(steps / 1000 + 1, k.stray);
	EXPECT_EQ(0, krun_stop(&k, self->fd));
}

TEST_F_TIMEOUT(kick_sweep, by_loop_entering, 120)
{
	sweep_by_loop(_metadata, self, guest_exits, PH_ENTER);
}

TEST_F_TIMEOUT(kick_sweep, by_loop_leaving, 120)
{
	sweep_by_loop(_metadata, self, guest_exits, PH_BACK);
}

TEST_F_TIMEOUT(kick_sweep, by_loop_halting, 120)
{
	sweep_by_loop(_metadata, self, guest_halt, PH_ENTER);
}

/* ---- By tracepoint ------------------------------------------------------------- */
static int tracepoint_id(const char *name)
{
	static const char *const dirs[] = {
		"/sys/kernel/tracing", "/sys/kernel/debug/tracing",
	};
	char path[128];
	int id = -1;
	size_t i;

	for (i = 0; i < 2 && id < 0; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/events/kvm/%s/id", dirs[i],
			 name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fscanf(f, "%d", &id) != 1)
			id = -1;
		fclose(f);
	}
	return id;
}

/*
 * The tracepoint's ring is watched from the other CPU: the kick comes `step`
 * turns after the vCPU's thread passed that line of the kernel.
 */
static void sweep_by_tracepoint(struct __test_metadata *_metadata,
				FIXTURE_DATA(kick_sweep) *self,
				const char *name, void *guest)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr),
		.sample_period = 1, .wakeup_events = 1 << 30,
	};
	struct krun k = { .wake_halted = true };
	uint64_t step, steps = steps_asked(3000), hits = 0;
	struct perf_event_mmap_page *page;
	int perf, id;

	mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	id = tracepoint_id(name);
	if (id < 0)
		SKIP(return, "no tracepoint kvm:%s here", name);
	attr.config = id;
	if (online_cpus() < 2)
		SKIP(return, "needs two CPUs: the parallel machine");
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest, self->g, GVM_RING0));
	/* Opened before there is a thread: it patches kernel text. */
	perf = syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0);
	if (perf < 0)
		SKIP(return, "no perf events here: %s", strerror(errno));
	page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, perf, 0);
	ASSERT_NE(MAP_FAILED, page);
	k.setup = pin_to_first_cpu;
	ASSERT_EQ(0, krun_start(&k, self->vcpu));
	pin(1);
	for (step = 0; step < steps; step++) {
		/* Before the event it may be past that line again, or halted. */
		uint64_t head = __atomic_load_n(&page->data_head,
						__ATOMIC_ACQUIRE);
		uint32_t event = krun_post(&k);
		uint64_t spins = 100000;

		__atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
		while (__atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE) ==
		       head && --spins)
			;
		hits += !!spins;
		delay_loop(step % 1000);
		ASSERT_LE(0, kick_fd(self->fd));
		ASSERT_TRUE(krun_answered(&k, event)) {
			TH_LOG("died %llu after kvm:%s: %s",
			       (unsigned long long)step % 1000, name,
			       krun_describe(&k));
		}
	}
	/* Else the sweep was no sweep; a busy host costs many. */
	/* How often is the host's clock's doing; never would be no sweep. */
	EXPECT_LT(0, hits);
	EXPECT_GE(steps / 1000 + 1, k.stray);
	EXPECT_EQ(0, krun_stop(&k, self->fd));
	close(perf);
}

TEST_F_TIMEOUT(kick_sweep, after_kvm_entry, 120)
{
	sweep_by_tracepoint(_metadata, self, "kvm_entry", guest_exits);
}

TEST_F_TIMEOUT(kick_sweep, after_kvm_exit, 120)
{
	sweep_by_tracepoint(_metadata, self, "kvm_exit", guest_exits);
}

TEST_F_TIMEOUT(kick_sweep, after_kvm_userspace_exit, 120)
{
	sweep_by_tracepoint(_metadata, self, "kvm_userspace_exit", guest_exits);
}

TEST_F_TIMEOUT(kick_sweep, after_kvm_exit_to_halt, 120)
{
	sweep_by_tracepoint(_metadata, self, "kvm_exit", guest_halt);
}

TEST_HARNESS_MAIN
