// SPDX-License-Identifier: GPL-2.0
/*
 * The one installer of interceptions; each module has its own table.
 *
 * A hook is live only while somebody uses it, so that a loaded, unused module
 * costs nothing and leaves the target to livepatch and tracers. kfs_hook_lock
 * covers install, remove and the user count; it is a leaf but for ftrace's own
 * locks, taken inside.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/kernel.h>
#include <linux/mutex.h>
#include <linux/nospec.h>
#include <linux/rcupdate.h>
#include <linux/module.h>
#include <linux/kvm_fastsys.h>
#include <asm/text-patching.h>

#include "compat/hook.h"
#include "hook.h"
#include "symbols.h"

static DEFINE_MUTEX(kfs_hook_lock);

static const u8 kfs_nop5[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
#define KFS_CALL_OPCODE	0xe8
#define KFS_SITE_SIZE	5

static bool kfs_is_site(const u8 *p)
{
	return p[0] == KFS_CALL_OPCODE || p[0] == INT3_INSN_OPCODE ||
	       !memcmp(p, kfs_nop5, KFS_SITE_SIZE);
}

/*
 * The fentry site is the function's first instruction, or its second behind
 * an ENDBR, which some kernels overwrite: look for the site, not for ENDBR.
 */
static unsigned long kfs_find_site(unsigned long addr)
{
	if (kfs_is_site((const u8 *)addr))
		return addr;
	if (kfs_is_site((const u8 *)addr + 4))
		return addr + 4;
	return 0;
}

/* What the site calls now, 0 when it is a NOP. */
static unsigned long kfs_site_target(unsigned long ip)
{
	const u8 *p = (const u8 *)ip;
	s32 rel;

	if (READ_ONCE(*p) != KFS_CALL_OPCODE)
		return 0;
	memcpy(&rel, p + 1, sizeof(rel));
	return ip + KFS_SITE_SIZE + rel;
}

