/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* What the parts of kvm-fastsys-demo share. */
#ifndef KFS_DEMO_H
#define KFS_DEMO_H

#include <stddef.h>
#include <linux/types.h>

/*
 * ---- The guest (demo_guest.c) --------------------------------------------
 *
 * Ordinary functions of this program that run in ring 0 of the VM. Each gets
 * one of these and returns 0 or -errno of the call that went wrong.
 */
struct guest_work {
	int fd;
	const char *buf;
	size_t len;
	unsigned int count;		/* how often; out: how often it worked */
	const char *from, *to;		/* copy, remove: paths */
	char *into;			/* copy, read: buffer of len bytes */
	unsigned int reads, writes;	/* out */
};

int guest_write(struct guest_work *w);	/* count times buf to fd */
int guest_copy(struct guest_work *w);	/* from to to, len bytes at a time */
int guest_remove(struct guest_work *w);	/* to */
int guest_read(struct guest_work *w);	/* one read of fd; count: what it gave */
int guest_look(struct guest_work *w);	/* count: 1 when the leaf is there */

/*
 * Where the guest leaves a call when the host answered -KFS_ENOSYS; it then
 * rings the doorbell, and the VMM makes the call under the same policy.
 */
struct mailbox {
	__u64 nr;
	__u64 args[6];
	__s64 ret;
};

extern struct mailbox guest_mailbox;

/*
 * ---- strace (demo_strace.c) ----------------------------------------------
 */
struct strace {
	int pid;
	char log[64];			/* file it writes to */
};

/* -ENOENT: not installed. On return the thread's next call is traced. */
int strace_attach(struct strace *s, const char *dir, const char *calls);
/* On return nobody watches any more. */
int strace_detach(struct strace *s);
/* Prints what strace saw, each line behind `indent`; returns their number. */
int strace_show(const struct strace *s, const char *indent);

/*
 * ---- The module (demo_module.c) ------------------------------------------
 */

/* One try: 0 or -errno. */
int module_unload(void);
/* Waits until nothing holds the module any more: 0 or -ETIMEDOUT. */
int module_wait_unused(void);
/* From `path`, or a file beside this program, or by modprobe. */
int module_load(const char *path);

#endif /* KFS_DEMO_H */
