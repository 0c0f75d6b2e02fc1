/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* What the files of `kvm-fastsys check` share. */
#ifndef KFS_TOOL_CHECK_H
#define KFS_TOOL_CHECK_H

#include <stdbool.h>

/* The one hook without which there is nothing. */
#define HOOK_TARGET "kvm_emulate_hypercall"

enum result {
	OK,		/* as it should be */
	NOTE,		/* cannot be told, or worth knowing, and no obstacle */
	FAIL,		/* the module would not work */
};

struct finding;

struct finding *check_add(enum result result, const char *name,
			  const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* What to do about it. */
void check_next(struct finding *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* check_hooks.c; `kvm`: kvm.ko is loaded, as a module */
void check_hooks(bool kvm);

#endif /* KFS_TOOL_CHECK_H */
