// SPDX-License-Identifier: GPL-2.0
/*
 * Direct trampolines: `call trampoline` in the place of the compiler's fentry
 * NOP, 5 to 7 instructions a pass. The interface changed in 6.6 from an
 * address to an ftrace_ops of the caller's.
 */
#include <linux/ftrace.h>
#include <linux/version.h>

#include "../hook.h"
#include "hook.h"

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)

int kfs_compat_hook_install(struct kfs_hook *hook)
{
	int err;

	/* What an earlier life left behind makes register refuse. */
	memset(&hook->ops, 0, sizeof(hook->ops));
	err = ftrace_set_filter_ip(&hook->ops, hook->ip, 0, 0);
	if (err)
		return err;
	err = register_ftrace_direct(&hook->ops, hook->trampoline);
	if (err) {
		ftrace_free_filter(&hook->ops);
		return err;
	}
	/*
	 * Registering overwrites the flags. PERMANENT makes the kernel refuse
	 * ftrace_enabled=0 while the hook is live instead of silently dropping
	 * it from under attached VMs.
	 */
	hook->ops.flags |= FTRACE_OPS_FL_PERMANENT;
	return 0;
}

int kfs_compat_hook_remove(struct kfs_hook *hook)
{
	return unregister_ftrace_direct(&hook->ops, hook->trampoline, true);
}

#else

int kfs_compat_hook_install(struct kfs_hook *hook)
{
	return register_ftrace_direct(hook->ip, hook->trampoline);
}

int kfs_compat_hook_remove(struct kfs_hook *hook)
{
	return unregister_ftrace_direct(hook->ip, hook->trampoline);
}

#endif
