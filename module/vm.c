// SPDX-License-Identifier: GPL-2.0
/*
 * The per-VM object: find, attach, detach, limits. Its life is told in kfs.h.
 *
 * Locks: kfs_vms_lock (mutex) orders attach against attach and guards the list. kfs_hash_lock (spinlock) guards the hash
 * against writers and is taken last, also from the mm's end. vm->lock guards
 * policy and enable. Neither is ever taken by a call.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "kfs.h"
#include "kvm_hooks.h"
#include "kvm_symbols.h"

struct hlist_head kfs_hash[1 << KFS_HASH_BITS];
static DEFINE_SPINLOCK(kfs_hash_lock);

static DEFINE_MUTEX(kfs_vms_lock);
static LIST_HEAD(kfs_vms);		/* by ascending id */
static u64 kfs_next_id = 1;
static struct workqueue_struct *kfs_wq;

/*
 * First call of a vCPU. Under vcpu->mutex, so there is one maker for each
 * entry. Returns as kfs_call_enter() does, which has found no entry.
 *
 * The allocation may sleep, and nothing has marked this vCPU yet: `makers`
 * holds up the VM's end, and with it the module. Dropping it is the last touch
 * of the VM object that no mark covers.
 */
struct kfs_vcpu *kfs_vcpu_make(struct kvm_vcpu *vcpu)
{
	struct kfs_vcpu *kv;
	struct kfs_vm *vm;

	rcu_read_lock();
	vm = kfs_vm_find(vcpu->kvm);
	if (vm)
		atomic_inc(&vm->makers);
	rcu_read_unlock();
	if (!vm)
		return NULL;

	kv = kzalloc(sizeof(*kv), GFP_KERNEL_ACCOUNT);
	if (kv) {
		kv->vm = vm;
		/* A vCPU has KVM's APIC, and a dirty ring, from its creation. */
		if (vcpu->arch.apic && !(vm->flags & KFS_BLOCKING))
			kv->limits |= KFS_LIMIT_NO_BLOCKING;
		if (vcpu->kvm->dirty_ring_size)
			kv->limits |= KFS_LIMIT_DIRTY_RING;
		/* Readers of statistics find it complete. */
		smp_store_release(&vm->vcpus[vcpu->vcpu_idx], kv);
		kv = kfs_call_enter(vcpu);
	} else {
		atomic64_inc(&vm->no_memory);
	}
	smp_mb__before_atomic();	/* marked before no maker is seen */
	atomic_dec(&vm->makers);
	return kv;
}

static void kfs_vm_free(struct kref *ref)
{
	struct kfs_vm *vm = container_of(ref, struct kfs_vm, ref);
	unsigned int i;

	if (vm->vcpus)
		for (i = 0; i < KVM_MAX_VCPUS; i++)
			kfree(vm->vcpus[i]);
	kvfree(vm->vcpus);
	kfs_policy_free(vm->policy);
	put_pid(vm->tgid);
	kfree(vm);
}

void kfs_vm_put(struct kfs_vm *vm)
{
	kref_put(&vm->ref, kfs_vm_free);
}

/*
 * Takes the VM's place in the list, before anything costly is done for it. One
 * that is ending does not stand in the way.
 */
static int kfs_vm_reserve(struct kfs_vm *vm)
{
	unsigned int mine = 0;
	struct kfs_vm *other;
	int err = 0;

	mutex_lock(&kfs_vms_lock);
	list_for_each_entry(other, &kfs_vms, list) {
		if (other->kvm == vm->kvm &&
		    !test_bit(KFS_VM_BIT_DYING, &other->bits))
			err = -EBUSY;
		if (uid_eq(other->uid, vm->uid))
			mine++;
	}
	if (!err && mine >= kfs_param_max_vms)
		err = -EDQUOT;
	if (!err) {
		vm->id = kfs_next_id++;
		list_add_tail(&vm->list, &kfs_vms);
	}
	mutex_unlock(&kfs_vms_lock);
	return err;
}

static void kfs_vm_unreserve(struct kfs_vm *vm)
{
	mutex_lock(&kfs_vms_lock);
	list_del(&vm->list);
	mutex_unlock(&kfs_vms_lock);
}

/* Interrupts the calls in flight; true when there are none. */
static bool kfs_vm_drained(struct kfs_vm *vm)
{
	/* A maker that is gone has marked its vCPU, or found no VM. */
	bool drained = !atomic_read_acquire(&vm->makers);
	unsigned int i;

	for (i = 0; i < KVM_MAX_VCPUS; i++) {
		struct kfs_vcpu *kv = kfs_vm_vcpu(vm, i);
		struct task_struct *task;

		if (!kv)
			continue;
		/* Tasks are freed by RCU, and this one was alive in a call. */
		rcu_read_lock();
		task = smp_load_acquire(&kv->task); /* with kfs_call_leave() */
		if (task) {
			kfs_interrupt_task(task);
			drained = false;
		}
		rcu_read_unlock();
	}
	return drained;
}

