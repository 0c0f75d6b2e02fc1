// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The loops that are measured, in ring 0. Each adds three to ten instructions
 * a turn to what it measures; nothing is subtracted for that.
 */
#include <gvm.h>
#include <kfs_guest.h>

#include "bench.h"

struct mailbox bench_mailbox;

int loop_hypercall(struct loop *l)
{
	int insn = gvm_is_intel ? KFS_GUEST_VMCALL : KFS_GUEST_VMMCALL;
	uint64_t rax = l->rax, nr = l->nr, wrong = 0;
	uint64_t a0 = l->args[0], a1 = l->args[1], a2 = l->args[2];
	uint64_t a3 = l->args[3];
	int64_t expect = l->expect;

	for (uint64_t n = l->n; n; n--)
		wrong += kfs_guest_hypercall_by(insn, rax, nr, a0, a1, a2, a3,
						0, 0) != expect;
	l->wrong = wrong;
	return 0;
}

int loop_doorbell(struct loop *l)
{
	uint64_t wrong = 0;

	for (uint64_t n = l->n; n; n--) {
		bench_mailbox.nr = l->nr;
		bench_mailbox.args[0] = l->args[0];
		bench_mailbox.args[1] = l->args[1];
		bench_mailbox.args[2] = l->args[2];
		bench_mailbox.args[3] = l->args[3];
		gvm_doorbell(0);
		wrong += bench_mailbox.ret != l->expect;
	}
	l->wrong = wrong;
	return 0;
}

int loop_regs(struct loop *l)
{
	uint64_t wrong = 0;

	for (uint64_t n = l->n; n; n--) {
		register uint64_t r10 __asm__("r10") = l->args[3];
		int64_t ret;

		__asm__ volatile("outb %%al, %[port]"
				 : "=a"(ret)
				 : "0"(l->nr), "D"(l->args[0]),
				   "S"(l->args[1]), "d"(l->args[2]), "r"(r10),
				   [port] "i"(PORT_REGS)
				 : "memory");
		wrong += ret != l->expect;
	}
	l->wrong = wrong;
	return 0;
}
