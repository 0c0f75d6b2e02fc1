// SPDX-License-Identifier: GPL-2.0
/*
 * Makes a thread leave what it waits in, without a signal.
 */
#include <linux/sched/signal.h>

#include "kfs.h"
#include "kvm_symbols.h"

/*
 * The task's interruptible wait ends and KVM_RUN returns EINTR; nothing is
 * queued, no handler runs. The flag is set before the wake-up: a task on its
 * way into a wait sees it in signal_pending().
 */
void kfs_interrupt_task(struct task_struct *task)
{
	if (test_and_set_tsk_thread_flag(task, TIF_NOTIFY_SIGNAL))
		return;
	if (!static_call(kfs_wake_up_state)(task, TASK_INTERRUPTIBLE))
		kick_process(task);
}
