/* SPDX-License-Identifier: GPL-2.0 */
/* What the kick needs of KVM's and the kernel's insides. */
#ifndef KFS_COMPAT_KICK_H
#define KFS_COMPAT_KICK_H

#include <linux/kvm_host.h>

/* KVM has given the VM up; its ioctls answer EIO. */
bool kfs_compat_vm_dead(struct kvm *kvm);

/* Sets it and says whether it was set; a full barrier. */
bool kfs_compat_set_immediate_exit(struct kvm_run *run);

/*
 * The task inside KVM_RUN on this vCPU, or NULL. Under rcu_read_lock(), which
 * keeps the task's memory; after kfs_compat_set_immediate_exit(), so that a
 * task not seen here sees immediate_exit.
 */
struct task_struct *kfs_compat_vcpu_runner(struct kvm_vcpu *vcpu);

/*
 * What KVM_RUN does about pending work before it enters the guest, for the
 * current task: -EINTR makes it return.
 */
int kfs_compat_handle_work(struct kvm_vcpu *vcpu);

#endif
