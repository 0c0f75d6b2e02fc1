// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * How the VMM comes to KVM_RUN: as a 32-bit task, stepping its guest, and what
 * the per-call statistics say afterwards.
 */
#include "kfstest.h"
#include "kselftest_harness.h"

FIXTURE(vmm_kinds) {
	struct tvm t;
};

FIXTURE_SETUP(vmm_kinds)
{
	REQUIRE_MODULE();
	memset(&self->t, 0, sizeof(self->t));
	self->t.dev = self->t.ctl = self->t.vm.vm_fd = self->t.vm.kvm_fd = -1;
}

FIXTURE_TEARDOWN(vmm_kinds)
{
	tvm_destroy(&self->t);
}

#define CREATE(attach_flags)						\
	ASSERT_EQ(0, tvm_create(&self->t, attach_flags, 0))		\
		TH_LOG("%s", gvm_strerror(&self->t.vm))

/* ---- A 32-bit task, as far as the kernel can tell --------------------------- */
#define NR32_IOCTL	54
#define NR32_GETPPID	64

static int64_t int80(uint32_t nr, uint32_t b, uint32_t c, uint32_t d)
{
	int64_t ret = nr;

	__asm__ volatile("int $0x80" : "+a" (ret)
			 : "b" ((uint64_t)b), "c" ((uint64_t)c),
			   "d" ((uint64_t)d)
			 : "r8", "r9", "r10", "r11", "memory");
	return (int32_t)ret;
}

/*
 * A kernel without 32-bit system calls ends the caller by a signal or answers
 * ENOSYS: found out in a child.
 */
static bool have_int80(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(int80(NR32_GETPPID, 0, 0, 0) != getppid());
	return wait_child(pid, SECONDS(10)) == 0;
}

/* Below 4 GB, as a 32-bit pointer must be: the program is not -pie. */
static struct kfs_attach_vm attach_req;

TEST_F(vmm_kinds, attach_from_32bit_refused)
{
	struct tvm t;
	int fd;

	if (!have_int80())
		SKIP(return, "this kernel makes no 32-bit system calls");
	ASSERT_EQ(0, tvm_create(&t, 0, TVM_UNATTACHED));
	fd = kfs_open();
	ASSERT_LE(0, fd);
	attach_req = (struct kfs_attach_vm){
		.size = sizeof(attach_req), .vm_fd = t.vm.vm_fd,
		.mode = KFS_MODE_IDENTITY,
	};
	EXPECT_EQ(-EOPNOTSUPP, int80(NR32_IOCTL, fd, KFS_ATTACH_VM,
				     U(&attach_req)));
	/* The same request by a 64-bit call is fine. */
	EXPECT_LE(0, ioctl(fd, KFS_ATTACH_VM, &attach_req));
	close(fd);
	tvm_destroy(&t);
}

TEST_F(vmm_kinds, run_from_32bit_declined)
{
	struct kfs_vm_stats before, after;
	char why[128] = "";

	if (!have_int80())
		SKIP(return, "this kernel makes no 32-bit system calls");
	CREATE(KFS_DEFER_EXIT);
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &before));
	ASSERT_EQ(0, tvm_prepare(&self->t, SYS_getppid, NULL));
	ASSERT_EQ(0, int80(NR32_IOCTL, self->t.vcpu->fd, KVM_RUN, 0));
	ASSERT_EQ(GVM_HYPERCALL, gvm_event(self->t.vcpu, NULL))
		TH_LOG("%s", gvm_describe(self->t.vcpu));
	EXPECT_EQ(KFS_EXIT_NR(SYS_getppid), self->t.vcpu->run->hypercall.nr);
	self->t.vcpu->run->hypercall.ret = 123456;
	ASSERT_EQ(0, int80(NR32_IOCTL, self->t.vcpu->fd, KVM_RUN, 0));
	ASSERT_EQ(GVM_DONE, gvm_event(self->t.vcpu, NULL))
		TH_LOG("%s", gvm_describe(self->t.vcpu));
	EXPECT_EQ(123456, self->t.list->call[0].ret);
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &after));
	EXPECT_TRUE(declined_only(&before, &after, KFS_REASON_COMPAT_TASK, 1,
				  why, sizeof(why)))
		TH_LOG("%s", why);
	/* By a 64-bit KVM_RUN the same VM is served. */
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
}

