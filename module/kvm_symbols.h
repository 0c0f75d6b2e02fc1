/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KFS_KVM_SYMBOLS_H
#define KFS_KVM_SYMBOLS_H

#include <linux/kvm_host.h>
#include <linux/sched.h>
#include <linux/static_call.h>

#include "compat/compat.h"
#include "symbols.h"

/*
 * What kvm_fastsys.ko calls; rows as symbols.h says.
 *
 * The two kvm_x86_* rows point at KVM's own static call trampolines, which
 * live in kvm.ko: they follow when the vendor module is reloaded, a pointer to
 * the vendor's function would go stale.
 */
#define KFS_KVM_SYMBOLS(row)						\
	row(long, x64_sys_call,						\
	    (const struct pt_regs *regs, unsigned int nr),		\
	    "x64_sys_call")						\
	row(int, wake_up_state,						\
	    (struct task_struct *task, unsigned int state),		\
	    "wake_up_state")						\
	row(bool, file_is_kvm, (struct file *file), "kvm:file_is_kvm")	\
	row(long, vcpu_ioctl,						\
	    (struct file *file, unsigned int cmd, unsigned long arg),	\
	    "kvm:kvm_vcpu_ioctl")					\
	row(void, task_work_run, (void), "task_work_run")		\
	row(void, vcpu_load, (struct kvm_vcpu *vcpu), "kvm:vcpu_load")	\
	row(void, vcpu_put, (struct kvm_vcpu *vcpu), "kvm:vcpu_put")	\
	row(struct module *, module_address, (unsigned long addr),	\
	    "__module_address")						\
	row(int, emulate_hypercall, (struct kvm_vcpu *vcpu),		\
	    "kvm:kvm_emulate_hypercall")				\
	row(int, skip_instruction, (struct kvm_vcpu *vcpu),		\
	    "kvm:kvm_skip_emulated_instruction")			\
	row(unsigned long, get_linear_rip, (struct kvm_vcpu *vcpu),	\
	    "kvm:kvm_get_linear_rip")					\
	row(int, get_cpl, (struct kvm_vcpu *vcpu),			\
	    "kvm:__SCT__kvm_x86_get_cpl")				\
	row(void, get_cs_db_l_bits,					\
	    (struct kvm_vcpu *vcpu, int *db, int *l),			\
	    "kvm:__SCT__kvm_x86_get_cs_db_l_bits")			\
	row(void, cache_reg, (struct kvm_vcpu *vcpu, enum kvm_reg reg),	\
	    "kvm:__SCT__kvm_x86_cache_reg")

KFS_KVM_SYMBOLS(KFS_DECLARE_SYMBOL)

/* Addresses of data and of code we never call, only hand to KVM or hook. */
struct kfs_addresses {
	int (*complete_hypercall)(struct kvm_vcpu *vcpu);
	long (*no_restart)(struct restart_block *block);
	struct module *kvm;
	/* Only compared with: what makes a file a vCPU's. */
	long (*vcpu_ioctl)(struct file *file, unsigned int cmd,
			   unsigned long arg);
};

extern struct kfs_addresses kfs_addr;

/* All of the above, or -ENOENT after a line that names what is missing. */
int kfs_kvm_symbols_resolve(void);

#endif
