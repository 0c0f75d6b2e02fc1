// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Threads that somebody watches: every guest call is declined, deferred ones
 * carry the right number and arguments to the VMM, and its own call is what
 * the watcher sees. When nobody watches any more, calls run again.
 */
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <linux/ptrace.h>

#include "kfstest.h"
#include "kselftest_harness.h"

#define TRACEFS		"/sys/kernel/tracing"
#define DEBUGFS_TRACING	"/sys/kernel/debug/tracing"

static const uint64_t some_args[6] = {
	0x1111222233334444ULL, 0x8000000000000001ULL, 3, ~0ULL, 0xabcdef, 42,
};

FIXTURE(observers) {
	struct tvm t;
};

FIXTURE_VARIANT(observers) {
	uint32_t flags;
};

FIXTURE_VARIANT_ADD(observers, defer) {
	.flags = KFS_DEFER_EXIT,
};

FIXTURE_VARIANT_ADD(observers, refuse) {
	.flags = 0,
};

FIXTURE_SETUP(observers)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, variant->flags, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
}

FIXTURE_TEARDOWN(observers)
{
	tvm_destroy(&self->t);
}

/*
 * One watched getppid with arguments nobody needs. Written as a macro so that
 * the harness names the line.
 */
#define EXPECT_WATCHED(serve_it) do {					\
	struct kfs_vm_stats before_, after_;				\
	int64_t want_ = -KFS_ENOSYS;					\
	char why_[128] = "";						\
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &before_));			\
	self->t.deferred = 0;						\
	self->t.serve = serve_it;					\
	if (variant->flags && (serve_it))				\
		want_ = getppid();					\
	EXPECT_EQ(want_, tvm_call(&self->t, SYS_getppid, some_args[0],	\
				  some_args[1], some_args[2],		\
				  some_args[3], some_args[4],		\
				  some_args[5]))			\
		TH_LOG("%s", gvm_strerror(&self->t.vm));		\
	EXPECT_EQ(!!variant->flags, self->t.deferred);			\
	if (variant->flags) {						\
		EXPECT_EQ(KFS_EXIT_NR(SYS_getppid), self->t.defer_nr);	\
		EXPECT_EQ(0, memcmp(some_args, self->t.defer_args,	\
				    sizeof(some_args)));		\
	}								\
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &after_));			\
	EXPECT_TRUE(declined_only(&before_, &after_,			\
				  KFS_REASON_OBSERVER, 1, why_,		\
				  sizeof(why_)))			\
		TH_LOG("%s", why_);					\
	EXPECT_EQ(before_.deferred + !!variant->flags, after_.deferred);	\
	EXPECT_EQ(before_.refused + !variant->flags, after_.refused);	\
} while (0)

#define EXPECT_RUNS() do {						\
	struct kfs_vm_stats before_, after_;				\
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &before_));			\
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));		\
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &after_));			\
	EXPECT_EQ(before_.ran + 1, after_.ran);				\
} while (0)

TEST_F(observers, nobody)
{
	EXPECT_RUNS();
}

/* A filter that allows everything is a filter all the same, for now. */
TEST_F(observers, seccomp_filter)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { 1, &allow };

	EXPECT_RUNS();
	ASSERT_EQ(0, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	ASSERT_EQ(0, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
	EXPECT_WATCHED(true);
	EXPECT_WATCHED(false);
}

/* The VMM's own call meets its filter: the deferred one is refused there. */
TEST_F(observers, seccomp_denies)
{
	struct sock_filter deny[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENETUNREACH),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EHOSTDOWN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { 6, deny };

	ASSERT_EQ(0, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	ASSERT_EQ(0, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
	self->t.serve = true;
	EXPECT_EQ(variant->flags ? -EHOSTDOWN : -KFS_ENOSYS,
		  tvm_call0(&self->t, SYS_gettid));
	EXPECT_EQ(variant->flags ? -ENETUNREACH : -KFS_ENOSYS,
		  tvm_call0(&self->t, SYS_getsid));
}

TEST_F(observers, user_dispatch)
{
	static char selector;	/* 0: SYSCALL_DISPATCH_FILTER_ALLOW */

	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0UL, 0UL,
		  &selector))
		SKIP(return, "no system call user dispatch: %s",
		     strerror(errno));
	EXPECT_WATCHED(true);
	ASSERT_EQ(0, prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF,
			   0UL, 0UL, 0UL));
	EXPECT_RUNS();
}

