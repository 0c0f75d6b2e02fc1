/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KFS_HOOK_H
#define KFS_HOOK_H

#include <linux/ftrace.h>
#include <linux/types.h>

/*
 * One interception: a row of the table in hook.c. `trampoline` is entered by a
 * CALL from the target's first instruction and either returns, and the target
 * runs as ever with nothing of ours on the stack, or returns to the target's
 * caller, and the target does not run.
 */
struct kfs_hook {
	const char *name;		/* feature it serves */
	const char *target;		/* kernel function, kallsyms name */
	void (*tramp_fn)(void);
	int (*selftest)(void);		/* 0: the live hook fired */
	const bool *enabled;		/* module parameter */
	bool optional;			/* its failure does not fail the load */

	/* Under kfs_hook_lock. */
	unsigned long ip;		/* of the fentry site, 0: unavailable */
	unsigned long trampoline;
	bool proven;			/* the self-test passed */
	unsigned int users;
	int error;
	char reason[128];
	struct ftrace_ops ops;		/* compat: kernels that want one */
};

struct kfs_hook_info;

/* The module's table. */
extern struct kfs_hook kfs_hooks[];
extern const unsigned int kfs_hook_count;

/* Finds every target and proves each enabled hook once. Load fails on error. */
int kfs_hooks_init(void);
/* The text of trampolines may go away when this returns. */
void kfs_hooks_exit(void);

/* Live from the first get to the last put. 0 or -ENODEV with a reason kept. */
int kfs_hook_get(unsigned int id);
void kfs_hook_put(unsigned int id);

int kfs_hook_info(struct kfs_hook_info *info);

#endif
