/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KFS_VSOCK_HOOKS_H
#define KFS_VSOCK_HOOKS_H

#include "../hook.h"

/* In the order they go live: a socket's end is seen before its writes are. */
enum kfs_vsock_hook_id {
	KFS_VSOCK_HOOK_DESTRUCT,
	KFS_VSOCK_HOOK_RELEASE,
	KFS_VSOCK_HOOK_SHUTDOWN,
	KFS_VSOCK_HOOK_RECV,
	KFS_VSOCK_HOOK_POLL,
	KFS_VSOCK_HOOK_SETSOCKOPT,
	KFS_VSOCK_HOOK_GETSOCKOPT,
	KFS_VSOCK_HOOK_ENQUEUE,
	KFS_VSOCK_HOOK_COUNT
};

/* entry.S */
void kfs_vsock_enqueue_tramp(void);
void kfs_vsock_recv_tramp(void);
void kfs_vsock_poll_tramp(void);
void kfs_vsock_shutdown_tramp(void);
void kfs_vsock_release_tramp(void);
void kfs_vsock_destruct_tramp(void);
void kfs_vsock_setsockopt_tramp(void);
void kfs_vsock_getsockopt_tramp(void);

#endif
