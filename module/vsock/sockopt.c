// SPDX-License-Identifier: GPL-2.0
/*
 * NODELAY, by a number of ours at AF_VSOCK level and by TCP's name at TCP's
 * level (TCP_NODELAY's number at AF_VSOCK level is another option's).
 */
#include <linux/net.h>
#include <linux/tcp.h>
#include <linux/uaccess.h>

#include "vsock.h"

/* Is it the option, on a socket it has a meaning for? */
static bool kfs_vsock_is_ours(const struct socket *sock, int level, int name)
{
	if (!(level == AF_VSOCK && name == SO_KFS_VSOCK_NODELAY) &&
	    !(level == IPPROTO_TCP && name == TCP_NODELAY))
		return false;
	/* Observing touches nothing, not even what an option answers. */
	return sock->sk->sk_type == SOCK_STREAM &&
	       READ_ONCE(kfs_vsock_live) == KFS_VSOCK_ON;
}

/* A transport, once there is one, has to be one of virtio's. */
static bool kfs_vsock_is_virtio(const struct vsock_sock *vsk)
{
	return !vsk->transport || vsk->transport->stream_enqueue ==
				  virtio_transport_stream_enqueue;
}

static int kfs_vsock_set_nodelay(struct vsock_sock *vsk, bool nodelay)
{
	struct kfs_vsock_sock *st;
	int err = 0;

	lock_sock(sk_vsock(vsk));
	if (!kfs_vsock_is_virtio(vsk)) {
		err = KFS_PASS;
		goto out;
	}
	st = kfs_vsock_find(vsk) ?: kfs_vsock_make(vsk);
	if (!st) {
		err = -ENOMEM;
		goto out;
	}
	st->nodelay = nodelay;
	kfs_vsock_judge(st);
	if (nodelay)
		kfs_vsock_flush_report(st, KFS_FLUSH_OPTION);
out:
	release_sock(sk_vsock(vsk));
	return err;
}

static int kfs_vsock_get_nodelay(struct vsock_sock *vsk)
{
	struct kfs_vsock_sock *st;
	int val;

	lock_sock(sk_vsock(vsk));
	st = kfs_vsock_find(vsk);
	if (!kfs_vsock_is_virtio(vsk))
		val = KFS_PASS;
	else if (st && st->nodelay >= 0)
		val = st->nodelay;
	else
		val = kfs_vsock_default(vsk) != KFS_VSOCK_MERGE;
	release_sock(sk_vsock(vsk));
	return val;
}

/*
 * The socket's own buffer size is part of what may be on the way: what waits has
 * its credit by the old size and goes before a smaller one holds.
 */
static void kfs_vsock_before_resize(struct vsock_sock *vsk)
{
	struct kfs_vsock_sock *st;
	int idx = srcu_read_lock(&kfs_vsock_srcu);

	lock_sock(sk_vsock(vsk));
	st = kfs_vsock_find(vsk);
	if (st)
		kfs_vsock_flush_report(st, KFS_FLUSH_OPTION);
	release_sock(sk_vsock(vsk));
	srcu_read_unlock(&kfs_vsock_srcu, idx);
}

static bool kfs_vsock_resizes(const struct socket *sock, int level, int name)
{
	return level == AF_VSOCK && sock->sk->sk_type == SOCK_STREAM &&
	       (name == SO_VM_SOCKETS_BUFFER_SIZE ||
		name == SO_VM_SOCKETS_BUFFER_MIN_SIZE ||
		name == SO_VM_SOCKETS_BUFFER_MAX_SIZE);
}

static bool kfs_vsock_is_selftest(const struct socket *sock)
{
	struct kfs_vsock_sock *st = kfs_vsock_find(vsock_sk(sock->sk));

	return st && st->selftest && !kfs_vsock_selftest_hit(st);
}

/* In front of vsock_connectible_setsockopt(), no lock held. */
int kfs_vsock_setsockopt(struct socket *sock, int level, int name,
			 sockptr_t val, unsigned int len)
{
	int idx, nodelay, ret;

	if (kfs_vsock_resizes(sock, level, name)) {
		kfs_vsock_before_resize(vsock_sk(sock->sk));
		return KFS_PASS;
	}
	if (!kfs_vsock_is_ours(sock, level, name))
		return kfs_vsock_is_selftest(sock) ? 0 : KFS_PASS;
	if (len < sizeof(nodelay))
		return -EINVAL;
	idx = srcu_read_lock(&kfs_vsock_srcu);
	ret = -EFAULT;
	if (!copy_from_sockptr(&nodelay, val, sizeof(nodelay)))
		ret = kfs_vsock_set_nodelay(vsock_sk(sock->sk), nodelay);
	srcu_read_unlock(&kfs_vsock_srcu, idx);
	return ret;
}

int kfs_vsock_getsockopt(struct socket *sock, int level, int name,
			 char __user *val, int __user *len)
{
	int idx, nodelay, size, ret;

	if (!kfs_vsock_is_ours(sock, level, name))
		return kfs_vsock_is_selftest(sock) ? 0 : KFS_PASS;
	idx = srcu_read_lock(&kfs_vsock_srcu);
	ret = -EFAULT;
	if (get_user(size, len))
		goto out;
	ret = -EINVAL;
	if (size < 0)
		goto out;
	ret = kfs_vsock_get_nodelay(vsock_sk(sock->sk));
	if (ret == KFS_PASS)
		goto out;
	nodelay = ret;
	size = min_t(int, size, sizeof(nodelay));
	ret = put_user(size, len) || copy_to_user(val, &nodelay, size) ?
	      -EFAULT : 0;
out:
	srcu_read_unlock(&kfs_vsock_srcu, idx);
	return ret;
}