#define KFS_DRAIN_LONGEST	(HZ / 10)

/*
 * The rest of a VM's end, where waiting is allowed: the control fd's last put
 * can come from inside a guest's call, which must not wait for itself.
 *
 * The VM has left the hash, so after a grace period nobody enters and everybody
 * inside is marked. A call that sleeps uninterruptibly takes as long as it
 * takes: the work comes back instead of occupying a worker, and calls of other
 * VMs pay nothing for it.
 *
 * Order: no call left, then what the calls relied on, then the hook (others may
 * keep it live; removing it is slow). The module reference goes last; module
 * exit flushes this work before its text goes away.
 */
static void kfs_vm_end_work(struct work_struct *work)
{
	struct kfs_vm *vm = container_of(to_delayed_work(work), struct kfs_vm,
					 end);
	struct mm_struct *mm;

	if (!vm->drain_delay)
		synchronize_rcu();
	if (!kfs_vm_drained(vm)) {
		vm->drain_delay = clamp(vm->drain_delay * 2, 1UL,
					(unsigned long)KFS_DRAIN_LONGEST);
		queue_delayed_work(kfs_wq, &vm->end, vm->drain_delay);
		return;
	}

	/*
	 * Ours may be the last reference, and KVM undoes its own mappings in
	 * the VMM only in that address space.
	 */
	mm = mmget_not_zero(vm->mm) ? vm->mm : NULL;
	mmu_notifier_unregister(&vm->mmu, vm->mm);
	if (mm)
		kthread_use_mm(mm);
	__fput_sync(vm->file);
	kvm_put_kvm(vm->kvm);
	if (mm) {
		kthread_unuse_mm(mm);
		mmput(mm);
	}
	kfs_hook_put(KFS_HOOK_HYPERCALL);

	kfs_vm_unreserve(vm);
	kfs_vm_put(vm);
	module_put(THIS_MODULE);
}

/* Once, by whoever comes first. Never waits. */
void kfs_vm_end(struct kfs_vm *vm)
{
	if (test_and_set_bit(KFS_VM_BIT_DYING, &vm->bits))
		return;
	/* Out of the hash at once: the VM can be attached anew. */
	spin_lock(&kfs_hash_lock);
	hlist_del_rcu(&vm->hash);
	spin_unlock(&kfs_hash_lock);
	queue_delayed_work(kfs_wq, &vm->end, 0);
}

/* The mm's end with the control fd still open, in another process say. */
static void kfs_mm_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	kfs_vm_end(container_of(mn, struct kfs_vm, mmu));
}

static const struct mmu_notifier_ops kfs_mmu_ops = {
	.release = kfs_mm_release,
};

static struct file *kfs_vm_file(const struct kfs_attach_vm *req)
{
	struct file *file = fget(req->vm_fd);
	struct kvm *kvm;
	int err = -EINVAL;

	if (!file)
		return ERR_PTR(-EBADF);
	if (!static_call(kfs_file_is_kvm)(file))
		goto fail;
	kvm = file->private_data;
	err = -EIO;
	if (kvm->mm != current->mm)
		goto fail;
	err = -EOPNOTSUPP;
	if (kfs_compat_vm_protected(kvm))
		goto fail;
	return file;
fail:
	fput(file);
	return ERR_PTR(err);
}

static struct kfs_vm *kfs_vm_make(const struct kfs_attach_vm *req,
				  struct file *file)
{
	struct kfs_vm *vm = kzalloc(sizeof(*vm), GFP_KERNEL_ACCOUNT);

	if (!vm)
		return NULL;
	kref_init(&vm->ref);
	mutex_init(&vm->lock);
	INIT_DELAYED_WORK(&vm->end, kfs_vm_end_work);
	vm->file = file;
	vm->kvm = file->private_data;
	vm->mm = current->mm;
	vm->mmu.ops = &kfs_mmu_ops;
	vm->flags = req->flags;
	vm->mode = req->mode;
	vm->uid = current_uid();
	vm->tgid = get_pid(task_tgid(current));
	get_task_comm(vm->comm, current->group_leader);

	vm->vcpus = kvcalloc(KVM_MAX_VCPUS, sizeof(*vm->vcpus),
			     GFP_KERNEL_ACCOUNT);
	if (!vm->vcpus) {
		kfs_vm_put(vm);
		return NULL;
	}
	return vm;
}

