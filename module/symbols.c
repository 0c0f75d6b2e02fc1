// SPDX-License-Identifier: GPL-2.0
/*
 * kallsyms_lookup_name() has no export, but registering a kprobe on a name
 * makes the kernel tell its address. From there everything else is a lookup.
 * Resolving takes no reference: what a module resolves lives in vmlinux or in
 * a module it links to.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/module.h>

#include "symbols.h"

typedef unsigned long kfs_fn_kallsyms_lookup(const char *name);
DEFINE_STATIC_CALL_NULL(kfs_kallsyms_lookup, kfs_fn_kallsyms_lookup);

static const int *kfs_ftrace_enabled __ro_after_init;

unsigned long kfs_symbol_lookup(const char *name)
{
	return static_call(kfs_kallsyms_lookup)(name);
}

unsigned long kfs_symbol_require(const char *name)
{
	unsigned long addr = kfs_symbol_lookup(name);

	if (!addr)
		pr_err("this kernel has no %s: run 'kvm-fastsys check' for what is supported\n",
		       name);
	return addr;
}

bool kfs_ftrace_is_on(void)
{
	return READ_ONCE(*kfs_ftrace_enabled);
}

int __init kfs_symbols_init(void)
{
	/*
	 * Registered disabled, it is never armed: no text is patched. One that
	 * is armed while ftrace is switched off leaves its mark in ftrace's
	 * records, and the kernel warns when the next user of ftrace goes.
	 */
	struct kprobe probe = {
		.symbol_name = "kallsyms_lookup_name",
		.flags = KPROBE_FLAG_DISABLED,
	};
	int err = register_kprobe(&probe);

	if (err) {
		pr_err("cannot find kallsyms_lookup_name (%d): a kernel with CONFIG_KPROBES and CONFIG_KALLSYMS is needed\n",
		       err);
		return -ENOENT;
	}
	/*
	 * On kernels with IBT the address may lie behind the function's ENDBR.
	 * A direct call to either place is the same call.
	 */
	static_call_update(kfs_kallsyms_lookup,
			   (kfs_fn_kallsyms_lookup *)probe.addr);
	unregister_kprobe(&probe);

	kfs_ftrace_enabled = (const int *)kfs_symbol_require("ftrace_enabled");
	return kfs_ftrace_enabled ? 0 : -ENOENT;
}
