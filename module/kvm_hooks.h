/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KFS_KVM_HOOKS_H
#define KFS_KVM_HOOKS_H

#include "hook.h"

enum kfs_hook_id {
	KFS_HOOK_HYPERCALL,
	KFS_HOOK_VCPU_IOCTL,
	KFS_HOOK_COUNT
};

#endif
