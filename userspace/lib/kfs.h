/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * libkvmfastsys: thin sugar over the ioctls of <linux/kvm_fastsys.h>.
 *
 * Nothing here owns a VMM's KVM_RUN loop, starts a thread, prints, or touches
 * errno. A function that can fail returns a negative errno; kfs_strerror()
 * turns that into a sentence that names the next thing to do.
 */
#ifndef KFS_H
#define KFS_H

#include <stddef.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/kvm_fastsys.h>
#include <linux/kvm_fastsys_vsock.h>

#include "kfs_kick.h"

#include "kfs_doorbell.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * ---- The device ----------------------------------------------------------
 */

/* Opens /dev/kvm_fastsys, close-on-exec. The fd may be passed into a jail. */
int kfs_open(void);

/* The three fill in `size` themselves; everything else is as in the ABI. */
int kfs_get_info(int dev, struct kfs_info *info);
int kfs_hook_info(int dev, unsigned int index, struct kfs_hook_info *hook);

/*
 * On the device: the first VM with *id* or above that this user attached (with
 * CAP_SYS_ADMIN: that anybody did), -ENOENT behind the last. On a control fd:
 * that VM, whatever *id* is. Up to *len* rows of *calls* are filled in (NULL
 * and 0 to leave them out); stats->calls_len says how many.
 */
int kfs_vm_stats(int fd, __u64 id, struct kfs_vm_stats *stats,
		 struct kfs_call_stats *calls, unsigned int len);

/*
 * ---- What a guest may call -----------------------------------------------
 *
 * Deny by default. A policy is built by name, given to the kernel as a
 * seccomp-format program, and kept by the VMM for the calls it makes itself:
 * one object, so that a deferred call meets the same rules.
 */
struct kfs_policy;

/*
 * A call that no rule names is answered with -deny_errno (1 to 4095; EPERM is
 * the usual one) without leaving KVM_RUN. 0: it is declined instead, which
 * costs an exit and lets the VMM see it.
 */
struct kfs_policy *kfs_policy_new(unsigned int deny_errno);
void kfs_policy_free(struct kfs_policy *policy);

/*
 * `names` is one name or several, separated by blanks or commas: "read,write".
 * The later rule wins. -ENOENT for a name that is no x86-64 system call, and
 * then no rule has changed.
 */
int kfs_policy_allow(struct kfs_policy *policy, const char *names);
int kfs_policy_refuse(struct kfs_policy *policy, unsigned int err,
		      const char *names);

/* The program and its length. It belongs to the policy: do not free it. */
int kfs_policy_filter(struct kfs_policy *policy,
		      const struct sock_filter **filter);

/*
 * Makes the call in this thread if the policy allows it, and returns what the
 * guest is to see: the result or -errno. A call that the policy does not
 * allow is not made and gives -deny_errno (-EPERM where that is 0).
 */
long kfs_policy_call(const struct kfs_policy *policy, __u64 nr,
		     const __u64 args[6]);

/*
 * ---- One VM --------------------------------------------------------------
 */

/* Returns the control fd. Closing it, or the end of the process, detaches. */
int kfs_attach(int dev, int vm_fd, unsigned int mode, unsigned int flags);
int kfs_set_policy(int control, struct kfs_policy *policy);
int kfs_enable(int control);

/*
 * For the VMM's own loop, after KVM_RUN returned 0:
 *
 *	switch (run->exit_reason) {
 *	case KVM_EXIT_HYPERCALL:
 *		if (kfs_deferred(run, policy))
 *			continue;
 *
 * 1: it was a deferred call, its result stands in run->hypercall.ret and the
 * next KVM_RUN gives it to the guest. 0: not ours, nothing was touched.
 */
int kfs_deferred(struct kvm_run *run, const struct kfs_policy *policy);

/*
 * The same where the module is not there: a call that came by the doorbell
 * (see kfs_doorbell.h) is made under the same rules. `page` is the host's
 * address of `count` mailboxes.
 *
 *	case KVM_EXIT_IO:
 *		if (kfs_doorbell(run, port, page, count, policy) == 1)
 *			continue;
 *
 * 1: made, or answered by the policy; the result stands in the mailbox. 0: not
 * the doorbell, nothing was touched. -EINVAL: the guest rang wrongly (not 32
 * bits wide, or no such mailbox), nothing was done.
 */
