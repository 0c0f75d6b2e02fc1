/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* The ways to make a vCPU leave KVM_RUN, each as a kicker and a vCPU see it. */
#ifndef KICKBENCH_H
#define KICKBENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <kfs.h>
#include "gvm.h"

enum kick_way {
	BY_FD,			/* write on a kick fd */
	BY_IOCTL,		/* KFS_USER_EXIT on the vCPU's fd */
	BY_SIGNAL,		/* tgkill, handler sets immediate_exit */
	BY_URING,		/* eventfd with an io_uring poll of the vCPU's thread */
	WAYS
};

extern const char *const way_names[WAYS];

struct guest {
	uint32_t turns;
	uint32_t exits;
};

struct bench {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	struct guest *g;
	int dev, kick, uring, event;
	bool has[WAYS];
	pthread_t thread;
	int tid;
	bool stop;
	uint32_t taken;		/* kicks, by the vCPU's thread */
	uint64_t back;		/* when it was about to enter KVM_RUN again */
	uint64_t *samples[WAYS];
};

uint64_t clock_ns(void);

/* ways.c. 0, or -errno with a line on stderr. */
int bench_open(struct bench *b, bool module);
void bench_kick(struct bench *b, enum kick_way way);
/* The vCPU's thread, its loop as VMMs have it; what it needs for every way. */
void *bench_vcpu(void *arg);

/* guest.c */
int guest_spin(struct guest *g);
int guest_exits(struct guest *g);

#endif