/* ---- Single-stepping over the call ------------------------------------------- */
extern char step_amd[], step_amd_call[], step_amd_next[];
extern char step_intel[], step_intel_call[], step_intel_next[];

__asm__(".text\n"
	".macro step_code name, insn\n"
	".globl \\name, \\name\\()_call, \\name\\()_next\n"
	"\\name:\n\t"
	"mov %edi, %eax\n\t"
	"mov %esi, %ebx\n"
	"\\name\\()_call:\n\t"
	"\\insn\n"
	"\\name\\()_next:\n\t"
	"nop\n\t"
	"ret\n"
	".endm\n"
	"step_code step_amd, vmmcall\n"
	"step_code step_intel, vmcall\n");

static int debug(struct tvm *t, uint32_t control)
{
	struct kvm_guest_debug dbg = { .control = control };

	return ioctl(t->vcpu->fd, KVM_SET_GUEST_DEBUG, &dbg) ? -errno : 0;
}

static int enter_step(struct tvm *t, uint32_t nr)
{
	struct kvm_regs regs;
	int err;

	err = gvm_set_entry(t->vcpu, gvm_is_intel ? step_intel : step_amd,
			    (void *)(uintptr_t)KFS_HC_SYSCALL, GVM_RING0);
	if (err)
		return err;
	if (ioctl(t->vcpu->fd, KVM_GET_REGS, &regs))
		return -errno;
	regs.rsi = nr;
	if (ioctl(t->vcpu->fd, KVM_SET_REGS, &regs))
		return -errno;
	return debug(t, KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP);
}

/* Steps on until RIP is `pc`, at most ten instructions. */
static int step_to(struct tvm *t, const char *pc)
{
	unsigned int i;

	for (i = 0; i < 10; i++) {
		int err = gvm_run(t->vcpu);

		if (err)
			return err;
		if (gvm_event(t->vcpu, NULL) != GVM_DEBUG)
			return -EPROTO;
		if (t->vcpu->run->debug.arch.pc == U(pc))
			return 0;
	}
	return -ERANGE;
}

TEST_F(vmm_kinds, stepping_over_a_call)
{
	const char *call = gvm_is_intel ? step_intel_call : step_amd_call;
	const char *next = gvm_is_intel ? step_intel_next : step_amd_next;
	struct kfs_vm_stats st;
	uint32_t value = 0;

	CREATE(0);
	ASSERT_EQ(0, enter_step(&self->t, SYS_getppid));
	ASSERT_EQ(0, step_to(&self->t, call))
		TH_LOG("%s", gvm_describe(self->t.vcpu));
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(0, st.ran);
	/* One step: the call is made, the guest stands behind it. */
	ASSERT_EQ(0, gvm_run(self->t.vcpu));
	ASSERT_EQ(GVM_DEBUG, gvm_event(self->t.vcpu, NULL))
		TH_LOG("%s", gvm_describe(self->t.vcpu));
	EXPECT_EQ(U(next), self->t.vcpu->run->debug.arch.pc);
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(1, st.ran);
	ASSERT_EQ(0, debug(&self->t, 0));
	ASSERT_EQ(0, gvm_run_to_done(self->t.vcpu, &value))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	EXPECT_EQ(getppid(), value);
}

TEST_F(vmm_kinds, stepping_over_a_declined_call)
{
	const char *next = gvm_is_intel ? step_intel_next : step_amd_next;
	struct kfs_vm_stats st;
	uint32_t value = 0;

	CREATE(0);
	ASSERT_EQ(0, enter_step(&self->t, SYS_fork));
	ASSERT_EQ(0, step_to(&self->t, next))
		TH_LOG("%s", gvm_describe(self->t.vcpu));
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(1, st.declined[KFS_REASON_UNLISTED]);
	EXPECT_EQ(1, st.refused);
	ASSERT_EQ(0, debug(&self->t, 0));
	ASSERT_EQ(0, gvm_run_to_done(self->t.vcpu, &value));
	EXPECT_EQ((uint32_t)-KFS_ENOSYS, value);
}

