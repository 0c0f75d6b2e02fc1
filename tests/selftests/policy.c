// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Policies: every action with its data, judged on number and arguments,
 * replaced before KFS_ENABLE and stacked after it; malformed ones refused.
 */
#include <sys/prctl.h>
#include <linux/audit.h>

#include "kfstest.h"
#include "kselftest_harness.h"

#define LOAD(field) \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_ARG(n, half) \
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, \
		 offsetof(struct seccomp_data, args) + 8 * (n) + 4 * (half))
#define IF_EQ(k, jt, jf)	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, jt, jf)
#define RET(k)			BPF_STMT(BPF_RET | BPF_K, k)
#define LEN(a)			(sizeof(a) / sizeof((a)[0]))

enum outcome { RUNS, ANSWERED, DECLINED };

FIXTURE(policy) {
	struct tvm t;
};

FIXTURE_SETUP(policy)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, 0, TVM_NOT_ENABLED))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
}

FIXTURE_TEARDOWN(policy)
{
	tvm_destroy(&self->t);
}

/* What became of one getppid; *ret its result. */
static int outcome(struct tvm *t, long nr, const uint64_t *args, int64_t *ret,
		   char *why, size_t size)
{
	static const uint64_t none[6];
	struct kfs_vm_stats before, after;

	if (!args)
		args = none;
	if (kfs_stats(t->ctl, &before))
		return -1;
	*ret = tvm_call(t, nr, args[0], args[1], args[2], args[3], args[4],
			args[5]);
	if (*ret == INT64_MIN) {
		snprintf(why, size, "%s", gvm_strerror(&t->vm));
		return -1;
	}
	if (kfs_stats(t->ctl, &after))
		return -1;
	if (declined_only(&before, &after, KFS_REASON_POLICY, 1, why, size))
		return DECLINED;
	if (declined_sum(&after) != declined_sum(&before))
		return -1;
	if (after.ran == before.ran + 1 && after.denied == before.denied)
		return RUNS;
	if (after.denied == before.denied + 1 && after.ran == before.ran)
		return ANSWERED;
	return -1;
}

#define EXPECT_OUTCOME(want, want_ret, nr, args, what) do {		\
	char why_[128] = "";						\
	int64_t ret_ = 0;						\
	int got_ = outcome(&self->t, nr, args, &ret_, why_, sizeof(why_)); \
	EXPECT_EQ(want, got_) TH_LOG("%s: %s", what, why_);		\
	EXPECT_EQ((int64_t)(want_ret), ret_) TH_LOG("%s", what);	\
} while (0)

static const struct {
	const char *name;
	uint32_t action;
	enum outcome outcome;
	int ret;		/* 0 with RUNS: getppid's */
} actions[] = {
	{ "ALLOW", SECCOMP_RET_ALLOW, RUNS, 0 },
	{ "ALLOW with data", SECCOMP_RET_ALLOW | 0x1234, RUNS, 0 },
	{ "ERRNO 0", SECCOMP_RET_ERRNO, ANSWERED, 0 },
	{ "ERRNO 1", SECCOMP_RET_ERRNO | 1, ANSWERED, -1 },
	{ "ERRNO EACCES", SECCOMP_RET_ERRNO | EACCES, ANSWERED, -EACCES },
	{ "ERRNO 999", SECCOMP_RET_ERRNO | 999, ANSWERED, -999 },
	{ "ERRNO 1001", SECCOMP_RET_ERRNO | 1001, ANSWERED, -1001 },
	{ "ERRNO 4095", SECCOMP_RET_ERRNO | 4095, ANSWERED, -4095 },
	{ "ERRNO 4096", SECCOMP_RET_ERRNO | 4096, ANSWERED, -4095 },
	{ "ERRNO 65535", SECCOMP_RET_ERRNO | 0xffff, ANSWERED, -4095 },
	{ "LOG", SECCOMP_RET_LOG, DECLINED, -KFS_ENOSYS },
	{ "LOG with data", SECCOMP_RET_LOG | 7, DECLINED, -KFS_ENOSYS },
	{ "TRAP", SECCOMP_RET_TRAP, DECLINED, -KFS_ENOSYS },
	{ "TRAP with data", SECCOMP_RET_TRAP | 5, DECLINED, -KFS_ENOSYS },
	{ "TRACE", SECCOMP_RET_TRACE, DECLINED, -KFS_ENOSYS },
	{ "TRACE with data", SECCOMP_RET_TRACE | 99, DECLINED, -KFS_ENOSYS },
	{ "USER_NOTIF", SECCOMP_RET_USER_NOTIF, DECLINED, -KFS_ENOSYS },
	{ "KILL_THREAD", SECCOMP_RET_KILL_THREAD, DECLINED, -KFS_ENOSYS },
	{ "KILL_THREAD with data", SECCOMP_RET_KILL_THREAD | 3, DECLINED,
	  -KFS_ENOSYS },
	{ "KILL_PROCESS", SECCOMP_RET_KILL_PROCESS, DECLINED, -KFS_ENOSYS },
	{ "unknown action", 0x12340000U, DECLINED, -KFS_ENOSYS },
	{ "unknown action, high", 0x7fff8000U & 0x7ffe0000U, DECLINED,
	  -KFS_ENOSYS },
};