int kfs_vm_attach(const struct kfs_attach_vm *req)
{
	struct kfs_vm *vm;
	struct file *file;
	int err;

	if (req->flags & ~KFS_ATTACH_FLAGS)
		return -EINVAL;
	if (req->mode == KFS_MODE_CONFINED)
		return -EOPNOTSUPP;
	if (req->mode != KFS_MODE_IDENTITY)
		return -EINVAL;
	if (!kfs_param_identity)
		return -EOPNOTSUPP;

	file = kfs_vm_file(req);
	if (IS_ERR(file))
		return PTR_ERR(file);
	err = -ENOMEM;
	vm = kfs_vm_make(req, file);
	if (!vm)
		goto fail_file;
	err = kfs_vm_reserve(vm);
	if (err == -EDQUOT) {
		/* A VM just closed counts until its end is through. */
		flush_workqueue(kfs_wq);
		err = kfs_vm_reserve(vm);
	}
	if (err)
		goto fail_vm;
	err = kfs_hook_get(KFS_HOOK_HYPERCALL);
	if (err)
		goto fail_reserved;
	err = mmu_notifier_register(&vm->mmu, vm->mm);
	if (err)
		goto fail_hook;

	kvm_get_kvm(vm->kvm);
	__module_get(THIS_MODULE);
	/* The control file's own reference; from here the end is a kfs_vm_end. */
	kref_get(&vm->ref);
	spin_lock(&kfs_hash_lock);
	hlist_add_head_rcu(&vm->hash, kfs_hash_bucket(vm->kvm));
	spin_unlock(&kfs_hash_lock);

	/* A name is user space's: escaped, and no flood of them. */
	pr_info_ratelimited("identity attach: pid %d (%*pE), uid %u\n",
			    task_tgid_nr(current),
			    (int)strnlen(vm->comm, sizeof(vm->comm)), vm->comm,
			    from_kuid(&init_user_ns, vm->uid));

	err = kfs_control_fd(vm);
	if (err < 0) {
		kfs_vm_end(vm);
		kfs_vm_put(vm);
	}
	return err;

fail_hook:
	kfs_hook_put(KFS_HOOK_HYPERCALL);
fail_reserved:
	kfs_vm_unreserve(vm);
fail_vm:
	kfs_vm_put(vm);
fail_file:
	fput(file);
	return err;
}

/* What a guest calls, and when, is its owner's and the administrator's. */
static bool kfs_vm_visible(const struct kfs_vm *vm)
{
	return uid_eq(vm->uid, current_uid()) || capable(CAP_SYS_ADMIN);
}

/*
 * The first VM with this id or above that the caller may see, referenced; NULL
 * when there is none.
 */
struct kfs_vm *kfs_vm_get_from(u64 id)
{
	struct kfs_vm *vm, *found = NULL;

	mutex_lock(&kfs_vms_lock);
	list_for_each_entry(vm, &kfs_vms, list)
		if (vm->id >= id && kfs_vm_visible(vm)) {
			kref_get(&vm->ref);
			found = vm;
			break;
		}
	mutex_unlock(&kfs_vms_lock);
	return found;
}

unsigned int kfs_vm_count(void)
{
	unsigned int count = 0;
	struct kfs_vm *vm;

	mutex_lock(&kfs_vms_lock);
	list_for_each_entry(vm, &kfs_vms, list)
		count++;
	mutex_unlock(&kfs_vms_lock);
	return count;
}

int kfs_vm_set_policy(struct kfs_vm *vm, const struct kfs_set_policy *req)
{
	int err;

	mutex_lock(&vm->lock);
	err = kfs_policy_add(vm, req);
	mutex_unlock(&vm->lock);
	return err;
}

/* Opens the short way to the calls that policy and table let through plainly. */
static void kfs_vm_open_plain(struct kfs_vm *vm)
{
	unsigned int nr;

	for (nr = 0; nr < KFS_NR_LIMIT; nr++)
		if (kfs_rows[nr].check == KFS_CHECK_ANY &&
		    test_bit(nr, vm->allowed))
			WRITE_ONCE(vm->plain[nr], kfs_rows[nr].id);
}

int kfs_vm_enable(struct kfs_vm *vm)
{
	int err = 0;

	mutex_lock(&vm->lock);
	if (!vm->policy) {
		err = -EINVAL;
	} else if (test_bit(KFS_VM_BIT_ENABLED, &vm->bits)) {
		err = -EALREADY;
	} else {
		/* A call that sees the bit sees the whole policy. */
		smp_mb__before_atomic();
		set_bit(KFS_VM_BIT_ENABLED, &vm->bits);
		kfs_vm_open_plain(vm);
	}
	mutex_unlock(&vm->lock);
	return err;
}

int __init kfs_vms_init(void)
{
	/* Unbound: an end can wait for a call that cannot be interrupted. */
	kfs_wq = alloc_workqueue("kvm_fastsys", WQ_UNBOUND, 0);
	return kfs_wq ? 0 : -ENOMEM;
}

/*
 * No VM object is left (each holds the module), but the last one's work may
 * still be returning.
 */
void kfs_vms_exit(void)
{
	destroy_workqueue(kfs_wq);
}
