// SPDX-License-Identifier: GPL-2.0
/*
 * Makes a thread leave what it waits in, and a vCPU leave KVM_RUN, without a
 * signal; and proves at load that this kernel lets us. docs/kick.md has the
 * contract and why nothing is lost.
 */
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "compat/kick.h"
#include "kfs.h"
#include "kick.h"
#include "kvm_symbols.h"
#include "trace.h"

/* Per CPU: kickers of different vCPUs share no line. */
struct kfs_kick_counts {
	u64 requested;
	u64 coalesced;
	u64 interrupted;
	u64 user_exits;
};

static DEFINE_PER_CPU(struct kfs_kick_counts, kfs_kick_counts);

/* Settled before user space can reach us. */
static int kfs_kick_error = -EOPNOTSUPP;
static const char *kfs_kick_reason = "kick=0: left out by module parameter";

/*
 * The task's interruptible wait ends and KVM_RUN returns EINTR; nothing is
 * queued, no handler runs. The flag is set before the wake-up: a task on its
 * way into a wait sees it in signal_pending().
 */
void kfs_interrupt_task(struct task_struct *task)
{
	/* The next kicker relies on our wake-up: not to be kept from it here. */
	preempt_disable();
	if (!test_and_set_tsk_thread_flag(task, TIF_NOTIFY_SIGNAL) &&
	    !static_call(kfs_wake_up_state)(task, TASK_INTERRUPTIBLE))
		kick_process(task);
	preempt_enable();
}

/*
 * immediate_exit covers a thread that is not inside KVM_RUN yet, the interrupt
 * one that is. A kick that finds immediate_exit set still interrupts: user
 * space may have set it on its own, with nobody on the way to tell the thread.
 */
unsigned int kfs_kick_vcpu(struct kvm_vcpu *vcpu, bool user_exit)
{
	struct task_struct *task;
	unsigned int met = 0;

	this_cpu_inc(kfs_kick_counts.requested);
	if (user_exit)
		this_cpu_inc(kfs_kick_counts.user_exits);
	if (kfs_compat_set_immediate_exit(vcpu->run)) {
		met |= KFS_KICK_COALESCED;
		this_cpu_inc(kfs_kick_counts.coalesced);
	}

	rcu_read_lock();
	task = kfs_compat_vcpu_runner(vcpu);
	if (task) {
		met |= KFS_KICK_INTERRUPTED;
		this_cpu_inc(kfs_kick_counts.interrupted);
		kfs_interrupt_task(task);
	}
	rcu_read_unlock();

	trace_kfs_kick(vcpu->vcpu_id, met, user_exit);
	return met;
}

/* A self-test's kick is nobody's. */
void kfs_kick_uncount(void)
{
	this_cpu_dec(kfs_kick_counts.requested);
	this_cpu_dec(kfs_kick_counts.user_exits);
}

bool kfs_kick_works(void)
{
	return !kfs_kick_error;
}

void kfs_kick_totals(struct kfs_kick_info *info)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		const struct kfs_kick_counts *c =
			per_cpu_ptr(&kfs_kick_counts, cpu);

		info->requested += READ_ONCE(c->requested);
		info->coalesced += READ_ONCE(c->coalesced);
		info->interrupted += READ_ONCE(c->interrupted);
		info->user_exits += READ_ONCE(c->user_exits);
	}
	info->mechanism = kfs_kick_works() ? KFS_KICK_BY_NOTIFY :
					     KFS_KICK_BY_NONE;
	info->error = -kfs_kick_error;
	if (!kfs_kick_works())
		strscpy(info->reason, kfs_kick_reason, sizeof(info->reason));
}

/*
 * The self-test's thread: no signal reaches a kernel thread, so what ends its
 * wait, and what KVM's own "handle pending work" answers then, is the flag's
 * doing. `vcpu` is zeros and a kvm_run, all that function looks at.
 */
struct kfs_kick_test {
	struct kvm_vcpu *vcpu;
	struct completion done;
	int result;
};

static int kfs_kick_dummy(void *data)
{
	struct kfs_kick_test *test = data;
	DECLARE_WAIT_QUEUE_HEAD_ONSTACK(never);

	if (wait_event_interruptible_timeout(never, false, HZ) != -ERESTARTSYS)
		test->result = -ETIMEDOUT;
	else if (kfs_compat_handle_work(test->vcpu) != -EINTR)
		test->result = -ENXIO;
	else
		test->result = 0;
	clear_thread_flag(TIF_NOTIFY_SIGNAL);
	complete(&test->done);
	return 0;
}

static int __init kfs_kick_prove(struct kvm_vcpu *vcpu)
{
	struct kfs_kick_test test = { .vcpu = vcpu };
	struct task_struct *task;

	init_completion(&test.done);
	task = kthread_create(kfs_kick_dummy, &test, "kfs-kick-test");
	if (IS_ERR(task))
		return PTR_ERR(task);
	get_task_struct(task);
	wake_up_process(task);
	/* Set before it waits or while it does: both must end the wait. */
	kfs_interrupt_task(task);
	wait_for_completion(&test.done);
	/* Has left our text when this returns. */
	kthread_stop(task);
	put_task_struct(task);
	return test.result;
}

void __init kfs_kick_init(void)
{
	struct kvm_vcpu *vcpu;

	if (!kfs_param_kick)
		return;
	kfs_kick_error = -ENOMEM;
	kfs_kick_reason = "no memory for the self-test: load again";
	vcpu = kvzalloc(sizeof(*vcpu), GFP_KERNEL);
	if (!vcpu)
		return;
	vcpu->run = (void *)get_zeroed_page(GFP_KERNEL);
	if (vcpu->run) {
		kfs_kick_error = kfs_kick_prove(vcpu);
		free_page((unsigned long)vcpu->run);
	}
	kvfree(vcpu);

	if (kfs_kick_error == -ENXIO)
		kfs_kick_reason = "TIF_NOTIFY_SIGNAL does not end KVM_RUN on this kernel: kick by signal";
	else if (kfs_kick_error == -ETIMEDOUT)
		kfs_kick_reason = "TIF_NOTIFY_SIGNAL ends no wait on this kernel: kick by signal";
	if (kfs_kick_error)
		pr_warn("kick: self-test failed (%d): %s\n", kfs_kick_error,
			kfs_kick_reason);
}