/* ---- Tracepoints -------------------------------------------------------------- */
static int set_tracepoint(bool on)
{
	static const char *const place[] = {
		TRACEFS "/events/raw_syscalls/sys_enter/enable",
		DEBUGFS_TRACING "/events/raw_syscalls/sys_enter/enable",
	};
	unsigned int i;

	for (i = 0; i < 2; i++) {
		int fd = open(place[i], O_WRONLY | O_CLOEXEC);
		ssize_t n;

		if (fd < 0)
			continue;
		n = write(fd, on ? "1" : "0", 1);
		close(fd);
		return n == 1 ? 0 : -EIO;
	}
	return -ENOENT;
}

TEST_F(observers, syscall_tracepoints)
{
	int err;

	EXPECT_RUNS();
	err = set_tracepoint(true);
	if (err == -ENOENT)
		SKIP(return, "no tracefs at " TRACEFS ": mount it first");
	ASSERT_EQ(0, err);
	EXPECT_WATCHED(true);
	EXPECT_WATCHED(false);
	ASSERT_EQ(0, set_tracepoint(false));
	EXPECT_RUNS();
}

/* ---- ptrace ---------------------------------------------------------------------- */
struct tracer {
	int ready;		/* every system call of the tracee stops now */
	int release;		/* tracee asks: let go */
	int gone;		/* detached */
	uint64_t seen;		/* getppid entries with some_args[0] */
};

static void tracer_loop(struct tracer *tr, pid_t tracee)
{
	struct ptrace_syscall_info info;
	int status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ptrace(PTRACE_SEIZE, tracee, 0, PTRACE_O_TRACESYSGOOD) ||
	    ptrace(PTRACE_INTERRUPT, tracee, 0, 0))
		_exit(1);
	for (;;) {
		int sig;

		if (waitpid(tracee, &status, __WALL) != tracee ||
		    !WIFSTOPPED(status))
			_exit(2);
		sig = WSTOPSIG(status);
		if (sig == (SIGTRAP | 0x80)) {
			sig = 0;
			if (ptrace(PTRACE_GET_SYSCALL_INFO, tracee,
				   sizeof(info), &info) > 0 &&
			    info.op == PTRACE_SYSCALL_INFO_ENTRY &&
			    info.entry.nr == SYS_getppid &&
			    info.entry.args[0] == some_args[0])
				tr->seen++;
		} else if (status >> 16) {
			sig = 0;	/* the stop of PTRACE_INTERRUPT */
		}
		if (__atomic_load_n(&tr->release, __ATOMIC_ACQUIRE))
			break;
		if (ptrace(PTRACE_SYSCALL, tracee, 0, sig))
			_exit(3);
		__atomic_store_n(&tr->ready, 1, __ATOMIC_RELEASE);
	}
	if (ptrace(PTRACE_DETACH, tracee, 0, 0))
		_exit(4);
	__atomic_store_n(&tr->gone, 1, __ATOMIC_RELEASE);
	_exit(0);
}

static bool is_set(void *arg)
{
	return __atomic_load_n((int *)arg, __ATOMIC_ACQUIRE);
}

TEST_F(observers, ptrace)
{
	struct tracer *tr = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t me = getpid(), pid;

	ASSERT_NE(MAP_FAILED, tr);
	EXPECT_RUNS();
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		tracer_loop(tr, me);
	ASSERT_TRUE(wait_for(is_set, &tr->ready, SECONDS(10)));
	EXPECT_WATCHED(true);
	EXPECT_EQ(!!variant->flags, tr->seen);
	EXPECT_WATCHED(true);
	EXPECT_EQ(2 * !!variant->flags, tr->seen);
	EXPECT_WATCHED(false);

	__atomic_store_n(&tr->release, 1, __ATOMIC_RELEASE);
	ASSERT_TRUE(wait_for(is_set, &tr->gone, SECONDS(10)));
	ASSERT_EQ(0, wait_child(pid, SECONDS(10)));
	EXPECT_RUNS();
}

/* ---- Completing what was deferred -------------------------------------------------- */
FIXTURE(completion) {
	struct tvm t;
};

