/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The only place that finds kernel-internal functions, for every module here.
 *
 * A module keeps a table of what it needs, one row each: return type, our
 * name, arguments, kallsyms name ("module:name" for a module's). A row becomes
 * a static call kfs_<name>.
 *
 * Only direct calls reach these functions. A static call is patched into a
 * plain CALL, so it needs no ENDBR at the target (sealed off for functions
 * nobody calls by pointer), no kCFI hash and no retpoline. Never take the
 * address of one of them to call it.
 */
#ifndef KFS_SYMBOLS_H
#define KFS_SYMBOLS_H

#include <linux/static_call.h>

#define KFS_DECLARE_SYMBOL(ret, name, args, kname)			\
	typedef ret kfs_fn_##name args;					\
	DECLARE_STATIC_CALL(kfs_##name, kfs_fn_##name);

#define KFS_DEFINE_SYMBOL(ret, name, args, kname)			\
	DEFINE_STATIC_CALL_NULL(kfs_##name, kfs_fn_##name);

/* In a function that returns an error and has `unsigned long addr`. */
#define KFS_RESOLVE_SYMBOL(ret, name, args, kname)			\
	addr = kfs_symbol_require(kname);				\
	if (!addr)							\
		return -ENOENT;						\
	static_call_update(kfs_##name, (kfs_fn_##name *)addr);

/* First, once: finds the kernel's own lookup. -ENOENT after a line. */
int kfs_symbols_init(void);

/* Address of any kernel symbol, 0 when there is none. */
unsigned long kfs_symbol_lookup(const char *name);

/* The same, with a line in the log that names what is missing. */
unsigned long kfs_symbol_require(const char *name);

/* sysctl kernel.ftrace_enabled as it is now. */
bool kfs_ftrace_is_on(void);

#endif
