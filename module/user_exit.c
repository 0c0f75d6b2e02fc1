// SPDX-License-Identifier: GPL-2.0
/*
 * KFS_USER_EXIT: a kick by ioctl on the vCPU's own fd. Reached only from the
 * trampoline in user_exit_entry.S, instead of KVM's vCPU ioctl function and so
 * before the vCPU's mutex. Must not sleep: what keeps this text while a thread
 * is in it is a grace period for preempted tasks at unload.
 */
#include <linux/fs.h>
#include <linux/slab.h>

#include "compat/compat.h"
#include "compat/kick.h"
#include "kfs.h"
#include "kick.h"
#include "kvm_symbols.h"

long kfs_user_exit(struct file *file, unsigned int cmd, unsigned long flags)
{
	struct kvm_vcpu *vcpu = file->private_data;

	/* As KVM for its own ioctls: another process may not. */
	if (vcpu->kvm->mm != current->mm || kfs_compat_vm_dead(vcpu->kvm))
		return -EIO;
	if (flags)
		return -EINVAL;
	return kfs_kick_vcpu(vcpu, true) & KFS_KICK_INTERRUPTED ? 1 : 0;
}

/*
 * Calls KVM's function with a file of zeros and a vCPU of this process. With
 * the hook in place immediate_exit gets set; without it KVM refuses an ioctl
 * that is not of its type before it looks at anything else.
 */
int kfs_user_exit_selftest(void)
{
	struct kvm_vcpu *vcpu = kvzalloc(sizeof(*vcpu), GFP_KERNEL);
	struct kvm *kvm = kvzalloc(sizeof(*kvm), GFP_KERNEL);
	struct file *file = kzalloc(sizeof(*file), GFP_KERNEL);
	struct kvm_run *run = (void *)get_zeroed_page(GFP_KERNEL);
	int err = -ENOMEM;

	if (!vcpu || !kvm || !file || !run)
		goto out;
	mutex_init(&vcpu->mutex);
	vcpu->kvm = kvm;
	vcpu->run = run;
	kvm->mm = current->mm;
	file->private_data = vcpu;
	err = static_call(kfs_vcpu_ioctl)(file, KFS_USER_EXIT, 0);
	if (!err && !kfs_compat_immediate_exit(run))
		err = -EIO;
	if (!err)
		kfs_kick_uncount();
out:
	free_page((unsigned long)run);
	kfree(file);
	kvfree(kvm);
	kvfree(vcpu);
	return err;
}
