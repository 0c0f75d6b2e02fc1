/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvm_fastsys

#if !defined(KFS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define KFS_TRACE_H

#include <linux/kvm_host.h>
#include <linux/ptrace.h>
#include <linux/tracepoint.h>
#include <linux/kvm_fastsys.h>

/* A call is about to be made inside KVM_RUN. */
TRACE_EVENT(kfs_syscall_enter,
	TP_PROTO(const struct kvm_vcpu *vcpu, unsigned int nr, const struct pt_regs *regs),
	TP_ARGS(vcpu, nr, regs),
	TP_STRUCT__entry(
		__field(int, vcpu_id)
		__field(unsigned int, nr)
		__array(unsigned long, args, 6)
	),
	TP_fast_assign(
		__entry->vcpu_id = vcpu->vcpu_id;
		__entry->nr = nr;
		__entry->args[0] = regs->di;
		__entry->args[1] = regs->si;
		__entry->args[2] = regs->dx;
		__entry->args[3] = regs->r10;
		__entry->args[4] = regs->r8;
		__entry->args[5] = regs->r9;
	),
	TP_printk("vcpu %d nr %u (0x%lx, 0x%lx, 0x%lx, 0x%lx, 0x%lx, 0x%lx)",
		  __entry->vcpu_id, __entry->nr,
		  __entry->args[0], __entry->args[1], __entry->args[2],
		  __entry->args[3], __entry->args[4], __entry->args[5])
);

/* It came back; restart codes (-512 and below) included. */
TRACE_EVENT(kfs_syscall_exit,
	TP_PROTO(const struct kvm_vcpu *vcpu, unsigned int nr, long ret),
	TP_ARGS(vcpu, nr, ret),
	TP_STRUCT__entry(
		__field(int, vcpu_id)
		__field(unsigned int, nr)
		__field(long, ret)
	),
	TP_fast_assign(
		__entry->vcpu_id = vcpu->vcpu_id;
		__entry->nr = nr;
		__entry->ret = ret;
	),
	TP_printk("vcpu %d nr %u = %ld",
		  __entry->vcpu_id, __entry->nr, __entry->ret)
);

/* It was left to the VMM, the guest or KVM: reason is an enum kfs_reason. */
TRACE_EVENT(kfs_syscall_decline,
	TP_PROTO(const struct kvm_vcpu *vcpu, u64 nr, unsigned int reason),
	TP_ARGS(vcpu, nr, reason),
	TP_STRUCT__entry(
		__field(int, vcpu_id)
		__field(u64, nr)
		__field(unsigned int, reason)
	),
	TP_fast_assign(
		__entry->vcpu_id = vcpu->vcpu_id;
		__entry->nr = nr;
		__entry->reason = reason;
	),
	TP_printk("vcpu %d nr %llu reason %u",
		  __entry->vcpu_id, __entry->nr, __entry->reason)
);

/* A vCPU was kicked: what it met, and by which way. */
TRACE_EVENT(kfs_kick,
	TP_PROTO(int vcpu_id, unsigned int met, bool user_exit),
	TP_ARGS(vcpu_id, met, user_exit),
	TP_STRUCT__entry(
		__field(int, vcpu_id)
		__field(unsigned int, met)
		__field(bool, user_exit)
	),
	TP_fast_assign(
		__entry->vcpu_id = vcpu_id;
		__entry->met = met;
		__entry->user_exit = user_exit;
	),
	TP_printk("vcpu %d by %s%s%s", __entry->vcpu_id,
		  __entry->user_exit ? "ioctl" : "fd",
		  __entry->met & 1 ? " coalesced" : "",
		  __entry->met & 2 ? " interrupted" : "")
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
