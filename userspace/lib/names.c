// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Names of system calls, from the kernel headers that the library was built
 * with (syscall-names.inc is made from asm/unistd_64.h), and of reasons.
 */
#include <errno.h>
#include <string.h>

#include "internal.h"

static const char *const names[] = {
#include "syscall-names.inc"
};

static const struct {
	const char *name, *text;
} reasons[] = {
	[KFS_REASON_UNATTACHED] = { "unattached",
		"the VM is not attached" },
	[KFS_REASON_NOT_ENABLED] = { "not-enabled",
		"the VM is attached, KFS_ENABLE has not been done" },
	[KFS_REASON_DYING] = { "dying",
		"the VM is being detached" },
	[KFS_REASON_NESTED] = { "nested",
		"it came from a guest of the guest" },
	[KFS_REASON_PROTECTED] = { "protected",
		"the guest's registers are not the host's to read" },
	[KFS_REASON_OTHER_ABI] = { "other-abi",
		"the VM speaks Hyper-V's or Xen's hypercalls" },
	[KFS_REASON_NOT_64BIT] = { "not-64bit",
		"the guest was not in 64-bit code" },
	[KFS_REASON_CPL] = { "cpl",
		"the guest was not in ring 0" },
	[KFS_REASON_COMPAT_TASK] = { "compat-task",
		"the VMM entered KVM_RUN by a 32-bit system call" },
	[KFS_REASON_NUMBER] = { "number",
		"RBX held no system call number" },
	[KFS_REASON_UNLISTED] = { "unlisted",
		"not in the module's table of runnable calls" },
	[KFS_REASON_POLICY] = { "policy",
		"the VM's policy neither allows nor answers it" },
	[KFS_REASON_ARGUMENT] = { "argument",
		"runnable, but not with these arguments" },
	[KFS_REASON_OBSERVER] = { "observer",
		"seccomp, ptrace, audit or tracing watches the thread" },
	[KFS_REASON_DIRTY_LOG] = { "dirty-log",
		"the VM's writes are being logged" },
	[KFS_REASON_BLOCKING] = { "blocking",
		"it may block, and the VM did not ask for that" },
	[KFS_REASON_NO_MEMORY] = { "no-memory",
		"no memory for the vCPU's state" },
};

unsigned int kfs_syscall_count(void)
{
	return sizeof(names) / sizeof(names[0]);
}

int kfs_syscall_find(const char *name, size_t len)
{
	for (unsigned int nr = 0; nr < kfs_syscall_count(); nr++)
		if (names[nr] && !strncmp(names[nr], name, len) &&
		    !names[nr][len])
			return (int)nr;
	return -ENOENT;
}

KFS_PUBLIC int kfs_syscall_nr(const char *name)
{
	return kfs_syscall_find(name, strlen(name));
}

KFS_PUBLIC const char *kfs_syscall_name(unsigned int nr)
{
	return nr < kfs_syscall_count() ? names[nr] : NULL;
}

KFS_PUBLIC const char *kfs_reason_name(unsigned int reason)
{
	if (reason < sizeof(reasons) / sizeof(reasons[0]) &&
	    reasons[reason].name)
		return reasons[reason].name;
	return "unknown";
}

KFS_PUBLIC const char *kfs_reason_text(unsigned int reason)
{
	if (reason < sizeof(reasons) / sizeof(reasons[0]) &&
	    reasons[reason].text)
		return reasons[reason].text;
	return "a reason that this version of the library does not know";
}