#define WANT_RET(i)	(actions[i].outcome == RUNS ? getppid() : actions[i].ret)

/* Each alone, for one call among others that are allowed. */
TEST_F(policy, every_action)
{
	unsigned int i;

	for (i = 0; i < LEN(actions); i++) {
		struct sock_filter f[] = {
			LOAD(nr),
			IF_EQ(SYS_getppid, 0, 1),
			RET(actions[i].action),
			RET(SECCOMP_RET_ALLOW),
		};

		tvm_destroy(&self->t);
		ASSERT_EQ(0, tvm_create(&self->t, 0, TVM_NOT_ENABLED))
			TH_LOG("%s", gvm_strerror(&self->t.vm));
		ASSERT_EQ(0, kfs_policy(self->t.ctl, f, LEN(f)));
		ASSERT_EQ(0, kfs_enable(self->t.ctl));
		EXPECT_OUTCOME(actions[i].outcome, WANT_RET(i), SYS_getppid,
			       NULL, actions[i].name);
		EXPECT_OUTCOME(RUNS, getpid(), SYS_getpid, NULL,
			       actions[i].name);
	}
}

/* Before ENABLE the last one counts, whatever stood before. */
TEST_F(policy, replaced_before_enable)
{
	unsigned int i;

	for (i = 0; i < 40; i++) {
		ASSERT_EQ(0, kfs_policy_ret(self->t.ctl, i % 2 ?
			SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPERM));
	}
	ASSERT_EQ(0, kfs_policy_ret(self->t.ctl, SECCOMP_RET_KILL_PROCESS));
	ASSERT_EQ(0, kfs_policy_ret(self->t.ctl, SECCOMP_RET_ALLOW));
	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	EXPECT_OUTCOME(RUNS, getppid(), SYS_getppid, NULL, "replaced");
}

/* The strictest of two: as seccomp orders them, whichever came first. */
static int strictness(uint32_t action)
{
	return (int32_t)(action & SECCOMP_RET_ACTION_FULL);
}

TEST_F(policy, stacked_after_enable)
{
	static const unsigned int pick[] = {
		0, 4, 10, 12, 14, 16, 17, 19,	/* one of each action */
	};
	unsigned int i, j;

	for (i = 0; i < LEN(pick); i++)
		for (j = 0; j < LEN(pick); j++) {
			uint32_t a = actions[pick[i]].action;
			uint32_t b = actions[pick[j]].action;
			unsigned int win = strictness(b) < strictness(a) ?
				pick[j] : pick[i];
			char what[64];

			tvm_destroy(&self->t);
			ASSERT_EQ(0, tvm_create(&self->t, 0, TVM_NOT_ENABLED));
			ASSERT_EQ(0, kfs_policy_ret(self->t.ctl, a));
			ASSERT_EQ(0, kfs_enable(self->t.ctl));
			ASSERT_EQ(0, kfs_policy_ret(self->t.ctl, b));
			snprintf(what, sizeof(what), "%s then %s",
				 actions[pick[i]].name, actions[pick[j]].name);
			EXPECT_OUTCOME(actions[win].outcome, WANT_RET(win),
				       SYS_getppid, NULL, what);
		}
}

