/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KFS_SYSCALLS_H
#define KFS_SYSCALLS_H

#include <linux/ptrace.h>
#include <linux/types.h>
#include <linux/unistd.h>

/* Numbers from here on are no x86-64 system call we could know. */
#define KFS_NR_LIMIT	512

/* Rules for arguments; the code is in syscalls.c. */
enum kfs_check {
	KFS_CHECK_ANY,
	KFS_CHECK_CLOSE,
	KFS_CHECK_DUP_ONTO,
	KFS_CHECK_FCNTL,
	KFS_CHECK_FUTEX,
	KFS_CHECK_MADVISE,
	KFS_CHECK_NO_MASK_4,
	KFS_CHECK_NO_MASK_5,
};

/* Row numbers of the table: KFS_ROW_read ... ; 0 is 'not listed'. */
#define KFS_CALL(name, check, flags, why) KFS_ROW_##name,
enum kfs_row_id {
	KFS_ROW_NONE,
#include "syscalls.tbl"
	KFS_ROW_COUNT
};
#undef KFS_CALL

struct kfs_row {
	u8 id;			/* enum kfs_row_id, KFS_ROW_NONE: declines */
	u8 check;		/* enum kfs_check */
	bool blocks;		/* may wait without end */
	bool releases;		/* may end what a file stands for, at once */
	bool instant;		/* never sleeps, touches no user memory */
};

extern const struct kfs_row kfs_rows[KFS_NR_LIMIT];
extern const u16 kfs_row_nr[KFS_ROW_COUNT];

/* May this runnable call be made with these arguments? */
bool kfs_arguments_ok(enum kfs_check check, const struct pt_regs *regs);

#endif
