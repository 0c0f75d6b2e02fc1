// SPDX-License-Identifier: GPL-2.0
/*
 * Send first, merge behind: what becomes of a write. When what waits goes out
 * is in flush.c.
 *
 * Everything here runs under the socket lock. Code that may sleep is inside
 * kfs_vsock_srcu, so that unload can wait for it; the quick paths do not sleep
 * and are waited for by a grace period of the tasks flavour.
 */
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "../compat/vsock.h"
#include "trace.h"
#include "vsock.h"

/*
 * A writer that still comes flushes itself a little before the timer would: one
 * context switch less, and the timer goes on to the next buffer unfired.
 */
static u64 kfs_vsock_due_ns(void)
{
	u64 delay = kfs_vsock_delay_ns();

	return delay - delay / 8;
}

/* Brings a state up to the settings. The generation first: it may move. */
void kfs_vsock_judge(struct kfs_vsock_sock *st)
{
	st->generation = READ_ONCE(kfs_vsock_generation);
	/* Settings are written before the generation that announces them. */
	smp_rmb();
	if (READ_ONCE(kfs_vsock_live) == KFS_VSOCK_OFF)
		st->kind = KFS_VSOCK_NEVER;
	else if (st->nodelay >= 0)
		st->kind = st->nodelay ? KFS_VSOCK_CORK : KFS_VSOCK_MERGE;
	else
		st->kind = kfs_vsock_default(st->vsk);
	kfs_vsock_settle(st);
}

/*
 * Something of this socket is on its way. Where the kernel charges packets to
 * their sender that tells exactly, but on a fast or busy CPU a packet is often
 * gone before the next write of a stream comes: so a packet counts as in flight
 * for delay_us at least. Older kernels charge nothing: only time tells.
 */
static bool kfs_vsock_in_flight(const struct kfs_vsock_sock *st, u64 now)
{
	return now - st->last_sent < kfs_vsock_delay_ns() ||
	       sk_wmem_alloc_get(sk_vsock(st->vsk)) > 0;
}

/* Counts what merging would have done. */
static void kfs_vsock_observe(struct kfs_vsock_sock *st, u32 len, u64 now)
{
	u32 limit = st->vsk->remote_addr.svm_cid > VMADDR_CID_HOST ?
		    KFS_VSOCK_GUEST_LIMIT : KFS_VSOCK_LIMIT;

	if (now - st->start >= kfs_vsock_due_ns() ||
	    st->virtual + len > limit)
		st->virtual = 0;
	if (st->virtual)
		kfs_vsock_count(observed_saved);
	else
		st->start = now;
	st->virtual += len;
	kfs_vsock_count(observed_writes);
	kfs_vsock_add(observed_bytes, len);
}

/* Into the buffer, whose room the caller has seen to. Bytes, KFS_PASS, error. */
static ssize_t kfs_vsock_stage(struct kfs_vsock_sock *st, struct msghdr *msg,
			       u32 len, bool last, u64 now)
{
	struct vsock_sock *vsk = st->vsk;
	u32 got = virtio_transport_get_credit(vsk->trans, len);
	bool copied;
	int err;

	if (!got)
		/* As the kernel's function: the caller waits for the peer. */
		return kfs_vsock_flush(st, KFS_FLUSH_CREDIT);
	/*
	 * A page that has to be fetched, from a file system that never answers
	 * say, must not keep unload waiting.
	 */
	pagefault_disable();
	copied = copy_from_iter_full(st->buf + st->staged, got, &msg->msg_iter);
	pagefault_enable();
	if (!copied) {
		/* The kernel's function waits for the page, or words the error. */
		virtio_transport_put_credit(vsk->trans, got);
		err = kfs_vsock_flush(st, KFS_FLUSH_DIRECT);
		return err ? err : KFS_PASS;
	}
	if (!st->staged) {
		WRITE_ONCE(st->start, now);
		st->quick = 0;
	}
	WRITE_ONCE(st->staged, st->staged + got);
	st->writes++;
	kfs_vsock_count(staged_writes);
	kfs_vsock_add(staged_bytes, got);
	trace_kfs_vsock_stage(vsk, got, st->staged);

	if (st->staged + len > st->limit)
		err = kfs_vsock_flush(st, KFS_FLUSH_FULL);
	else if (last)
		err = kfs_vsock_flush(st, KFS_FLUSH_UNCORK);
	else if (now - st->start >= kfs_vsock_due_ns())
		err = kfs_vsock_flush(st, KFS_FLUSH_TIME);
	else if (got < len || !kfs_compat_vsock_room(vsk->trans))
		/* The peer gives credit only for what it has got. */
		err = kfs_vsock_flush(st, KFS_FLUSH_CREDIT);
	else
		err = 0;
	if (err)
		return err;
	if (st->staged)
		kfs_vsock_arm(st);
	return got;
}