/* A call that a stacked policy denies is denied from the next call on. */
TEST_F(policy, shrinks_only)
{
	struct sock_filter deny[] = {
		LOAD(nr),
		IF_EQ(SYS_getppid, 0, 1),
		RET(SECCOMP_RET_ERRNO | ENETDOWN),
		RET(SECCOMP_RET_ALLOW),
	};

	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	EXPECT_OUTCOME(RUNS, getppid(), SYS_getppid, NULL, "before");
	ASSERT_EQ(0, kfs_policy(self->t.ctl, deny, LEN(deny)));
	EXPECT_OUTCOME(ANSWERED, -ENETDOWN, SYS_getppid, NULL, "after");
	ASSERT_EQ(0, kfs_policy_ret(self->t.ctl, SECCOMP_RET_ALLOW));
	EXPECT_OUTCOME(ANSWERED, -ENETDOWN, SYS_getppid, NULL, "still");
	EXPECT_OUTCOME(RUNS, getpid(), SYS_getpid, NULL, "another call");
}

/* What the kernel itself answers for two ERRNOs, the guest gets too. */
TEST_F(policy, two_errnos_as_seccomp)
{
	struct sock_filter f[2][1] = {
		{ RET(SECCOMP_RET_ERRNO | EXDEV) },
		{ RET(SECCOMP_RET_ERRNO | ENOTDIR) },
	};
	struct sock_filter only[2][4];
	int status, i;
	pid_t pid;

	for (i = 0; i < 2; i++) {
		only[i][0] = (struct sock_filter)LOAD(nr);
		only[i][1] = (struct sock_filter)IF_EQ(SYS_getppid, 0, 1);
		only[i][2] = f[i][0];
		only[i][3] = (struct sock_filter)RET(SECCOMP_RET_ALLOW);
	}
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		for (i = 0; i < 2; i++) {
			struct sock_fprog prog = { 4, only[i] };

			if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
				_exit(99);
		}
		_exit(-native(SYS_getppid, 0, 0, 0, 0, 0, 0));
	}
	status = wait_child(pid, SECONDS(10));
	ASSERT_TRUE(WIFEXITED(status));
	ASSERT_NE(99, WEXITSTATUS(status));

	ASSERT_EQ(0, kfs_policy(self->t.ctl, only[0], 4));
	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	ASSERT_EQ(0, kfs_policy(self->t.ctl, only[1], 4));
	EXPECT_OUTCOME(ANSWERED, -WEXITSTATUS(status), SYS_getppid, NULL,
		       "two ERRNOs");
}

/* All six arguments, both halves, judged on what the guest asked. */
TEST_F(policy, by_argument)
{
	unsigned int n, half;

	for (n = 0; n < 6; n++)
		for (half = 0; half < 2; half++) {
			struct sock_filter f[] = {
				LOAD(nr),
				IF_EQ(SYS_getppid, 0, 3),
				LOAD_ARG(n, half),
				IF_EQ(0xabcd1234, 1, 0),
				RET(SECCOMP_RET_ERRNO | EDOM),
				RET(SECCOMP_RET_ALLOW),
			};
			uint64_t hit[6], miss[6];
			char what[32];

			memset(hit, 0x77, sizeof(hit));
			memset(miss, 0x77, sizeof(miss));
			hit[n] = half ? 0xabcd123400000001ULL : 0x1abcd1234ULL;
			miss[n] = half ? 0xabcd1234ULL : 0xabcd123400000000ULL;
			snprintf(what, sizeof(what), "argument %u.%u", n, half);

			tvm_destroy(&self->t);
			ASSERT_EQ(0, tvm_create(&self->t, 0, TVM_NOT_ENABLED));
			ASSERT_EQ(0, kfs_policy(self->t.ctl, f, LEN(f)));
			ASSERT_EQ(0, kfs_enable(self->t.ctl));
			EXPECT_OUTCOME(RUNS, getppid(), SYS_getppid, hit, what);
			EXPECT_OUTCOME(ANSWERED, -EDOM, SYS_getppid, miss,
				       what);
		}
}

TEST_F(policy, architecture)
{
	struct sock_filter f[] = {
		LOAD(arch),
		IF_EQ(AUDIT_ARCH_X86_64, 1, 0),
		RET(SECCOMP_RET_ERRNO | EDOM),
		RET(SECCOMP_RET_ALLOW),
	};

	ASSERT_EQ(0, kfs_policy(self->t.ctl, f, LEN(f)));
	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	EXPECT_OUTCOME(RUNS, getppid(), SYS_getppid, NULL, "arch");
}

