// SPDX-License-Identifier: MIT OR LGPL-2.1
/* What of libkvmfastsys can be tested without a module, and without KVM. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kfs.h>

#include "kselftest_harness.h"

static const __u64 no_args[6];

/* The instructions a policy may consist of, run as the kernel would. */
static __u32 run_filter(const struct sock_filter *f, int len, __u32 arch,
			__u32 nr)
{
	struct seccomp_data data = { .arch = arch, .nr = (int)nr };
	__u32 a = 0;

	for (int pc = 0; pc < len; pc++) {
		switch (f[pc].code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&a, (char *)&data + f[pc].k, sizeof(a));
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += a == f[pc].k ? f[pc].jt : f[pc].jf;
			break;
		case BPF_RET | BPF_K:
			return f[pc].k;
		default:
			return 0xdead;
		}
	}
	return 0xdead;
}

FIXTURE(policy) {
	struct kfs_policy *policy;
};

FIXTURE_SETUP(policy)
{
	self->policy = kfs_policy_new(EPERM);
	ASSERT_NE(NULL, self->policy);
}

FIXTURE_TEARDOWN(policy)
{
	kfs_policy_free(self->policy);
}

TEST_F(policy, empty_denies_everything)
{
	const struct sock_filter *f;
	int len = kfs_policy_filter(self->policy, &f);

	ASSERT_LT(0, len);
	for (__u32 nr = 0; nr < 1000; nr++) {
		ASSERT_EQ(SECCOMP_RET_ERRNO | EPERM,
			  run_filter(f, len, AUDIT_ARCH_X86_64, nr));
		ASSERT_EQ(-EPERM, kfs_policy_call(self->policy, nr, no_args));
	}
}

TEST_F(policy, allows_by_name_and_nothing_else)
{
	const struct sock_filter *f;
	int len;

	ASSERT_EQ(0, kfs_policy_allow(self->policy, "getppid, read\nwrite"));
	len = kfs_policy_filter(self->policy, &f);
	for (__u32 nr = 0; nr < 1000; nr++) {
		__u32 want = nr == SYS_getppid || nr == SYS_read ||
			     nr == SYS_write ? SECCOMP_RET_ALLOW :
			     SECCOMP_RET_ERRNO | EPERM;

		ASSERT_EQ(want, run_filter(f, len, AUDIT_ARCH_X86_64, nr));
	}
	EXPECT_EQ(getppid(),
		  kfs_policy_call(self->policy, SYS_getppid, no_args));
	EXPECT_EQ(-EPERM, kfs_policy_call(self->policy, SYS_getpid, no_args));
}

TEST_F(policy, other_architectures_decline)
{
	const struct sock_filter *f;
	int len;

	ASSERT_EQ(0, kfs_policy_allow(self->policy, "read"));
	len = kfs_policy_filter(self->policy, &f);
	EXPECT_EQ(SECCOMP_RET_TRAP, run_filter(f, len, AUDIT_ARCH_I386, 0));
}

TEST_F(policy, numbers_out_of_range_are_denied)
{
	static const __u64 numbers[] = {
		450 + 1000, 0x40000000 | SYS_getppid, 0xffffffff,
		(1ULL << 32) | SYS_getppid, ~0ULL,
	};

	ASSERT_EQ(0, kfs_policy_allow(self->policy, "getppid"));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		EXPECT_EQ(-EPERM, kfs_policy_call(self->policy, numbers[i],
						  no_args));
}

