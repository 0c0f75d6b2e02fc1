// SPDX-License-Identifier: GPL-2.0
/*
 * Load and unload, in order.
 */
#include <linux/module.h>

#include "kfs.h"
#include "kick.h"
#include "kvm_hooks.h"
#include "kvm_symbols.h"
#include "symbols.h"

bool kfs_param_hypercall = true;
module_param_named(hypercall, kfs_param_hypercall, bool, 0444);
MODULE_PARM_DESC(hypercall, "Host system calls by hypercall (default 1)");

bool kfs_param_identity = true;
module_param_named(identity, kfs_param_identity, bool, 0444);
MODULE_PARM_DESC(identity, "Allow identity mode, for guests that are part of their VMM (default 1)");

uint kfs_param_max_vms = KFS_MAX_VMS_PER_USER;
module_param_named(max_vms, kfs_param_max_vms, uint, 0444);
MODULE_PARM_DESC(max_vms, "Attached VMs per user (default 1024)");

bool kfs_param_kick = true;
module_param_named(kick, kfs_param_kick, bool, 0444);
MODULE_PARM_DESC(kick, "Kick fds (default 1)");

/* Not without the kick itself. */
bool kfs_param_vcpu_ioctl = true;
module_param_named(vcpu_ioctl, kfs_param_vcpu_ioctl, bool, 0444);
MODULE_PARM_DESC(vcpu_ioctl, "Kick by ioctl on the vCPU's fd, for openers that ask (default 1)");

uint kfs_param_max_kicks = KFS_MAX_KICKS_PER_USER;
module_param_named(max_kicks, kfs_param_max_kicks, uint, 0444);
MODULE_PARM_DESC(max_kicks, "Kick fds per user (default 16384)");

static int __init kfs_init(void)
{
	int err;

	err = kfs_symbols_init();
	if (err)
		return err;
	err = kfs_kvm_symbols_resolve();
	if (err)
		return err;
	err = kfs_vms_init();
	if (err)
		return err;
	kfs_kick_init();
	if (!kfs_kick_works())
		kfs_param_vcpu_ioctl = false;
	err = kfs_hooks_init();
	if (err)
		goto fail_vms;
	/* Last: from here on user space can reach us. */
	err = kfs_device_init();
	if (err)
		goto fail_hooks;
	return 0;

fail_hooks:
	kfs_hooks_exit();
fail_vms:
	kfs_vms_exit();
	return err;
}

/*
 * Nobody has a file of ours open and no VM object exists. First the way in,
 * then what may still be returning from the last VM's end (it puts the hook),
 * then those that were preempted on their way out of hooked functions.
 */
static void __exit kfs_exit(void)
{
	kfs_device_exit();
	kfs_vms_exit();
	kfs_hooks_exit();
}

module_init(kfs_init);
module_exit(kfs_exit);

MODULE_DESCRIPTION("Host system calls for KVM guests inside KVM_RUN");
MODULE_AUTHOR("The kvm_fastsys authors");
MODULE_LICENSE("GPL");
MODULE_VERSION(KFS_VERSION);
MODULE_INFO(kernels, "5.10-7.2, tested 6.1 6.12");
