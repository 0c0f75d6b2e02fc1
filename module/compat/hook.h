/* SPDX-License-Identifier: GPL-2.0 */
/* ftrace.c: a direct trampoline at a function's entry. */
#ifndef KFS_COMPAT_HOOK_H
#define KFS_COMPAT_HOOK_H

struct kfs_hook;

int kfs_compat_hook_install(struct kfs_hook *hook);
int kfs_compat_hook_remove(struct kfs_hook *hook);

#endif
