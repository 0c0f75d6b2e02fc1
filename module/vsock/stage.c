// SPDX-License-Identifier: GPL-2.0
/*
 * Send first, merge behind.
 *
 * Everything here runs under the socket lock but the timer, which only looks
 * at two fields and queues the work. Code that may sleep is inside
 * kfs_vsock_srcu, so that unload can wait for it; the quick paths do not sleep
 * and are waited for by a grace period of the tasks flavour.
 */
#include <linux/ktime.h>
#include <linux/uio.h>

#include "../compat/vsock.h"
#include "trace.h"
#include "vsock.h"

DEFINE_SRCU(kfs_vsock_srcu);
struct workqueue_struct *kfs_vsock_wq;

/* So many times in a row so many delays late: no merging for a while. */
#define KFS_VSOCK_LATE		2
#define KFS_VSOCK_LATE_ROW	4
#define KFS_VSOCK_PAUSE_NS	NSEC_PER_SEC
/* Delay before another try of what the peer's window or memory refused. */
#define KFS_VSOCK_RETRY_NS	NSEC_PER_MSEC

static u64 kfs_vsock_now(void)
{
	return ktime_get_mono_fast_ns();
}

static u64 kfs_vsock_delay_ns(void)
{
	return (u64)READ_ONCE(kfs_vsock_delay_us) * NSEC_PER_USEC;
}

/*
 * A writer that still comes flushes itself a little before the timer would: one
 * context switch less, and the timer goes on to the next buffer unfired.
 */
static u64 kfs_vsock_due_ns(void)
{
	u64 delay = kfs_vsock_delay_ns();

	return delay - delay / 8;
}

/* The peer would still take it. Our own SHUT_WR has flushed already. */
static bool kfs_vsock_can_send(const struct vsock_sock *vsk)
{
	return vsk->transport && vsk->trans &&
	       vsk->sk.sk_state == TCP_ESTABLISHED &&
	       !sock_flag(&vsk->sk, SOCK_DONE) &&
	       !(READ_ONCE(vsk->peer_shutdown) & RCV_SHUTDOWN);
}

static void kfs_vsock_drop(struct kfs_vsock_sock *st)
{
	kfs_vsock_add(dropped_bytes, st->staged);
	/* Credit of a dead connection is nobody's, but SIOCOUTQ shows it. */
	if (st->vsk->trans && st->staged > st->uncredited)
		virtio_transport_put_credit(st->vsk->trans,
					    st->staged - st->uncredited);
	WRITE_ONCE(st->staged, 0);
	st->uncredited = 0;
	st->writes = 0;
	kfs_vsock_settle(st);
}

/*
 * Sends what is staged by the kernel's own function: the credit goes back and
 * is taken again inside, with nobody between thanks to the socket lock. Less
 * than all goes out when the peer has shrunk its window meanwhile, nothing when
 * memory is short: the rest stays, `uncredited` is what of it got no credit.
 *
 * 0: nothing that cannot wait is left. Else the transport's error, and what was
 * staged is dropped.
 */
int kfs_vsock_flush(struct kfs_vsock_sock *st, enum kfs_vsock_reason why)
{
	struct vsock_sock *vsk = st->vsk;
	struct kvec vec = { .iov_base = st->buf, .iov_len = st->staged };
	struct msghdr msg = { };
	u32 len = st->staged;
	ssize_t sent;

	if (!len)
		return 0;
	if (!kfs_vsock_can_send(vsk)) {
		/* As data that met a dead connection on the way. */
		kfs_vsock_drop(st);
		return 0;
	}

	iov_iter_kvec(&msg.msg_iter, WRITE, &vec, 1, len);
	virtio_transport_put_credit(vsk->trans, len - st->uncredited);
	st->busy = true;
	sent = virtio_transport_stream_enqueue(vsk, &msg, len);
	st->busy = false;
	trace_kfs_vsock_flush(vsk, why, len, st->writes, sent);
	kfs_vsock_count(flushes[why]);
	st->last_sent = kfs_vsock_now();

	if (sent == len) {
		kfs_vsock_add(packets_saved, st->writes - 1);
		WRITE_ONCE(st->staged, 0);
		st->uncredited = 0;
		st->writes = 0;
		kfs_vsock_settle(st);
		return 0;
	}
	if (sent < 0 && sent != -ENOMEM) {
		/* The credit is put back; before 6.7 lost with the device. */
		kfs_vsock_count(errors);
		st->uncredited = st->staged;
		kfs_vsock_drop(st);
		return sent;
	}
	if (sent > 0) {
		memmove(st->buf, st->buf + sent, len - sent);
		len -= sent;
	}
	WRITE_ONCE(st->staged, len);
	st->uncredited = len - virtio_transport_get_credit(vsk->trans, len);
	return 0;
}

/* Where no write is there to take the error. */
void kfs_vsock_flush_report(struct kfs_vsock_sock *st,
			    enum kfs_vsock_reason why)
{
	struct sock *sk = sk_vsock(st->vsk);
	int err = kfs_vsock_flush(st, why);

