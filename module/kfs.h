/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of kvm_fastsys.ko share. */
#ifndef KFS_H
#define KFS_H

#ifdef pr_fmt
#undef pr_fmt
#endif
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/hash.h>
#include <linux/kref.h>
#include <linux/kvm_host.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/workqueue.h>

#include <linux/kvm_fastsys.h>

#include "compat/compat.h"
#include "syscalls.h"

#define KFS_VERSION		"0.1.0"
#define KFS_MAX_FILTERS		8
#define KFS_MAX_VMS_PER_USER	1024
#define KFS_MAX_KICKS_PER_USER	16384

struct kfs_policy;

/*
 * A sleep that a signal or a kick ended, and where it stands. The vCPU's own,
 * so that another thread running the vCPU, or a signal handler in between,
 * does not lose the deadline (the task's restart_block would).
 */
struct kfs_restart {
	bool valid;
	unsigned int nr;
	unsigned long rip;
	unsigned long rsp;
	unsigned long args[6];
	struct __kernel_timespec timeout;	/* what the argument pointed to */
	struct restart_block block;
};

/*
 * What one vCPU has of ours. Written only by the thread inside KVM_RUN, which
 * holds vcpu->mutex; counters are read by others with READ_ONCE. Nothing here
 * is shared between vCPUs, so calls of one never touch a cache line of
 * another. Freed with the VM object.
 */
struct kfs_vcpu {
	/*
	 * Inside a hypercall of ours: who, else NULL. Set in the section that
	 * found the VM, so after a grace period the VM's end sees everyone;
	 * cleared with release, and nothing of the VM is touched after that.
	 */
	struct task_struct *task;
	struct kfs_vm *vm;
	/* Settled when the vCPU makes its first call; see kfs_vcpu_make(). */
	u8 limits;			/* KFS_LIMIT_*; 0 for most */
	struct kfs_log_cache log;
	/* The call being made: here, a stack frame would be zeroed each time. */
	struct pt_regs regs;
	int outcome;			/* of a call that is not made */
	int cs_db;
	int cs_l;
	struct kfs_restart restart;
	u64 denied;
	u64 deferred;
	u64 refused;
	u64 interrupted;
	u64 resumed;
	u64 probes;
	u64 declined[KFS_REASON_COUNT];
	/* By row of the table. */
	u64 row_ran[KFS_ROW_COUNT];
	u64 row_denied[KFS_ROW_COUNT];
	u64 row_declined[KFS_ROW_COUNT];
};

#define KFS_LIMIT_NO_BLOCKING	1	/* in-kernel irqchip and no opt-in */
#define KFS_LIMIT_DIRTY_RING	2

enum kfs_vm_bits {
	KFS_VM_BIT_ENABLED,
	KFS_VM_BIT_DYING,
};

/*
 * One attached VM.
 *
 * Life: made by attach, found by calls through a hash, ended by whichever
 * comes first of its control fd's last close and its mm's end. Ending means:
 * out of the hash, and a work item that waits a grace period, interrupts and
 * awaits the calls in flight (kfs_vcpu.task), then gives back the hook, the
 * VM's file and the module reference. The memory stays until the control fd is
 * gone as well (`ref`), so that its statistics can still be read.
 */
struct kfs_vm {
	/* Read by every call, written by attach and the rare control ioctl. */
	struct hlist_node hash;
	struct kvm *kvm;
	struct kfs_vcpu **vcpus;	/* by vcpu_idx; entry set once */
	unsigned long bits;		/* enum kfs_vm_bits */
	u32 flags;			/* KFS_DEFER_EXIT ... */
	u32 mode;
	struct kfs_policy *policy;	/* newest first; kfs_policy_*() */
	DECLARE_BITMAP(allowed, KFS_NR_LIMIT);	/* whatever the arguments */
	/*
	 * The row of a call that is allowed whatever its arguments, has no
	 * argument rule, and whose VM is enabled; KFS_ROW_NONE sends a call the
	 * long way through policy and table. Entries only ever go to NONE after
	 * KFS_ENABLE.
	 */
	u8 plain[KFS_NR_LIMIT];

