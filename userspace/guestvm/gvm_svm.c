// SPDX-License-Identifier: MIT OR LGPL-2.1
/* See gvm_svm.h. VMCB layout: AMD64 Architecture Manual, volume 2, app. B. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "gvm_svm.h"

#define MSR_EFER		0xc0000080
#define MSR_VM_HSAVE_PA		0xc0010117
#define EFER_SVME		(1UL << 12)

/* Control area */
#define VMCB_EXCEPTIONS		0x008
#define VMCB_MISC1		0x00c
#define VMCB_MISC2		0x010
#define VMCB_ASID		0x058
#define VMCB_EXITCODE		0x070
#define MISC1_SHUTDOWN		(1U << 31)
#define MISC2_VMRUN		(1U << 0)
/* State save area */
#define SAVE_ES			0x400
#define SAVE_CS			0x410
#define SAVE_SS			0x420
#define SAVE_DS			0x430
#define SAVE_GDTR		0x460
#define SAVE_IDTR		0x480
#define SAVE_EFER		0x4d0
#define SAVE_CR4		0x548
#define SAVE_CR3		0x550
#define SAVE_CR0		0x558
#define SAVE_DR7		0x560
#define SAVE_DR6		0x568
#define SAVE_RFLAGS		0x570
#define SAVE_RIP		0x578
#define SAVE_RSP		0x5d8
#define SAVE_RAX		0x5f8
#define SAVE_PAT		0x668

#define L2_STACK_SIZE		0x4000

int gvm_svm_create(struct gvm_vcpu *vcpu, struct gvm_svm **out)
{
	struct gvm *vm = vcpu->vm;
	struct gvm_svm *svm;
	struct kvm_cpuid2 *list;
	bool have = false;
	unsigned int i;

	*out = NULL;
	list = calloc(1, sizeof(*list) + 256 * sizeof(list->entries[0]));
	if (!list)
		return -ENOMEM;
	list->nent = 256;
	if (!ioctl(vm->kvm_fd, KVM_GET_SUPPORTED_CPUID, list))
		for (i = 0; i < list->nent; i++)
			if (list->entries[i].function == 0x80000001)
				have = list->entries[i].ecx & (1U << 2);
	free(list);
	if (!have)
		return -EOPNOTSUPP;

	svm = gvm_alloc(vm, sizeof(*svm), 64);
	if (!svm)
		return -ENOMEM;
	svm->vmcb = gvm_alloc(vm, 4096, 4096);
	svm->hsave = gvm_alloc(vm, 4096, 4096);
	svm->stack = gvm_alloc(vm, L2_STACK_SIZE, 4096);
	if (!svm->vmcb || !svm->hsave || !svm->stack)
		return -ENOMEM;
	svm->gdt_base = (uintptr_t)vm->gdt;
	svm->idt_base = (uintptr_t)vm->idt;
	svm->cr3 = (uintptr_t)vm->pml4;
	*out = svm;
	return 0;
}

/* ---- Guest side from here on: no libc ---------------------------------- */

static void wrmsr(uint32_t msr, uint64_t v)
{
	__asm__ volatile("wrmsr" : : "c" (msr), "a" ((uint32_t)v),
			 "d" ((uint32_t)(v >> 32)) : "memory");
}

static uint64_t rdmsr(uint32_t msr)
{
	uint32_t lo, hi;

	__asm__ volatile("rdmsr" : "=a" (lo), "=d" (hi) : "c" (msr));
	return (uint64_t)hi << 32 | lo;
}

static void put64(struct gvm_svm *svm, unsigned int at, uint64_t v)
{
	*(volatile uint64_t *)(svm->vmcb + at) = v;
}

static void put32(struct gvm_svm *svm, unsigned int at, uint32_t v)
{
	*(volatile uint32_t *)(svm->vmcb + at) = v;
}

static void put_segment(struct gvm_svm *svm, unsigned int at,
			uint16_t selector, uint16_t attr, uint32_t limit,
			uint64_t base)
{
	put32(svm, at, selector | (uint32_t)attr << 16);
	put32(svm, at + 4, limit);
	put64(svm, at + 8, base);
}

void gvm_svm_enter(struct gvm_svm *svm, void *fn, uint32_t intercepts)
{
	uint64_t efer = rdmsr(MSR_EFER) | EFER_SVME;
	uint64_t cr0, cr4;
	unsigned int i;

	__asm__ volatile("mov %%cr0, %0" : "=r" (cr0));
	__asm__ volatile("mov %%cr4, %0" : "=r" (cr4));
	wrmsr(MSR_EFER, efer);
	wrmsr(MSR_VM_HSAVE_PA, (uintptr_t)svm->hsave);

	for (i = 0; i < 4096; i += 8)
		put64(svm, i, 0);
	put32(svm, VMCB_EXCEPTIONS, 0xffffffff);
	put32(svm, VMCB_MISC1, MISC1_SHUTDOWN);
	put32(svm, VMCB_MISC2, MISC2_VMRUN | intercepts);
	put32(svm, VMCB_ASID, 1);

	put_segment(svm, SAVE_CS, 0x08, 0xa9b, 0xffffffff, 0);
	put_segment(svm, SAVE_SS, 0x10, 0xc93, 0xffffffff, 0);
	put_segment(svm, SAVE_DS, 0x10, 0xc93, 0xffffffff, 0);
	put_segment(svm, SAVE_ES, 0x10, 0xc93, 0xffffffff, 0);
	put_segment(svm, SAVE_GDTR, 0, 0, 4095, svm->gdt_base);
	put_segment(svm, SAVE_IDTR, 0, 0, 511, svm->idt_base);
	put64(svm, SAVE_EFER, efer);
	put64(svm, SAVE_CR0, cr0);
	put64(svm, SAVE_CR3, svm->cr3);
	put64(svm, SAVE_CR4, cr4);
	put64(svm, SAVE_DR6, 0xffff0ff0);
	put64(svm, SAVE_DR7, 0x400);
	put64(svm, SAVE_RFLAGS, 2);
	put64(svm, SAVE_PAT, 0x0007040600070406ULL);
	put64(svm, SAVE_RIP, (uintptr_t)fn);
	put64(svm, SAVE_RSP, (uintptr_t)svm->stack + L2_STACK_SIZE - 64 - 8);
}

uint64_t gvm_svm_run(struct gvm_svm *svm, void *arg)
{
	uint64_t rax = (uintptr_t)svm->vmcb;

	/* VMRUN swaps RAX, RSP and RFLAGS only; the L2 may change the rest. */
	__asm__ volatile("push %%rbp\n\t"
			 "vmrun %%rax\n\t"
			 "pop %%rbp"
			 : "+a" (rax), "+D" (arg)
			 : : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10",
			   "r11", "r12", "r13", "r14", "r15", "memory", "cc");
	return *(volatile uint64_t *)(svm->vmcb + VMCB_EXITCODE);
}

uint64_t gvm_svm_rax(const struct gvm_svm *svm)
{
	return *(volatile uint64_t *)(svm->vmcb + SAVE_RAX);
}

uint64_t gvm_svm_rip(const struct gvm_svm *svm)
{
	return *(volatile uint64_t *)(svm->vmcb + SAVE_RIP);
}
