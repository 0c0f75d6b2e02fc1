/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* What the bench's two sides share: loops in the guest, exits in the VMM. */
#ifndef KFS_BENCH_H
#define KFS_BENCH_H

#include <stdint.h>

#define PORT_REGS 0xe0	/* the call is in the registers; gvm has no such port */

struct loop {
	uint64_t n;		/* calls to make */
	uint64_t rax, nr;	/* of the hypercall */
	uint64_t args[4];
	int64_t expect;		/* what each has to give */
	uint64_t wrong;		/* out: how often it gave something else */
};

struct mailbox {
	uint64_t nr;
	uint64_t args[4];
	int64_t ret;
};

extern struct mailbox bench_mailbox;

/* Guest code: each makes l->n calls and compares their results. */
int loop_hypercall(struct loop *l);
int loop_doorbell(struct loop *l);
int loop_regs(struct loop *l);

#endif /* KFS_BENCH_H */
