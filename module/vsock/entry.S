/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trampolines, each called from the first instruction of a function of the
 * kernel's: 0(%rsp) returns into it, 8(%rsp) to its caller. RAX and R11 are
 * free; the arguments are kept for it. When ours passes, nothing of ours is on
 * the stack while the kernel's function runs, however long it sleeps.
 */
#include <linux/linkage.h>
#include <asm/unwind_hints.h>

#include "../compat/asm.h"
#include "../entry.h"

	.text

.macro KFS_TRAMPOLINE name handler more=0
SYM_FUNC_START(\name)
	KFS_ENDBR
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	.if \more
	pushq	%rcx
	pushq	%r8
	pushq	%r9
	.endif
	call	\handler
	.if \more
	popq	%r9
	popq	%r8
	popq	%rcx
	.endif
	popq	%rdx
	popq	%rsi
	popq	%rdi
	cmpl	$KFS_PASS, %eax
	je	.Lpass_\name
	/* Drop the return into the hooked function: RAX goes to its caller. */
	addq	$8, %rsp
	UNWIND_HINT_FUNC
	RET
.Lpass_\name:
	RET
SYM_FUNC_END(\name)
.endm

KFS_TRAMPOLINE kfs_vsock_enqueue_tramp kfs_vsock_enqueue
KFS_TRAMPOLINE kfs_vsock_recv_tramp kfs_vsock_recv
KFS_TRAMPOLINE kfs_vsock_poll_tramp kfs_vsock_poll
KFS_TRAMPOLINE kfs_vsock_shutdown_tramp kfs_vsock_shutdown
KFS_TRAMPOLINE kfs_vsock_release_tramp kfs_vsock_release
KFS_TRAMPOLINE kfs_vsock_destruct_tramp kfs_vsock_destruct
KFS_TRAMPOLINE kfs_vsock_setsockopt_tramp kfs_vsock_setsockopt more=1
KFS_TRAMPOLINE kfs_vsock_getsockopt_tramp kfs_vsock_getsockopt more=1