int kfs_doorbell(const struct kvm_run *run, __u16 port,
		 struct kfs_mailbox *page, unsigned int count,
		 const struct kfs_policy *policy);

/*
 * The same in two steps, for a VMM that looks at the arguments or translates
 * them (kfs_translate()) before it makes the call:
 *
 *	if (kfs_deferred_call(run, &call) == 1)
 *		*call.ret = kfs_policy_call(policy, call.nr, call.args);
 *
 * `nr` and `args` are a copy, which the guest cannot change any more; what is
 * left in *ret is the guest's result.
 */
struct kfs_call {
	__u64 nr;
	__u64 args[6];
	__s64 *ret;
};

int kfs_deferred_call(struct kvm_run *run, struct kfs_call *call);
int kfs_doorbell_call(const struct kvm_run *run, __u16 port,
		      struct kfs_mailbox *page, unsigned int count,
		      struct kfs_call *call);

/*
 * ---- Guest addresses -----------------------------------------------------
 *
 * For a VMM that makes calls itself for a guest whose memory lies elsewhere:
 * the table of its memory slots, as it gave them to KVM.
 */
struct kfs_region {
	__u64 guest;			/* first guest physical address */
	__u64 size;			/* in bytes */
	void *host;			/* where the VMM has it mapped */
	__u32 flags;			/* KFS_REGION_* */
	__u32 pad;
};

#define KFS_REGION_READONLY	(1U << 0)	/* the guest may not write there */

/* kfs_translate(): what is to be done with the memory */
#define KFS_READ		0U
#define KFS_WRITE		1U

/*
 * The host's address of `len` bytes at guest address `guest`, in *host. Every
 * byte must lie in the table; regions that adjoin in the guest and in the host
 * count as one. `regions` NULL: identity mode, the address is the host's
 * already and only its arithmetic is checked.
 *
 * -EFAULT: not all of it in the table, read-only, or past the end of the
 * address space. -EINVAL: unknown `access`. *host is then NULL.
 */
int kfs_translate(const struct kfs_region *regions, unsigned int count,
		  __u64 guest, __u64 len, unsigned int access, void **host);

/*
 * Adds the leaf by which guests find us to the table for KVM_SET_CPUID2, which
 * has room for `room` entries. Once is enough, twice does no harm. -ENOSPC.
 */
int kfs_cpuid_add(struct kvm_cpuid2 *cpuid, unsigned int room);

/*
 * ---- vsock (kvm_fastsys_vsock.ko, needs neither device nor attach) -------
 */

/*
 * SO_KFS_VSOCK_NODELAY on a vsock stream socket. -ENOPROTOOPT while nothing is
 * merged, when a program that asks for no delay has it anyway.
 */
int kfs_vsock_nodelay(int fd, int on);

/*
 * ---- Names ---------------------------------------------------------------
 */

/* "observer", "policy", ...; "unknown" for a number this library is too old for. */
const char *kfs_reason_name(unsigned int reason);

/* One sentence: what kept the call from being made. */
const char *kfs_reason_text(unsigned int reason);

/* NULL and -ENOENT for what is not there. */
const char *kfs_syscall_name(unsigned int nr);
int kfs_syscall_nr(const char *name);

/* What was being done when the error came. */
enum kfs_what {
	KFS_WHAT_OPEN,
	KFS_WHAT_GET_INFO,
	KFS_WHAT_ATTACH,
	KFS_WHAT_SET_POLICY,
	KFS_WHAT_ENABLE,
	KFS_WHAT_STATS,
	KFS_WHAT_CPUID,
	KFS_WHAT_NAME,
	KFS_WHAT_DOORBELL,
	KFS_WHAT_TRANSLATE,
	KFS_WHAT_POLICY,
	KFS_WHAT_KICK,		/* any function of kfs_kick.h */
};

/*
 * `err` may be given as -errno or errno. The text is constant where the error
 * has a known way out, else strerror()'s.
 */
const char *kfs_strerror(int err, enum kfs_what what);

#ifdef __cplusplus
}
#endif

#endif /* KFS_H */