TEST_F(policy, refuse_gives_its_errno_and_the_later_rule_wins)
{
	const struct sock_filter *f;
	int len;

	ASSERT_EQ(0, kfs_policy_allow(self->policy, "getppid getpid"));
	ASSERT_EQ(0, kfs_policy_refuse(self->policy, EACCES, "getppid"));
	len = kfs_policy_filter(self->policy, &f);
	EXPECT_EQ(SECCOMP_RET_ERRNO | EACCES,
		  run_filter(f, len, AUDIT_ARCH_X86_64, SYS_getppid));
	EXPECT_EQ(-EACCES, kfs_policy_call(self->policy, SYS_getppid, no_args));
	ASSERT_EQ(0, kfs_policy_allow(self->policy, "getppid"));
	len = kfs_policy_filter(self->policy, &f);
	EXPECT_EQ(SECCOMP_RET_ALLOW,
		  run_filter(f, len, AUDIT_ARCH_X86_64, SYS_getppid));
	EXPECT_EQ(-EINVAL, kfs_policy_refuse(self->policy, 0, "getppid"));
	EXPECT_EQ(-EINVAL, kfs_policy_refuse(self->policy, 4096, "getppid"));
}

TEST_F(policy, misspelt_name_changes_nothing)
{
	EXPECT_EQ(-ENOENT, kfs_policy_allow(self->policy, "getppid raed"));
	EXPECT_EQ(-EPERM, kfs_policy_call(self->policy, SYS_getppid, no_args));
	EXPECT_EQ(-ENOENT, kfs_policy_allow(self->policy, "getppi"));
	EXPECT_EQ(-ENOENT, kfs_policy_allow(self->policy, "getppidd"));
	EXPECT_EQ(0, kfs_policy_allow(self->policy, " , "));
}

TEST(policy_that_declines)
{
	struct kfs_policy *policy = kfs_policy_new(0);
	const struct sock_filter *f;
	int len = kfs_policy_filter(policy, &f);

	EXPECT_EQ(SECCOMP_RET_TRAP,
		  run_filter(f, len, AUDIT_ARCH_X86_64, SYS_read));
	/* The VMM's own answer is final: no third place to ask. */
	EXPECT_EQ(-EPERM, kfs_policy_call(policy, SYS_read, no_args));
	kfs_policy_free(policy);
	EXPECT_EQ(NULL, kfs_policy_new(4096));
}

