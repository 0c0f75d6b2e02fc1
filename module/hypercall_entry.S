/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Called from the first instruction of kvm_emulate_hypercall(vcpu), so that
 * 0(%rsp) returns into it and 8(%rsp) returns to its caller. RDI is the vCPU,
 * RAX and R11 are free, as at any function's entry.
 *
 * Hypercalls that are not ours leave after four instructions. Ours are offered
 * to kfs_hypercall(); if it passes, the return into KVM's function is taken
 * with nothing of ours left on the stack, so KVM may sleep there as long as it
 * likes while this module is unloaded.
 */
#include <linux/linkage.h>
#include <asm/unwind_hints.h>

#include "compat/asm.h"
#include "entry.h"
#include "kfs-offsets.h"

	.text

SYM_FUNC_START(kfs_hypercall_tramp)
	KFS_ENDBR
	movq	KFS_VCPU_RAX(%rdi), %rax
	subq	$KFS_FIRST_HC, %rax
	cmpq	$(KFS_LAST_HC - KFS_FIRST_HC), %rax
	jbe	.Lours
	RET

.Lours:
	pushq	%rdi
	call	kfs_hypercall
	popq	%rdi
	cmpl	$KFS_PASS, %eax
	je	.Lpass
	/* Drop the return into KVM's function: EAX goes to its caller. */
	addq	$8, %rsp
	UNWIND_HINT_FUNC
	RET

.Lpass:
	RET
SYM_FUNC_END(kfs_hypercall_tramp)
