/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
#ifndef KFS_INTERNAL_H
#define KFS_INTERNAL_H

#include "kfs.h"

/* Everything else is hidden: what is not in the version script does not exist. */
#define KFS_PUBLIC __attribute__((visibility("default")))

/* One past the highest number that the name table knows. */
unsigned int kfs_syscall_count(void);

/* kfs_syscall_nr() for a name that is not NUL-terminated. */
int kfs_syscall_find(const char *name, size_t len);

#endif /* KFS_INTERNAL_H */
