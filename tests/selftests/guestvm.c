// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The test VM itself, and what stock KVM answers to a hypercall it does not
 * know: the ground all other programs here stand on. Passes with and without
 * the module.
 */
#include <errno.h>
#include <sys/ioctl.h>

#include "gvm.h"
#include "gvm_svm.h"
#include "kselftest_harness.h"

#define UNKNOWN_HYPERCALL	0x4b4653ffUL

struct shared {
	int64_t ret;
	uint64_t exit_code;
	uint64_t l2_rax;
	uint64_t l2_rip;
	struct gvm_svm *svm;
};

static uint32_t guest_sum(uint64_t *p)
{
	return p[0] + p[1];
}

static uint32_t guest_hypercall(struct shared *sh)
{
	sh->ret = gvm_hypercall(UNKNOWN_HYPERCALL, 0, 0, 0, 0, 0, 0, 0);
	return 1;
}

static uint32_t guest_fault(uint64_t *p)
{
	__asm__ volatile("ud2");
	return *p;
}

static void l2_hypercall(struct shared *sh)
{
	sh->ret = gvm_hypercall(UNKNOWN_HYPERCALL, 0, 0, 0, 0, 0, 0, 0);
	__asm__ volatile("ud2");
}

static uint32_t guest_l1(struct shared *sh)
{
	gvm_svm_enter(sh->svm, l2_hypercall, GVM_SVM_INTERCEPT_VMMCALL);
	sh->exit_code = gvm_svm_run(sh->svm, sh);
	sh->l2_rax = gvm_svm_rax(sh->svm);
	sh->l2_rip = gvm_svm_rip(sh->svm);
	return 2;
}

FIXTURE(guestvm) {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	struct shared *sh;
};

FIXTURE_SETUP(guestvm)
{
	int err = gvm_create(&self->vm, NULL);

	if (err == -ENOENT)
		SKIP(return, "%s", gvm_strerror(&self->vm));
	ASSERT_EQ(0, err) TH_LOG("%s", gvm_strerror(&self->vm));
	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &self->vcpu))
		TH_LOG("%s", gvm_strerror(&self->vm));
	self->sh = gvm_alloc(&self->vm, sizeof(*self->sh), 64);
	ASSERT_NE(NULL, self->sh);
}

FIXTURE_TEARDOWN(guestvm)
{
	gvm_destroy(&self->vm);
}

TEST_F(guestvm, runs_c)
{
	uint64_t *p = gvm_alloc(&self->vm, 16, 8);
	uint32_t value = 0;

	p[0] = 40;
	p[1] = 2;
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_sum, p, GVM_RING0));
	ASSERT_EQ(0, gvm_run_to_done(self->vcpu, &value))
		TH_LOG("%s", gvm_strerror(&self->vm));
	EXPECT_EQ(42, value);
}

TEST_F(guestvm, reports_exceptions)
{
	struct gvm_exception exc;
	uint32_t value = 0;

	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_fault, NULL, GVM_RING0));
	ASSERT_EQ(0, gvm_run(self->vcpu));
	ASSERT_EQ(GVM_EXCEPTION, gvm_event(self->vcpu, &value))
		TH_LOG("%s", gvm_describe(self->vcpu));
	EXPECT_EQ(6, value);
	ASSERT_EQ(0, gvm_get_exception(self->vcpu, &exc));
	EXPECT_EQ(6, exc.vector);
	EXPECT_EQ((uint64_t)(uintptr_t)guest_fault, exc.rip);
}

TEST_F(guestvm, ring0_unknown_hypercall)
{
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_hypercall, self->sh,
				   GVM_RING0));
	ASSERT_EQ(0, gvm_run_to_done(self->vcpu, NULL))
		TH_LOG("%s", gvm_strerror(&self->vm));
	EXPECT_EQ(-1000, self->sh->ret);
}

TEST_F(guestvm, ring3_hypercall)
{
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_hypercall, self->sh,
				   GVM_RING3));
	ASSERT_EQ(0, gvm_run_to_done(self->vcpu, NULL))
		TH_LOG("%s", gvm_strerror(&self->vm));
	EXPECT_EQ(-1, self->sh->ret);
}

TEST_F(guestvm, code32_hypercall)
{
	struct gvm_regs32 *regs = gvm_alloc(&self->vm, sizeof(*regs), 64);
	uint32_t value = 0;

	regs->eax = UNKNOWN_HYPERCALL;
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, gvm_code32, regs, GVM_32BIT));
	ASSERT_EQ(0, gvm_run_to_done(self->vcpu, &value))
		TH_LOG("%s", gvm_strerror(&self->vm));
	EXPECT_EQ((uint32_t)-1000, value);
	EXPECT_EQ((uint32_t)-1000, regs->eax);
}

TEST_F(guestvm, l2_hypercall_goes_to_l1)
{
	int err = gvm_svm_create(self->vcpu, &self->sh->svm);

	if (err == -EOPNOTSUPP)
		SKIP(return, "KVM offers no nested SVM here");
	ASSERT_EQ(0, err);
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_l1, self->sh, GVM_RING0));
	ASSERT_EQ(0, gvm_run_to_done(self->vcpu, NULL))
		TH_LOG("%s", gvm_strerror(&self->vm));
	EXPECT_EQ(GVM_SVM_EXIT_VMMCALL, self->sh->exit_code);
	EXPECT_EQ(UNKNOWN_HYPERCALL, self->sh->l2_rax);
}

TEST_F(guestvm, two_vms_two_vcpus)
{
	struct gvm_opts opts = { .irqchip = true };
	struct gvm_vcpu *second;
	struct gvm_vcpu *other_vcpu;
	struct gvm other;
	uint32_t value = 0;
	uint64_t *p;

	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &second));
	ASSERT_EQ(0, gvm_create(&other, &opts))
		TH_LOG("%s", gvm_strerror(&other));
	ASSERT_EQ(0, gvm_vcpu_create(&other, &other_vcpu))
		TH_LOG("%s", gvm_strerror(&other));
	EXPECT_NE(other.arena, self->vm.arena);
	p = gvm_alloc(&other, 16, 8);
	p[0] = 1;
	p[1] = 2;
	ASSERT_EQ(0, gvm_set_entry(other_vcpu, guest_sum, p, GVM_RING0));
	EXPECT_EQ(0, gvm_run_to_done(other_vcpu, &value));
	EXPECT_EQ(3, value);
	gvm_destroy(&other);

	p = gvm_alloc(&self->vm, 16, 8);
	p[0] = 3;
	p[1] = 4;
	ASSERT_EQ(0, gvm_set_entry(second, guest_sum, p, GVM_RING0));
	EXPECT_EQ(0, gvm_run_to_done(second, &value));
	EXPECT_EQ(7, value);
}

TEST_HARNESS_MAIN
