// SPDX-License-Identifier: GPL-2.0
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/version.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
#include <linux/entry-virt.h>
#else
#include <linux/entry-kvm.h>
#endif

#include "compat.h"
#include "kick.h"

bool kfs_compat_vm_dead(struct kvm *kvm)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 16, 0)
	return kvm->vm_dead;
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(5, 15, 0)
	return kvm->vm_bugged;
#else
	return false;	/* not known yet */
#endif
}

bool kfs_compat_set_immediate_exit(struct kvm_run *run)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
	return xchg(&run->immediate_exit__unsafe, 1);
#else
	return xchg(&run->immediate_exit, 1);
#endif
}

/* The low bits of a mutex's owner are flags; they differ with PREEMPT_RT. */
static struct task_struct *kfs_mutex_owner(struct mutex *mutex)
{
#ifdef CONFIG_PREEMPT_RT
	return (void *)((unsigned long)READ_ONCE(mutex->rtmutex.owner) & ~1UL);
#else
	return (void *)(atomic_long_read(&mutex->owner) & ~7UL);
#endif
}

/*
 * The owner held the mutex when it was read, so it had not exited, and RCU
 * keeps it. KVM_RUN stores vcpu->pid after it took the mutex and before it
 * reads immediate_exit; whoever misses the new pid here must be sure that this
 * read comes late enough:
 *  - from 6.13 on pid_lock orders the two, in both directions;
 *  - before, a grace period lies between them, which waits for our section;
 *  - before, and on the first run, nothing does: the owner is taken for it.
 */
struct task_struct *kfs_compat_vcpu_runner(struct kvm_vcpu *vcpu)
{
	struct task_struct *owner = kfs_mutex_owner(&vcpu->mutex);
	struct task_struct *last;

	if (!owner)
		return NULL;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	read_lock(&vcpu->pid_lock);
	last = pid_task(vcpu->pid, PIDTYPE_PID);
	read_unlock(&vcpu->pid_lock);
#else
	{
		struct pid *pid = rcu_dereference(vcpu->pid);

		if (!pid)
			return owner;
		last = pid_task(pid, PIDTYPE_PID);
	}
#endif
	return owner == last ? owner : NULL;
}

int kfs_compat_handle_work(struct kvm_vcpu *vcpu)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	return xfer_to_guest_mode_handle_work();
#else
	return xfer_to_guest_mode_handle_work(vcpu);
#endif
}