/* A write to a socket with something staged, or that may be staged itself. */
static ssize_t kfs_vsock_write(struct kfs_vsock_sock *st, struct msghdr *msg,
			       size_t len, bool merge, bool more, u64 now)
{
	bool last = !more && !merge;
	int err;

	if (!st->staged && last)
		return KFS_PASS;
	if (len > KFS_VSOCK_SMALL || msg->msg_flags & MSG_ZEROCOPY ||
	    READ_ONCE(kfs_vsock_live) != KFS_VSOCK_ON ||
	    st->kind == KFS_VSOCK_NEVER)
		goto direct;
	if (!st->buf && !kfs_vsock_buffer_get(st))
		return KFS_PASS;
	if (st->staged + len > st->limit) {
		err = kfs_vsock_flush(st, KFS_FLUSH_FULL);
		if (err)
			return err;
	}
	if (!st->staged) {
		kfs_vsock_set_limit(st);
		if (last)
			return KFS_PASS;
	}
	if (st->staged + len > st->limit)
		goto direct;
	return kfs_vsock_stage(st, msg, len, last, now);

direct:
	err = kfs_vsock_flush(st, KFS_FLUSH_DIRECT);
	if (err)
		return err;
	/* Not sent for lack of window or memory: do not overtake it. */
	if (st->staged)
		return st->uncredited ? 0 : -ENOMEM;
	return KFS_PASS;
}

static noinline ssize_t kfs_vsock_enqueue_slow(struct kfs_vsock_sock *st,
					       struct vsock_sock *vsk,
					       struct msghdr *msg, size_t len)
{
	bool more = msg->msg_flags & MSG_MORE;
	bool merge;
	ssize_t ret;
	u64 now;
	int idx;

	if (!st) {
		if (READ_ONCE(kfs_vsock_live) == KFS_VSOCK_OFF ||
		    kfs_vsock_default(vsk) == KFS_VSOCK_NEVER)
			return KFS_PASS;
		idx = srcu_read_lock(&kfs_vsock_srcu);
		st = kfs_vsock_make(vsk);
		srcu_read_unlock(&kfs_vsock_srcu, idx);
		if (!st)
			return KFS_PASS;
	} else if (st->busy) {
		return kfs_vsock_selftest_hit(st);
	}
	if (st->generation != READ_ONCE(kfs_vsock_generation))
		kfs_vsock_judge(st);
	if (!st->staged && st->kind == KFS_VSOCK_NEVER)
		return KFS_PASS;
	if (st->streak < KFS_VSOCK_STREAK)
		st->streak++;

	now = kfs_vsock_now();
	merge = st->kind == KFS_VSOCK_MERGE &&
		st->streak >= KFS_VSOCK_STREAK &&
		now >= st->direct_until &&
		(st->staged || kfs_vsock_in_flight(st, now));
	if (READ_ONCE(kfs_vsock_live) == KFS_VSOCK_OBSERVE && !st->staged) {
		if ((merge || more) && len <= KFS_VSOCK_SMALL)
			kfs_vsock_observe(st, len, now);
		st->last_sent = now;
		return KFS_PASS;
	}
	/* Nothing of ours is in the way and it leaves at once. */
	if (!st->staged && !more && !merge) {
		st->last_sent = now;
		return KFS_PASS;
	}

