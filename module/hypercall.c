// SPDX-License-Identifier: GPL-2.0
/*
 * What a guest's registers mean: one call, or a probe.
 *
 * Runs as KVM's handler of the hypercall exit: in the vCPU thread, preemptible,
 * interrupts on, vcpu->mutex and kvm->srcu held. Returns what such handlers
 * return: 1 go on in the guest, 0 exit to user space with kvm_run filled,
 * -errno from KVM_RUN; or KFS_PASS, and KVM's own handler runs.
 *
 * Guest registers are read once, into a pt_regs of our own. vcpu->mutex keeps
 * every other writer of them out.
 */
#include <linux/nospec.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "entry.h"
#include "kfs.h"
#include "observers.h"
#include "kvm_symbols.h"
#include "trace.h"

static struct kvm_vcpu *kfs_selftest_vcpu;
static bool kfs_selftest_fired;

static int kfs_finish(struct kvm_vcpu *vcpu, long result)
{
	vcpu->arch.regs[VCPU_REGS_RAX] = result;
	++vcpu->stat.hypercalls;
	return static_call(kfs_skip_instruction)(vcpu);
}

static bool kfs_is_64bit(struct kvm_vcpu *vcpu)
{
	int db, l;

	if (!(vcpu->arch.efer & EFER_LMA))
		return false;
	static_call(kfs_get_cs_db_l_bits)(vcpu, &db, &l);
	return l;
}

/*
 * Is this a hypercall that KVM itself would judge as a plain 64-bit ring 0
 * one? What is not stays KVM's: it answers as if we were not here.
 */
static int kfs_context(const struct kfs_vm *vm, struct kvm_vcpu *vcpu)
{
	if (!test_bit(KFS_VM_BIT_ENABLED, &vm->bits))
		return KFS_REASON_NOT_ENABLED;
	if (vcpu->arch.hflags & HF_GUEST_MASK)
		return KFS_REASON_NESTED;
	if (vcpu->arch.guest_state_protected)
		return KFS_REASON_PROTECTED;
	if (kfs_compat_other_abi(vcpu))
		return KFS_REASON_OTHER_ABI;
	if (!kfs_is_64bit(vcpu))
		return KFS_REASON_NOT_64BIT;
	if (static_call(kfs_get_cpl)(vcpu))
		return KFS_REASON_CPL;
	return -1;
}

/*
 * Leaves the call to the VMM, with KVM's own completion (no pointer into this
 * module stays in the vCPU), or tells the guest to take its slow path.
 */
static int kfs_decline(const struct kfs_vm *vm, struct kfs_vcpu *kv,
		       struct kvm_vcpu *vcpu, u64 nr,
		       const struct pt_regs *regs, enum kfs_reason reason)
{
	struct kvm_run *run = vcpu->run;

	kv->declined[reason]++;
	trace_kfs_syscall_decline(vcpu->vcpu_id, nr, reason);

	if (!(vm->flags & KFS_DEFER_EXIT) || nr > U32_MAX) {
		kv->refused++;
		return kfs_finish(vcpu, -KFS_ENOSYS);
	}

	kv->deferred++;
	run->exit_reason = KVM_EXIT_HYPERCALL;
	run->hypercall.nr = KFS_EXIT_NR(nr);
	run->hypercall.args[0] = regs->di;
	run->hypercall.args[1] = regs->si;
	run->hypercall.args[2] = regs->dx;
	run->hypercall.args[3] = regs->r10;
	run->hypercall.args[4] = regs->r8;
	run->hypercall.args[5] = regs->r9;
	run->hypercall.ret = -KFS_ENOSYS;
	kfs_compat_set_long_mode(run);
	vcpu->arch.complete_userspace_io = kfs_addr.complete_hypercall;
	return 0;
}

static unsigned long kfs_read_rsp(struct kvm_vcpu *vcpu)
{
	if (!test_bit(VCPU_REGS_RSP, (unsigned long *)&vcpu->arch.regs_avail))
		static_call(kfs_cache_reg)(vcpu, VCPU_REGS_RSP);
	return vcpu->arch.regs[VCPU_REGS_RSP];
}

