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
#include <linux/uaccess.h>

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

/*
 * 64-bit code? Only CS tells, and asking the vendor module for it costs a
 * hundred instructions on SVM. An instruction pointer above 32 bits tells as
 * well: no other code has one. So guest kernels in the upper half are spared.
 */
static bool kfs_is_64bit(struct kfs_vcpu *kv, struct kvm_vcpu *vcpu)
{
	if (!(vcpu->arch.efer & EFER_LMA))
		return false;
	if (likely(vcpu->arch.regs[VCPU_REGS_RIP] >> 32) &&
	    (vcpu->arch.regs_avail & BIT(VCPU_REGS_RIP)))
		return true;
	static_call(kfs_get_cs_db_l_bits)(vcpu, &kv->cs_db, &kv->cs_l);
	return kv->cs_l;
}

/*
 * Is this a hypercall that KVM itself would judge as a plain 64-bit ring 0
 * one? What is not stays KVM's: it answers as if we were not here.
 */
static int kfs_foreign(struct kfs_vcpu *kv, struct kvm_vcpu *vcpu)
{
	if (unlikely(vcpu->arch.hflags & HF_GUEST_MASK))
		return KFS_REASON_NESTED;
	if (unlikely(vcpu->arch.guest_state_protected))
		return KFS_REASON_PROTECTED;
	if (unlikely(kfs_compat_other_abi(vcpu)))
		return KFS_REASON_OTHER_ABI;
	if (unlikely(!kfs_is_64bit(kv, vcpu)))
		return KFS_REASON_NOT_64BIT;
	if (unlikely(static_call(kfs_get_cpl)(vcpu)))
		return KFS_REASON_CPL;
	return -1;
}

/*
 * Leaves the call to the VMM, with KVM's own completion (no pointer into this
 * module stays in the vCPU), or tells the guest to take its slow path.
 */
static noinline int kfs_decline(const struct kfs_vm *vm, struct kfs_vcpu *kv,
				struct kvm_vcpu *vcpu, u64 nr,
				enum kfs_reason reason)
{
	const struct pt_regs *regs = &kv->regs;
	struct kvm_run *run = vcpu->run;

	kv->declined[reason]++;
	if (nr < KFS_NR_LIMIT)
		kv->row_declined[kfs_rows[array_index_nospec(nr, KFS_NR_LIMIT)].id]++;
	trace_kfs_syscall_decline(vcpu, nr, reason);

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

/* The argument that points to a relative timeout, for calls that have one. */
static unsigned long kfs_timeout_pointer(unsigned int nr,
					 const struct pt_regs *regs)
{
	switch (nr) {
	case __NR_nanosleep:
		return regs->di;
	case __NR_clock_nanosleep:
		return regs->dx;
	case __NR_futex:
		return regs->r10;
	default:
		return 0;	/* poll: the timeout is the argument */
	}
}

static bool kfs_read_timeout(struct __kernel_timespec *to, unsigned int nr,
			     const struct pt_regs *regs)
{
	unsigned long from = kfs_timeout_pointer(nr, regs);

	/* Without a page fault: kvm->srcu is held, and a fault may wait. */
	memset(to, 0, sizeof(*to));
	return !from || !copy_from_user_nofault(to, (void __user *)from,
						sizeof(*to));
}

/*
 * An interrupted sleep that KVM_RUN re-entry brings back is told by the same
 * instruction, stack, arguments and timeout. A different call on the same stack
 * means that the guest gave the sleep up; one on another stack is an interrupt
 * handler's, and the sleep may still come back. What remains: a guest that is
 * moved off an interrupted sleep from outside and later asks for the very same
 * one from the same place is given the rest of the first.
 */
static bool kfs_is_resumed(struct kfs_restart *rs, struct kvm_vcpu *vcpu,
			   unsigned int nr, const struct pt_regs *regs)
{
	struct __kernel_timespec timeout;

	if (rs->rsp != kfs_read_rsp(vcpu))
		return false;
	rs->valid = false;
	return rs->nr == nr &&
	       rs->rip == static_call(kfs_get_linear_rip)(vcpu) &&
	       rs->args[0] == regs->di && rs->args[1] == regs->si &&
	       rs->args[2] == regs->dx && rs->args[3] == regs->r10 &&
	       rs->args[4] == regs->r8 && rs->args[5] == regs->r9 &&
	       kfs_read_timeout(&timeout, nr, regs) &&
	       !memcmp(&timeout, &rs->timeout, sizeof(timeout));
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
	/* A timeout that cannot be read again runs in full again. */
	rs->valid = kfs_read_timeout(&rs->timeout, nr, regs);
}

/*
 * What a call has left for the thread's way to user space: the last reference
 * to a file above all. KVM would run it on its way back into the guest with the
 * vCPU loaded, which is only safe as long as threads in KVM_RUN open and close
 * nothing: the end of another VM loads that one's vCPUs in between.
 */
static noinline void kfs_run_task_work(struct kvm_vcpu *vcpu)
{
	kvm_vcpu_srcu_read_unlock(vcpu);
	static_call(kfs_vcpu_put)(vcpu);
	static_call(kfs_task_work_run)();
	static_call(kfs_vcpu_load)(vcpu);
	kvm_vcpu_srcu_read_lock(vcpu);
}

static __always_inline void kfs_do_task_work(struct kvm_vcpu *vcpu)
{
	if (unlikely(READ_ONCE(current->task_works)))
		kfs_run_task_work(vcpu);
}

/* Newer kernels do close()'s part of that inside the call. */
static noinline long kfs_make_release(struct kfs_vcpu *kv,
				      struct kvm_vcpu *vcpu, unsigned int nr)
{
	long ret;

