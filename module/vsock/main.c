// SPDX-License-Identifier: GPL-2.0
/*
 * Load, unload and the live switch.
 *
 * kfs_vsock_mutex serialises switches. Turning off waits, in this order, for
 * calls inside that may still stage, then for what is staged, then (hooks gone)
 * for calls on their way out.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>

#include "../symbols.h"
#include "hooks.h"
#include "vsock.h"

static DEFINE_MUTEX(kfs_vsock_mutex);
int kfs_vsock_live;

/*
 * Calls inside our code either do not sleep, and are seen out by the first, or
 * are in the second's read side wherever they do.
 */
static void kfs_vsock_wait_for_calls(void)
{
	synchronize_rcu_tasks();
	synchronize_srcu(&kfs_vsock_srcu);
}

/* When it returns nothing is staged and nothing will be; hooks still live. */
static void kfs_vsock_quiesce(void)
{
	struct vsock_sock *vsk;
	unsigned int bucket = 0;

	WRITE_ONCE(kfs_vsock_live, KFS_VSOCK_OFF);
	kfs_vsock_moved();
	kfs_vsock_wait_for_calls();
	while ((vsk = kfs_vsock_next(&bucket))) {
		kfs_vsock_drain(vsk);
		sock_put(sk_vsock(vsk));
		cond_resched();
	}
}

/* Of the first `n`; newest first, so that a socket's end is seen to the last. */
static void kfs_vsock_unhook(unsigned int n)
{
	while (n--)
		kfs_hook_put(n);
	kfs_vsock_wait_for_calls();
	/* From the end of the SRCU read side to the last return. */
	synchronize_rcu_tasks();
	kfs_vsock_free_all();
}

static int kfs_vsock_hook_all(void)
{
	unsigned int i;
	int err;

	for (i = 0; i < kfs_hook_count; i++) {
		err = kfs_hook_get(i);
		if (err) {
			kfs_vsock_unhook(i);
			return err;
		}
	}
	return 0;
}

int kfs_vsock_set_mode(int mode)
{
	int err = 0;

	mutex_lock(&kfs_vsock_mutex);
	if (mode == kfs_vsock_live)
		goto out;
	if (kfs_vsock_live == KFS_VSOCK_OFF)
		err = kfs_vsock_hook_all();
	else
		kfs_vsock_quiesce();
	if (err)
		goto out;
	if (mode == KFS_VSOCK_OFF) {
		kfs_vsock_unhook(kfs_hook_count);
	} else {
		WRITE_ONCE(kfs_vsock_live, mode);
		kfs_vsock_moved();
	}
out:
	mutex_unlock(&kfs_vsock_mutex);
	return err;
}

static int __init kfs_vsock_init(void)
{
	int err;

	err = kfs_symbols_init();
	if (err)
		return err;
	kfs_vsock_wq = alloc_workqueue("kvm_fastsys_vsock", WQ_HIGHPRI, 0);
	if (!kfs_vsock_wq)
		return -ENOMEM;
	err = kfs_hooks_init();
	if (err)
		goto fail_wq;
	/* Last: the parameter mode=on goes live here. */
	err = kfs_vsock_settings_init();
	if (err)
		goto fail_hooks;
	return 0;

fail_hooks:
	kfs_vsock_set_mode(KFS_VSOCK_OFF);
	kfs_hooks_exit();
fail_wq:
	destroy_workqueue(kfs_vsock_wq);
	return err;
}

/* First the ways to switch on again, then everything that is live. */
static void __exit kfs_vsock_exit(void)
{
	kfs_vsock_settings_exit();
	kfs_vsock_set_mode(KFS_VSOCK_OFF);
	kfs_hooks_exit();
	destroy_workqueue(kfs_vsock_wq);
}

module_init(kfs_vsock_init);
module_exit(kfs_vsock_exit);

MODULE_DESCRIPTION("Merges small writes on virtio vsock stream sockets");
MODULE_AUTHOR("The kvm_fastsys authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
MODULE_INFO(kernels, "tested 6.1 6.12");