/*
 * An interrupted sleep that KVM_RUN re-entry brings back is told by the same
 * instruction, stack and arguments. A different call on the same stack means
 * that the guest gave the sleep up; one on another stack is an interrupt
 * handler's, and the sleep may still come back.
 */
static bool kfs_is_resumed(struct kfs_restart *rs, struct kvm_vcpu *vcpu,
			   unsigned int nr, const struct pt_regs *regs)
{
	if (rs->rsp != kfs_read_rsp(vcpu))
		return false;
	rs->valid = false;
	return rs->nr == nr &&
	       rs->rip == static_call(kfs_get_linear_rip)(vcpu) &&
	       rs->args[0] == regs->di && rs->args[1] == regs->si &&
	       rs->args[2] == regs->dx && rs->args[3] == regs->r10 &&
	       rs->args[4] == regs->r8 && rs->args[5] == regs->r9;
}

static void kfs_save_restart(struct kfs_restart *rs, struct kvm_vcpu *vcpu,
			     unsigned int nr, const struct pt_regs *regs)
{
	rs->nr = nr;
	rs->rip = static_call(kfs_get_linear_rip)(vcpu);
	rs->rsp = kfs_read_rsp(vcpu);
	rs->args[0] = regs->di;
	rs->args[1] = regs->si;
	rs->args[2] = regs->dx;
	rs->args[3] = regs->r10;
	rs->args[4] = regs->r8;
	rs->args[5] = regs->r9;
	rs->block = current->restart_block;
	rs->valid = true;
}

/*
 * The host call itself. kvm->srcu is released around it: the call may block,
 * and memory slot updates wait for every holder.
 */
static long kfs_make_call(struct kfs_vcpu *kv, struct kvm_vcpu *vcpu,
			  const struct pt_regs *regs, unsigned int nr)
{
	long ret;

	kvm_vcpu_srcu_read_unlock(vcpu);
	WRITE_ONCE(kv->task, current);
	ret = static_call(kfs_x64_sys_call)(regs, nr);
	WRITE_ONCE(kv->task, NULL);
	kvm_vcpu_srcu_read_lock(vcpu);

	kfs_compat_flush_l1d(vcpu);
	return ret;
}

/*
 * A call that came back with a restart code. -ERESTART_RESTARTBLOCK is one
 * whose time runs: what is left stands in the task's restart_block, where a
 * signal handler's own sleep would overwrite it, so it moves to the vCPU.
 *
 * The guest stays on its hypercall only while a signal (or a kick) is pending,
 * which makes KVM_RUN return before the guest runs; a stray restart code would
 * otherwise spin for ever.
 */
static int kfs_interrupted(const struct kfs_vm *vm, struct kfs_vcpu *kv,
			   struct kvm_vcpu *vcpu, const struct pt_regs *regs,
			   unsigned int nr, long ret)
{
	kv->interrupted++;
	if ((vm->flags & KFS_EINTR) || !signal_pending(current))
		return kfs_finish(vcpu, -EINTR);
	if (ret == -ERESTART_RESTARTBLOCK)
		kfs_save_restart(&kv->restart, vcpu, nr, regs);
	return 1;
}

static bool kfs_is_restart(long ret)
{
	return ret == -ERESTARTSYS || ret == -ERESTARTNOINTR ||
	       ret == -ERESTARTNOHAND || ret == -ERESTART_RESTARTBLOCK;
}

