// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Hypercalls of a guest's own guest (L2). They are its L1's to answer, and KVM
 * hands them there before any handler of ours; except for Hyper-V's TLB flush
 * calls of an L1 that asked KVM to serve them for its L2 (6.2 and later). Our
 * number in such a call must be left to KVM as well.
 */
#include "gvm_svm.h"
#include "kfstest.h"
#include "kselftest_harness.h"

#define HV_MSR_GUEST_OS_ID	0x40000000
#define HV_MSR_VP_ASSIST_PAGE	0x40000073
#define HV_FLUSH_ADDRESS_SPACE	2
#define HV_ASSIST_NESTED	32	/* offset of nested_control.features */
#define VMCB_HV			0x3e0	/* hv_enlightenments_control */
#define HV_DIRECT_FLUSH		1

struct nested {
	struct gvm_svm *svm;
	char *assist;		/* NULL: no Hyper-V */
	char *partition;
	uint64_t rax;		/* of the L2's hypercall */
	uint64_t rcx;
	int64_t ret;		/* what the L2 got, if anybody answered it */
	uint64_t exit_code;	/* what the L1 got */
	uint64_t exit_rax;
};

static void guest_l2(struct nested *n)
{
	int64_t ret = n->rax;

	__asm__ volatile("vmmcall" : "+a" (ret)
			 : "b" ((uint64_t)SYS_getppid), "c" (n->rcx),
			   "d" (0UL), "r" (0UL) : "memory");
	n->ret = ret;
	__asm__ volatile("ud2");
}

static void wrmsr(uint32_t msr, uint64_t v)
{
	__asm__ volatile("wrmsr" : : "c" (msr), "a" ((uint32_t)v),
			 "d" ((uint32_t)(v >> 32)) : "memory");
}

static uint32_t guest_l1(struct nested *n)
{
	if (n->assist) {
		wrmsr(HV_MSR_GUEST_OS_ID, 0x8100000000012345ULL);
		wrmsr(HV_MSR_VP_ASSIST_PAGE, (uintptr_t)n->assist | 1);
		*(volatile uint32_t *)(n->assist + HV_ASSIST_NESTED) =
			HV_DIRECT_FLUSH;
	}
	gvm_svm_enter(n->svm, guest_l2, GVM_SVM_INTERCEPT_VMMCALL);
	if (n->assist) {
		*(volatile uint32_t *)(n->svm->vmcb + VMCB_HV) =
			HV_DIRECT_FLUSH;
		*(volatile uint32_t *)(n->svm->vmcb + VMCB_HV + 4) = 1;
		*(volatile uint64_t *)(n->svm->vmcb + VMCB_HV + 8) = 1;
		*(volatile uint64_t *)(n->svm->vmcb + VMCB_HV + 16) =
			(uintptr_t)n->partition;
	}
	n->exit_code = gvm_svm_run(n->svm, n);
	n->exit_rax = gvm_svm_rax(n->svm);
	return 0x600d;
}

/* 0, -EOPNOTSUPP without nested SVM, else an error told by t->vm.error. */
static int run_nested(struct tvm *t, struct nested **out, bool hyperv,
		      uint64_t rax, uint64_t rcx)
{
	struct nested *n = gvm_alloc(&t->vm, sizeof(*n), 64);
	int err;

	*out = n;
	*n = (struct nested){ .rax = rax, .rcx = rcx, .ret = INT64_MIN };
	err = gvm_svm_create(t->vcpu, &n->svm);
	if (err)
		return err;
	if (hyperv) {
		n->assist = gvm_alloc(&t->vm, 4096, 4096);
		n->partition = gvm_alloc(&t->vm, 4096, 4096);
	}
	err = gvm_set_entry(t->vcpu, guest_l1, n, GVM_RING0);
	return err ? err : tvm_run(t, NULL);
}

FIXTURE(nested) {
	struct tvm t;
	struct tvm stock;	/* never attached: what KVM does by itself */
};

FIXTURE_SETUP(nested)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, KFS_DEFER_EXIT, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	ASSERT_EQ(0, tvm_create(&self->stock, 0, TVM_UNATTACHED))
		TH_LOG("%s", gvm_strerror(&self->stock.vm));
}

FIXTURE_TEARDOWN(nested)
{
	tvm_destroy(&self->t);
	tvm_destroy(&self->stock);
}

TEST_F(nested, l2_hypercall_goes_to_its_l1)
{
	struct kfs_vm_stats st;
	struct nested *n;
	int err;

	err = run_nested(&self->t, &n, false, KFS_HC_SYSCALL, 0);
	if (err == -EOPNOTSUPP)
		SKIP(return, "KVM offers no nested SVM here");
	ASSERT_EQ(0, err) TH_LOG("%s", gvm_strerror(&self->t.vm));
	EXPECT_EQ(GVM_SVM_EXIT_VMMCALL, n->exit_code);
	EXPECT_EQ(KFS_HC_SYSCALL, n->exit_rax);
	EXPECT_EQ(INT64_MIN, n->ret);
	EXPECT_EQ(0, self->t.deferred);
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(0, st.ran + declined_sum(&st));
	/* The L1 itself is served. */
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
}

TEST_F(nested, flush_call_that_kvm_serves_for_an_l2)
{
	struct nested *n, *stock;
	struct kfs_vm_stats st;
	bool reached;
	int err;

	err = tvm_set_hyperv_cpuid(&self->t);
	if (err == -EINVAL || err == -ENOTTY)
		SKIP(return, "this KVM has no Hyper-V support");
	ASSERT_EQ(0, err) TH_LOG("%s", gvm_strerror(&self->t.vm));
	ASSERT_EQ(0, tvm_set_hyperv_cpuid(&self->stock));
	err = run_nested(&self->stock, &stock, true, KFS_HC_SYSCALL,
			 HV_FLUSH_ADDRESS_SPACE);
	if (err == -EOPNOTSUPP)
		SKIP(return, "KVM offers no nested SVM here");
	ASSERT_EQ(0, err) TH_LOG("%s", gvm_strerror(&self->stock.vm));
	/* Served by KVM, or handed to the L1 by a KVM before 6.2. */
	reached = stock->exit_code == GVM_SVM_EXIT_EXC(6);
	if (!reached) {
		ASSERT_EQ(GVM_SVM_EXIT_VMMCALL, stock->exit_code);
	}

	ASSERT_EQ(0, run_nested(&self->t, &n, true, KFS_HC_SYSCALL,
				HV_FLUSH_ADDRESS_SPACE))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	EXPECT_EQ(stock->exit_code, n->exit_code);
	EXPECT_EQ(stock->ret, n->ret);
	EXPECT_EQ(0, self->t.deferred);
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(0, st.ran);
	EXPECT_EQ(reached, st.declined[KFS_REASON_NESTED]);
	EXPECT_EQ(reached, declined_sum(&st));
	TH_LOG("an L2's flush call %s our hook on this kernel",
	       reached ? "reaches" : "does not reach");
}

TEST_HARNESS_MAIN
