/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * kvm_fastsys: the whole ABI, guest side and host side.
 *
 * docs/abi.md says the same with numbers and offsets, for those who do not
 * write C. Rules that hold for every structure here:
 *  - only __u32 and __u64, no implicit padding, the same in 32 and 64 bit;
 *  - `size` is sizeof(the structure) as the caller knows it. A longer one is
 *    accepted when everything we do not know is zero (E2BIG otherwise), a
 *    shorter one down to the first published size (EINVAL below that);
 *  - unknown `flags` and non-zero `reserved` are refused with EINVAL, and
 *    nothing has changed after any refusal.
 */
#ifndef _UAPI_LINUX_KVM_FASTSYS_H
#define _UAPI_LINUX_KVM_FASTSYS_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KFS_ABI_VERSION		1
#define KFS_DEVICE_PATH		"/dev/kvm_fastsys"

/*
 * ---- Guest ABI ----------------------------------------------------------
 *
 * VMCALL or VMMCALL from 64-bit code at CPL 0 with RAX = one of these. Every
 * register but RAX is preserved.
 */
#define KFS_HC_BASE		0x4b465300	/* "KFS" and a number */
#define KFS_HC_PROBE		(KFS_HC_BASE + 0)	/* RAX = KFS_PROBE_* */
#define KFS_HC_SYSCALL		(KFS_HC_BASE + 1)	/* RBX = nr, RDI RSI RDX R10 R8 R9 */
#define KFS_HC_BATCH		(KFS_HC_BASE + 2)	/* reserved, answers -KFS_ENOSYS */

/*
 * The answer of KVM itself to a hypercall nobody serves, and ours whenever a
 * call was not made: take your slow path. It can come at any time and is
 * never a Linux errno, so it cannot be mistaken for a system call's result.
 */
#define KFS_ENOSYS		1000

/* KFS_HC_PROBE: version in the low 16 bits, features above. Never negative. */
#define KFS_PROBE_VERSION(rax)	((rax) & 0xffff)
#define KFS_PROBE_F_SYSCALL	(1ULL << 16)	/* KFS_HC_SYSCALL is served now */
#define KFS_PROBE_F_DEFER	(1ULL << 17)	/* declined calls go to the VMM */
#define KFS_PROBE_F_IDENTITY	(1ULL << 18)	/* pointers are host addresses */
#define KFS_PROBE_F_EINTR	(1ULL << 19)	/* interrupted calls return -EINTR */

/* CPUID leaf a VMM adds so that guests find us without executing anything. */
#define KFS_CPUID_LEAF		0x40000f00	/* EAX = version, EBX ECX EDX = signature */
#define KFS_CPUID_EBX		0x5346564bU	/* "KVFS" */
#define KFS_CPUID_ECX		0x54534146U	/* "FAST" */
#define KFS_CPUID_EDX		0x53595346U	/* "FSYS" */

/*
 * ---- Deferred calls -----------------------------------------------------
 *
 * With KFS_DEFER_EXIT a declined call leaves KVM_RUN by KVM_EXIT_HYPERCALL:
 *   run->hypercall.nr      KFS_EXIT_NR(nr)
 *   run->hypercall.args[]  the guest's RDI RSI RDX R10 R8 R9
 *   run->hypercall.ret     preset to -KFS_ENOSYS; what the VMM leaves here is
 *                          the guest's RAX after the next KVM_RUN
 */
#define KFS_EXIT_NR(nr)		(((__u64)KFS_HC_SYSCALL << 32) | (__u32)(nr))
#define KFS_EXIT_IS_CALL(hcnr)	(((__u64)(hcnr) >> 32) == KFS_HC_SYSCALL)
#define KFS_EXIT_CALL(hcnr)	((__u32)(hcnr))

/*
 * ---- Why a call was not made --------------------------------------------
 * Indices into kfs_vm_stats.declined[]; names: kfs_reason_name() in the
 * library. New reasons are added at the end.
 */