static int kfs_run_call(const struct kfs_vm *vm, struct kfs_vcpu *kv,
			struct kvm_vcpu *vcpu, const struct pt_regs *regs,
			unsigned int nr, unsigned int row)
{
	/* KVM_RUN around us has a restart_block too: hand it back as it was. */
	long (*outer)(struct restart_block *) = current->restart_block.fn;
	unsigned int call = nr;
	long ret;
	int r;

	if (unlikely(kv->restart.valid) &&
	    kfs_is_resumed(&kv->restart, vcpu, nr, regs)) {
		current->restart_block = kv->restart.block;
		call = __NR_restart_syscall;
		kv->resumed++;
	}

	trace_kfs_syscall_enter(vcpu->vcpu_id, nr, regs);
	ret = kfs_make_call(kv, vcpu, regs, call);
	trace_kfs_syscall_exit(vcpu->vcpu_id, nr, ret);

	if (unlikely(kfs_is_restart(ret))) {
		r = kfs_interrupted(vm, kv, vcpu, regs, nr, ret);
	} else {
		kv->rows[row].ran++;
		r = kfs_finish(vcpu, ret);
	}
	current->restart_block.fn = outer;

	/*
	 * A call can eat the wake-up that came with a kick (task work run
	 * inside it clears the flag), never the kick itself.
	 */
	if (unlikely(kfs_compat_immediate_exit(vcpu->run)) && r == 1) {
		kfs_compat_signal_exit(vcpu);
		return -EINTR;
	}
	return r;
}

static int kfs_syscall(struct kfs_vm *vm, struct kfs_vcpu *kv,
		       struct kvm_vcpu *vcpu)
{
	const unsigned long *guest = vcpu->arch.regs;
	u64 asked = guest[VCPU_REGS_RBX];
	struct pt_regs regs = {
		.di = guest[VCPU_REGS_RDI],
		.si = guest[VCPU_REGS_RSI],
		.dx = guest[VCPU_REGS_RDX],
		.r10 = guest[VCPU_REGS_R10],
		.r8 = guest[VCPU_REGS_R8],
		.r9 = guest[VCPU_REGS_R9],
		.orig_ax = asked,
		.ax = -ENOSYS,
		.cs = __USER_CS,
	};
	const struct kfs_row *row;
	enum kfs_verdict verdict;
	long answer;
	unsigned int nr;

	if (unlikely(asked >= KFS_NR_LIMIT)) {
		/* Out of every table; the policy still has its say on 32 bits. */
		if (asked > U32_MAX)
			return kfs_decline(vm, kv, vcpu, asked, &regs,
					   KFS_REASON_NUMBER);
		verdict = kfs_policy_judge(vm->policy, asked, &regs, &answer);
		if (verdict == KFS_ANSWER) {
			kv->denied++;
			return kfs_finish(vcpu, answer);
		}
		return kfs_decline(vm, kv, vcpu, asked, &regs,
				   verdict == KFS_ALLOW ? KFS_REASON_NUMBER :
				   KFS_REASON_POLICY);
	}
	nr = array_index_nospec(asked, KFS_NR_LIMIT);
	row = &kfs_rows[nr];

	if (unlikely(!test_bit(nr, vm->allowed))) {
		verdict = kfs_policy_judge(smp_load_acquire(&vm->policy), nr,
					   &regs, &answer);
		if (verdict == KFS_ANSWER) {
			kv->denied++;
			kv->rows[row->id].denied++;
			return kfs_finish(vcpu, answer);
		}
		if (verdict == KFS_DECLINE) {
			kv->rows[row->id].declined++;
			return kfs_decline(vm, kv, vcpu, nr, &regs,
					   KFS_REASON_POLICY);
		}
	}

	if (unlikely(row->id == KFS_ROW_NONE))
		return kfs_decline(vm, kv, vcpu, nr, &regs, KFS_REASON_UNLISTED);