	if (!err)
		return;
	sk->sk_err = -err;
	sk_error_report(sk);
}

/* Last flush: what does not go out now is the socket's error. */
void kfs_vsock_finish(struct kfs_vsock_sock *st, enum kfs_vsock_reason why)
{
	struct sock *sk = sk_vsock(st->vsk);

	kfs_vsock_flush_report(st, why);
	if (st->staged) {
		kfs_vsock_drop(st);
		kfs_vsock_count(errors);
		sk->sk_err = ENOBUFS;
		sk_error_report(sk);
	}
	kfs_vsock_buffer_put(st);
	/* The caller has a reference, so this one is not the last. */
	if (st->armed && hrtimer_try_to_cancel(&st->timer) == 1) {
		WRITE_ONCE(st->armed, false);
		sock_put(sk);
	}
}

/* Turning off, nothing is staged any more. May sleep. */
void kfs_vsock_drain(struct vsock_sock *vsk)
{
	struct sock *sk = sk_vsock(vsk);
	struct kfs_vsock_sock *st;

	lock_sock(sk);
	/* Our reference keeps the socket and so its state. */
	st = kfs_vsock_find(vsk);
	kfs_vsock_finish(st, KFS_FLUSH_OFF);
	release_sock(sk);
	/* A timer that was just running queues the work or is stopped here. */
	if (hrtimer_cancel(&st->timer)) {
		WRITE_ONCE(st->armed, false);
		sock_put(sk);
	}
	flush_work(&st->work);
}

/*
 * A timer per buffer would be reprogrammed for each; this one, once started,
 * follows the buffers and ends when it finds none.
 */
static enum hrtimer_restart kfs_vsock_timer(struct hrtimer *timer)
{
	struct kfs_vsock_sock *st = container_of(timer, struct kfs_vsock_sock,
						 timer);
	u64 due = READ_ONCE(st->start) + kfs_vsock_delay_ns();
	u64 now = kfs_vsock_now();

	if (READ_ONCE(st->staged) && (s64)(due - now) > (s64)NSEC_PER_USEC) {
		/* Not hrtimer_forward(): from a late expiry it falls short. */
		hrtimer_set_expires(timer, ns_to_ktime(due));
		return HRTIMER_RESTART;
	}
	queue_work(kfs_vsock_wq, &st->work);
	return HRTIMER_NORESTART;
}

/*
 * Where interrupts or the work come late, in a guest inside a guest or on a CPU
 * that others keep, each buffer waits longer than its writes were worth.
 */
static void kfs_vsock_note_lateness(struct kfs_vsock_sock *st, u64 now)
{
	if (now - st->start < KFS_VSOCK_LATE * kfs_vsock_delay_ns()) {
		st->late = 0;
		return;
	}
	if (++st->late < KFS_VSOCK_LATE_ROW)
		return;
	st->late = 0;
	st->direct_until = now + KFS_VSOCK_PAUSE_NS;
	kfs_vsock_count(late_pauses);
}

static void kfs_vsock_work(struct work_struct *work)
{
	struct kfs_vsock_sock *st = container_of(work, struct kfs_vsock_sock,
						 work);
	struct sock *sk = sk_vsock(st->vsk);

	lock_sock(sk);
	if (st->staged)
		kfs_vsock_note_lateness(st, kfs_vsock_now());
	kfs_vsock_flush_report(st, KFS_FLUSH_TIMER);
	if (st->staged) {
		hrtimer_start(&st->timer, ns_to_ktime(KFS_VSOCK_RETRY_NS),
			      HRTIMER_MODE_REL);
		release_sock(sk);
		return;
	}
	/* The writer has paused: give the memory back. */
	kfs_vsock_buffer_put(st);
	WRITE_ONCE(st->armed, false);
	release_sock(sk);
	/* Often the last one: the state is gone after this. */
	sock_put(sk);
}

static void kfs_vsock_arm(struct kfs_vsock_sock *st)
{
	if (st->armed)
		return;
	WRITE_ONCE(st->armed, true);
	sock_hold(sk_vsock(st->vsk));
	hrtimer_start(&st->timer, ns_to_ktime(kfs_vsock_delay_ns()),
		      HRTIMER_MODE_REL);
}

void kfs_vsock_state_init(struct kfs_vsock_sock *st)
{
	kfs_compat_hrtimer_setup(&st->timer, kfs_vsock_timer);
	INIT_WORK(&st->work, kfs_vsock_work);
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
	int err;

	if (!got)
		/* As the kernel's function: the caller waits for the peer. */
		return kfs_vsock_flush(st, KFS_FLUSH_CREDIT);
	if (!copy_from_iter_full(st->buf + st->staged, got, &msg->msg_iter)) {
		/* Bad address: the kernel's function words the error. */
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
	else if (!st->armed)
		kfs_vsock_buffer_put(st);
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
