// SPDX-License-Identifier: GPL-2.0
/*
 * Which sockets have a state of ours, and the memory they hold.
 *
 * The socket has no field to hang a state on, so states are found by the
 * socket's address. kfs_vsock_lock is a leaf.
 */
#include <linux/slab.h>

#include "vsock.h"

struct hlist_head kfs_vsock_table[1 << KFS_VSOCK_BITS];
static DEFINE_SPINLOCK(kfs_vsock_lock);

atomic_t kfs_vsock_sockets;
atomic64_t kfs_vsock_memory;
unsigned int kfs_vsock_selftest_hits;

static bool kfs_vsock_charge(size_t size)
{
	s64 max = (s64)READ_ONCE(kfs_vsock_max_kb) * 1024;

	if (atomic64_add_return(size, &kfs_vsock_memory) <= max)
		return true;
	atomic64_sub(size, &kfs_vsock_memory);
	return false;
}

static struct kfs_vsock_sock *kfs_vsock_new(struct vsock_sock *vsk,
					    bool selftest)
{
	struct kfs_vsock_sock *st;
	unsigned long flags;

	/* A self-test's is no socket's, and the limit can be 0. */
	if (!selftest && !kfs_vsock_charge(sizeof(*st)))
		goto none;
	st = kzalloc(sizeof(*st), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!st) {
		if (!selftest)
			atomic64_sub(sizeof(*st), &kfs_vsock_memory);
		goto none;
	}
	st->vsk = vsk;
	st->nodelay = -1;
	st->selftest = selftest;
	st->busy = selftest;
	kfs_vsock_state_init(st);
	kfs_vsock_judge(st);
	atomic_inc(&kfs_vsock_sockets);
	spin_lock_irqsave(&kfs_vsock_lock, flags);
	hlist_add_head_rcu(&st->node, kfs_vsock_bucket(vsk));
	spin_unlock_irqrestore(&kfs_vsock_lock, flags);
	return st;
none:
	kfs_vsock_count(no_memory);
	return NULL;
}

/* Under the socket lock, so nobody else makes one for this socket. */
struct kfs_vsock_sock *kfs_vsock_make(struct vsock_sock *vsk)
{
	return kfs_vsock_new(vsk, false);
}

static void kfs_vsock_free(struct kfs_vsock_sock *st)
{
	atomic_dec(&kfs_vsock_sockets);
	if (!st->selftest)
		atomic64_sub(sizeof(*st), &kfs_vsock_memory);
	kfree_rcu(st, rcu);
}

/* The socket's end, in whatever context its last reference went. */
void kfs_vsock_forget(struct vsock_sock *vsk)
{
	struct kfs_vsock_sock *st = kfs_vsock_find(vsk);
	unsigned long flags;

	if (!st)
		return;
	spin_lock_irqsave(&kfs_vsock_lock, flags);
	hlist_del_rcu(&st->node);
	spin_unlock_irqrestore(&kfs_vsock_lock, flags);
	/* Empty since release, unless a socket never got that far. */
	if (st->staged)
		kfs_vsock_add(dropped_bytes, st->staged);
	kfs_vsock_buffer_put(st);
	kfs_vsock_free(st);
}

int kfs_vsock_destruct(struct sock *sk)
{
	kfs_vsock_forget(vsock_sk(sk));
	return KFS_PASS;
}

/*
 * A socket that has something to drain, with a reference; the caller drains it
 * and asks again, so one walk over the buckets meets them all. Sockets on their
 * way out have nothing waiting any more and are left out.
 */
struct vsock_sock *kfs_vsock_next(unsigned int *bucket)
{
	struct vsock_sock *found = NULL;
	struct kfs_vsock_sock *st;
	unsigned long flags;

	for (; *bucket < ARRAY_SIZE(kfs_vsock_table); ++*bucket) {
		spin_lock_irqsave(&kfs_vsock_lock, flags);
		hlist_for_each_entry(st, &kfs_vsock_table[*bucket], node) {
			if (!READ_ONCE(st->armed) && !READ_ONCE(st->buf))
				continue;
			if (!refcount_inc_not_zero(&sk_vsock(st->vsk)->sk_refcnt))
				continue;
			found = st->vsk;
			break;
		}
		spin_unlock_irqrestore(&kfs_vsock_lock, flags);
		if (found)
			break;
		cond_resched();
	}
	return found;
}

/* Hooks are gone and everything is drained: sockets are not touched. */
void kfs_vsock_free_all(void)
{
	struct kfs_vsock_sock *st;
	struct hlist_node *next;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kfs_vsock_table); i++)
		hlist_for_each_entry_safe(st, next, &kfs_vsock_table[i], node) {
			hlist_del_rcu(&st->node);
			WARN_ON_ONCE(st->staged || st->buf || st->armed);
			kfs_vsock_free(st);
		}
}

/* A state for a made-up socket, known to every handler as the self-test. */
int kfs_vsock_selftest_add(struct vsock_sock *vsk)
{
	return kfs_vsock_new(vsk, true) ? 0 : -ENOMEM;
}

/*
 * What a handler answers on a state that is busy: our own send passes through,
 * the self-test must not reach the kernel's function.
 */
int kfs_vsock_selftest_hit(const struct kfs_vsock_sock *st)
{
	if (!st->selftest)
		return KFS_PASS;
	kfs_vsock_selftest_hits++;
	return 0;
}

/*
 * Towards a guest at most one of its receive buffers, anywhere at most a
 * quarter of what the peer takes. Only while nothing is staged.
 */
void kfs_vsock_set_limit(struct kfs_vsock_sock *st)
{
	struct virtio_vsock_sock *vvs = st->vsk->trans;

	st->limit = min(st->size, READ_ONCE(vvs->peer_buf_alloc) / 4);
}

/* Charged to the socket (its option memory) and to the writer's cgroup. */
bool kfs_vsock_buffer_get(struct kfs_vsock_sock *st)
{
	u32 size = KFS_VSOCK_LIMIT;

	if (st->vsk->remote_addr.svm_cid > VMADDR_CID_HOST)
		size = KFS_VSOCK_GUEST_LIMIT;
	if (!kfs_vsock_charge(size))
		goto none;
	st->buf = sock_kmalloc(sk_vsock(st->vsk), size,
			       GFP_KERNEL_ACCOUNT | __GFP_NOWARN |
			       __GFP_NORETRY);
	if (!st->buf) {
		atomic64_sub(size, &kfs_vsock_memory);
		goto none;
	}
	st->size = size;
	return true;
none:
	kfs_vsock_count(no_memory);
	return false;
}

void kfs_vsock_buffer_put(struct kfs_vsock_sock *st)
{
	if (!st->buf)
		return;
	sock_kfree_s(sk_vsock(st->vsk), st->buf, st->size);
	atomic64_sub(st->size, &kfs_vsock_memory);
	WRITE_ONCE(st->buf, NULL);
}
