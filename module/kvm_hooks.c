// SPDX-License-Identifier: GPL-2.0
/* The table of interceptions of kvm_fastsys.ko. */
#include "kfs.h"
#include "kick.h"
#include "kvm_hooks.h"

struct kfs_hook kfs_hooks[KFS_HOOK_COUNT] = {
	[KFS_HOOK_HYPERCALL] = {
		.name = "hypercall",
		.target = "kvm:kvm_emulate_hypercall",
		.tramp_fn = kfs_hypercall_tramp,
		.selftest = kfs_hypercall_selftest,
		.enabled = &kfs_param_hypercall,
	},
	[KFS_HOOK_VCPU_IOCTL] = {
		.name = "vcpu_ioctl",
		.target = "kvm:kvm_vcpu_ioctl",
		.tramp_fn = kfs_user_exit_tramp,
		.selftest = kfs_user_exit_selftest,
		.enabled = &kfs_param_vcpu_ioctl,
		/* Kick fds work without it. */
		.optional = true,
	},
};

const unsigned int kfs_hook_count = KFS_HOOK_COUNT;