enum kfs_reason {
	KFS_REASON_UNATTACHED = 0,	/* VM not attached (counted for the host) */
	KFS_REASON_NOT_ENABLED = 1,	/* attached, KFS_ENABLE not done */
	KFS_REASON_DYING = 2,		/* being detached */
	KFS_REASON_NESTED = 3,		/* came from an L2 guest */
	KFS_REASON_PROTECTED = 4,	/* registers are not the host's to read */
	KFS_REASON_OTHER_ABI = 5,	/* Hyper-V or Xen hypercalls are on */
	KFS_REASON_NOT_64BIT = 6,	/* not 64-bit code */
	KFS_REASON_CPL = 7,		/* not from CPL 0 */
	KFS_REASON_COMPAT_TASK = 8,	/* KVM_RUN by a 32-bit system call */
	KFS_REASON_NUMBER = 9,		/* RBX is no system call number */
	KFS_REASON_UNLISTED = 10,	/* not in the table of runnable calls */
	KFS_REASON_POLICY = 11,		/* policy neither allows nor answers */
	KFS_REASON_ARGUMENT = 12,	/* runnable, but not with these arguments */
	KFS_REASON_OBSERVER = 13,	/* seccomp, ptrace, audit, tracing watch */
	KFS_REASON_DIRTY_LOG = 14,	/* writes of the call would escape the log */
	KFS_REASON_BLOCKING = 15,	/* may block; in-kernel irqchip, no opt-in */
	KFS_REASON_NO_MEMORY = 16,	/* no memory for this vCPU's state */
	KFS_REASON_COUNT
};

/*
 * ---- Host ABI: ioctls on /dev/kvm_fastsys -------------------------------
 */
#define KFSIO			0xBB

/* kfs_info.features */
#define KFS_FEATURE_HYPERCALL	(1ULL << 0)	/* KFS_ATTACH_VM can work */
#define KFS_FEATURE_IDENTITY	(1ULL << 1)	/* KFS_MODE_IDENTITY is allowed */
#define KFS_FEATURE_CONFINED	(1ULL << 2)	/* KFS_MODE_CONFINED is built in */
#define KFS_FEATURE_KICK	(1ULL << 3)	/* KFS_CREATE_KICK can work */
#define KFS_FEATURE_VCPU_IOCTL	(1ULL << 4)	/* KFS_USER_EXIT can go live */

struct kfs_info {
	__u32 size;
	__u32 flags;			/* none defined: 0 */
	__u32 abi_version;		/* out: KFS_ABI_VERSION of the module */
	__u32 hooks;			/* out: entries KFS_HOOK_INFO knows */
	__u64 features;			/* out: KFS_FEATURE_* */
	__u32 vms;			/* out: VM objects alive, dying included */
	__u32 max_vms;			/* out: limit for one user */
	__u32 calls;			/* out: rows of the table of runnable calls */
	__u32 max_filters;		/* out: policies one VM can stack */
	__u64 unattached;		/* out: our hypercalls from VMs not attached */
	char  module_version[32];	/* out: NUL-terminated */
	__u64 reserved[4];
};
/* Anyone who can open the device. EFAULT, EINVAL, E2BIG. */
#define KFS_GET_INFO		_IOWR(KFSIO, 0x00, struct kfs_info)

enum kfs_hook_state {
	KFS_HOOK_OFF = 0,		/* not installed; the self-test passed */
	KFS_HOOK_LIVE = 1,
	KFS_HOOK_UNAVAILABLE = 2,	/* cannot be installed: see reason */
	KFS_HOOK_DISABLED = 3,		/* left out by a module parameter */
};

struct kfs_hook_info {
	__u32 size;
	__u32 flags;
	__u32 index;			/* in: below kfs_info.hooks, else ENOENT */
	__u32 state;			/* out: enum kfs_hook_state */
	__u32 users;			/* out: who keeps it live */
	__u32 error;			/* out: errno of the last failed install */
	char  name[32];			/* out: feature the hook serves */
	char  target[64];		/* out: kernel function */
	char  reason[128];		/* out: one line, empty when all is well */
	__u64 reserved[2];
};
/* Anyone who can open the device. EFAULT, EINVAL, E2BIG, ENOENT. */
#define KFS_HOOK_INFO		_IOWR(KFSIO, 0x01, struct kfs_hook_info)

enum kfs_mode {
	KFS_MODE_CONFINED = 0,		/* the default; EOPNOTSUPP until built */
	KFS_MODE_IDENTITY = 1,		/* guest pointers and fds are the VMM's own */
};

/* kfs_attach_vm.flags */
#define KFS_DEFER_EXIT		(1U << 0)	/* declined calls exit to the VMM */
#define KFS_EINTR		(1U << 1)	/* interrupted calls return -EINTR */
#define KFS_BLOCKING		(1U << 2)	/* blocking calls despite in-kernel irqchip */
#define KFS_ATTACH_FLAGS	(KFS_DEFER_EXIT | KFS_EINTR | KFS_BLOCKING)

struct kfs_attach_vm {
	__u32 size;
	__u32 flags;			/* KFS_DEFER_EXIT ... */
	__u32 vm_fd;			/* of a VM that this process created */
	__u32 mode;			/* enum kfs_mode */
	__u64 reserved[4];
};
/*
 * Returns a control fd (O_CLOEXEC). From the process that created the VM only.
 *  EBADF       vm_fd is no descriptor
 *  EINVAL      vm_fd is no VM; unknown mode or flag; reserved not zero
 *  EIO         the VM belongs to another process
 *  EBUSY       the VM is attached already
 *  EOPNOTSUPP  mode not built or switched off, protected VM, 32-bit caller
 *  ENODEV      the hook cannot go live: KFS_HOOK_INFO says why
 *  EDQUOT      this user's VMs are at the limit
 */
