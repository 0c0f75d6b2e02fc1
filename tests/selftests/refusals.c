// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Calls that are not made although the policy allows them: each gets its
 * defined answer, and its reason's counter moves by one.
 */
#include <linux/futex.h>
#include <sys/resource.h>

#include "kfstest.h"
#include "kselftest_harness.h"

#define LEN(a)	(sizeof(a) / sizeof((a)[0]))

static uint32_t guest_one_call(struct tcall *c)
{
	c->ret = gvm_hypercall(KFS_HC_SYSCALL, c->nr, c->args[0], c->args[1],
			       c->args[2], c->args[3], c->args[4], c->args[5]);
	return 0x600d;
}

FIXTURE(refusals) {
	struct tvm t;
};

FIXTURE_SETUP(refusals)
{
	REQUIRE_MODULE();
	memset(&self->t, 0, sizeof(self->t));
	self->t.dev = self->t.ctl = self->t.vm.vm_fd = self->t.vm.kvm_fd = -1;
}

FIXTURE_TEARDOWN(refusals)
{
	tvm_destroy(&self->t);
}

#define CREATE(attach_flags, tvm_flags)					\
	ASSERT_EQ(0, tvm_create(&self->t, attach_flags, tvm_flags))	\
		TH_LOG("%s", gvm_strerror(&self->t.vm))

/* `expr` is a guest's call; `want` its answer. */
#define EXPECT_DECLINED(reason, want, expr, what) do {			\
	struct kfs_vm_stats before_, after_;				\
	char why_[128] = "";						\
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &before_));			\
	EXPECT_EQ((int64_t)(want), (int64_t)(expr))			\
		TH_LOG("%s: %s", what, gvm_strerror(&self->t.vm));	\
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &after_));			\
	EXPECT_TRUE(declined_only(&before_, &after_, reason, 1, why_,	\
				  sizeof(why_)))			\
		TH_LOG("%s: %s", what, why_);				\
} while (0)

static const uint64_t no_numbers[] = {
	(uint64_t)-1, (uint64_t)-39, 1ULL << 63 | SYS_getppid,
	1ULL << 32 | SYS_getppid, 0xffffffff00000000ULL | SYS_getppid,
	0x40000000 | SYS_getppid,	/* x32 */
	0x80000000 | SYS_getppid, 0x7fffffff, 0xffffffff, 100000,
};

TEST_F(refusals, numbers)
{
	unsigned int i;
	char what[32];

	CREATE(0, 0);
	for (i = 0; i < LEN(no_numbers); i++) {
		snprintf(what, sizeof(what), "number %#llx",
			 (unsigned long long)no_numbers[i]);
		EXPECT_DECLINED(KFS_REASON_NUMBER, -KFS_ENOSYS,
				tvm_call0(&self->t, no_numbers[i]), what);
	}
}

/* No number arrives at the VMM as another one. */
TEST_F(refusals, numbers_deferred)
{
	unsigned int i;
	char what[32];

	CREATE(KFS_DEFER_EXIT, 0);
	for (i = 0; i < LEN(no_numbers); i++) {
		bool fits = no_numbers[i] <= 0xffffffff;

		snprintf(what, sizeof(what), "number %#llx",
			 (unsigned long long)no_numbers[i]);
		self->t.deferred = 0;
		EXPECT_DECLINED(KFS_REASON_NUMBER, -KFS_ENOSYS,
				tvm_call0(&self->t, no_numbers[i]), what);
		EXPECT_EQ(fits, self->t.deferred) TH_LOG("%s", what);
		if (fits) {
			EXPECT_EQ(no_numbers[i],
				  KFS_EXIT_CALL(self->t.defer_nr));
		}
	}
}

/* Every number the kernel may know and every one it does not: no surprise. */
TEST_F(refusals, numbers_past_the_end)
{
	long nr;

	CREATE(0, 0);
	for (nr = 440; nr < 1100; nr++) {
		struct kfs_vm_stats before, after;

		ASSERT_EQ(0, kfs_stats(self->t.ctl, &before));
		EXPECT_EQ(-KFS_ENOSYS, tvm_call0(&self->t, nr))
			TH_LOG("call %ld", nr);
		ASSERT_EQ(0, kfs_stats(self->t.ctl, &after));
		EXPECT_EQ(before.ran, after.ran) TH_LOG("call %ld", nr);
		EXPECT_EQ(declined_sum(&before) + 1, declined_sum(&after));
	}
}

