/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* kvm_fastsys.ko itself: loaded, removed, what it said; ftrace's files. */
#ifndef KMOD_H
#define KMOD_H

#include <stdbool.h>
#include <stddef.h>

#include <linux/kvm_fastsys.h>

/* 0 or -errno. Waits for the device node. */
int kmod_load(const char *params);
int kmod_unload(void);
int set_ftrace(const char *value);
/* What a hook of this name is up to; zeroes when there is none. */
struct kfs_hook_info hook_named(int dev, const char *name);

/* Replaces a control file's contents. 0 or -errno. */
int put_text(const char *path, const char *text);
#define TRACING	"/sys/kernel/tracing/"

/* The kernel log from now on; close() it. -errno. */
int kmsg_open(void);
/* Messages of ours since then, the last of them in `line`. */
int kmsg_ours(int fd, char *line, size_t size);

#endif