/* A policy allows, the table of runnable calls still has the last word. */
TEST_F(policy, allows_nothing_unlisted)
{
	static const long nrs[] = {
		SYS_fork, SYS_vfork, SYS_execve, SYS_exit, SYS_exit_group,
		SYS_mmap, SYS_munmap, SYS_brk, SYS_ioctl, SYS_rt_sigreturn,
		SYS_rt_sigprocmask, SYS_rt_sigtimedwait, SYS_arch_prctl,
		SYS_ptrace, SYS_setuid, SYS_io_uring_enter, SYS_close_range,
		SYS_reboot, SYS_bpf, SYS_unshare, SYS_setns, SYS_clone3,
		SYS_process_vm_writev, SYS_restart_syscall, SYS_sigaltstack,
		SYS_set_robust_list, SYS_timer_create, SYS_setitimer,
	};
	unsigned int i;

	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	for (i = 0; i < LEN(nrs); i++) {
		struct kfs_vm_stats before, after;
		char why[128] = "";

		ASSERT_EQ(0, kfs_stats(self->t.ctl, &before));
		EXPECT_EQ(-KFS_ENOSYS, tvm_call(&self->t, nrs[i], ~0ULL, ~0ULL,
						~0ULL, 0, 0, 0))
			TH_LOG("call %ld", nrs[i]);
		ASSERT_EQ(0, kfs_stats(self->t.ctl, &after));
		EXPECT_TRUE(declined_only(&before, &after, KFS_REASON_UNLISTED,
					  1, why, sizeof(why)))
			TH_LOG("call %ld: %s", nrs[i], why);
	}
}

TEST_F(policy, malformed)
{
	struct {
		const char *name;
		struct sock_filter f[3];
		uint32_t count;
	} bad[] = {
		{ "no return", { LOAD(nr) }, 1 },
		{ "jump out", { IF_EQ(1, 9, 9), RET(0) }, 2 },
		{ "bad opcode", { { 0xffff, 0, 0, 0 }, RET(0) }, 2 },
		{ "load past the data",
		  { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), RET(0) }, 2 },
		{ "load not aligned",
		  { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), RET(0) }, 2 },
		{ "byte load",
		  { BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0), RET(0) }, 2 },
		{ "packet load",
		  { BPF_STMT(BPF_LD | BPF_W | BPF_IND, 0), RET(0) }, 2 },
		{ "division by zero",
		  { BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), RET(0) }, 2 },
		{ "nothing", { RET(0) }, 0 },
		{ "too long", { RET(0) }, BPF_MAXINSNS + 1 },
		{ "far too long", { RET(0) }, 0xffffffff },
	};
	unsigned int i;

	for (i = 0; i < LEN(bad); i++) {
		EXPECT_EQ(-EINVAL, kfs_policy(self->t.ctl, bad[i].f,
					      bad[i].count))
			TH_LOG("%s", bad[i].name);
	}
	EXPECT_EQ(-EFAULT, kfs_policy(self->t.ctl, (void *)0xfff, 1));
	EXPECT_EQ(-EFAULT, kfs_policy(self->t.ctl,
				      (void *)0xffffffff81000000ULL, 1));
	/* The one from before is still there. */
	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	EXPECT_OUTCOME(RUNS, getppid(), SYS_getppid, NULL, "kept");
}

/* ---- Programs nobody thought of ----------------------------------------------- */
/*
 * Numbers that an always-allowed bitmap is made for are judged without running
 * the program: random programs must come out the same by a second reading.
 */
#define RANDOM_LEN	12

static uint32_t random_state;

static uint32_t pick(uint32_t n)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % n;
}

/* Harmless, and all listed. */
static const long asked[] = {
	SYS_getppid, SYS_getpid, SYS_gettid, SYS_getuid, SYS_getgid,
	SYS_geteuid, SYS_getegid, SYS_sched_yield,
};

static void random_program(struct sock_filter *f)
{
	static const uint16_t jumps[] = { BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JSET };
	unsigned int i;

	for (i = 0; i < RANDOM_LEN; i++) {
		unsigned int left = RANDOM_LEN - i - 1;
		uint32_t k = pick(2) ? asked[pick(LEN(asked))] : pick(512);

		if (!left || !pick(8))
			f[i] = (struct sock_filter)RET(pick(2) ?
				SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | pick(99));
		else if (!i || !pick(4))
			f[i] = (struct sock_filter)BPF_STMT(
				BPF_LD | BPF_W | BPF_ABS,
				pick(4) ? 0 : 4 * pick(16));
		else if (!pick(4))
			f[i] = (struct sock_filter)BPF_STMT(
				BPF_ALU | BPF_AND | BPF_K, pick(2) ? 0xff : k);
		else if (!pick(8))
			f[i] = (struct sock_filter)BPF_STMT(
				BPF_JMP | BPF_JA, pick(left));
		else
			f[i] = (struct sock_filter)BPF_JUMP(
				BPF_JMP | jumps[pick(4)] | BPF_K, k,
				pick(left), pick(left));
	}
}

