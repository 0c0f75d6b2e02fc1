/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvm_fastsys_vsock

#if !defined(KFS_VSOCK_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define KFS_VSOCK_TRACE_H

#include <linux/tracepoint.h>
#include <net/af_vsock.h>

/* A write was put behind others instead of sent. */
TRACE_EVENT(kfs_vsock_stage,
	TP_PROTO(const struct vsock_sock *vsk, u32 len, u32 staged),
	TP_ARGS(vsk, len, staged),
	TP_STRUCT__entry(
		__field(u32, local)
		__field(u32, cid)
		__field(u32, port)
		__field(u32, len)
		__field(u32, staged)
	),
	TP_fast_assign(
		__entry->local = vsk->local_addr.svm_port;
		__entry->cid = vsk->remote_addr.svm_cid;
		__entry->port = vsk->remote_addr.svm_port;
		__entry->len = len;
		__entry->staged = staged;
	),
	TP_printk("port %u to %u:%u len %u staged %u", __entry->local,
		  __entry->cid, __entry->port, __entry->len, __entry->staged)
);

/* What was staged went out; reason is an enum kfs_vsock_reason. */
TRACE_EVENT(kfs_vsock_flush,
	TP_PROTO(const struct vsock_sock *vsk, unsigned int reason, u32 len,
		 u32 writes, long sent),
	TP_ARGS(vsk, reason, len, writes, sent),
	TP_STRUCT__entry(
		__field(u32, local)
		__field(u32, cid)
		__field(u32, port)
		__field(unsigned int, reason)
		__field(u32, len)
		__field(u32, writes)
		__field(long, sent)
	),
	TP_fast_assign(
		__entry->local = vsk->local_addr.svm_port;
		__entry->cid = vsk->remote_addr.svm_cid;
		__entry->port = vsk->remote_addr.svm_port;
		__entry->reason = reason;
		__entry->len = len;
		__entry->writes = writes;
		__entry->sent = sent;
	),
	TP_printk("port %u to %u:%u reason %u len %u writes %u sent %ld",
		  __entry->local, __entry->cid, __entry->port, __entry->reason,
		  __entry->len, __entry->writes, __entry->sent)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
