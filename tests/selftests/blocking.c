// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Guest calls that wait: signals end them without losing anything, sleeps keep
 * their deadline, nothing else of the VM waits with them.
 */
#include <poll.h>
#include <time.h>
#include <linux/futex.h>
#include <sys/epoll.h>

#include "kfstest.h"
#include "kselftest_harness.h"

/* Runs the vCPU once in a thread of its own; run == 1 while in KVM_RUN. */
struct runner {
	struct tvm *t;
	pthread_t thread;
	int err;
	uint64_t started, ended;
	int done;
};

static void *runner_main(void *arg)
{
	struct runner *r = arg;

	r->started = now_ns();
	r->err = gvm_run(r->t->vcpu);
	r->ended = now_ns();
	__atomic_store_n(&r->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

static int runner_start(struct runner *r, struct tvm *t)
{
	*r = (struct runner){ .t = t };
	return pthread_create(&r->thread, NULL, runner_main, r);
}

/* 0 when it came back in time, else -ETIMEDOUT with the thread still there. */
static int runner_join(struct runner *r, unsigned int seconds)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += seconds;
	return -pthread_timedjoin_np(r->thread, NULL, &ts);
}

static int signal_runner(struct runner *r)
{
	int err = pthread_kill(r->thread, SIGUSR1);

	return err ? -err : runner_join(r, 10);
}

FIXTURE(blocking) {
	struct tvm t;
	int pipe[2];
};

FIXTURE_VARIANT(blocking) {
	uint32_t flags;
};

FIXTURE_VARIANT_ADD(blocking, restart) {
	.flags = 0,
};

FIXTURE_VARIANT_ADD(blocking, eintr) {
	.flags = KFS_EINTR,
};

FIXTURE_SETUP(blocking)
{
	REQUIRE_MODULE();
	catch_signal(SIGUSR1);
	ASSERT_EQ(0, pipe(self->pipe));
	ASSERT_EQ(0, tvm_create(&self->t, variant->flags, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
}

FIXTURE_TEARDOWN(blocking)
{
	tvm_destroy(&self->t);
}

#define PREPARE(nr, ...) do {						\
	const uint64_t args_[6] = { __VA_ARGS__ };			\
	ASSERT_EQ(0, tvm_prepare(&self->t, nr, args_));			\
} while (0)

/* The call blocks, a signal comes, KVM_RUN gives EINTR. */
#define INTERRUPT_ONCE(r) do {						\
	ASSERT_EQ(0, runner_start(&(r), &self->t));			\
	ASSERT_TRUE(wait_in_call(self->t.ctl, 1));			\
	ASSERT_EQ(0, signal_runner(&(r)));				\
	EXPECT_EQ(-EINTR, (r).err);					\
} while (0)

TEST_F(blocking, read_goes_on_after_a_signal)
{
	struct kfs_vm_stats st;
	struct kvm_regs before, after;
	struct runner r;
	char buf[16] = "";
	int64_t ret = 0;
	int i;

	PREPARE(SYS_read, self->pipe[0], U(buf), sizeof(buf));
	for (i = 1; i <= 5; i++) {
		INTERRUPT_ONCE(r);
		ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
		EXPECT_EQ(i, st.interrupted);
		EXPECT_EQ(0, st.in_call);
		EXPECT_EQ(0, self->t.list->done);
		ASSERT_EQ(0, ioctl(self->t.vcpu->fd, KVM_GET_REGS, &after));
		if (variant->flags & KFS_EINTR) {
			/* Told, not repeated: one is enough. */
			EXPECT_EQ(0, st.ran);
			EXPECT_EQ((uint64_t)-EINTR, after.rax);
			ASSERT_EQ(0, tvm_run(&self->t, &ret));
			EXPECT_EQ(-EINTR, ret);
			return;
		}
		EXPECT_EQ(KFS_HC_SYSCALL, after.rax);
		if (i > 1) {
			EXPECT_EQ(0, memcmp(&before, &after, sizeof(after)));
		}
		before = after;
	}
	ASSERT_EQ(5, write(self->pipe[1], "hello", 5));
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	EXPECT_EQ(5, ret);
	EXPECT_EQ(0, memcmp(buf, "hello", 5));
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(1, st.ran);
}

/* A write that had moved part of its data says so: no byte twice. */
TEST_F(blocking, partial_write_is_delivered)
{
	static char data[1 << 20], back[1 << 20];
	struct kfs_vm_stats st;
	struct runner r;
	int64_t ret = 0;
	int size;

	size = fcntl(self->pipe[1], F_GETPIPE_SZ);
	ASSERT_LT(0, size);
	memset(data, 'a', sizeof(data));
	PREPARE(SYS_write, self->pipe[1], U(data), sizeof(data));
	INTERRUPT_ONCE(r);
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	EXPECT_EQ(size, ret);
	close(self->pipe[1]);
	EXPECT_EQ(size, read(self->pipe[0], back, sizeof(back)));
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(1, st.ran);
}

/* ---- Sleeps keep their deadline ------------------------------------------------- */
#define SLEEP_NS	SECONDS(2)

static void sleep_until(uint64_t when)
{
	struct timespec ts = { when / 1000000000, when % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

enum { INTERRUPTIONS = 2 };

struct sleep_case {
	const char *name;
	long nr;
	int64_t result;
};

static const struct sleep_case sleep_cases[] = {
	{ "nanosleep", SYS_nanosleep, 0 },
	{ "clock_nanosleep", SYS_clock_nanosleep, 0 },
	{ "futex", SYS_futex, -ETIMEDOUT },
	{ "poll", SYS_poll, 0 },
};

TEST_F(blocking, sleeps_keep_their_deadline)
{
	static uint32_t word = 7;
	unsigned int i, j;

	for (i = 0; i < sizeof(sleep_cases) / sizeof(sleep_cases[0]); i++) {
		const struct sleep_case *sc = &sleep_cases[i];
		struct timespec ts = { SLEEP_NS / SECONDS(1), 0 };
		struct kfs_vm_stats before, after;
		uint64_t start, last, end;
		struct runner r;
		int64_t ret = 1;

		switch (sc->nr) {
		case SYS_nanosleep:
			PREPARE(SYS_nanosleep, U(&ts), 0);
			break;
		case SYS_clock_nanosleep:
			PREPARE(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0,
				U(&ts), 0);
			break;
		case SYS_futex:
			PREPARE(SYS_futex, U(&word), FUTEX_WAIT, 7, U(&ts));
			break;
		default:
			PREPARE(SYS_poll, 0, 0, SLEEP_NS / 1000000);
		}
		ASSERT_EQ(0, kfs_stats(self->t.ctl, &before));
		start = now_ns();
		last = start;
		for (j = 1; j <= INTERRUPTIONS; j++) {
			ASSERT_EQ(0, runner_start(&r, &self->t));
			ASSERT_TRUE(wait_in_call(self->t.ctl, 1));
			sleep_until(start + SLEEP_NS * j / 4);
			ASSERT_EQ(0, signal_runner(&r));
			EXPECT_EQ(-EINTR, r.err) TH_LOG("%s", sc->name);
			last = r.ended;
			if (variant->flags & KFS_EINTR)
				break;
		}
		ASSERT_EQ(0, tvm_run(&self->t, &ret));
		end = now_ns();
		ASSERT_EQ(0, kfs_stats(self->t.ctl, &after));
		if (variant->flags & KFS_EINTR) {
			EXPECT_EQ(-EINTR, ret) TH_LOG("%s", sc->name);
			EXPECT_GT(start + SLEEP_NS, end);
			continue;
		}
		EXPECT_EQ(sc->result, ret) TH_LOG("%s", sc->name);
		/* Not early; and not begun anew at the last interruption. */
		EXPECT_LE(start + SLEEP_NS, end) TH_LOG("%s", sc->name);
		EXPECT_GT(last + SLEEP_NS, end) TH_LOG("%s", sc->name);
		EXPECT_EQ(INTERRUPTIONS, after.interrupted - before.interrupted)
			TH_LOG("%s", sc->name);
		EXPECT_EQ(INTERRUPTIONS, after.resumed - before.resumed)
			TH_LOG("%s", sc->name);
	}
}

/* A handler that sleeps itself does not take the guest's deadline away. */
static void sleeping_handler(int sig)
{
	struct timespec ts = { 0, 1000000 };

	nanosleep(&ts, NULL);
}

TEST_F(blocking, deadline_survives_a_sleeping_handler)
{
	struct sigaction sa = { .sa_handler = sleeping_handler };
	struct timespec ts = { SLEEP_NS / SECONDS(1), 0 };
	uint64_t start, last;
	struct runner r;
	int64_t ret;

	ASSERT_EQ(0, sigaction(SIGUSR1, &sa, NULL));
	PREPARE(SYS_nanosleep, U(&ts), 0);
	start = now_ns();
	ASSERT_EQ(0, runner_start(&r, &self->t));
	ASSERT_TRUE(wait_in_call(self->t.ctl, 1));
	sleep_until(start + SLEEP_NS / 2);
	ASSERT_EQ(0, signal_runner(&r));
	last = r.ended;
	/* On another thread than the one that was interrupted, too. */
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	if (variant->flags & KFS_EINTR) {
		EXPECT_EQ(-EINTR, ret);
		return;
	}
	EXPECT_EQ(0, ret);
	EXPECT_LE(start + SLEEP_NS, now_ns());
	EXPECT_GT(last + SLEEP_NS, now_ns());
}

/* The same sleep made a second time is a new one. */
TEST_F(blocking, finished_sleep_leaves_nothing)
{
	struct timespec ts = { 0, 300000000 };
	struct kfs_vm_stats st;
	uint64_t start;
	struct runner r;
	int64_t ret;
	int i;

	PREPARE(SYS_nanosleep, U(&ts), 0);
	INTERRUPT_ONCE(r);
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	for (i = 0; i < 3; i++) {
		start = now_ns();
		EXPECT_EQ(0, tvm_call(&self->t, SYS_nanosleep, U(&ts), 0, 0, 0,
				      0, 0));
		EXPECT_LE(start + 300000000, now_ns());
	}
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(!variant->flags, st.resumed);
}

/* ---- Others while one blocks ------------------------------------------------------ */
TEST_F(blocking, immediate_exit_and_signal)
{
	struct runner r;
	char buf[4];
	int64_t ret;

	PREPARE(SYS_read, self->pipe[0], U(buf), 1);
	ASSERT_EQ(1, write(self->pipe[1], "i", 1));
	/* Set before: nothing runs, not even a call that need not wait. */
	self->t.vcpu->run->immediate_exit = 1;
	EXPECT_EQ(-EINTR, gvm_run(self->t.vcpu));
	EXPECT_EQ(0, self->t.list->done);
	self->t.vcpu->run->immediate_exit = 0;
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	EXPECT_EQ(1, ret);
	/* Set while it blocks, and then a signal: ended, not run again. */
	PREPARE(SYS_read, self->pipe[0], U(buf), 1);
	ASSERT_EQ(0, runner_start(&r, &self->t));
	ASSERT_TRUE(wait_in_call(self->t.ctl, 1));
	self->t.vcpu->run->immediate_exit = 1;
	ASSERT_EQ(0, signal_runner(&r));
	EXPECT_EQ(-EINTR, r.err);
	self->t.vcpu->run->immediate_exit = 0;
	ASSERT_EQ(1, write(self->pipe[1], "j", 1));
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	EXPECT_EQ(variant->flags & KFS_EINTR ? -EINTR : 1, ret);
}

/*
 * As VMMs do it: the signal is blocked in the thread and open in KVM_RUN only,
 * so it stays pending until the VMM takes it.
 */
TEST_F(blocking, signal_open_in_kvm_run_only)
{
	struct {
		struct kvm_signal_mask head;
		uint64_t set;
	} mask = { .head = { .len = 8 }, .set = 0 };
	const struct timespec now = { 0, 0 };
	sigset_t usr1, old;
	struct runner r;
	char buf[4];
	int64_t ret;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	ASSERT_EQ(0, pthread_sigmask(SIG_BLOCK, &usr1, &old));
	ASSERT_EQ(0, ioctl(self->t.vcpu->fd, KVM_SET_SIGNAL_MASK, &mask));
	PREPARE(SYS_read, self->pipe[0], U(buf), 1);
	ASSERT_EQ(0, runner_start(&r, &self->t));
	ASSERT_TRUE(wait_in_call(self->t.ctl, 1));
	/* For the process: the only thread that has it open is in KVM_RUN. */
	ASSERT_EQ(0, kill(getpid(), SIGUSR1));
	ASSERT_EQ(0, runner_join(&r, 10));
	EXPECT_EQ(-EINTR, r.err);
	EXPECT_EQ(SIGUSR1, sigtimedwait(&usr1, NULL, &now));
	ASSERT_EQ(1, write(self->pipe[1], "m", 1));
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	EXPECT_EQ(variant->flags & KFS_EINTR ? -EINTR : 1, ret);
	/* The thread's own mask is what it was. */
	sigemptyset(&old);
	ASSERT_EQ(0, pthread_sigmask(SIG_BLOCK, NULL, &old));
	EXPECT_TRUE(sigismember(&old, SIGUSR1));
}

struct slot_adder {
	struct gvm *vm;
	void *memory;
	int err;
};

static void *add_slot(void *arg)
{
	struct slot_adder *a = arg;

	a->err = gvm_add_slot(a->vm, a->memory, 1 << 20, 0);
	return NULL;
}

TEST_F(blocking, memory_slot_added_meanwhile)
{
	struct slot_adder a = { .vm = &self->t.vm, .err = 1 };
	struct timespec ts;
	struct runner r;
	pthread_t thread;
	char buf[4];
	int late;

	a.memory = mmap((void *)0x30000000, 1 << 20, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			0);
	ASSERT_NE(MAP_FAILED, a.memory);
	PREPARE(SYS_read, self->pipe[0], U(buf), 1);
	ASSERT_EQ(0, runner_start(&r, &self->t));
	ASSERT_TRUE(wait_in_call(self->t.ctl, 1));

	ASSERT_EQ(0, pthread_create(&thread, NULL, add_slot, &a));
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 10;
	late = pthread_timedjoin_np(thread, NULL, &ts);
	EXPECT_EQ(0, late) TH_LOG("the slot waits for the guest's call");
	EXPECT_EQ(0, a.err);
	EXPECT_FALSE(__atomic_load_n(&r.done, __ATOMIC_ACQUIRE));

	ASSERT_EQ(1, write(self->pipe[1], "s", 1));
	ASSERT_EQ(0, runner_join(&r, 10));
	EXPECT_EQ(0, r.err);
	EXPECT_EQ(1, self->t.list->call[0].ret);
	EXPECT_EQ('s', buf[0]);
}

/* ---- SIGKILL ------------------------------------------------------------------------ */
static const long kill_calls[] = { SYS_read, SYS_nanosleep, SYS_futex,
				   SYS_poll, SYS_epoll_wait };

static void blocked_child(long nr, uint32_t flags, int report)
{
	static uint32_t word;
	struct timespec ts = { 1000, 0 };
	uint64_t args[6] = { 0 };
	struct tvm t;
	int p[2];
	char c;

	if (tvm_create(&t, flags, 0) || pipe(p))
		_exit(1);
	switch (nr) {
	case SYS_read:
		args[0] = p[0];
		args[1] = U(&c);
		args[2] = 1;
		break;
	case SYS_nanosleep:
		args[0] = U(&ts);
		break;
	case SYS_futex:
		args[0] = U(&word);
		break;
	case SYS_poll:
		args[2] = 1000000;
		break;
	default:
		args[0] = epoll_create1(0);
		args[1] = U(args);
		args[2] = 1;
		args[3] = 1000000;
	}
	/* The parent looks into the counters: the thread here is in KVM_RUN. */
	if (tvm_prepare(&t, nr, args) || write(report, &t.dev, 1) != 1)
		_exit(2);
	tvm_run(&t, NULL);
	_exit(3);
}

struct any_in_call {
	int dev;
	pid_t pid;
};

static bool child_in_call(void *arg)
{
	struct any_in_call *a = arg;
	struct kfs_vm_stats st = { .size = sizeof(st) };

	while (!ioctl(a->dev, KFS_VM_STATS, &st)) {
		if (st.pid == a->pid && st.in_call == 1)
			return true;
		st = (struct kfs_vm_stats){ .size = sizeof(st),
					    .id = st.id + 1 };
	}
	return false;
}

TEST_F(blocking, sigkill_ends_it_within_a_second)
{
	unsigned int i;

	for (i = 0; i < sizeof(kill_calls) / sizeof(kill_calls[0]); i++) {
		struct any_in_call a = { .dev = self->t.dev };
		int status, report[2];
		char c;

		ASSERT_EQ(0, pipe(report));
		a.pid = fork();
		ASSERT_LE(0, a.pid);
		if (!a.pid)
			blocked_child(kill_calls[i], variant->flags, report[1]);
		ASSERT_EQ(1, read(report[0], &c, 1));
		EXPECT_TRUE(wait_for(child_in_call, &a, SECONDS(10)));
		ASSERT_EQ(0, kill(a.pid, SIGKILL));
		status = wait_child(a.pid, SECONDS(1));
		EXPECT_TRUE(status >= 0 && WIFSIGNALED(status))
			TH_LOG("call %ld: status %d", kill_calls[i], status);
		close(report[0]);
		close(report[1]);
	}
}

TEST_HARNESS_MAIN
