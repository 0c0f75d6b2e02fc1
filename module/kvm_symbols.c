// SPDX-License-Identifier: GPL-2.0
/* What kvm_fastsys.ko needs of vmlinux and kvm.ko. */
#include <linux/module.h>
#include <linux/preempt.h>

#include "kfs.h"
#include "kvm_symbols.h"

KFS_KVM_SYMBOLS(KFS_DEFINE_SYMBOL)

struct kfs_addresses kfs_addr __ro_after_init;

int __init kfs_kvm_symbols_resolve(void)
{
	unsigned long addr;

	KFS_KVM_SYMBOLS(KFS_RESOLVE_SYMBOL)

	/*
	 * KVM's own completion of an exit by hypercall. By module and name:
	 * kernels with TDX have a second function of this name, and the lookup
	 * goes through modules newest first.
	 */
	addr = kfs_symbol_require("kvm:complete_hypercall_exit");
	if (!addr)
		return -ENOENT;
	kfs_addr.complete_hypercall = (void *)addr;

	/* What a task's restart_block says when there is nothing to restart. */
	addr = kfs_symbol_require("do_no_restart_syscall");
	if (!addr)
		return -ENOENT;
	kfs_addr.no_restart = (void *)addr;
	kfs_addr.vcpu_ioctl = (void *)kfs_symbol_require("kvm:kvm_vcpu_ioctl");

	/*
	 * KVM's files are told from others by where their operations live, so
	 * KVM has to be a module of its own.
	 */
	preempt_disable();
	kfs_addr.kvm = static_call(kfs_module_address)
		((unsigned long)kfs_addr.complete_hypercall);
	preempt_enable();
	if (!kfs_addr.kvm) {
		pr_err("KVM is built into this kernel: only a modular KVM is supported\n");
		return -ENOENT;
	}
	return 0;
}