	idx = srcu_read_lock(&kfs_vsock_srcu);
	ret = kfs_vsock_write(st, msg, len, merge, more, now);
	if (ret == KFS_PASS)
		st->last_sent = now;
	/* No timer will come by and do it. */
	if (!st->staged && !st->armed)
		kfs_vsock_buffer_put(st);
	srcu_read_unlock(&kfs_vsock_srcu, idx);
	return ret;
}

/*
 * In the place of virtio_transport_stream_enqueue(). A leaf for what is not
 * merged, so that it costs next to nothing.
 */
ssize_t kfs_vsock_enqueue(struct vsock_sock *vsk, struct msghdr *msg,
			  size_t len)
{
	struct kfs_vsock_sock *st;

	/* Seqpacket comes this way too, and its record ends must stay. */
	if (unlikely(vsk->sk.sk_type != SOCK_STREAM))
		return KFS_PASS;
	st = kfs_vsock_find(vsk);
	if (unlikely(!st)) {
		if (len > KFS_VSOCK_SMALL)
			return KFS_PASS;
		return kfs_vsock_enqueue_slow(st, vsk, msg, len);
	}
	if (unlikely(st->quick != READ_ONCE(kfs_vsock_generation)))
		return kfs_vsock_enqueue_slow(st, vsk, msg, len);
	if (len > KFS_VSOCK_SMALL)
		return KFS_PASS;
	if (unlikely(msg->msg_flags & MSG_MORE))
		return kfs_vsock_enqueue_slow(st, vsk, msg, len);
	if (st->kind != KFS_VSOCK_MERGE)
		return KFS_PASS;
	if (st->streak >= KFS_VSOCK_STREAK)
		return kfs_vsock_enqueue_slow(st, vsk, msg, len);
	st->streak++;
	return KFS_PASS;
}

/* Flush before something else happens on the socket. */
static noinline int kfs_vsock_before(struct kfs_vsock_sock *st,
				     enum kfs_vsock_reason why)
{
	int idx;

	if (st->busy)
		return kfs_vsock_selftest_hit(st);
	idx = srcu_read_lock(&kfs_vsock_srcu);
	if (why == KFS_FLUSH_CLOSE || why == KFS_FLUSH_SHUTDOWN)
		kfs_vsock_finish(st, why);
	else
		kfs_vsock_flush_report(st, why);
	srcu_read_unlock(&kfs_vsock_srcu, idx);
	return KFS_PASS;
}

/* A receive starts: whoever waits for an answer has asked its question. */
int kfs_vsock_recv(struct vsock_sock *vsk)
{
	struct kfs_vsock_sock *st = kfs_vsock_find(vsk);

	if (!st)
		return KFS_PASS;
	st->streak = 0;
	if (likely(!st->staged && !st->busy))
		return KFS_PASS;
	return kfs_vsock_before(st, KFS_FLUSH_RECEIVE);
}

int kfs_vsock_poll(struct vsock_sock *vsk)
{
	struct kfs_vsock_sock *st = kfs_vsock_find(vsk);

	if (!st)
		return KFS_PASS;
	st->streak = 0;
	if (likely(!st->staged && !st->busy))
		return KFS_PASS;
	return kfs_vsock_before(st, KFS_FLUSH_POLL);
}

int kfs_vsock_shutdown(struct vsock_sock *vsk, int mode)
{
	struct kfs_vsock_sock *st = kfs_vsock_find(vsk);

	if (!st || (!st->selftest && !(mode & SEND_SHUTDOWN)))
		return KFS_PASS;
	return kfs_vsock_before(st, KFS_FLUSH_SHUTDOWN);
}

/* Close, and the end of a connection when connect() changes the transport. */
int kfs_vsock_release(struct vsock_sock *vsk)
{
	struct kfs_vsock_sock *st = kfs_vsock_find(vsk);

	if (!st)
		return KFS_PASS;
	return kfs_vsock_before(st, KFS_FLUSH_CLOSE);
}
