// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The ioctls, with errors as values and errno left alone: a VMM calls these
 * between its own system calls and must not find errno changed under it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

#include "internal.h"

static int kfs_ioctl(int fd, unsigned long cmd, void *arg)
{
	int saved = errno;
	int ret = ioctl(fd, cmd, arg);

	if (ret < 0)
		ret = -errno;
	errno = saved;
	return ret;
}

KFS_PUBLIC int kfs_open(void)
{
	int saved = errno;
	int fd = open(KFS_DEVICE_PATH, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		fd = -errno;
	errno = saved;
	return fd;
}

KFS_PUBLIC int kfs_get_info(int dev, struct kfs_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return kfs_ioctl(dev, KFS_GET_INFO, info);
}

KFS_PUBLIC int kfs_hook_info(int dev, unsigned int index,
			     struct kfs_hook_info *hook)
{
	memset(hook, 0, sizeof(*hook));
	hook->size = sizeof(*hook);
	hook->index = index;
	return kfs_ioctl(dev, KFS_HOOK_INFO, hook);
}

KFS_PUBLIC int kfs_vm_stats(int fd, __u64 id, struct kfs_vm_stats *stats,
			    struct kfs_call_stats *calls, unsigned int len)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	stats->id = id;
	stats->calls = (__u64)(unsigned long)calls;
	stats->calls_len = calls ? len : 0;
	return kfs_ioctl(fd, KFS_VM_STATS, stats);
}

KFS_PUBLIC int kfs_attach(int dev, int vm_fd, unsigned int mode,
			  unsigned int flags)
{
	struct kfs_attach_vm attach = {
		.size = sizeof(attach),
		.flags = flags,
		.vm_fd = (__u32)vm_fd,
		.mode = mode,
	};

	return kfs_ioctl(dev, KFS_ATTACH_VM, &attach);
}

KFS_PUBLIC int kfs_set_policy(int control, struct kfs_policy *policy)
{
	struct kfs_set_policy arg = { .size = sizeof(arg) };
	const struct sock_filter *filter;
	int count = kfs_policy_filter(policy, &filter);

	if (count < 0)
		return count;
	arg.count = (__u32)count;
	arg.filter = (__u64)(unsigned long)filter;
	return kfs_ioctl(control, KFS_SET_POLICY, &arg);
}

KFS_PUBLIC int kfs_enable(int control)
{
	struct kfs_enable arg = { .size = sizeof(arg) };

	return kfs_ioctl(control, KFS_ENABLE, &arg);
}