TEST_F(refusals, arguments)
{
	static const struct {
		const char *name;
		long nr;
		uint64_t args[6];
	} bad[] = {
		{ "fcntl F_SETOWN", SYS_fcntl, { 0, F_SETOWN, 1 } },
		{ "fcntl F_SETSIG", SYS_fcntl, { 0, F_SETSIG, SIGIO } },
		{ "fcntl F_NOTIFY", SYS_fcntl, { 0, F_NOTIFY, 1 } },
		{ "fcntl F_SETLEASE", SYS_fcntl, { 0, F_SETLEASE, 0 } },
		{ "fcntl O_ASYNC", SYS_fcntl, { 0, F_SETFL, O_ASYNC } },
		{ "futex LOCK_PI", SYS_futex, { 0, FUTEX_LOCK_PI } },
		{ "futex WAIT_REQUEUE_PI", SYS_futex,
		  { 0, FUTEX_WAIT_REQUEUE_PI | FUTEX_PRIVATE_FLAG } },
		{ "madvise HWPOISON", SYS_madvise, { 0, 4096, 100 } },
		{ "madvise REMOVE", SYS_madvise, { 0, 4096, MADV_REMOVE } },
		{ "madvise DONTFORK", SYS_madvise, { 0, 4096, MADV_DONTFORK } },
		{ "ppoll with a mask", SYS_ppoll, { 0, 0, 0, 0x1000, 8 } },
		{ "epoll_pwait with a mask", SYS_epoll_pwait,
		  { 0, 0, 1, 0, 0x1000, 8 } },
	};
	unsigned int i;

	CREATE(0, 0);
	for (i = 0; i < LEN(bad); i++) {
		const uint64_t *a = bad[i].args;

		EXPECT_DECLINED(KFS_REASON_ARGUMENT, -KFS_ENOSYS,
				tvm_call(&self->t, bad[i].nr, a[0], a[1], a[2],
					 a[3], a[4], a[5]), bad[i].name);
	}
}

static int64_t call_in_mode(struct tvm *t, enum gvm_mode mode)
{
	struct tcall *c = &t->list->call[0];

	memset(c, 0, sizeof(*c));
	c->nr = SYS_getppid;
	if (gvm_set_entry(t->vcpu, guest_one_call, c, mode) || tvm_run(t, NULL))
		return INT64_MIN;
	return c->ret;
}

/* As KVM answers its own hypercalls there. */
TEST_F(refusals, cpl3)
{
	CREATE(KFS_DEFER_EXIT, 0);
	EXPECT_DECLINED(KFS_REASON_CPL, -1,
			call_in_mode(&self->t, GVM_RING3), "ring 3");
	EXPECT_EQ(0, self->t.deferred);
	EXPECT_EQ(getppid(), call_in_mode(&self->t, GVM_RING0));
}

/* Where kernels live: addresses above 4 GB, which no 32-bit code has. */
TEST_F(refusals, upper_half)
{
	char *upper = (char *)GVM_UPPER_HALF + (uintptr_t)guest_one_call;
	struct tcall *c;

	CREATE(KFS_DEFER_EXIT, 0);
	c = &self->t.list->call[0];
	c->nr = SYS_getppid;
	ASSERT_EQ(0, gvm_set_entry(self->t.vcpu, upper, c, GVM_RING0));
	ASSERT_EQ(0, tvm_run(&self->t, NULL))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	EXPECT_EQ(getppid(), c->ret);
	c->nr = 1ULL << 32 | SYS_getppid;
	ASSERT_EQ(0, gvm_set_entry(self->t.vcpu, upper, c, GVM_RING0));
	EXPECT_DECLINED(KFS_REASON_NUMBER, 0, tvm_run(&self->t, NULL),
			"upper half, no number");
	EXPECT_EQ(-KFS_ENOSYS, c->ret);
	c->nr = SYS_getppid;
	ASSERT_EQ(0, gvm_set_entry(self->t.vcpu, upper, c, GVM_RING3));
	EXPECT_DECLINED(KFS_REASON_CPL, 0, tvm_run(&self->t, NULL),
			"upper half, ring 3");
	EXPECT_EQ(-1, c->ret);
}

