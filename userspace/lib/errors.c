// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * What an error means here and what to do next. One row per (step, errno) that
 * has a way out; everything else is strerror()'s.
 */
#include <errno.h>
#include <string.h>

#include "internal.h"

static const struct {
	enum kfs_what what;
	int err;
	const char *text;
} advice[] = {
	{ KFS_WHAT_OPEN, ENOENT,
	  "/dev/kvm_fastsys is not there: load the module (modprobe kvm_fastsys); `kvm-fastsys check` says whether it can work here" },
	{ KFS_WHAT_OPEN, EACCES,
	  "/dev/kvm_fastsys may not be opened by this user: join its group (usermod -aG kvm USER) or run as root" },
	{ KFS_WHAT_OPEN, EPERM,
	  "a device policy (cgroup, container) keeps /dev/kvm_fastsys closed: allow it there, or open it outside and pass the fd in" },
	{ KFS_WHAT_OPEN, ENXIO,
	  "/dev/kvm_fastsys is a leftover without a driver: load the module (modprobe kvm_fastsys)" },
	{ KFS_WHAT_OPEN, ENODEV,
	  "/dev/kvm_fastsys is a leftover without a driver: load the module (modprobe kvm_fastsys)" },
	{ KFS_WHAT_GET_INFO, ENOTTY,
	  "this fd is not /dev/kvm_fastsys" },
	{ KFS_WHAT_ATTACH, EBADF,
	  "the VM's fd is not open" },
	{ KFS_WHAT_ATTACH, EINVAL,
	  "not a VM's fd, or a mode or flag that this module does not know: compare the ABI version in `kvm-fastsys status` with your header's KFS_ABI_VERSION" },
	{ KFS_WHAT_ATTACH, EIO,
	  "the VM belongs to another process: attach from the one that did KVM_CREATE_VM" },
	{ KFS_WHAT_ATTACH, EBUSY,
	  "the VM is attached already: use the control fd of the first attach, or close it" },
	{ KFS_WHAT_ATTACH, EOPNOTSUPP,
	  "mode not built or switched off, a protected VM, or a 32-bit caller: ask for KFS_MODE_IDENTITY and see /sys/module/kvm_fastsys/parameters" },
	{ KFS_WHAT_ATTACH, ENODEV,
	  "the hook cannot go live: `kvm-fastsys status` says why" },
	{ KFS_WHAT_ATTACH, EDQUOT,
	  "this user has too many VMs attached: detach some, or load the module with a higher limit (modprobe kvm_fastsys max_vms=N)" },
	{ KFS_WHAT_ATTACH, ENOTTY,
	  "this fd is not /dev/kvm_fastsys" },
	{ KFS_WHAT_SET_POLICY, EINVAL,
	  "the kernel refused the policy's program: not in seccomp's form" },
	{ KFS_WHAT_SET_POLICY, ENOSPC,
	  "too many policies stacked on this VM: make one of them" },
	{ KFS_WHAT_SET_POLICY, EIO,
	  "the control fd belongs to another process: set the policy there" },
	{ KFS_WHAT_ENABLE, EINVAL,
	  "there is no policy yet: kfs_set_policy() first" },
	{ KFS_WHAT_ENABLE, EALREADY,
	  "enabled already, nothing to do" },
	{ KFS_WHAT_ENABLE, EIO,
	  "the control fd belongs to another process: enable it there" },
	{ KFS_WHAT_STATS, ENOENT,
	  "no such VM: it is detached, or the list is at its end" },
	{ KFS_WHAT_CPUID, ENOSPC,
	  "no room for one more CPUID entry: give the table more" },
	{ KFS_WHAT_DOORBELL, EINVAL,
	  "the guest rang the doorbell wrongly: 32 bits wide, the value is a mailbox's number below the count given" },
	{ KFS_WHAT_TRANSLATE, EFAULT,
	  "the guest's buffer is not all in the VM's memory, or may not be written: answer the guest with -EFAULT" },
	{ KFS_WHAT_TRANSLATE, EINVAL,
	  "access is KFS_READ or KFS_WRITE" },
	{ KFS_WHAT_POLICY, ENOENT,
	  "a name in the list is no x86-64 system call, and no rule has changed: see ausyscall --dump, or syscalls(2)" },
	{ KFS_WHAT_POLICY, EINVAL,
	  "the errno of a rule is 1 to 4095" },
	{ KFS_WHAT_KICK, EBADF,
	  "the vCPU's, the VM's or the kick fd is not open" },
	{ KFS_WHAT_KICK, EINVAL,
	  "not a vCPU's fd (with KFS_KICK_VM: not a VM's), or a flag that this module does not know" },
	{ KFS_WHAT_KICK, EIO,
	  "the VM belongs to another process: make the kick fd in the one that did KVM_CREATE_VM, and pass it on" },
	{ KFS_WHAT_KICK, EDQUOT,
	  "this user has too many kick fds: close some, or load the module with a higher limit (modprobe kvm_fastsys max_kicks=N)" },
	{ KFS_WHAT_KICK, EOPNOTSUPP,
	  "no kick on this kernel, or switched off: `kvm-fastsys status` says why; kick by signal, as kfs_kick_open() does when it is given one" },
	{ KFS_WHAT_KICK, ENODEV,
	  "the hook for KFS_USER_EXIT cannot go live: `kvm-fastsys status` says why; kick fds need no hook" },
	{ KFS_WHAT_KICK, ENOENT,
	  "no module, and no signal to do without it: load it (modprobe kvm_fastsys), or give kfs_kick_open() a signal; in a list: its end" },
	{ KFS_WHAT_KICK, EACCES,
	  "/dev/kvm_fastsys may not be opened by this user, and there is no signal to do without it: join its group (usermod -aG kvm USER)" },
	{ KFS_WHAT_KICK, ENOTTY,
	  "this fd is not /dev/kvm_fastsys, or its module is older than the kick" },
	{ KFS_WHAT_KICK, EALREADY,
	  "KFS_USER_EXIT is kept live by this fd already, nothing to do" },
	{ KFS_WHAT_NAME, ENOENT,
	  "no x86-64 system call has that name: see ausyscall --dump, or syscalls(2)" },
};

KFS_PUBLIC const char *kfs_strerror(int err, enum kfs_what what)
{
	if (err < 0)
		err = -err;
	for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++)
		if (advice[i].what == what && advice[i].err == err)
			return advice[i].text;
	return strerror(err);
}