/* The kernel itself takes the program as a seccomp filter and obeys it. */
TEST_F(policy, kernel_accepts_the_program)
{
	const struct sock_filter *f;
	int len, status, pid;

	ASSERT_EQ(0, kfs_policy_allow(self->policy,
				      "getppid exit exit_group write"));
	len = kfs_policy_filter(self->policy, &f);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		struct sock_fprog prog = {
			.len = (unsigned short)len,
			.filter = (struct sock_filter *)f,
		};
		struct utsname uts;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
			_exit(1);
		if (getppid() <= 0)
			_exit(2);
		if (uname(&uts) != -1 || errno != EPERM)
			_exit(3);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(policy, errno_is_left_alone)
{
	errno = 77;
	EXPECT_EQ(0, kfs_policy_allow(self->policy, "close"));
	EXPECT_EQ(-EBADF, kfs_policy_call(self->policy, SYS_close,
					  (const __u64[6]) { 9999 }));
	EXPECT_EQ(-EBADF, kfs_enable(-1));
	EXPECT_EQ(-EBADF, kfs_vsock_nodelay(-1, 1));
	EXPECT_EQ(77, errno);
}

TEST_F(policy, deferred_makes_the_call_once_and_only_ours)
{
	struct kvm_run run = { .exit_reason = KVM_EXIT_IO };

	ASSERT_EQ(0, kfs_policy_allow(self->policy, "getppid"));
	run.hypercall.nr = KFS_EXIT_NR(SYS_getppid);
	EXPECT_EQ(0, kfs_deferred(&run, self->policy));

	run.exit_reason = KVM_EXIT_HYPERCALL;
	run.hypercall.nr = 12;	/* KVM_HC_MAP_GPA_RANGE */
	run.hypercall.ret = 5;
	EXPECT_EQ(0, kfs_deferred(&run, self->policy));
	EXPECT_EQ(5, run.hypercall.ret);

	run.hypercall.nr = KFS_EXIT_NR(SYS_getppid);
	run.hypercall.ret = (__u64)-KFS_ENOSYS;
	EXPECT_EQ(1, kfs_deferred(&run, self->policy));
	EXPECT_EQ((__u64)getppid(), run.hypercall.ret);

	run.hypercall.nr = KFS_EXIT_NR(SYS_getpid);
	EXPECT_EQ(1, kfs_deferred(&run, self->policy));
	EXPECT_EQ((__u64)-EPERM, run.hypercall.ret);
}

TEST_F(policy, deferred_passes_six_arguments)
{
	char from[] = "six arguments", to[sizeof(from)] = "";
	struct kvm_run run = { .exit_reason = KVM_EXIT_HYPERCALL };
	int fds[2];

	ASSERT_EQ(0, kfs_policy_allow(self->policy, "sendto recvfrom socketpair"));
	run.hypercall.nr = KFS_EXIT_NR(SYS_socketpair);
	run.hypercall.args[0] = 1;
	run.hypercall.args[1] = 2;
	run.hypercall.args[3] = (__u64)(unsigned long)fds;
	ASSERT_EQ(1, kfs_deferred(&run, self->policy));
	ASSERT_EQ(0, run.hypercall.ret);

	run.hypercall.nr = KFS_EXIT_NR(SYS_sendto);
	run.hypercall.args[0] = (__u64)fds[0];
	run.hypercall.args[1] = (__u64)(unsigned long)from;
	run.hypercall.args[2] = sizeof(from);
	run.hypercall.args[3] = 0;
	ASSERT_EQ(1, kfs_deferred(&run, self->policy));
	ASSERT_EQ(sizeof(from), run.hypercall.ret);
	run.hypercall.nr = KFS_EXIT_NR(SYS_recvfrom);
	run.hypercall.args[0] = (__u64)fds[1];
	run.hypercall.args[1] = (__u64)(unsigned long)to;
	ASSERT_EQ(1, kfs_deferred(&run, self->policy));
	ASSERT_EQ(sizeof(from), run.hypercall.ret);
	EXPECT_STREQ(from, to);
	/* The fifth and sixth: an address that cannot be read is looked at. */
	run.hypercall.nr = KFS_EXIT_NR(SYS_sendto);
	run.hypercall.args[0] = (__u64)fds[0];
	run.hypercall.args[4] = 1;
	run.hypercall.args[5] = 16;
	ASSERT_EQ(1, kfs_deferred(&run, self->policy));
	EXPECT_EQ((__u64)-EFAULT, run.hypercall.ret);
	close(fds[0]);
	close(fds[1]);
}

TEST(cpuid_leaf)
{
	struct {
		struct kvm_cpuid2 table;
		struct kvm_cpuid_entry2 entries[2];
	} c = { .table.nent = 1 };

	c.entries[0].function = 1;
	EXPECT_EQ(-ENOSPC, kfs_cpuid_add(&c.table, 1));
	EXPECT_EQ(1, c.table.nent);
	EXPECT_EQ(0, kfs_cpuid_add(&c.table, 2));
	EXPECT_EQ(0, kfs_cpuid_add(&c.table, 2));
	EXPECT_EQ(2, c.table.nent);
	EXPECT_EQ(KFS_CPUID_LEAF, c.entries[1].function);
	EXPECT_EQ(KFS_ABI_VERSION, c.entries[1].eax);
	EXPECT_EQ(0, memcmp(&c.entries[1].ebx, "KVFS", 4));
}

TEST(names)
{
	EXPECT_STREQ("read", kfs_syscall_name(0));
	EXPECT_EQ(SYS_getppid, kfs_syscall_nr("getppid"));
	EXPECT_EQ(SYS_futex, kfs_syscall_nr("futex"));
	EXPECT_EQ(-ENOENT, kfs_syscall_nr("no_such_call"));
	EXPECT_EQ(-ENOENT, kfs_syscall_nr(""));
	EXPECT_EQ(NULL, kfs_syscall_name(400));	/* a hole in the table */
	EXPECT_EQ(NULL, kfs_syscall_name(~0U));
	for (unsigned int nr = 0; nr < 1000; nr++) {
		const char *name = kfs_syscall_name(nr);

		if (name)
			EXPECT_EQ((int)nr, kfs_syscall_nr(name));
	}
}

TEST(every_reason_has_a_name_of_its_own)
{
	for (unsigned int i = 0; i < KFS_REASON_COUNT; i++) {
		EXPECT_STRNE("unknown", kfs_reason_name(i));
		EXPECT_LT(10, strlen(kfs_reason_text(i)));
		for (unsigned int j = 0; j < i; j++)
			EXPECT_STRNE(kfs_reason_name(i), kfs_reason_name(j));
	}
	EXPECT_STREQ("unknown", kfs_reason_name(KFS_REASON_COUNT));
	EXPECT_STREQ("unknown", kfs_reason_name(~0U));
}

TEST(errors_say_what_next)
{
	const char *text = kfs_strerror(-ENOENT, KFS_WHAT_OPEN);

	EXPECT_NE(NULL, strstr(text, "modprobe kvm_fastsys"));
	EXPECT_STREQ(text, kfs_strerror(ENOENT, KFS_WHAT_OPEN));
	EXPECT_NE(NULL, strstr(kfs_strerror(EACCES, KFS_WHAT_OPEN), "usermod"));
	EXPECT_NE(NULL, strstr(kfs_strerror(ENODEV, KFS_WHAT_ATTACH), "status"));
	EXPECT_STREQ(strerror(EIO), kfs_strerror(EIO, KFS_WHAT_OPEN));
	/* A limit is raised by the module's parameter. */
	EXPECT_NE(NULL, strstr(kfs_strerror(EDQUOT, KFS_WHAT_ATTACH),
			       "modprobe kvm_fastsys max_vms="));
	/* What `kvm-fastsys status` shows of it is the ABI version. */
	EXPECT_NE(NULL, strstr(kfs_strerror(EINVAL, KFS_WHAT_ATTACH),
			       "ABI version"));
}

TEST(kick_errors_have_advice)
{
	static const struct {
		int err;
		const char *part;
	} rows[] = {
		{ EDQUOT, "modprobe kvm_fastsys max_kicks=" },
		{ EOPNOTSUPP, "kvm-fastsys status" },
		{ ENODEV, "kvm-fastsys status" },
		{ ENOENT, "modprobe kvm_fastsys" },
		{ EIO, "process" },
		{ EINVAL, "KFS_KICK_VM" },
		{ EBADF, "not open" },
		{ ENOTTY, "/dev/kvm_fastsys" },
		{ EALREADY, "nothing to do" },
	};

	/* The ABI: numbers stay. */
	EXPECT_EQ(10, KFS_WHAT_POLICY);
	EXPECT_EQ(11, KFS_WHAT_KICK);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *text = kfs_strerror(-rows[i].err, KFS_WHAT_KICK);

		EXPECT_NE(NULL, strstr(text, rows[i].part))
			TH_LOG("%d: %s", rows[i].err, text);
	}
	EXPECT_STREQ(strerror(EMFILE), kfs_strerror(EMFILE, KFS_WHAT_KICK));
}

TEST(device_errors_are_values)
{
	struct kfs_info info;
	struct kfs_hook_info hook;
	struct kfs_vm_stats stats;

	EXPECT_EQ(-EBADF, kfs_get_info(-1, &info));
	EXPECT_EQ(-EBADF, kfs_hook_info(-1, 0, &hook));
	EXPECT_EQ(-EBADF, kfs_vm_stats(-1, 0, &stats, NULL, 0));
	EXPECT_EQ(-EBADF, kfs_attach(-1, 0, KFS_MODE_IDENTITY, 0));
	EXPECT_EQ(sizeof(info), info.size);
}

TEST_HARNESS_MAIN