TEST_F(vmm_kinds, stepping_over_a_deferred_call)
{
	const char *call = gvm_is_intel ? step_intel_call : step_amd_call;
	const char *next = gvm_is_intel ? step_intel_next : step_amd_next;
	struct kvm_regs regs;
	uint32_t value = 0;

	CREATE(KFS_DEFER_EXIT);
	ASSERT_EQ(0, enter_step(&self->t, SYS_fork));
	ASSERT_EQ(0, step_to(&self->t, call));
	ASSERT_EQ(0, gvm_run(self->t.vcpu));
	ASSERT_EQ(GVM_HYPERCALL, gvm_event(self->t.vcpu, NULL))
		TH_LOG("%s", gvm_describe(self->t.vcpu));
	ASSERT_EQ(0, ioctl(self->t.vcpu->fd, KVM_GET_REGS, &regs));
	EXPECT_EQ(U(call), regs.rip);
	self->t.vcpu->run->hypercall.ret = 98765;
	ASSERT_EQ(0, gvm_run(self->t.vcpu));
	ASSERT_EQ(GVM_DEBUG, gvm_event(self->t.vcpu, NULL))
		TH_LOG("%s", gvm_describe(self->t.vcpu));
	EXPECT_EQ(U(next), self->t.vcpu->run->debug.arch.pc);
	ASSERT_EQ(0, debug(&self->t, 0));
	ASSERT_EQ(0, gvm_run_to_done(self->t.vcpu, &value));
	EXPECT_EQ(98765, value);
}

/* ---- Statistics by call --------------------------------------------------------- */
static const struct kfs_call_stats *row(const struct kfs_call_stats *rows,
					unsigned int n, uint32_t nr)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (rows[i].nr == nr)
			return &rows[i];
	return NULL;
}

TEST_F(vmm_kinds, statistics_by_call)
{
	struct sock_filter deny_dup[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_dup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EMFILE),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct kfs_call_stats rows[16] = { 0 };
	const struct kfs_call_stats *r;
	struct kfs_vm_stats st = {
		.size = sizeof(st), .calls = U(rows), .calls_len = 16,
	};
	unsigned int i;

	CREATE(0);
	ASSERT_EQ(0, kfs_policy(self->t.ctl, deny_dup, 4));
	for (i = 0; i < 5; i++) {
		EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
	}
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(-EMFILE, tvm_call0(&self->t, SYS_dup));
	}
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(-KFS_ENOSYS, tvm_call(&self->t, SYS_close,
						self->t.ctl, 0, 0, 0, 0, 0));
	}
	ASSERT_EQ(0, ioctl(self->t.ctl, KFS_VM_STATS, &st));
	EXPECT_EQ(3, st.calls_len);
	r = row(rows, st.calls_len, SYS_getppid);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(5, r->ran);
	EXPECT_EQ(0, r->denied + r->declined);
	r = row(rows, st.calls_len, SYS_dup);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(3, r->denied);
	EXPECT_EQ(0, r->ran + r->declined);
	r = row(rows, st.calls_len, SYS_close);
	ASSERT_NE(NULL, r);
	EXPECT_EQ(2, r->declined);
	EXPECT_EQ(5, st.ran);
	EXPECT_EQ(3, st.denied);
	EXPECT_EQ(2, st.declined[KFS_REASON_ARGUMENT]);
	EXPECT_EQ(2, st.refused);
	EXPECT_EQ(getpid(), st.pid);
	EXPECT_EQ(getuid(), st.uid);
	EXPECT_EQ(KFS_VM_ENABLED, st.state);
	EXPECT_EQ(KFS_MODE_IDENTITY, st.mode);
	EXPECT_EQ(1, st.vcpus);
	EXPECT_EQ(0, st.in_call);

	/* No room: as many as fit, and a bad address is said. */
	st.calls_len = 1;
	ASSERT_EQ(0, ioctl(self->t.ctl, KFS_VM_STATS, &st));
	EXPECT_EQ(1, st.calls_len);
	st.calls = 0xfff;
	st.calls_len = 4;
	EXPECT_EQ(-1, ioctl(self->t.ctl, KFS_VM_STATS, &st));
	EXPECT_EQ(EFAULT, errno);
}

TEST_HARNESS_MAIN
