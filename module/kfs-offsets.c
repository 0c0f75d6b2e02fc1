// SPDX-License-Identifier: GPL-2.0
/* Constants for the trampolines; becomes kfs-offsets.h, never an object. */
#include <linux/kbuild.h>
#include <linux/kvm_host.h>
#include <linux/kvm_fastsys.h>

void kfs_offsets(void);

void kfs_offsets(void)
{
	DEFINE(KFS_FIRST_HC, KFS_HC_PROBE);
	DEFINE(KFS_LAST_HC, KFS_HC_SYSCALL);
	DEFINE(KFS_USER_EXIT_NR, KFS_USER_EXIT);
	OFFSET(KFS_VCPU_RAX, kvm_vcpu, arch.regs[VCPU_REGS_RAX]);
}
