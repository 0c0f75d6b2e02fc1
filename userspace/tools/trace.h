/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* How one call looks in kvm-fastsys trace. */
#ifndef KFS_TRACE_TEXT_H
#define KFS_TRACE_TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/*
 * "openat(AT_FDCWD, "/etc/passwd", O_RDONLY": without the bracket that closes
 * it. Strings are read out of the process `pid` (0: addresses only) as they
 * are now, which the event does not record: others may be there by now.
 */
void trace_call(FILE *out, unsigned int nr, const uint64_t args[6], pid_t pid);

/* "3", "-1 ENOENT (No such file or directory)", "0x7f0000" */
void trace_result(FILE *out, unsigned int nr, int64_t ret);

#endif /* KFS_TRACE_TEXT_H */
