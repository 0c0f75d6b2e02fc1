/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KFS_COMPAT_ASM_H
#define KFS_COMPAT_ASM_H

#include <linux/version.h>

/* Landing pad for entries whose address is taken; none before 5.18. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 18, 0)
#include <asm/ibt.h>
#define KFS_ENDBR	ENDBR
#else
#define KFS_ENDBR
#endif

#endif
