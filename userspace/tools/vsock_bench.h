/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* What the files of `kvm-fastsys bench vsock` share. */
#ifndef KFS_TOOL_VSOCK_BENCH_H
#define KFS_TOOL_VSOCK_BENCH_H

#include "vsock.h"

#define BENCH_PORT	5209

/* What to do next about an error that nobody expects. */
#define AGAIN	"kvm-fastsys bench vsock, once more; dmesg may say why"

struct bench {
	unsigned int peer;	/* CID; VMADDR_CID_LOCAL: our own child */
	const char *tcp;
	const char *json;
	const char *svg;
	bool serve;
	bool to_stdout;
	unsigned int reps;
	bool dither;
	unsigned int ms;
	unsigned int size;	/* the only one, or 0 */
	bool column[COL_COUNT];
	bool direction[DIR_COUNT];
	int control;
	unsigned int patience;	/* seconds for a connection over vsock */
};

/* vsock_cmd.c: says it, with what to do next, and ends; the mode goes back. */
_Noreturn void bench_fail(int err, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Takes note of the module's mode; however we end, it is that one again. */
void bench_keep_mode(void);
void bench_restore(void);

/* vsock_bench.c: a descriptor or -errno */
int bench_listen(bool tcp, unsigned int *port);
int bench_connect(const struct bench *b, bool tcp, unsigned int port);
/* `own`: by the child that loopback has as its other side */
void bench_serve(int listener, bool own);
void bench_measure(const struct bench *b, struct vsock_table *table,
		   enum vsock_direction direction);

#endif
