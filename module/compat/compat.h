/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place with kernel version conditions. Everywhere else the code
 * reads as for one kernel.
 */
#ifndef KFS_COMPAT_H
#define KFS_COMPAT_H

#include <linux/kvm_host.h>
#include <linux/sched.h>
#include <linux/version.h>

/* ---- Who watches the system calls of this thread ------------------------ */
/*
 * All of syscall_work, entry and exit side: seccomp, ptrace, audit, syscall
 * tracepoints, user dispatch, and whatever a newer kernel adds.
 */
static inline bool kfs_compat_watched(void)
{
	return READ_ONCE(current_thread_info()->syscall_work) != 0;
}

/* ---- KVM's structures ---------------------------------------------------- */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define kfs_compat_immediate_exit(run)	READ_ONCE((run)->immediate_exit__unsafe)
#else
#define kfs_compat_immediate_exit(run)	READ_ONCE((run)->immediate_exit)
#endif

/* Hypercalls of another hypervisor's ABI are on: KVM never looks at ours. */
static inline bool kfs_compat_other_abi(struct kvm_vcpu *vcpu)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0) || defined(CONFIG_KVM_HYPERV)
	if (vcpu->arch.hyperv_enabled &&
	    READ_ONCE(vcpu->kvm->arch.hyperv.hv_guest_os_id))
		return true;
#endif
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 12, 0) || defined(CONFIG_KVM_XEN)
	/* Without the INTERCEPT flag the page is KVM's old MSR-only Xen mode. */
	if (READ_ONCE(vcpu->kvm->arch.xen_hvm_config.flags) &
	    KVM_XEN_HVM_CONFIG_INTERCEPT_HCALL)
		return true;
#endif
	return false;
}

/* A VM whose memory or registers the host cannot read. */
static inline bool kfs_compat_vm_protected(struct kvm *kvm)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	return kvm->arch.has_protected_state ||
	       (kvm->arch.vm_type != KVM_X86_DEFAULT_VM &&
		kvm->arch.vm_type != KVM_X86_SW_PROTECTED_VM);
#else
	return false;	/* vCPUs say so themselves: guest_state_protected */
#endif
}

/*
 * Dirty logging. A host call writes guest memory through the host mapping,
 * where neither dirty log nor dirty ring sees it.
 *
 * Older kernels do not count logging slots. A change of any slot's flags makes
 * a new generation, so the answer is kept until the generation moves. Called
 * with kvm->srcu held, as in any exit handler.
 */
struct kfs_log_cache {
	u64 generation[2];	/* seen without a logging slot */
};

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)

static inline bool kfs_compat_dirty_logging(struct kvm *kvm,
					    struct kfs_log_cache *cache)
{
	return atomic_read(&kvm->nr_memslots_dirty_logging) != 0;
}

#else

bool kfs_compat_scan_logging(struct kvm *kvm, struct kfs_log_cache *cache);

static inline bool kfs_compat_dirty_logging(struct kvm *kvm,
					    struct kfs_log_cache *cache)
{
	int as;

	BUILD_BUG_ON(KVM_ADDRESS_SPACE_NUM > ARRAY_SIZE(cache->generation));
	/* A zeroed cache is right: generation 0 never had a slot. */
	for (as = 0; as < KVM_ADDRESS_SPACE_NUM; as++)
		if (unlikely(rcu_dereference_raw(kvm->memslots[as])->generation !=
			     cache->generation[as]))
			return kfs_compat_scan_logging(kvm, cache);
	return false;
}

#endif

/* The host ran code of its own for the guest: flush L1D before the next entry. */
static inline void kfs_compat_flush_l1d(struct kvm_vcpu *vcpu)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 18, 0)
	vcpu->arch.l1tf_flush_l1d = true;
#else
	kvm_set_cpu_l1tf_flush_l1d();
#endif
}

/* An exit by hypercall says that it came from 64-bit code. */
static inline void kfs_compat_set_long_mode(struct kvm_run *run)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	run->hypercall.flags = KVM_EXIT_HYPERCALL_LONG_MODE;
#else
	run->hypercall.longmode = 1;
#endif
}

/* The vCPU leaves KVM_RUN as after a signal. */
static inline void kfs_compat_signal_exit(struct kvm_vcpu *vcpu)
{
	vcpu->run->exit_reason = KVM_EXIT_INTR;
	++vcpu->stat.signal_exits;
}

#endif
