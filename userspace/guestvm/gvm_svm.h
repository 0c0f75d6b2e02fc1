/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * A guest of the guest (L2) on AMD: gvm guest code runs one function under
 * VMRUN and gets the #VMEXIT code back. The L2 shares the L1's address space.
 */
#ifndef GVM_SVM_H
#define GVM_SVM_H

#include "gvm.h"

struct gvm_svm {
	uint8_t *vmcb;
	uint8_t *hsave;
	char *stack;
	uint64_t gdt_base, idt_base, cr3;
};

#define GVM_SVM_EXIT_IOIO	0x7b
#define GVM_SVM_EXIT_VMMCALL	0x81
#define GVM_SVM_EXIT_EXC(vec)	(0x40 + (vec))
#define GVM_SVM_INTERCEPT_VMMCALL	(1U << 1)

/* Host: the memory for it. -EOPNOTSUPP when KVM offers guests no SVM. */
int gvm_svm_create(struct gvm_vcpu *vcpu, struct gvm_svm **svm);

/* Guest, CPL 0: prepares an L2 that starts at fn. */
void gvm_svm_enter(struct gvm_svm *svm, void *fn, uint32_t intercepts);
/* Guest: VMRUN, once; RDI of the L2 is arg only on the first run. */
uint64_t gvm_svm_run(struct gvm_svm *svm, void *arg);
/* Guest: registers the L2 has after an exit. */
uint64_t gvm_svm_rax(const struct gvm_svm *svm);
uint64_t gvm_svm_rip(const struct gvm_svm *svm);

#endif