FIXTURE_SETUP(completion)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, KFS_DEFER_EXIT, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
}

FIXTURE_TEARDOWN(completion)
{
	tvm_destroy(&self->t);
}

/* Up to the exit of a call that no table lists. */
static int run_to_deferral(struct tvm *t)
{
	int err = tvm_prepare(t, SYS_getsid, some_args);

	if (!err)
		err = gvm_run(t->vcpu);
	if (err)
		return err;
	return gvm_event(t->vcpu, NULL) == GVM_HYPERCALL ? 0 : -EPROTO;
}

static const int64_t results[] = { 0, 1, -1, -4095, -KFS_ENOSYS, INT64_MAX,
				   INT64_MIN + 1, 0x1234567890abcdefLL };

TEST_F(completion, any_result)
{
	unsigned int i;
	int64_t ret;

	for (i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		ASSERT_EQ(0, run_to_deferral(&self->t))
			TH_LOG("%s", gvm_describe(self->t.vcpu));
		EXPECT_EQ((uint64_t)-KFS_ENOSYS,
			  self->t.vcpu->run->hypercall.ret);
		self->t.vcpu->run->hypercall.ret = results[i];
		ASSERT_EQ(0, tvm_run(&self->t, &ret));
		EXPECT_EQ(results[i], ret);
	}
}

/* RAX and RIP are done, nothing of the guest has run. */
TEST_F(completion, with_immediate_exit)
{
	struct kvm_regs before, after;
	struct kfs_vm_stats st;
	int64_t ret;

	ASSERT_EQ(0, run_to_deferral(&self->t))
		TH_LOG("%s", gvm_describe(self->t.vcpu));
	ASSERT_EQ(0, ioctl(self->t.vcpu->fd, KVM_GET_REGS, &before));
	self->t.vcpu->run->hypercall.ret = 0x5a5a5a5a5aULL;
	self->t.vcpu->run->immediate_exit = 1;
	EXPECT_EQ(-EINTR, gvm_run(self->t.vcpu));
	ASSERT_EQ(0, ioctl(self->t.vcpu->fd, KVM_GET_REGS, &after));
	EXPECT_EQ(before.rip + 3, after.rip);
	EXPECT_EQ(0x5a5a5a5a5aULL, after.rax);
	after.rip = before.rip;
	after.rax = before.rax;
	EXPECT_EQ(0, memcmp(&before, &after, sizeof(after)));
	/* Again: nothing is left to complete. */
	EXPECT_EQ(-EINTR, gvm_run(self->t.vcpu));
	ASSERT_EQ(0, ioctl(self->t.vcpu->fd, KVM_GET_REGS, &after));
	EXPECT_EQ(before.rip + 3, after.rip);

	self->t.vcpu->run->immediate_exit = 0;
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	EXPECT_EQ(0x5a5a5a5a5aLL, ret);
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(1, st.deferred);
	EXPECT_EQ(0, st.ran);
}

/* A VMM that reads and writes registers between exit and re-entry. */
TEST_F(completion, with_register_ioctls)
{
	struct kvm_regs regs;
	int64_t ret;

	ASSERT_EQ(0, run_to_deferral(&self->t));
	ASSERT_EQ(0, ioctl(self->t.vcpu->fd, KVM_GET_REGS, &regs));
	EXPECT_EQ(KFS_HC_SYSCALL, regs.rax);
	EXPECT_EQ(SYS_getsid, regs.rbx);
	EXPECT_EQ(some_args[0], regs.rdi);
	ASSERT_EQ(0, ioctl(self->t.vcpu->fd, KVM_SET_REGS, &regs));
	self->t.vcpu->run->hypercall.ret = 31337;
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	EXPECT_EQ(31337, ret);
}

/* Detached between exit and re-entry: the completion is KVM's own. */
TEST_F(completion, after_detach)
{
	int64_t ret;

	ASSERT_EQ(0, run_to_deferral(&self->t));
	close(self->t.ctl);
	self->t.ctl = -1;
	self->t.vcpu->run->hypercall.ret = 271828;
	ASSERT_EQ(0, tvm_run(&self->t, &ret));
	EXPECT_EQ(271828, ret);
	EXPECT_EQ(-KFS_ENOSYS, tvm_call0(&self->t, SYS_getppid));
}

TEST_HARNESS_MAIN
