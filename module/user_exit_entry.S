/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Called from the first instruction of kvm_vcpu_ioctl(file, cmd, arg), so that
 * 0(%rsp) returns into it and 8(%rsp) returns to its caller. ESI is the number.
 *
 * Every vCPU ioctl of every VM on the host passes here while the hook is live,
 * KVM_RUN among them: two instructions and the return.
 */
#include <linux/linkage.h>
#include <asm/unwind_hints.h>

#include "compat/asm.h"
#include "kfs-offsets.h"

	.text

SYM_FUNC_START(kfs_user_exit_tramp)
	KFS_ENDBR
	cmpl	$KFS_USER_EXIT_NR, %esi
	je	.Lours
	RET

.Lours:
	/* Drop the return into KVM's function; ours returns to its caller. */
	addq	$8, %rsp
	UNWIND_HINT_FUNC
	jmp	kfs_user_exit
SYM_FUNC_END(kfs_user_exit_tramp)
