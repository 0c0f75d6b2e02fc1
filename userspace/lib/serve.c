// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Calls that reach the VMM: left to it by the kernel, or by the doorbell; and
 * the memory they name. The guest may write to any of it meanwhile, the
 * mailbox and, in identity mode, kvm_run included: judge and run a copy.
 */
#include <errno.h>
#include <string.h>

#include "internal.h"

KFS_PUBLIC int kfs_deferred_call(struct kvm_run *run, struct kfs_call *call)
{
	if (run->exit_reason != KVM_EXIT_HYPERCALL ||
	    !KFS_EXIT_IS_CALL(run->hypercall.nr))
		return 0;
	call->nr = KFS_EXIT_CALL(run->hypercall.nr);
	memcpy(call->args, run->hypercall.args, sizeof(call->args));
	call->ret = (__s64 *)&run->hypercall.ret;
	return 1;
}

KFS_PUBLIC int kfs_deferred(struct kvm_run *run,
			    const struct kfs_policy *policy)
{
	struct kfs_call call;
	int ret = kfs_deferred_call(run, &call);

	if (ret == 1)
		*call.ret = kfs_policy_call(policy, call.nr, call.args);
	return ret;
}

KFS_PUBLIC int kfs_doorbell_call(const struct kvm_run *run, __u16 port,
				 struct kfs_mailbox *page, unsigned int count,
				 struct kfs_call *call)
{
	__u32 index;

	if (run->exit_reason != KVM_EXIT_IO || run->io.port != port ||
	    run->io.direction != KVM_EXIT_IO_OUT)
		return 0;
	if (run->io.size != sizeof(index) || run->io.count != 1)
		return -EINVAL;
	memcpy(&index, (const char *)run + run->io.data_offset, sizeof(index));
	if (index >= count)
		return -EINVAL;
	/* volatile: or the compiler could read the row again after judging */
	call->nr = *(volatile __u64 *)&page[index].nr;
	for (int i = 0; i < 6; i++)
		call->args[i] = *(volatile __u64 *)&page[index].args[i];
	call->ret = &page[index].ret;
	return 1;
}

KFS_PUBLIC int kfs_doorbell(const struct kvm_run *run, __u16 port,
			    struct kfs_mailbox *page, unsigned int count,
			    const struct kfs_policy *policy)
{
	struct kfs_call call;
	int ret = kfs_doorbell_call(run, port, page, count, &call);

	if (ret == 1)
		*call.ret = kfs_policy_call(policy, call.nr, call.args);
	return ret;
}

/* The region with this guest address. */
static const struct kfs_region *find(const struct kfs_region *regions,
				     unsigned int count, __u64 guest)
{
	for (unsigned int i = 0; i < count; i++)
		if (guest - regions[i].guest < regions[i].size &&
		    guest >= regions[i].guest)
			return &regions[i];
	return NULL;
}

/*
 * Walks from region to region by subtraction, so that nothing can wrap: what
 * is left of a region is never more than its size.
 */
static int look_up(const struct kfs_region *regions, unsigned int count,
		   __u64 guest, __u64 len, unsigned int access, char **host)
{
	char *start = NULL, *expected = NULL;

	do {
		const struct kfs_region *r = find(regions, count, guest);
		__u64 offset, left;

		if (!r || (access == KFS_WRITE &&
			   (r->flags & KFS_REGION_READONLY)))
			return -EFAULT;
		offset = guest - r->guest;
		left = r->size - offset;
		if (!start)
			start = (char *)r->host + offset;
		else if ((char *)r->host + offset != expected)
			return -EFAULT;
		if (left >= len) {
			*host = start;
			return 0;
		}
		expected = (char *)r->host + r->size;
		guest += left;
		len -= left;
	} while (guest);	/* 0: the address space ends here */
	return -EFAULT;
}

KFS_PUBLIC int kfs_translate(const struct kfs_region *regions,
			     unsigned int count, __u64 guest, __u64 len,
			     unsigned int access, void **host)
{
	char *found;
	int ret;

	*host = NULL;
	if (access != KFS_READ && access != KFS_WRITE)
		return -EINVAL;
	if (len && guest + (len - 1) < guest)
		return -EFAULT;
	if (!regions) {
		*host = (void *)(unsigned long)guest;
		return 0;
	}
	ret = look_up(regions, count, guest, len, access, &found);
	if (!ret)
		*host = found;
	return ret;
}