#define kfs_hook_fail(hook, err, fmt, ...)				\
({									\
	snprintf((hook)->reason, sizeof((hook)->reason), fmt, ##__VA_ARGS__); \
	(hook)->error = -(err);						\
	-ENODEV;							\
})

static int kfs_hook_install(struct kfs_hook *hook)
{
	int err;

	if (!kfs_ftrace_is_on())
		return kfs_hook_fail(hook, -EPERM,
				     "ftrace is off: sysctl kernel.ftrace_enabled=1");

	err = kfs_compat_hook_install(hook);
	if (err == -EBUSY)
		return kfs_hook_fail(hook, err,
				     "%s is taken by BPF, another tracer or a livepatch",
				     hook->target);
	if (err)
		return kfs_hook_fail(hook, err, "ftrace refused %s: error %d",
				     hook->target, err);

	/*
	 * A site that stayed a NOP would let every call of ours pass by. (A
	 * breakpoint there is another tracer's patching under way.)
	 */
	if (!memcmp((const void *)hook->ip, kfs_nop5, KFS_SITE_SIZE)) {
		kfs_compat_hook_remove(hook);
		return kfs_hook_fail(hook, -EIO, "%s was not patched",
				     hook->target);
	}
	hook->reason[0] = 0;
	hook->error = 0;
	return 0;
}

static bool kfs_hook_stuck;

static void kfs_hook_remove(struct kfs_hook *hook)
{
	int err = kfs_compat_hook_remove(hook);

	/*
	 * Only a kernel whose ftrace has shut itself down does this. The hooked
	 * function goes on calling our text, so that has to stay for good.
	 */
	if (err) {
		/* On its way out already, it may not get there: kfs_hooks_exit(). */
		kfs_hook_stuck = true;
		__module_get(THIS_MODULE);
		pr_err("cannot remove the hook on %s (%d): the module stays loaded, reboot to be rid of it\n",
		       hook->target, err);
	}
}

/*
 * The self-test calls the target with a made-up object, so it runs only where
 * the patched bytes say that the target's body is out of reach. A site shared
 * with another tracer goes through ftrace's dispatcher, and is believed. Under
 * kfs_hook_lock.
 */
static int kfs_hook_prove(struct kfs_hook *hook)
{
	int err;

	if (!hook->ip)
		return -ENODEV;
	err = kfs_hook_install(hook);
	if (err)
		return err;
	if (kfs_site_target(hook->ip) == hook->trampoline) {
		err = hook->selftest();
		if (err)
			err = kfs_hook_fail(hook, err, "self-test on %s: %d",
					    hook->target, err);
	}
	hook->proven = !err;
	kfs_hook_remove(hook);
	return err;
}

int kfs_hook_get(unsigned int id)
{
	struct kfs_hook *hook = &kfs_hooks[id];
	int err = 0;

	if (!*hook->enabled)
		return -EOPNOTSUPP;
	mutex_lock(&kfs_hook_lock);
	/* An optional hook that failed at load is looked at again. */
	if (!hook->proven)
		err = kfs_hook_prove(hook);
	if (!err && !hook->users)
		err = kfs_hook_install(hook);
	if (!err)
		hook->users++;
	else
		pr_warn_ratelimited("%s hook: %s\n", hook->name, hook->reason);
	mutex_unlock(&kfs_hook_lock);
	return err;
}

void kfs_hook_put(unsigned int id)
{
	struct kfs_hook *hook = &kfs_hooks[id];

	mutex_lock(&kfs_hook_lock);
	if (!--hook->users)
		kfs_hook_remove(hook);
	mutex_unlock(&kfs_hook_lock);
}

static int __init kfs_hook_init(struct kfs_hook *hook)
{
	unsigned long addr = kfs_symbol_lookup(hook->target);
	int err;

	if (!addr)
		return kfs_hook_fail(hook, -ENOENT, "this kernel has no %s",
				     hook->target);
	hook->ip = kfs_find_site(addr);
	if (!hook->ip)
		return kfs_hook_fail(hook, -ENOENT,
				     "%s cannot be traced on this kernel",
				     hook->target);
	hook->trampoline = (unsigned long)hook->tramp_fn;
	mutex_lock(&kfs_hook_lock);
	err = kfs_hook_prove(hook);
	mutex_unlock(&kfs_hook_lock);
	return err;
}

int __init kfs_hooks_init(void)
{
	unsigned int i;
	int err;

	for (i = 0; i < kfs_hook_count; i++) {
		struct kfs_hook *hook = &kfs_hooks[i];

		if (!*hook->enabled)
			continue;
		err = kfs_hook_init(hook);
		if (err) {
			pr_err("%s hook: %s\n", hook->name, hook->reason);
			if (!hook->optional)
				return err;
		}
	}
	return 0;
}

void kfs_hooks_exit(void)
{
	/*
	 * Nobody holds a hook any more, but a task may have been preempted in a
	 * trampoline, or in our code just before its last return. Nobody sleeps
	 * there (whoever may sleep is waited for by what it serves), so a grace
	 * period of the tasks flavour sees them out.
	 */
	synchronize_rcu_tasks();
	/* A hook that stayed calls into our text: whoever unloads us waits. */
	while (kfs_hook_stuck)
		schedule_timeout_idle(MAX_SCHEDULE_TIMEOUT);
}

int kfs_hook_info(struct kfs_hook_info *info)
{
	struct kfs_hook *hook;
	u32 i = info->index;

	if (i >= kfs_hook_count)
		return -ENOENT;
	hook = &kfs_hooks[array_index_nospec(i, kfs_hook_count)];

	mutex_lock(&kfs_hook_lock);
	info->users = hook->users;
	info->error = hook->error;
	if (!*hook->enabled)
		info->state = KFS_HOOK_DISABLED;
	else if (hook->users)
		info->state = KFS_HOOK_LIVE;
	else if (hook->error)
		info->state = KFS_HOOK_UNAVAILABLE;
	else
		info->state = KFS_HOOK_OFF;
	strscpy(info->name, hook->name, sizeof(info->name));
	strscpy(info->target, hook->target, sizeof(info->target));
	strscpy(info->reason, hook->reason, sizeof(info->reason));
	mutex_unlock(&kfs_hook_lock);
	return 0;
}
