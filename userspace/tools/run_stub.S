/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * What the program's SYSCALL instruction enters in ring 0 of the guest: one
 * page of code, copied to RUN_SYS, with its data in the next one. As after any
 * system call RCX and R11 are lost and RSP is the program's own throughout:
 * nothing here needs a stack. One vCPU, so one save area does.
 */
#include "run.h"

	.set	data, run_stub + RUN_SYS_DATA
	.set	save_rbx, data
	.set	mail_nr, data + 8
	.set	mail_args, data + 16
	.set	mail_ret, data + 64

	.section .rodata.run_stub, "a"
	.balign	4096
	.globl	run_stub
run_stub:
	.globl	run_stub_fast
run_stub_fast:
	movq	%rbx, save_rbx(%rip)
	movq	%rax, %rbx
	movl	$0x4b465301, %eax	/* KFS_HC_SYSCALL */
	.globl	run_stub_hypercall
run_stub_hypercall:
	vmmcall				/* made VMCALL on Intel's */
	cmpq	$-1000, %rax		/* nobody serves it now */
	je	1f
	movq	save_rbx(%rip), %rbx
	sysretq
1:	movq	%rbx, %rax
	movq	save_rbx(%rip), %rbx

	.globl	run_stub_exit
run_stub_exit:
	movq	%rax, mail_nr(%rip)
	movq	%rdi, mail_args(%rip)
	movq	%rsi, mail_args+8(%rip)
	movq	%rdx, mail_args+16(%rip)
	movq	%r10, mail_args+24(%rip)
	movq	%r8, mail_args+32(%rip)
	movq	%r9, mail_args+40(%rip)
	outb	%al, $RUN_PORT_CALL
	movq	mail_ret(%rip), %rax
	sysretq

	.globl	run_stub_regs
run_stub_regs:
	outb	%al, $RUN_PORT_REGS
	sysretq

/*
 * An exception ends the program. It runs on a stack of its own; the frame
 * (vector, error code, RIP, CS, RFLAGS, RSP, SS) stays there for the launcher.
 */
	.balign	RUN_EXC_STUB_SIZE
	.globl	run_stub_exceptions
run_stub_exceptions:
	vector = 0
	.rept	32
	.balign	RUN_EXC_STUB_SIZE
	.if	!((vector == 8) || ((vector >= 10) && (vector <= 14)) || \
		  (vector == 17) || (vector == 21) || (vector == 29) || \
		  (vector == 30))
	pushq	$0
	.endif
	pushq	$vector
	outb	%al, $RUN_PORT_EXCEPTION
	vector = vector + 1
	.endr
	.globl	run_stub_end
run_stub_end:

	.section .note.GNU-stack, "", @progbits