#define KFS_ATTACH_VM		_IOW(KFSIO, 0x02, struct kfs_attach_vm)

/*
 * ---- Host ABI: the kick -------------------------------------------------
 *
 * A kick sets kvm_run->immediate_exit and makes the vCPU's thread leave
 * KVM_RUN, now or at its next KVM_RUN: EINTR with immediate_exit set. The
 * thread clears it, makes a full barrier and reads its events. EINTR with
 * immediate_exit clear: run again. docs/kick.md has the whole contract.
 */
/* kfs_create_kick.flags */
#define KFS_KICK_VM		(1U << 0)	/* fd is a VM's: kicks all its vCPUs */
#define KFS_KICK_NONBLOCK	(1U << 1)	/* kick fd with O_NONBLOCK */
#define KFS_KICK_FLAGS		(KFS_KICK_VM | KFS_KICK_NONBLOCK)

struct kfs_create_kick {
	__u32 size;
	__u32 flags;			/* KFS_KICK_VM ... */
	__u32 fd;			/* of a vCPU, or of a VM with KFS_KICK_VM */
	__u32 pad;			/* 0 */
	__u64 reserved[2];
};
/*
 * Returns a kick fd (O_CLOEXEC). From the process that created the VM only;
 * the kick fd itself works for whoever holds it.
 *  EBADF       fd is no descriptor
 *  EINVAL      fd is no vCPU (no VM); unknown flag; reserved not zero
 *  EIO         the VM belongs to another process
 *  EOPNOTSUPP  no kick on this kernel, or kick=0: KFS_KICK_INFO says why
 *  EDQUOT      this user's kick fds are at the limit
 */
#define KFS_CREATE_KICK		_IOW(KFSIO, 0x03, struct kfs_create_kick)

/* kfs_kick_info.mechanism */
enum kfs_kick_mechanism {
	KFS_KICK_BY_NONE = 0,		/* use a signal and immediate_exit */
	KFS_KICK_BY_NOTIFY = 1,		/* TIF_NOTIFY_SIGNAL, proved at load */
};

/* Totals of the host, kicks by KFS_USER_EXIT included. */
struct kfs_kick_info {
	__u32 size;
	__u32 flags;
	__u32 mechanism;		/* out: enum kfs_kick_mechanism */
	__u32 error;			/* out: errno of the self-test, 0 passed */
	__u32 fds;			/* out: kick fds alive */
	__u32 max_fds;			/* out: limit for one user */
	__u64 requested;		/* out: vCPUs kicked */
	__u64 coalesced;		/* out: ... with an earlier kick not cleared yet */
	__u64 interrupted;		/* out: ... that were inside KVM_RUN */
	__u64 user_exits;		/* out: ... by KFS_USER_EXIT */
	char  reason[128];		/* out: one line, empty when all is well */
	__u64 reserved[4];
};
/* Anyone who can open the device. EFAULT, EINVAL, E2BIG. */
#define KFS_KICK_INFO		_IOWR(KFSIO, 0x04, struct kfs_kick_info)

struct kfs_kick_stats {
	__u32 size;
	__u32 flags;
	/*
	 * On the device: in, the first kick fd with this id or above that is
	 * the caller's (or any, with CAP_SYS_ADMIN), ENOENT when there is none;
	 * start from 0. On a kick fd: ignored.
	 */
	__u64 id;			/* in/out */
	__u32 pid;			/* out: creator's thread group, in the caller's namespace, 0 if none */
	__u32 uid;			/* out: creator's uid, in the caller's namespace */
	__u32 vcpu;			/* out: vCPU id, ~0 for a whole VM */
	__u32 vcpus;			/* out: vCPUs it kicks now */
	__u32 unacknowledged;		/* out: ... whose immediate_exit is set now */
	__u32 age_ms;			/* out: since the first kick after the last clear, if any is set */
	char  comm[16];			/* out: creator's name */
	__u64 requested;		/* out: kicks by this fd */
	__u64 coalesced;		/* out: vCPUs met with an earlier kick not cleared */
	__u64 interrupted;		/* out: vCPUs met inside KVM_RUN */
	__u64 unread;			/* out: what read() would give */
	__u64 reserved[4];
};
/* On the device and on a kick fd, by anyone who holds it. */
#define KFS_KICK_STATS		_IOWR(KFSIO, 0x05, struct kfs_kick_stats)

