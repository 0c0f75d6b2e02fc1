// SPDX-License-Identifier: GPL-2.0
/*
 * When what waits goes out: flushes, the timer and its work, the end.
 *
 * All under the socket lock but the timer, which only looks at two fields and
 * queues the work, and kfs_vsock_drain().
 */
#include <linux/lockdep.h>

#include "../compat/vsock.h"
#include "trace.h"
#include "vsock.h"

DEFINE_SRCU(kfs_vsock_srcu);
struct workqueue_struct *kfs_vsock_wq;

/* So many times in a row so many delays late: no merging for a while. */
#define KFS_VSOCK_LATE		2
#define KFS_VSOCK_LATE_ROW	4
#define KFS_VSOCK_PAUSE_NS	NSEC_PER_SEC
/* Delays before other tries of what the peer's window or memory refused. */
#define KFS_VSOCK_RETRY_NS	NSEC_PER_MSEC
#define KFS_VSOCK_RETRY_MAX_NS	(100 * NSEC_PER_MSEC)

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
	st->retry_ns = 0;
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
		st->retry_ns = 0;
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
		/* Nothing may follow what is missing. */
		sk->sk_shutdown |= SEND_SHUTDOWN;
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
	/* The work starts the timer again when somebody has the socket. */
	while (READ_ONCE(st->armed)) {
		if (hrtimer_cancel(&st->timer)) {
			WRITE_ONCE(st->armed, false);
			sock_put(sk);
		} else {
			flush_work(&st->work);
		}
	}
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

/*
 * As lock_sock(), but does not wait. An owner can keep the socket for as long as
 * it likes, in a page fault say; many of them must not take all the workers that
 * other sockets need.
 */
static bool kfs_vsock_trylock(struct sock *sk)
{
	bool free;

	spin_lock_bh(&sk->sk_lock.slock);
	free = !sk->sk_lock.owned;
	if (free)
		sk->sk_lock.owned = 1;
	spin_unlock_bh(&sk->sk_lock.slock);
	if (free)
		mutex_acquire(&sk->sk_lock.dep_map, 0, 1, _RET_IP_);
	return free;
}

/* Only the work does, so it is the one that knows. Rarer from time to time. */
static void kfs_vsock_retry(struct kfs_vsock_sock *st)
{
	st->retry_ns = st->retry_ns ?
		       min_t(u64, 2 * st->retry_ns, KFS_VSOCK_RETRY_MAX_NS) :
		       KFS_VSOCK_RETRY_NS;
	hrtimer_start(&st->timer, ns_to_ktime(st->retry_ns), HRTIMER_MODE_REL);
}

static void kfs_vsock_work(struct work_struct *work)
{
	struct kfs_vsock_sock *st = container_of(work, struct kfs_vsock_sock,
						 work);
	struct sock *sk = sk_vsock(st->vsk);

	if (!kfs_vsock_trylock(sk)) {
		hrtimer_start(&st->timer, ns_to_ktime(kfs_vsock_delay_ns()),
			      HRTIMER_MODE_REL);
		return;
	}
	/* What the peer refuses is no lateness of ours. */
	if (st->staged && !st->retry_ns)
		kfs_vsock_note_lateness(st, kfs_vsock_now());
	kfs_vsock_flush_report(st, KFS_FLUSH_TIMER);
	if (st->staged) {
		kfs_vsock_retry(st);
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

void kfs_vsock_arm(struct kfs_vsock_sock *st)
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

