/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KFS_OBSERVERS_H
#define KFS_OBSERVERS_H

#include "compat/compat.h"

/*
 * Who else must see this call?
 *
 * A call made inside KVM_RUN passes by seccomp, ptrace, audit, the system call
 * tracepoints and user dispatch. For now any of them on this thread declines
 * it, and the VMM or the guest makes it the normal way, where all of them see
 * what they always saw.
 */
static inline bool kfs_watched(void)
{
	return kfs_compat_watched();
}

#endif
