/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* Guest code that C cannot say: returns, exceptions, 32-bit mode. */
#include "gvm_ports.h"

	.text

/* Return address of every guest function: its value is the result. */
	.globl	gvm_guest_return
gvm_guest_return:
	movl	$GVM_ASM_PORT_DONE, %edx
1:	outl	%eax, %dx
	jmp	1b

/*
 * Exceptions run on a stack of their own (IST), so they can be told even when
 * the guest's stack is what is broken. The frame stays there for the host:
 * vector, error code, RIP, CS, RFLAGS, RSP, SS.
 */
	.balign	16
	.globl	gvm_exc_stubs
gvm_exc_stubs:
	vector = 0
	.rept	32
	.balign	16
	.if	!((vector == 8) || ((vector >= 10) && (vector <= 14)) || \
		  (vector == 17) || (vector == 21) || (vector == 29) || \
		  (vector == 30))
	pushq	$0
	.endif
	pushq	$vector
	jmp	gvm_exc_common
	vector = vector + 1
	.endr

gvm_exc_common:
	movl	(%rsp), %eax
	movl	$GVM_ASM_PORT_EXCEPTION, %edx
1:	outl	%eax, %dx
	jmp	1b

/*
 * Compatibility mode. EDI: struct gvm_regs32, EDX: 1 for VMCALL (so that the
 * choice needs no memory of ours). EBP keeps the pointer over the hypercall.
 */
	.code32
	.balign	16
	.globl	gvm_code32
gvm_code32:
	movl	%edi, %ebp
	testl	%edx, %edx
	pushl	%edx
	movl	0(%ebp), %eax
	movl	4(%ebp), %ebx
	movl	8(%ebp), %ecx
	movl	12(%ebp), %edx
	movl	16(%ebp), %esi
	movl	20(%ebp), %edi
	cmpl	$0, (%esp)
	jne	1f
	vmmcall
	jmp	2f
1:	vmcall
2:	movl	%eax, 0(%ebp)
	movl	$GVM_ASM_PORT_DONE, %edx
3:	outl	%eax, %dx
	jmp	3b
	.code64

	.section .note.GNU-stack, "", @progbits
