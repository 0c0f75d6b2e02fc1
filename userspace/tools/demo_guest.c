// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The demo's guest. All of this runs in ring 0 of the VM, nothing else does.
 * It knows host system calls by their numbers, and one way to be served when
 * the host has none of them.
 */
#include <asm/unistd_64.h>
#include <linux/fcntl.h>

#include <gvm.h>
#include <kfs_guest.h>

#include "demo.h"

struct mailbox guest_mailbox;

static long call(__u64 nr, __u64 a0, __u64 a1, __u64 a2, __u64 a3)
{
	long ret = kfs_guest_call(nr, a0, a1, a2, a3, 0, 0);

	if (ret != -KFS_ENOSYS)
		return ret;
	/* Not made. This may be over with the next call: ask again then. */
	guest_mailbox = (struct mailbox) {
		.nr = nr,
		.args = { a0, a1, a2, a3 },
	};
	gvm_doorbell(0);
	return guest_mailbox.ret;
}

int guest_write(struct guest_work *w)
{
	unsigned int n = w->count;

	for (w->count = 0; w->count < n; w->count++) {
		long ret = call(__NR_write, (__u64)w->fd, (__u64)w->buf,
				w->len, 0);

		if (ret < 0)
			return (int)ret;
	}
	return 0;
}

static long write_all(int fd, const char *buf, long len, unsigned int *writes)
{
	while (len > 0) {
		long ret = call(__NR_write, (__u64)fd, (__u64)buf, (__u64)len,
				0);

		if (ret < 0)
			return ret;
		++*writes;
		buf += ret;
		len -= ret;
	}
	return 0;
}

int guest_copy(struct guest_work *w)
{
	long in, out, ret;

	in = call(__NR_openat, (__u64)AT_FDCWD, (__u64)w->from,
		  O_RDONLY | O_CLOEXEC, 0);
	if (in < 0)
		return (int)in;
	out = call(__NR_openat, (__u64)AT_FDCWD, (__u64)w->to,
		   O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (out < 0)
		return (int)out;
	for (;;) {
		ret = call(__NR_read, (__u64)in, (__u64)w->into, w->len, 0);
		if (ret <= 0)
			break;
		w->reads++;
		ret = write_all((int)out, w->into, ret, &w->writes);
		if (ret)
			break;
	}
	call(__NR_close, (__u64)in, 0, 0, 0);
	call(__NR_close, (__u64)out, 0, 0, 0);
	return (int)ret;
}

int guest_remove(struct guest_work *w)
{
	return (int)call(__NR_unlinkat, (__u64)AT_FDCWD, (__u64)w->to, 0, 0);
}

int guest_read(struct guest_work *w)
{
	long ret = call(__NR_read, (__u64)w->fd, (__u64)w->into, w->len, 0);

	if (ret < 0)
		return (int)ret;
	w->count = (unsigned int)ret;
	return 0;
}

int guest_look(struct guest_work *w)
{
	w->count = (unsigned int)kfs_guest_present();
	return 0;
}