	/* Control side. */
	struct kref ref;		/* control file, and the object itself */
	struct mutex lock;		/* policy and enable */
	struct list_head list;		/* under kfs_vms_lock */
	u64 id;
	struct file *file;		/* the VM's: keeps kvm and its vendor module */
	struct mm_struct *mm;
	struct mmu_notifier mmu;
	struct pid *tgid;
	kuid_t uid;
	char comm[TASK_COMM_LEN];
	struct delayed_work end;
	unsigned long drain_delay;	/* of `end`, jiffies */
	atomic_t makers;		/* vCPUs whose state is being made */
	atomic64_t no_memory;
};

/* main.c: read-only module parameters */
extern bool kfs_param_hypercall;
extern bool kfs_param_identity;
extern uint kfs_param_max_vms;

/* vm.c */
int kfs_vms_init(void);
void kfs_vms_exit(void);
int kfs_vm_attach(const struct kfs_attach_vm *req);
void kfs_vm_end(struct kfs_vm *vm);
void kfs_vm_put(struct kfs_vm *vm);
struct kfs_vm *kfs_vm_get_from(u64 id);
int kfs_vm_enable(struct kfs_vm *vm);
int kfs_vm_set_policy(struct kfs_vm *vm, const struct kfs_set_policy *req);
unsigned int kfs_vm_count(void);

#define KFS_HASH_BITS	6
extern struct hlist_head kfs_hash[1 << KFS_HASH_BITS];

/* A vCPU's state, complete, or NULL. */
static inline struct kfs_vcpu *kfs_vm_vcpu(const struct kfs_vm *vm,
					   unsigned int i)
{
	return smp_load_acquire(&vm->vcpus[i]);	/* with kfs_vcpu_make() */
}

static inline struct hlist_head *kfs_hash_bucket(struct kvm *kvm)
{
	return &kfs_hash[hash_ptr(kvm, KFS_HASH_BITS)];
}

/* With preemption off or under rcu_read_lock(). */
static inline struct kfs_vm *kfs_vm_find(struct kvm *kvm)
{
	struct kfs_vm *vm;

	hlist_for_each_entry_rcu(vm, kfs_hash_bucket(kvm), hash,
				 rcu_read_lock_any_held())
		if (vm->kvm == kvm)
			return vm;
	return NULL;
}

/*
 * Marks the vCPU as inside a call of its VM, which stays until kfs_call_leave().
 * NULL when the VM is not attached or there is no memory for the vCPU's state.
 */
struct kfs_vcpu *kfs_vcpu_make(struct kvm_vcpu *vcpu);

static inline struct kfs_vcpu *kfs_call_enter(struct kvm_vcpu *vcpu)
{
	struct kfs_vcpu *kv = NULL;
	struct kfs_vm *vm;

	/*
	 * Preemption off is an RCU reader's section, and cheaper than a
	 * preemptible kernel's rcu_read_lock().
	 */
	preempt_disable();
	vm = kfs_vm_find(vcpu->kvm);
	if (likely(vm)) {
		kv = READ_ONCE(vm->vcpus[vcpu->vcpu_idx]);
		if (likely(kv))
			WRITE_ONCE(kv->task, current);
	}
	preempt_enable();
	return kv;
}

/*
 * The VM object, and the module but for a grace period of RCU tasks, may be
 * gone after this store.
 */
static inline void kfs_call_leave(struct kfs_vcpu *kv)
{
	smp_store_release(&kv->task, NULL);	/* after all of the call */
}

/* hypercall.c, hypercall_entry.S */
int kfs_hypercall(struct kvm_vcpu *vcpu);	/* KFS_PASS: KVM's own */
void kfs_hypercall_tramp(void);
int kfs_hypercall_selftest(void);

/* device.c */
int kfs_device_init(void);
void kfs_device_exit(void);
int kfs_control_fd(struct kfs_vm *vm);
long kfs_device_kick_stats(struct file *kick, unsigned int cmd,
			   unsigned long arg);
bool kfs_file_is_ours(const struct file *file);

/* kick.c */
void kfs_interrupt_task(struct task_struct *task);

/* stats.c */
void kfs_count_unattached(void);
u64 kfs_unattached(void);
int kfs_vm_stats(struct kfs_vm *vm, struct kfs_vm_stats *st);

/* policy.c */
int kfs_policy_add(struct kfs_vm *vm, const struct kfs_set_policy *req);
void kfs_policy_free(struct kfs_policy *policy);

enum kfs_verdict { KFS_ALLOW, KFS_ANSWER, KFS_DECLINE };
enum kfs_verdict kfs_policy_judge(const struct kfs_policy *policy,
				  unsigned int nr, const struct pt_regs *regs,
				  long *answer);

#endif
