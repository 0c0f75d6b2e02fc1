/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of kvm_fastsys.ko share. */
#ifndef KFS_H
#define KFS_H

#ifdef pr_fmt
#undef pr_fmt
#endif
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/kvm_host.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/percpu-refcount.h>
#include <linux/workqueue.h>

#include <linux/kvm_fastsys.h>

#include "compat/compat.h"
#include "syscalls.h"

#define KFS_VERSION		"0.1.0"
#define KFS_MAX_FILTERS		8
#define KFS_MAX_VMS_PER_USER	1024

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
	struct restart_block block;
};

/*
 * What one vCPU has of ours. Written only by the thread inside KVM_RUN, which
 * holds vcpu->mutex; counters are read by others with READ_ONCE. Nothing here
 * is shared between vCPUs, so calls of one never touch a cache line of
 * another. Freed with the VM object.
 */
struct kfs_vcpu {
	struct task_struct *task;	/* inside a host call: who, else NULL */
	bool no_blocking;		/* in-kernel irqchip and no opt-in */
	struct kfs_log_cache log;
	struct kfs_restart restart;
	u64 denied;
	u64 deferred;
	u64 refused;
	u64 interrupted;
	u64 resumed;
	u64 probes;
	u64 declined[KFS_REASON_COUNT];
	struct {
		u64 ran;
		u64 denied;
		u64 declined;
	} rows[KFS_ROW_COUNT];
};

enum kfs_vm_bits {
	KFS_VM_BIT_ENABLED,
	KFS_VM_BIT_DYING,
};

/*
 * One attached VM.
 *
 * Life: made by attach, found by calls through an RCU hash, ended by whichever
 * comes first of its control fd's last close and its mm's end. Ending means:
 * out of the hash, `calls` killed, and a work item that interrupts and awaits
 * the calls in flight, then gives back the hook, the VM's file and the module
 * reference. The memory stays until the control fd is gone as well (`ref`), so
 * that its statistics can still be read.
 *
 * `calls` counts hypercalls in flight (per CPU while alive: no shared line).
 */
struct kfs_vm {
	/* Read by every call, written by attach and the rare control ioctl. */
	struct hlist_node hash;
	struct kvm *kvm;
	struct percpu_ref calls;
	unsigned long bits;		/* enum kfs_vm_bits */
	u32 flags;			/* KFS_DEFER_EXIT ... */
	u32 mode;
	struct kfs_policy *policy;	/* newest first; kfs_policy_*() */
	struct kfs_vcpu **vcpus;	/* by vcpu_idx; entry set once */
	DECLARE_BITMAP(allowed, KFS_NR_LIMIT);

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
	struct work_struct end;
	struct completion drained;
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
struct kfs_vm *kfs_vm_find(struct kvm *kvm);	/* under rcu_read_lock */
void kfs_vm_end(struct kfs_vm *vm);
void kfs_vm_put(struct kfs_vm *vm);
struct kfs_vm *kfs_vm_get_from(u64 id);
int kfs_vm_enable(struct kfs_vm *vm);
int kfs_vm_set_policy(struct kfs_vm *vm, const struct kfs_set_policy *req);
unsigned int kfs_vm_count(void);
struct kfs_vcpu *kfs_vcpu_get(struct kfs_vm *vm, struct kvm_vcpu *vcpu);

/* hypercall.c, hypercall_entry.S */
int kfs_hypercall(struct kvm_vcpu *vcpu);	/* KFS_PASS: KVM's own */
void kfs_hypercall_tramp(void);
int kfs_hypercall_selftest(void);

/* device.c */
int kfs_device_init(void);
void kfs_device_exit(void);
int kfs_control_fd(struct kfs_vm *vm);
bool kfs_file_is_ours(const struct file *file);

/* kick.c */
void kfs_interrupt_task(struct task_struct *task);

/* stats.c */
void kfs_count_unattached(void);
u64 kfs_unattached(void);
int kfs_vm_stats(struct kfs_vm *vm, struct kfs_vm_stats *st);

/* policy.c */
int kfs_policy_add(struct kfs_policy **head, const struct kfs_set_policy *req,
		   unsigned long *allowed, bool stack);
void kfs_policy_free(struct kfs_policy *policy);

enum kfs_verdict { KFS_ALLOW, KFS_ANSWER, KFS_DECLINE };
enum kfs_verdict kfs_policy_judge(const struct kfs_policy *policy,
				  unsigned int nr, const struct pt_regs *regs,
				  long *answer);

#endif