static uint32_t interpret(const struct sock_filter *f,
			  const struct seccomp_data *sd)
{
	uint32_t a = 0;

	for (;; f++) {
		bool taken = false;

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&a, (const char *)sd + f->k, 4);
			continue;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= f->k;
			continue;
		case BPF_JMP | BPF_JA:
			f += f->k;
			continue;
		case BPF_RET | BPF_K:
			return f->k;
		case BPF_JMP | BPF_JEQ | BPF_K:
			taken = a == f->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			taken = a >= f->k;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			taken = a > f->k;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			taken = a & f->k;
			break;
		}
		f += taken ? f->jt : f->jf;
	}
}

/* The instruction pointer is the host's affair: not judged here. */
static bool looks_at_ip(const struct sock_filter *f)
{
	unsigned int i;

	for (i = 0; i < RANDOM_LEN; i++)
		if (f[i].code == (BPF_LD | BPF_W | BPF_ABS) &&
		    (f[i].k == 8 || f[i].k == 12))
			return true;
	return false;
}

TEST_F_TIMEOUT(policy, random_programs, 120)
{
	unsigned int i, j, allowed = 0, answered = 0;
	struct tvm keeper;

	/* Keeps the hook live while VMs come and go. */
	ASSERT_EQ(0, tvm_create(&keeper, 0, 0));
	random_state = 20240229;
	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	for (i = 0; i < 300; i++) {
		struct sock_filter f[RANDOM_LEN];

		do {
			random_program(f);
		} while (looks_at_ip(f));
		close(self->t.ctl);
		self->t.ctl = kfs_attach(self->t.dev, self->t.vm.vm_fd,
					 KFS_MODE_IDENTITY, 0);
		ASSERT_LE(0, self->t.ctl);
		ASSERT_EQ(0, kfs_policy(self->t.ctl, f, RANDOM_LEN))
			TH_LOG("program %u", i);
		ASSERT_EQ(0, kfs_enable(self->t.ctl));
		for (j = 0; j < LEN(asked); j++) {
			struct seccomp_data sd = {
				.nr = asked[j], .arch = AUDIT_ARCH_X86_64,
				.args = { pick(600), pick(3), 0, 4, ~0ULL, 9 },
			};
			uint64_t args[6];
			uint32_t ret = interpret(f, &sd);
			char what[40];

			memcpy(args, sd.args, sizeof(args));
			snprintf(what, sizeof(what), "program %u, call %ld", i,
				 asked[j]);
			if (ret == SECCOMP_RET_ALLOW) {
				EXPECT_OUTCOME(RUNS,
					native(asked[j], 0, 0, 0, 0, 0, 0),
					asked[j], args, what);
				allowed++;
			} else {
				EXPECT_OUTCOME(ANSWERED, -(int)(ret & 0xffff),
					       asked[j], args, what);
				answered++;
			}
		}
	}
	EXPECT_LT(200, allowed);
	EXPECT_LT(200, answered);
	tvm_destroy(&keeper);
}

TEST_F(policy, stack_has_a_limit)
{
	struct kfs_info info;
	unsigned int i;

	ASSERT_EQ(0, kfs_info(self->t.dev, &info));
	ASSERT_LT(0, info.max_filters);
	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	for (i = 1; i < info.max_filters; i++) {
		ASSERT_EQ(0, kfs_policy_ret(self->t.ctl, SECCOMP_RET_ALLOW));
	}
	EXPECT_EQ(-ENOSPC, kfs_policy_ret(self->t.ctl, SECCOMP_RET_ALLOW));
	EXPECT_EQ(-ENOSPC, kfs_policy_ret(self->t.ctl, SECCOMP_RET_KILL));
	EXPECT_OUTCOME(RUNS, getppid(), SYS_getppid, NULL, "full stack");
}

TEST_HARNESS_MAIN
