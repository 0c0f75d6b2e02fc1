/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* kvm_fastsys.ko itself: loaded, removed, what it said; and ftrace's switch. */
#ifndef KMOD_H
#define KMOD_H

#include <stdbool.h>
#include <stddef.h>

/* 0 or -errno. Waits for the device node. */
int kmod_load(const char *params);
int kmod_unload(void);
int set_ftrace(const char *value);

/* The kernel log from now on; close() it. -errno. */
int kmsg_open(void);
/* Messages of ours since then, the last of them in `line`. */
int kmsg_ours(int fd, char *line, size_t size);

#endif
