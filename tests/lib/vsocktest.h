/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* What the vsock test programs share: the module's knobs, loopback pairs. */
#ifndef VSOCKTEST_H
#define VSOCKTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* NULL, or why the tests cannot run here. Loads what is needed. */
const char *vsock_setup(void);
int vsock_load(const char *options);	/* 0 or -errno */
int vsock_unload(void);
/* Parameters of the module; 0 or -errno. */
int vsock_set(const char *name, const char *value);
/* One number of the module's counters, -1 when there is none. */
long long vsock_stat(const char *name);

/* A connected pair over loopback, each end a stream socket; 0 or -errno. */
int vsock_pair(int fds[2]);
int vsock_pair_type(int fds[2], int type);
int vsock_nodelay(int fd, int on);

/* Everything or -1; the stream's bytes are a function of place and seed. */
int write_all(int fd, const void *buf, size_t len, int flags);
ssize_t read_all(int fd, void *buf, size_t len);
void pattern(uint8_t *buf, size_t len, uint64_t at, uint64_t seed);
/* First place where buf is not the pattern, or len. */
size_t pattern_check(const uint8_t *buf, size_t len, uint64_t at,
		     uint64_t seed);
uint64_t random_next(uint64_t *state);

#endif
