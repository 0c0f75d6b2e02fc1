/* SPDX-License-Identifier: GPL-2.0 */
/* Version conditions of module/vsock. */
#ifndef KFS_COMPAT_VSOCK_H
#define KFS_COMPAT_VSOCK_H

#include <linux/hrtimer.h>
#include <linux/sysctl.h>
#include <linux/version.h>
#include <linux/virtio_vsock.h>

static inline void
kfs_compat_hrtimer_setup(struct hrtimer *timer,
			 enum hrtimer_restart (*fn)(struct hrtimer *timer))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, fn, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	timer->function = fn;
#endif
}

/*
 * Whether the peer takes more, without the lock: the caller holds the socket's,
 * so only the peer's own updates move it, and a wrong answer makes a flush come
 * a moment early or leaves it to the timer.
 */
static inline bool kfs_compat_vsock_room(const struct virtio_vsock_sock *vvs)
{
	u32 window = min(READ_ONCE(vvs->peer_buf_alloc),
			 READ_ONCE(vvs->buf_alloc));

	return (s32)(window - (vvs->tx_cnt - READ_ONCE(vvs->peer_fwd_cnt))) > 0;
}

/* Handlers got a const table, and tables lost their empty last entry, in 6.11. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
#define KFS_CTL_CONST		const
#define KFS_CTL_END
#else
#define KFS_CTL_CONST
#define KFS_CTL_END		{ }
#endif

#endif
