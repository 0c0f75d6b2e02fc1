// SPDX-License-Identifier: GPL-2.0
/* The table of interceptions of kvm_fastsys.ko. */
#include "kfs.h"
#include "kvm_hooks.h"

struct kfs_hook kfs_hooks[KFS_HOOK_COUNT] = {
	[KFS_HOOK_HYPERCALL] = {
		.name = "hypercall",
		.target = "kvm:kvm_emulate_hypercall",
		.tramp_fn = kfs_hypercall_tramp,
		.selftest = kfs_hypercall_selftest,
		.enabled = &kfs_param_hypercall,
	},
};

const unsigned int kfs_hook_count = KFS_HOOK_COUNT;