struct kfs_live {
	__u32 size;
	__u32 flags;
	__u64 reserved[2];
};
/*
 * Makes KFS_USER_EXIT live on the host until this open of the device is
 * closed. EALREADY twice; EOPNOTSUPP with vcpu_ioctl=0 or no kick; ENODEV:
 * the hook cannot go live, KFS_HOOK_INFO says why.
 */
#define KFS_LIVE_VCPU_IOCTL	_IOW(KFSIO, 0x06, struct kfs_live)

/*
 * On a kick fd, argument 0: one kick, as a write of 8 bytes is. Returns how
 * many vCPUs were inside KVM_RUN, a hint. EINVAL: another argument.
 */
#define KFS_KICK		_IO(KFSIO, 0x40)

/*
 * On a vCPU's fd, argument: flags, none defined. Kicks this vCPU without its
 * mutex; returns 1 when it was inside KVM_RUN (a hint), else 0. EINVAL: not
 * live on this host, or an unknown flag; EIO: another process's vCPU.
 */
#define KFS_USER_EXIT		_IO(KFSIO, 0x41)

/*
 * ---- Host ABI: ioctls on the control fd ---------------------------------
 *
 * From the VM's own process only (EIO otherwise), KFS_VM_STATS excepted.
 */
struct kfs_set_policy {
	__u32 size;
	__u32 flags;
	__u32 count;			/* instructions, 1 to BPF_MAXINSNS */
	__u32 pad;			/* 0 */
	__u64 filter;			/* address of struct sock_filter[count] */
	__u64 reserved[2];
};
/*
 * A seccomp-format program over struct seccomp_data: SECCOMP_RET_ALLOW runs
 * the call, SECCOMP_RET_ERRNO answers it, any other action declines it. Before
 * KFS_ENABLE a new program replaces the old one. After it, programs stack and
 * the strictest answer counts: a policy can only shrink.
 *  EINVAL  malformed program; ENOMEM; ENOSPC: kfs_info.max_filters reached
 */
#define KFS_SET_POLICY		_IOW(KFSIO, 0x20, struct kfs_set_policy)

struct kfs_enable {
	__u32 size;
	__u32 flags;
	__u64 reserved[2];
};
/* Starts serving calls. EINVAL also without a policy; EALREADY twice. */
#define KFS_ENABLE		_IOW(KFSIO, 0x21, struct kfs_enable)

/* kfs_vm_stats.state */
enum kfs_vm_state {
	KFS_VM_ATTACHED = 0,
	KFS_VM_ENABLED = 1,
	KFS_VM_DYING = 2,
};

struct kfs_call_stats {
	__u32 nr;			/* system call number */
	__u32 pad;
	__u64 ran;			/* made inside KVM_RUN */
	__u64 denied;			/* answered by the policy */
	__u64 declined;			/* left to the VMM or the guest */
};

struct kfs_vm_stats {
	__u32 size;
	__u32 flags;
	/*
	 * On the device: in, the first VM with this id or above that is the
	 * caller's (or any, with CAP_SYS_ADMIN), ENOENT when there is none;
	 * start from 0 to list all. On a control fd: ignored.
	 */
	__u64 id;			/* in/out */
	__u32 pid;			/* out: attacher's thread group, in the caller's namespace, 0 if none */
	__u32 uid;			/* out: attacher's uid, in the caller's namespace */
	__u32 state;			/* out: enum kfs_vm_state */
	__u32 mode;			/* out: enum kfs_mode */
	__u32 attach_flags;		/* out */
	__u32 vcpus;			/* out: vCPUs that made calls */
	char  comm[16];			/* out: attacher's name */
	__u64 ran;			/* out: calls made inside KVM_RUN */
	__u64 denied;			/* out: answered by the policy */
	__u64 deferred;			/* out: declined ones that left by an exit */
	__u64 refused;			/* out: declined ones answered -KFS_ENOSYS */
	__u64 interrupted;		/* out: calls ended by a signal or a kick */
	__u64 resumed;			/* out: sleeps that went on from their deadline */
	__u64 probes;			/* out: KFS_HC_PROBE served */
	__u64 declined[32];		/* out: by enum kfs_reason */
	__u64 calls;			/* in: address of struct kfs_call_stats[], or 0 */
	__u32 calls_len;		/* in: its length; out: entries filled */
	__u32 in_call;			/* out: vCPUs inside a call right now */
	__u64 reserved[4];
};
/* On the device, and on a control fd by anyone who holds it. */
#define KFS_VM_STATS		_IOWR(KFSIO, 0x22, struct kfs_vm_stats)

#endif /* _UAPI_LINUX_KVM_FASTSYS_H */