static int64_t call_32bit(struct tvm *t, uint32_t eax)
{
	struct gvm_regs32 *regs = gvm_alloc(&t->vm, sizeof(*regs), 64);

	*regs = (struct gvm_regs32){ .eax = eax, .ebx = SYS_getppid };
	if (gvm_set_entry(t->vcpu, gvm_code32, regs, GVM_32BIT) ||
	    tvm_run(t, NULL))
		return INT64_MIN;
	return (int32_t)regs->eax;
}

TEST_F(refusals, code32)
{
	CREATE(KFS_DEFER_EXIT, 0);
	EXPECT_DECLINED(KFS_REASON_NOT_64BIT, -KFS_ENOSYS,
			call_32bit(&self->t, KFS_HC_SYSCALL), "32-bit code");
	EXPECT_DECLINED(KFS_REASON_NOT_64BIT, -KFS_ENOSYS,
			call_32bit(&self->t, KFS_HC_PROBE), "32-bit probe");
	EXPECT_EQ(0, self->t.deferred);
}

TEST_F(refusals, before_enable)
{
	CREATE(KFS_DEFER_EXIT, TVM_NOT_ENABLED);
	EXPECT_DECLINED(KFS_REASON_NOT_ENABLED, -KFS_ENOSYS,
			tvm_call0(&self->t, SYS_getppid), "call");
	EXPECT_DECLINED(KFS_REASON_NOT_ENABLED, -KFS_ENOSYS,
			tvm_probe(&self->t), "probe");
	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
	EXPECT_EQ(KFS_ABI_VERSION | KFS_PROBE_F_SYSCALL | KFS_PROBE_F_DEFER |
		  KFS_PROBE_F_IDENTITY, tvm_probe(&self->t));
}

/* With another VM attached, so that the hook is live and counts for the host. */
TEST_F(refusals, unattached_vm)
{
	struct kfs_info before, after;
	struct kfs_vm_stats st;
	struct tvm other;

	CREATE(0, 0);
	ASSERT_EQ(0, tvm_create(&other, 0, TVM_UNATTACHED));
	ASSERT_EQ(0, kfs_info(self->t.dev, &before));
	EXPECT_EQ(-KFS_ENOSYS, tvm_call0(&other, SYS_getppid));
	EXPECT_EQ(-KFS_ENOSYS, tvm_probe(&other));
	ASSERT_EQ(0, kfs_info(self->t.dev, &after));
	EXPECT_EQ(before.unattached + 2, after.unattached);
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(0, st.ran + declined_sum(&st));
	tvm_destroy(&other);
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
}

TEST_F(refusals, after_detach)
{
	CREATE(0, 0);
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
	close(self->t.ctl);
	self->t.ctl = -1;
	EXPECT_EQ(-KFS_ENOSYS, tvm_call0(&self->t, SYS_getppid));
	EXPECT_EQ(-KFS_ENOSYS, tvm_probe(&self->t));
}

/* ---- Other hypervisors' ABIs ---------------------------------------------- */
#define HV_MSR_GUEST_OS_ID	0x40000000

static uint32_t guest_hyperv(struct tcall *c)
{
	int64_t ret = KFS_HC_SYSCALL;

	__asm__ volatile("wrmsr" : : "c" (HV_MSR_GUEST_OS_ID), "a" (0x12345),
			 "d" (0x8100));
	/* RCX is Hyper-V's call code: 0 is none. */
	if (gvm_is_intel)
		__asm__ volatile("vmcall" : "+a" (ret) : "b" (c->nr), "c" (0),
				 "d" (0) : "memory");
	else
		__asm__ volatile("vmmcall" : "+a" (ret) : "b" (c->nr), "c" (0),
				 "d" (0) : "memory");
	c->ret = ret;
	return 0x600d;
}

static int64_t call_hyperv(struct tvm *t)
{
	struct tcall *c = &t->list->call[0];

	c->nr = SYS_getppid;
	c->ret = 0;
	if (gvm_set_entry(t->vcpu, guest_hyperv, c, GVM_RING0) ||
	    tvm_run(t, NULL))
		return INT64_MIN;
	return c->ret;
}

