// SPDX-License-Identifier: GPL-2.0
/*
 * What each host system call is: the table, and the argument rules it names.
 *
 * A rule looks at values in registers only, never at memory that somebody
 * could change between the check and the call. Descriptor rules look at what
 * the number refers to now; see kfs_fd_is_safe() for why that is enough.
 */
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/mman.h>
#include <linux/module.h>

#include "kfs.h"
#include "kvm_symbols.h"

#define B 1
#define I 2
#define R 3
#define KFS_CALL(name, rule, flags, why)				\
	[__NR_##name] = {						\
		.id = KFS_ROW_##name,					\
		.check = KFS_CHECK_##rule,				\
		.blocks = (flags) == B || (flags) == R,			\
		.releases = (flags) == R,				\
		.instant = (flags) == I,				\
	},
const struct kfs_row kfs_rows[KFS_NR_LIMIT] = {
#include "syscalls.tbl"
};
#undef KFS_CALL
#undef R
#undef I
#undef B

#define KFS_CALL(name, rule, flags, why) [KFS_ROW_##name] = __NR_##name,
const u16 kfs_row_nr[KFS_ROW_COUNT] = {
#include "syscalls.tbl"
};
#undef KFS_CALL

/*
 * May the guest close this descriptor, or put another file over it?
 *
 * Not when it is KVM's or ours: KVM_RUN of a single-threaded VMM borrows its
 * vCPU file without a reference, so closing it from inside frees what runs.
 * A thread that could exchange the file between this look and the call shares
 * the descriptor table, and then KVM_RUN holds a reference of its own.
 */
static bool kfs_fd_is_safe(unsigned long fd)
{
	struct file *file = fget_raw((unsigned int)fd);
	bool safe;

	if (!file)
		return true;	/* EBADF, or a new number: nothing to free */
	safe = !within_module((unsigned long)file->f_op, kfs_addr.kvm) &&
	       !kfs_file_is_ours(file);
	fput(file);
	return safe;
}

static bool kfs_fcntl_ok(unsigned long cmd, unsigned long arg)
{
	switch ((unsigned int)cmd) {
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
	case F_GETFD:
	case F_SETFD:
	case F_GETFL:
	case F_GETPIPE_SZ:
	case F_SETPIPE_SZ:
	case F_GET_SEALS:
	case F_ADD_SEALS:
		return true;
	case F_SETFL:
		return !(arg & FASYNC);	/* SIGIO, later */
	default:
		return false;
	}
}

static bool kfs_futex_ok(unsigned long op)
{
	switch ((u32)op & FUTEX_CMD_MASK) {
	case FUTEX_WAIT:
	case FUTEX_WAKE:
	case FUTEX_REQUEUE:
	case FUTEX_CMP_REQUEUE:
	case FUTEX_WAKE_OP:
	case FUTEX_WAIT_BITSET:
	case FUTEX_WAKE_BITSET:
		return true;
	default:
		return false;
	}
}

static bool kfs_madvise_ok(unsigned long advice)
{
	switch ((int)advice) {
	case MADV_NORMAL:
	case MADV_RANDOM:
	case MADV_SEQUENTIAL:
	case MADV_WILLNEED:
	case MADV_DONTNEED:
	case MADV_FREE:
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case MADV_DONTDUMP:
	case MADV_DODUMP:
	case MADV_COLD:
	case MADV_PAGEOUT:
		return true;
	default:
		return false;
	}
}

bool kfs_arguments_ok(enum kfs_check check, const struct pt_regs *regs)
{
	switch (check) {
	case KFS_CHECK_ANY:
		return true;
	case KFS_CHECK_CLOSE:
		return kfs_fd_is_safe(regs->di);
	case KFS_CHECK_DUP_ONTO:
		return kfs_fd_is_safe(regs->si);
	case KFS_CHECK_FCNTL:
		return kfs_fcntl_ok(regs->si, regs->dx);
	case KFS_CHECK_FUTEX:
		return kfs_futex_ok(regs->si);
	case KFS_CHECK_MADVISE:
		return kfs_madvise_ok(regs->dx);
	case KFS_CHECK_NO_MASK_4:
		return !regs->r10;
	case KFS_CHECK_NO_MASK_5:
		return !regs->r8;
	}
	return false;
}
