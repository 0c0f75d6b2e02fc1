// SPDX-License-Identifier: GPL-2.0
/*
 * The only place that finds kernel-internal functions.
 *
 * kallsyms_lookup_name() has no export, but registering a kprobe on a name
 * makes the kernel tell its address. From there everything else is a lookup.
 * Resolving takes no reference: what we resolve lives in vmlinux or in kvm.ko,
 * and kvm.ko stays because we link to it.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/rcupdate.h>

#include "kfs.h"
#include "symbols.h"

#define KFS_DEFINE_SYMBOL(ret, name, args, kname)			\
	DEFINE_STATIC_CALL_NULL(kfs_##name, kfs_fn_##name);
KFS_SYMBOLS(KFS_DEFINE_SYMBOL)

typedef unsigned long kfs_fn_kallsyms_lookup(const char *name);
DEFINE_STATIC_CALL_NULL(kfs_kallsyms_lookup, kfs_fn_kallsyms_lookup);

struct kfs_addresses kfs_addr __ro_after_init;

unsigned long kfs_symbol_lookup(const char *name)
{
	return static_call(kfs_kallsyms_lookup)(name);
}

static int __init kfs_find_kallsyms(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
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
	return 0;
}

static unsigned long __init kfs_require(const char *name)
{
	unsigned long addr = kfs_symbol_lookup(name);

	if (!addr)
		pr_err("this kernel has no %s: run 'kvm-fastsys check' for what is supported\n",
		       name);
	return addr;
}

#define KFS_RESOLVE(ret, name, args, kname)				\
	addr = kfs_require(kname);					\
	if (!addr)							\
		return -ENOENT;						\
	static_call_update(kfs_##name, (kfs_fn_##name *)addr);

int __init kfs_symbols_resolve(void)
{
	unsigned long addr;
	int err;

	err = kfs_find_kallsyms();
	if (err)
		return err;

	KFS_SYMBOLS(KFS_RESOLVE)

	addr = kfs_require("ftrace_enabled");
	if (!addr)
		return -ENOENT;
	kfs_addr.ftrace_enabled = (const int *)addr;

	/*
	 * KVM's own completion of an exit by hypercall. By module and name:
	 * kernels with TDX have a second function of this name, and the lookup
	 * goes through modules newest first.
	 */
	addr = kfs_require("kvm:complete_hypercall_exit");
	if (!addr)
		return -ENOENT;
	kfs_addr.complete_hypercall = (void *)addr;

	/*
	 * KVM's files are told from others by where their operations live, so
	 * KVM has to be a module of its own.
	 */
	preempt_disable();
	kfs_addr.kvm = static_call(kfs_module_address)(addr);
	preempt_enable();
	if (!kfs_addr.kvm) {
		pr_err("KVM is built into this kernel: only a modular KVM is supported\n");
		return -ENOENT;
	}
	return 0;
}