TEST_F(refusals, hyperv_hypercalls)
{
	struct tvm other;
	int64_t stock;
	int err;

	CREATE(KFS_DEFER_EXIT, 0);
	err = tvm_set_hyperv_cpuid(&self->t);
	if (err == -EINVAL || err == -ENOTTY)
		SKIP(return, "this KVM has no Hyper-V support");
	ASSERT_EQ(0, err) TH_LOG("%s", gvm_strerror(&self->t.vm));
	ASSERT_EQ(0, tvm_create(&other, 0, TVM_UNATTACHED));
	ASSERT_EQ(0, tvm_set_hyperv_cpuid(&other));
	stock = call_hyperv(&other);
	ASSERT_NE(INT64_MIN, stock) TH_LOG("%s", gvm_strerror(&other.vm));
	ASSERT_NE(-KFS_ENOSYS, stock);	/* it was Hyper-V that answered */
	tvm_destroy(&other);

	EXPECT_DECLINED(KFS_REASON_OTHER_ABI, stock, call_hyperv(&self->t),
			"Hyper-V");
	EXPECT_EQ(0, self->t.deferred);
}

TEST_F(refusals, xen_hypercalls)
{
	struct kvm_xen_hvm_config cfg = {
		.flags = KVM_XEN_HVM_CONFIG_INTERCEPT_HCALL,
		.msr = 0x40000200,
	};
	struct kfs_vm_stats before, after;
	struct kvm_run *run;
	char why[128] = "";

	CREATE(KFS_DEFER_EXIT, 0);
	if (ioctl(self->t.vm.vm_fd, KVM_XEN_HVM_CONFIG, &cfg))
		SKIP(return, "KVM built without CONFIG_KVM_XEN: %s",
		     strerror(errno));
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &before));
	ASSERT_EQ(0, tvm_prepare(&self->t, SYS_getppid, NULL));
	ASSERT_EQ(0, gvm_run(self->t.vcpu));
	run = self->t.vcpu->run;
	ASSERT_EQ(KVM_EXIT_XEN, run->exit_reason)
		TH_LOG("%s", gvm_describe(self->t.vcpu));
	EXPECT_EQ(KFS_HC_SYSCALL, run->xen.u.hcall.input);
	run->xen.u.hcall.result = 4711;
	ASSERT_EQ(0, tvm_run(&self->t, NULL))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	EXPECT_EQ(4711, self->t.list->call[0].ret);
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &after));
	EXPECT_TRUE(declined_only(&before, &after, KFS_REASON_OTHER_ABI, 1,
				  why, sizeof(why)))
		TH_LOG("%s", why);
}

/* ---- Blocking with an in-kernel irqchip, dirty logging ------------------------ */
TEST_F(refusals, blocking_with_irqchip)
{
	char c;
	int p[2];

	ASSERT_EQ(0, pipe(p));
	ASSERT_EQ(1, write(p[1], "x", 1));
	CREATE(0, TVM_IRQCHIP);
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
	EXPECT_DECLINED(KFS_REASON_BLOCKING, -KFS_ENOSYS,
			tvm_call(&self->t, SYS_read, p[0], U(&c), 1, 0, 0, 0),
			"read");
	tvm_destroy(&self->t);
	CREATE(KFS_BLOCKING, TVM_IRQCHIP);
	EXPECT_EQ(1, tvm_call(&self->t, SYS_read, p[0], U(&c), 1, 0, 0, 0));
	EXPECT_EQ('x', c);
}

static int log_arena(struct tvm *t, bool on)
{
	struct kvm_userspace_memory_region region = {
		.slot = 1,	/* gvm: 0 is the image, 1 the arena */
		.flags = on ? KVM_MEM_LOG_DIRTY_PAGES : 0,
		.guest_phys_addr = U(t->vm.arena),
		.memory_size = t->vm.arena_size,
		.userspace_addr = U(t->vm.arena),
	};

	return ioctl(t->vm.vm_fd, KVM_SET_USER_MEMORY_REGION, &region) ?
		-errno : 0;
}

TEST_F(refusals, dirty_logging)
{
	unsigned int i;

	CREATE(0, 0);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
		ASSERT_EQ(0, log_arena(&self->t, true));
		EXPECT_DECLINED(KFS_REASON_DIRTY_LOG, -KFS_ENOSYS,
				tvm_call0(&self->t, SYS_getppid), "logging");
		ASSERT_EQ(0, log_arena(&self->t, false));
	}
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
}

TEST_HARNESS_MAIN