	static_call(kfs_vcpu_put)(vcpu);
	ret = static_call(kfs_x64_sys_call)(&kv->regs, nr);
	static_call(kfs_vcpu_load)(vcpu);
	return ret;
}

/*
 * The host call itself. kvm->srcu is released around it: the call may block,
 * and memory slot updates wait for every holder. Calls that only read an id
 * are over before anybody could wait.
 */
static __always_inline long kfs_make_call(struct kfs_vcpu *kv,
					  struct kvm_vcpu *vcpu, unsigned int nr)
{
	long ret;

	if (kfs_rows[nr].instant) {
		ret = static_call(kfs_x64_sys_call)(&kv->regs, nr);
	} else {
		kvm_vcpu_srcu_read_unlock(vcpu);
		if (unlikely(kfs_rows[nr].releases))
			ret = kfs_make_release(kv, vcpu, nr);
		else
			ret = static_call(kfs_x64_sys_call)(&kv->regs, nr);
		kvm_vcpu_srcu_read_lock(vcpu);
		kfs_do_task_work(vcpu);
	}

	kfs_compat_flush_l1d(vcpu);
	return ret;
}

/*
 * A call that came back with a restart code. -ERESTART_RESTARTBLOCK is one
 * whose time runs: what is left stands in the task's restart_block, where a
 * signal handler's own sleep would overwrite it, so it moves to the vCPU, and
 * the ioctl around us has nothing to restart.
 *
 * The guest stays on its hypercall only while a signal (or a kick, which a call
 * can have eaten the wake-up of) is pending, which makes KVM_RUN return before
 * the guest runs; a stray restart code would
 * otherwise spin for ever.
 */
static noinline int kfs_interrupted(const struct kfs_vm *vm,
				    struct kfs_vcpu *kv, struct kvm_vcpu *vcpu,
				    unsigned int nr, long ret)
{
	bool timed = ret == -ERESTART_RESTARTBLOCK;
	bool again = !(vm->flags & KFS_EINTR) &&
		     (signal_pending(current) ||
		      kfs_compat_immediate_exit(vcpu->run));

	kv->interrupted++;
	if (timed && again)
		kfs_save_restart(&kv->restart, vcpu, nr, &kv->regs);
	if (timed)
		current->restart_block.fn = kfs_addr.no_restart;
	return again ? 1 : kfs_finish(vcpu, -EINTR);
}

/* -ERESTARTSYS to -ERESTART_RESTARTBLOCK, never a result that a guest may see. */
static bool kfs_is_restart(long ret)
{
	return (unsigned long)(ret + ERESTART_RESTARTBLOCK) <=
	       ERESTART_RESTARTBLOCK - ERESTARTSYS;
}

/* The number to run: the call's own, or the rest of the sleep it was. */
static noinline unsigned int kfs_resume(struct kfs_vcpu *kv,
					struct kvm_vcpu *vcpu, unsigned int nr)
{
	if (!kfs_is_resumed(&kv->restart, vcpu, nr, &kv->regs))
		return nr;
	current->restart_block = kv->restart.block;
	kv->resumed++;
	return __NR_restart_syscall;
}

static __always_inline int kfs_run_call(const struct kfs_vm *vm,
					struct kfs_vcpu *kv,
					struct kvm_vcpu *vcpu, unsigned int nr,
					unsigned int row)
{
	unsigned int call = nr;
	long ret;
	int r;

	if (unlikely(kv->restart.valid))
		call = kfs_resume(kv, vcpu, nr);

	trace_kfs_syscall_enter(vcpu, nr, &kv->regs);
	ret = kfs_make_call(kv, vcpu, call);
	trace_kfs_syscall_exit(vcpu, nr, ret);

	if (unlikely(kfs_is_restart(ret))) {
		r = kfs_interrupted(vm, kv, vcpu, nr, ret);
	} else {
		kv->row_ran[row]++;
		r = kfs_finish(vcpu, ret);
	}

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

/*
 * The long way: whatever is not plainly allowed. Returns the call's row, or
 * KFS_ROW_NONE with kv->outcome set.
 */
static noinline unsigned int kfs_judge(struct kfs_vm *vm, struct kfs_vcpu *kv,
				       struct kvm_vcpu *vcpu, u64 asked)
{
	const struct kfs_row *row = NULL;
	enum kfs_verdict verdict;
	long answer;

	if (!test_bit(KFS_VM_BIT_ENABLED, &vm->bits)) {
		kv->declined[KFS_REASON_NOT_ENABLED]++;
		trace_kfs_syscall_decline(vcpu, asked,
					  KFS_REASON_NOT_ENABLED);
		kv->outcome = KFS_PASS;
		return KFS_ROW_NONE;
	}
	/* A policy sees a number as the kernel does, in 32 bits. */
	if (asked > U32_MAX) {
		kv->outcome = kfs_decline(vm, kv, vcpu, asked, KFS_REASON_NUMBER);
		return KFS_ROW_NONE;
	}
	if (asked < KFS_NR_LIMIT) {
		asked = array_index_nospec(asked, KFS_NR_LIMIT);
		row = &kfs_rows[asked];
	}

	verdict = KFS_ALLOW;
	if (!row || !test_bit(asked, vm->allowed))
		/* A bit is cleared after its program is in place. */
		verdict = kfs_policy_judge(smp_load_acquire(&vm->policy), asked,
					   &kv->regs, &answer);
	if (verdict == KFS_ANSWER) {
		kv->denied++;
		if (row)
			kv->row_denied[row->id]++;
		kv->outcome = kfs_finish(vcpu, answer);
	} else if (verdict == KFS_DECLINE) {
		kv->outcome = kfs_decline(vm, kv, vcpu, asked, KFS_REASON_POLICY);
	} else if (!row) {
		kv->outcome = kfs_decline(vm, kv, vcpu, asked, KFS_REASON_NUMBER);
	} else if (row->id == KFS_ROW_NONE) {
		kv->outcome = kfs_decline(vm, kv, vcpu, asked, KFS_REASON_UNLISTED);
	} else if (!kfs_arguments_ok(row->check, &kv->regs)) {
		/* The look at a descriptor can have been its file's last user. */
		kfs_do_task_work(vcpu);
		kv->outcome = kfs_decline(vm, kv, vcpu, asked, KFS_REASON_ARGUMENT);
	} else {
		return row->id;
	}
	return KFS_ROW_NONE;
}

static __always_inline int kfs_syscall(struct kfs_vm *vm, struct kfs_vcpu *kv,
				       struct kvm_vcpu *vcpu)
{
	const unsigned long *guest = vcpu->arch.regs;
	u64 nr = guest[VCPU_REGS_RBX];
	struct pt_regs *regs = &kv->regs;
	unsigned int row = KFS_ROW_NONE;

	/* The rest of kv->regs stays zero: no listed call looks at it. */
	regs->di = guest[VCPU_REGS_RDI];
	regs->si = guest[VCPU_REGS_RSI];
	regs->dx = guest[VCPU_REGS_RDX];
	regs->r10 = guest[VCPU_REGS_R10];
	regs->r8 = guest[VCPU_REGS_R8];
	regs->r9 = guest[VCPU_REGS_R9];
	regs->orig_ax = nr;

	if (likely(nr < KFS_NR_LIMIT)) {
		nr = array_index_nospec(nr, KFS_NR_LIMIT);
		row = READ_ONCE(vm->plain[nr]);
	}
	if (unlikely(row == KFS_ROW_NONE)) {
		row = kfs_judge(vm, kv, vcpu, nr);
		if (row == KFS_ROW_NONE)
			return kv->outcome;
		nr = array_index_nospec(nr, KFS_NR_LIMIT);
	}

	if (unlikely(kv->limits)) {
		if ((kv->limits & KFS_LIMIT_NO_BLOCKING) && kfs_rows[nr].blocks)
			return kfs_decline(vm, kv, vcpu, nr,
					   KFS_REASON_BLOCKING);
		if (kv->limits & KFS_LIMIT_DIRTY_RING)
			return kfs_decline(vm, kv, vcpu, nr,
					   KFS_REASON_DIRTY_LOG);
	}
	if (unlikely(in_compat_syscall()))
		return kfs_decline(vm, kv, vcpu, nr, KFS_REASON_COMPAT_TASK);
	if (unlikely(kfs_watched()))
		return kfs_decline(vm, kv, vcpu, nr, KFS_REASON_OBSERVER);
	if (unlikely(kfs_compat_dirty_logging(vcpu->kvm, &kv->log)))
		return kfs_decline(vm, kv, vcpu, nr, KFS_REASON_DIRTY_LOG);

	return kfs_run_call(vm, kv, vcpu, nr, row);
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

static noinline int kfs_probe(struct kfs_vm *vm, struct kfs_vcpu *kv,
			      struct kvm_vcpu *vcpu)
{
	if (!test_bit(KFS_VM_BIT_ENABLED, &vm->bits)) {
		kv->declined[KFS_REASON_NOT_ENABLED]++;
		return KFS_PASS;
	}
	kv->probes++;
	return kfs_finish(vcpu, kfs_probe_value(vm));
}

static noinline int kfs_leave_to_kvm(struct kfs_vcpu *kv,
				     struct kvm_vcpu *vcpu, int reason)
{
	kv->declined[reason]++;
	trace_kfs_syscall_decline(vcpu,
				  vcpu->arch.regs[VCPU_REGS_RBX], reason);
	return KFS_PASS;
}

/* The VM is not attached, or the module proves its hook. */
static noinline int kfs_unserved(struct kvm_vcpu *vcpu)
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
	struct kfs_vcpu *kv;
	int r;

	kv = kfs_call_enter(vcpu);
	if (unlikely(!kv)) {
		kv = kfs_vcpu_make(vcpu);
		if (!kv)
			return kfs_unserved(vcpu);
	}

	r = kfs_foreign(kv, vcpu);
	if (unlikely(r >= 0))
		r = kfs_leave_to_kvm(kv, vcpu, r);
	else if (likely(vcpu->arch.regs[VCPU_REGS_RAX] == KFS_HC_SYSCALL))
		r = kfs_syscall(kv->vm, kv, vcpu);
	else
		r = kfs_probe(kv->vm, kv, vcpu);

	/* From here nothing keeps this text but the end of this function. */
	kfs_call_leave(kv);
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
	kfs_selftest_fired = false;
	WRITE_ONCE(kfs_selftest_vcpu, vcpu);
	static_call(kfs_emulate_hypercall)(vcpu);
	WRITE_ONCE(kfs_selftest_vcpu, NULL);
	kvfree(vcpu);
	return kfs_selftest_fired ? 0 : -EIO;
}
