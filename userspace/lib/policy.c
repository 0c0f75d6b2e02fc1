// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Allow by name, and the same judgement in both places: the kernel gets a
 * program made from the table of verdicts, the VMM looks into the table.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/*
 * A verdict is SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with its number, or this:
 * any other action declines, and TRAP says best that somebody has to look.
 */
#define DECLINE SECCOMP_RET_TRAP

/* architecture, number, default: what stands around two per named call */
#define FRAME_INSNS 5

struct kfs_policy {
	__u32 other;			/* verdict on calls without a rule */
	unsigned int count;		/* length of verdict[] */
	struct sock_filter *filter;	/* made when asked for, NULL when stale */
	unsigned int insns;
	__u32 verdict[];
};

static __u32 answer(unsigned int err)
{
	return err ? SECCOMP_RET_ERRNO | err : DECLINE;
}

KFS_PUBLIC struct kfs_policy *kfs_policy_new(unsigned int deny_errno)
{
	unsigned int count = kfs_syscall_count();
	struct kfs_policy *policy;
	int saved = errno;

	if (deny_errno > 4095)
		return NULL;
	policy = calloc(1, sizeof(*policy) + count * sizeof(policy->verdict[0]));
	errno = saved;
	if (!policy)
		return NULL;
	policy->other = answer(deny_errno);
	policy->count = count;
	for (unsigned int nr = 0; nr < count; nr++)
		policy->verdict[nr] = policy->other;
	return policy;
}

KFS_PUBLIC void kfs_policy_free(struct kfs_policy *policy)
{
	if (!policy)
		return;
	free(policy->filter);
	free(policy);
}

/*
 * Runs over the names twice, so that a misspelt one at the end leaves no half
 * of the list behind.
 */
static int rule(struct kfs_policy *policy, const char *names, __u32 verdict)
{
	static const char blanks[] = " \t\n,";

	for (int apply = 0; apply < 2; apply++) {
		const char *p = names + strspn(names, blanks);

		while (*p) {
			size_t len = strcspn(p, blanks);
			int nr = kfs_syscall_find(p, len);

			if (nr < 0)
				return nr;
			if (apply)
				policy->verdict[nr] = verdict;
			p += len;
			p += strspn(p, blanks);
		}
	}
	free(policy->filter);
	policy->filter = NULL;
	return 0;
}

KFS_PUBLIC int kfs_policy_allow(struct kfs_policy *policy, const char *names)
{
	return rule(policy, names, SECCOMP_RET_ALLOW);
}

KFS_PUBLIC int kfs_policy_refuse(struct kfs_policy *policy, unsigned int err,
				 const char *names)
{
	if (err < 1 || err > 4095)
		return -EINVAL;
	return rule(policy, names, answer(err));
}

/*
 * A plain list of comparisons. The kernel derives the set of numbers that are
 * allowed whatever their arguments and looks only there, so the length of the
 * program costs an allowed call nothing.
 */
static int build(struct kfs_policy *policy)
{
	struct sock_filter *f, *p;
	unsigned int rules = 0;
	int saved = errno;

	for (unsigned int nr = 0; nr < policy->count; nr++)
		rules += policy->verdict[nr] != policy->other;

	f = calloc(FRAME_INSNS + 2 * rules, sizeof(*f));
	errno = saved;
	if (!f)
		return -ENOMEM;

	p = f;
	*p++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			offsetof(struct seccomp_data, arch));
	*p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
			AUDIT_ARCH_X86_64, 1, 0);
	*p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, DECLINE);
	*p++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			offsetof(struct seccomp_data, nr));
	for (unsigned int nr = 0; nr < policy->count; nr++) {
		if (policy->verdict[nr] == policy->other)
			continue;
		*p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
				nr, 0, 1);
		*p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
				policy->verdict[nr]);
	}
	*p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, policy->other);

	policy->filter = f;
	policy->insns = (unsigned int)(p - f);
	return 0;
}

KFS_PUBLIC int kfs_policy_filter(struct kfs_policy *policy,
				 const struct sock_filter **filter)
{
	if (!policy->filter) {
		int ret = build(policy);

		if (ret)
			return ret;
	}
	*filter = policy->filter;
	return (int)policy->insns;
}

/*
 * Not syscall(3): that reports through errno, and is a cancellation point in
 * some C libraries.
 */
static long native(__u64 nr, const __u64 args[6])
{
	register __u64 r10 __asm__("r10") = args[3];
	register __u64 r8 __asm__("r8") = args[4];
	register __u64 r9 __asm__("r9") = args[5];
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "0"(nr), "D"(args[0]), "S"(args[1]), "d"(args[2]),
			   "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

KFS_PUBLIC long kfs_policy_call(const struct kfs_policy *policy, __u64 nr,
				const __u64 args[6])
{
	__u32 verdict = policy->other;

	if (nr < policy->count)
		verdict = policy->verdict[nr];
	if (verdict == SECCOMP_RET_ALLOW)
		return native(nr, args);
	if ((verdict & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO)
		return -(long)(verdict & SECCOMP_RET_DATA);
	return -EPERM;
}