	kv->rows[row->id].declined++;	/* taken back when the call is made */
	if (unlikely(row->check != KFS_CHECK_ANY) &&
	    !kfs_arguments_ok(row->check, &regs))
		return kfs_decline(vm, kv, vcpu, nr, &regs, KFS_REASON_ARGUMENT);
	if (unlikely(kv->no_blocking) && row->blocks)
		return kfs_decline(vm, kv, vcpu, nr, &regs, KFS_REASON_BLOCKING);
	if (unlikely(in_compat_syscall()))
		return kfs_decline(vm, kv, vcpu, nr, &regs,
				   KFS_REASON_COMPAT_TASK);
	if (unlikely(kfs_watched()))
		return kfs_decline(vm, kv, vcpu, nr, &regs, KFS_REASON_OBSERVER);
	if (unlikely(kfs_compat_dirty_logging(vcpu->kvm, &kv->log)))
		return kfs_decline(vm, kv, vcpu, nr, &regs,
				   KFS_REASON_DIRTY_LOG);
	kv->rows[row->id].declined--;

	return kfs_run_call(vm, kv, vcpu, &regs, nr, row->id);
}

static u64 kfs_probe_value(const struct kfs_vm *vm)
{
	u64 value = KFS_ABI_VERSION | KFS_PROBE_F_SYSCALL;

	if (vm->flags & KFS_DEFER_EXIT)
		value |= KFS_PROBE_F_DEFER;
	if (vm->flags & KFS_EINTR)
		value |= KFS_PROBE_F_EINTR;
	if (vm->mode == KFS_MODE_IDENTITY)
		value |= KFS_PROBE_F_IDENTITY;
	return value;
}

static int kfs_serve(struct kfs_vm *vm, struct kvm_vcpu *vcpu)
{
	struct kfs_vcpu *kv = kfs_vcpu_get(vm, vcpu);
	int reason;

	if (unlikely(!kv))
		return KFS_PASS;
	reason = kfs_context(vm, vcpu);
	if (unlikely(reason >= 0)) {
		kv->declined[reason]++;
		trace_kfs_syscall_decline(vcpu->vcpu_id,
					  vcpu->arch.regs[VCPU_REGS_RBX],
					  reason);
		return KFS_PASS;
	}
	if (vcpu->arch.regs[VCPU_REGS_RAX] == KFS_HC_PROBE) {
		kv->probes++;
		return kfs_finish(vcpu, kfs_probe_value(vm));
	}
	return kfs_syscall(vm, kv, vcpu);
}

static int kfs_unserved(struct kvm_vcpu *vcpu)
{
	if (unlikely(vcpu == READ_ONCE(kfs_selftest_vcpu))) {
		kfs_selftest_fired = true;
		return 0;
	}
	kfs_count_unattached();
	return KFS_PASS;
}

/* From the trampoline only. */
int kfs_hypercall(struct kvm_vcpu *vcpu)
{
	struct kfs_vm *vm;
	int r;

	/*
	 * The reference is taken inside the RCU section in which the VM was
	 * found; kfs_vm_end() kills it after taking the VM out of the hash, and
	 * a killed reference waits for such sections.
	 */
	rcu_read_lock();
	vm = kfs_vm_find(vcpu->kvm);
	if (unlikely(!vm || !percpu_ref_tryget_live_rcu(&vm->calls))) {
		rcu_read_unlock();
		return kfs_unserved(vcpu);
	}
	rcu_read_unlock();

	r = kfs_serve(vm, vcpu);

	/* From here nothing keeps this text but the end of this function. */
	percpu_ref_put(&vm->calls);
	return r;
}

/*
 * Calls the hooked function with a vCPU of zeros and our probe's number: only
 * when the site is known to go to our trampoline. Serialized by the caller.
 */
int kfs_hypercall_selftest(void)
{
	struct kvm_vcpu *vcpu = kvzalloc(sizeof(*vcpu), GFP_KERNEL);

	if (!vcpu)
		return -ENOMEM;
	vcpu->arch.regs[VCPU_REGS_RAX] = KFS_HC_PROBE;
	WRITE_ONCE(kfs_selftest_vcpu, vcpu);
	static_call(kfs_emulate_hypercall)(vcpu);
	WRITE_ONCE(kfs_selftest_vcpu, NULL);
	kvfree(vcpu);
	return kfs_selftest_fired ? 0 : -EIO;
}
