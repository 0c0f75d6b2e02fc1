// SPDX-License-Identifier: GPL-2.0
/*
 * The table of interceptions of kvm_fastsys_vsock.ko, and their self-tests:
 * on a made-up socket where the kernel's function would touch it, on a real
 * one where it is reached through the socket's operations only.
 */
#include <linux/net.h>
#include <net/net_namespace.h>

#include "hooks.h"
#include "vsock.h"

static const bool kfs_vsock_always = true;
static struct vsock_sock kfs_vsock_fake;

/* Did `call` on a socket with a self-test state reach our handler? */
#define KFS_VSOCK_PROVE(vsk, call)					\
({									\
	unsigned int before_ = kfs_vsock_selftest_hits;			\
	int err_ = kfs_vsock_selftest_add(vsk);				\
									\
	if (!err_) {							\
		(void)(call);						\
		if (kfs_vsock_selftest_hits == before_)			\
			err_ = -EIO;					\
		kfs_vsock_forget(vsk);					\
	}								\
	err_;								\
})

static int kfs_vsock_prove_enqueue(void)
{
	struct msghdr msg = { };

	kfs_vsock_fake.sk.sk_type = SOCK_STREAM;
	return KFS_VSOCK_PROVE(&kfs_vsock_fake,
			       virtio_transport_stream_enqueue(&kfs_vsock_fake,
							       &msg, 1));
}

static int kfs_vsock_prove_recv(void)
{
	return KFS_VSOCK_PROVE(&kfs_vsock_fake,
			       virtio_transport_notify_recv_init(&kfs_vsock_fake,
								 0, NULL));
}

static int kfs_vsock_prove_poll(void)
{
	return KFS_VSOCK_PROVE(&kfs_vsock_fake,
			       virtio_transport_notify_poll_in(&kfs_vsock_fake,
							       0, NULL));
}

static int kfs_vsock_prove_shutdown(void)
{
	return KFS_VSOCK_PROVE(&kfs_vsock_fake,
			       virtio_transport_shutdown(&kfs_vsock_fake, 0));
}

static int kfs_vsock_prove_release(void)
{
	return KFS_VSOCK_PROVE(&kfs_vsock_fake,
			       (virtio_transport_release(&kfs_vsock_fake), 0));
}

static int kfs_vsock_prove_destruct(void)
{
	int before = atomic_read(&kfs_vsock_sockets);
	struct socket *sock;
	int err;

	err = sock_create_kern(&init_net, AF_VSOCK, SOCK_STREAM, 0, &sock);
	if (err)
		return err;
	err = kfs_vsock_selftest_add(vsock_sk(sock->sk));
	sock_release(sock);
	if (!err && atomic_read(&kfs_vsock_sockets) != before)
		err = -EIO;
	return err;
}

static int kfs_vsock_prove_option(bool set)
{
	struct socket *sock;
	int err;

	err = sock_create_kern(&init_net, AF_VSOCK, SOCK_STREAM, 0, &sock);
	if (err)
		return err;
	/* A level nobody has: the kernel's own function refuses it at once. */
	if (set)
		err = KFS_VSOCK_PROVE(vsock_sk(sock->sk),
				      sock->ops->setsockopt(sock, -1, 0,
							    KERNEL_SOCKPTR(NULL),
							    0));
	else
		err = KFS_VSOCK_PROVE(vsock_sk(sock->sk),
				      sock->ops->getsockopt(sock, -1, 0, NULL,
							    NULL));
	sock_release(sock);
	return err;
}

static int kfs_vsock_prove_setsockopt(void)
{
	return kfs_vsock_prove_option(true);
}

static int kfs_vsock_prove_getsockopt(void)
{
	return kfs_vsock_prove_option(false);
}

#define KFS_VSOCK_HOOK(id, what, function)				\
	[KFS_VSOCK_HOOK_##id] = {					\
		.name = "vsock_" #what,					\
		.target = function,					\
		.tramp_fn = kfs_vsock_##what##_tramp,			\
		.selftest = kfs_vsock_prove_##what,			\
		.enabled = &kfs_vsock_always,				\
	}

struct kfs_hook kfs_hooks[KFS_VSOCK_HOOK_COUNT] = {
	KFS_VSOCK_HOOK(DESTRUCT, destruct, "vsock_sk_destruct"),
	KFS_VSOCK_HOOK(RELEASE, release, "virtio_transport_release"),
	KFS_VSOCK_HOOK(SHUTDOWN, shutdown, "virtio_transport_shutdown"),
	KFS_VSOCK_HOOK(RECV, recv, "virtio_transport_notify_recv_init"),
	KFS_VSOCK_HOOK(POLL, poll, "virtio_transport_notify_poll_in"),
	KFS_VSOCK_HOOK(SETSOCKOPT, setsockopt, "vsock_connectible_setsockopt"),
	KFS_VSOCK_HOOK(GETSOCKOPT, getsockopt, "vsock_connectible_getsockopt"),
	KFS_VSOCK_HOOK(ENQUEUE, enqueue, "virtio_transport_stream_enqueue"),
};

const unsigned int kfs_hook_count = KFS_VSOCK_HOOK_COUNT;
