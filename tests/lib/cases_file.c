// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * File and descriptor calls by a guest: result, errno, buffers, file positions
 * and contents equal those of the same call made natively.
 */
#include <sys/stat.h>
#include <sys/uio.h>

#include "callcase.h"

#define BAD_PTR		0x7ffffffff000ULL	/* last page below the hole: unmapped */
#define KERNEL_PTR	0xffffffff81000000ULL

/* Position and first bytes of the file, as they are after the call. */
static int see_file(struct case_ctx *c, int64_t ret)
{
	off_t pos = lseek(c->fd[0], 0, SEEK_CUR);

	memcpy(c->after, &pos, sizeof(pos));
	if (pread(c->fd[0], c->after + 8, 2000, 0) < 0)
		return -errno;
	return 0;
}

static int p_read(struct case_ctx *c, uint64_t *a)
{
	a[0] = 0;
	a[1] = U(c->out);
	a[2] = 1234;
	if (case_open_file(c, O_RDWR))
		return -errno;
	a[0] = c->fd[0];
	return lseek(c->fd[0], 100, SEEK_SET) == 100 ? 0 : -errno;
}

static int p_read_past_end(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	if (!err && lseek(c->fd[0], FILE_SIZE - 10, SEEK_SET) < 0)
		err = -errno;
	return err;
}

static int p_read_bad_ptr(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	a[1] = BAD_PTR;
	return err;
}

static int p_read_kernel_ptr(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	a[1] = KERNEL_PTR;
	return err;
}

static int p_bad_fd(struct case_ctx *c, uint64_t *a)
{
	a[0] = 777;
	a[1] = U(c->out);
	a[2] = 16;
	return 0;
}

static int p_negative_fd(struct case_ctx *c, uint64_t *a)
{
	p_bad_fd(c, a);
	a[0] = (uint64_t)-1;
	return 0;
}

/* The kernel takes 32 bits of a descriptor, whoever asks. */
static int p_fd_high_bits(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	a[0] |= 0xdead00000000ULL;
	return err;
}

static int p_write(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	a[1] = U(c->in);
	a[2] = 1500;
	return err;
}

static int p_write_readonly(struct case_ctx *c, uint64_t *a)
{
	int err = case_open_file(c, O_RDONLY);

	a[0] = c->fd[0];
	a[1] = U(c->in);
	a[2] = 10;
	return err;
}

static int p_write_bad_ptr(struct case_ctx *c, uint64_t *a)
{
	int err = p_write(c, a);

	a[1] = BAD_PTR;
	return err;
}

static int p_pread(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	a[3] = 4321;
	return err;
}

static int p_pread_negative(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	a[3] = (uint64_t)-5;
	return err;
}

static int p_pwrite(struct case_ctx *c, uint64_t *a)
{
	int err = p_write(c, a);

	a[3] = 77;
	return err;
}

static int p_pread_pipe(struct case_ctx *c, uint64_t *a)
{
	if (pipe2(c->fd, O_CLOEXEC))
		return -errno;
	a[0] = c->fd[0];
	a[1] = U(c->out);
	a[2] = 5;
	return 0;
}

static int iov(struct case_ctx *c, uint64_t *a, unsigned char *buf)
{
	struct iovec *v = (struct iovec *)c->when;	/* two of them fit */
	int err = p_read(c, a);

	v[0] = (struct iovec){ buf, 100 };
	v[1] = (struct iovec){ buf + 200, 300 };
	a[1] = U(v);
	a[2] = 2;
	return err;
}

static int p_readv(struct case_ctx *c, uint64_t *a)
{
	return iov(c, a, c->out);
}

static int p_writev(struct case_ctx *c, uint64_t *a)
{
	return iov(c, a, c->in);
}

static int p_lseek(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	a[1] = (uint64_t)-30;
	a[2] = SEEK_END;
	return err;
}

static int p_lseek_bad(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	a[1] = 0;
	a[2] = 99;
	return err;
}

static int p_fstat(struct case_ctx *c, uint64_t *a)
{
	return p_read(c, a);
}

/* Times of a file made anew twice differ; its size must not. */
static int see_stat(struct case_ctx *c, int64_t ret)
{
	struct stat *st = (struct stat *)c->out;

	if (ret)
		return 0;
	if (st->st_size != FILE_SIZE || (st->st_mode & 0777) != 0640)
		return -EBADMSG;
	memset(&st->st_atim, 0, sizeof(st->st_atim));
	memset(&st->st_mtim, 0, sizeof(st->st_mtim));
	memset(&st->st_ctim, 0, sizeof(st->st_ctim));
	return 0;
}

static int p_newfstatat(struct case_ctx *c, uint64_t *a)
{
	a[0] = (uint64_t)AT_FDCWD;
	a[1] = U(CASE_FILE);
	a[2] = U(c->out);
	return 0;
}

static int p_newfstatat_none(struct case_ctx *c, uint64_t *a)
{
	p_newfstatat(c, a);
	a[1] = U("/nonexistent/file");
	return 0;
}

static int p_newfstatat_bad_path(struct case_ctx *c, uint64_t *a)
{
	p_newfstatat(c, a);
	a[1] = BAD_PTR;
	return 0;
}

static int p_statx(struct case_ctx *c, uint64_t *a)
{
	a[0] = (uint64_t)AT_FDCWD;
	a[1] = U(CASE_FILE);
	a[2] = 0;
	a[3] = STATX_SIZE | STATX_MODE | STATX_INO;
	a[4] = U(c->out);
	return 0;
}

static int see_statx(struct case_ctx *c, int64_t ret)
{
	struct statx *st = (struct statx *)c->out;

	if (ret || st->stx_size != FILE_SIZE)
		return -EBADMSG;
	memset(&st->stx_atime, 0, sizeof(st->stx_atime));
	memset(&st->stx_btime, 0, sizeof(st->stx_btime));
	memset(&st->stx_ctime, 0, sizeof(st->stx_ctime));
	memset(&st->stx_mtime, 0, sizeof(st->stx_mtime));
	return 0;
}

static int p_openat(struct case_ctx *c, uint64_t *a)
{
	a[0] = (uint64_t)AT_FDCWD;
	a[1] = U(CASE_FILE);
	a[2] = O_RDONLY | O_CLOEXEC;
	return 0;
}

static int p_openat_exclusive(struct case_ctx *c, uint64_t *a)
{
	p_openat(c, a);
	a[2] = O_RDWR | O_CREAT | O_EXCL;
	a[3] = 0600;
	return 0;
}

static int p_openat_no_dir(struct case_ctx *c, uint64_t *a)
{
	p_openat(c, a);
	a[2] = O_RDONLY | O_DIRECTORY;
	return 0;
}

/* A descriptor that came out: its flags and size, then closed. */
static int see_new_fd(struct case_ctx *c, int64_t ret)
{
	struct stat st;
	int v[3];

	if (ret < 0)
		return 0;
	v[0] = fcntl(ret, F_GETFD);
	v[1] = fcntl(ret, F_GETFL);
	if (v[0] < 0 || v[1] < 0 || fstat(ret, &st))
		return -EBADF;
	v[2] = st.st_size;
	memcpy(c->after, v, sizeof(v));
	close(ret);
	return 0;
}

static int p_close(struct case_ctx *c, uint64_t *a)
{
	int err = case_open_file(c, O_RDONLY);

	a[0] = c->fd[0];
	return err;
}

static int see_closed(struct case_ctx *c, int64_t ret)
{
	if (fcntl(c->fd[0], F_GETFD) != -1 || errno != EBADF)
		return -EBADFD;
	c->fd[0] = -1;
	return ret ? -EIO : 0;
}

static int p_close_bad(struct case_ctx *c, uint64_t *a)
{
	a[0] = 777;
	return 0;
}

static int p_dup(struct case_ctx *c, uint64_t *a)
{
	return p_close(c, a);
}

static int p_dup2(struct case_ctx *c, uint64_t *a)
{
	int err = p_close(c, a);

	a[1] = 300;
	return err;
}

static int p_dup3_same(struct case_ctx *c, uint64_t *a)
{
	int err = p_close(c, a);

	a[1] = a[0];
	return err;
}

static int p_fcntl_getfl(struct case_ctx *c, uint64_t *a)
{
	int err = case_open_file(c, O_RDWR | O_APPEND);

	a[0] = c->fd[0];
	a[1] = F_GETFL;
	return err;
}

static int p_fcntl_setfl(struct case_ctx *c, uint64_t *a)
{
	int err = p_fcntl_getfl(c, a);

	a[1] = F_SETFL;
	a[2] = O_NONBLOCK;
	return err;
}

static int p_fcntl_dupfd(struct case_ctx *c, uint64_t *a)
{
	int err = p_fcntl_getfl(c, a);

	a[1] = F_DUPFD_CLOEXEC;
	a[2] = 200;
	return err;
}

static int see_flags(struct case_ctx *c, int64_t ret)
{
	int fl = fcntl(c->fd[0], F_GETFL);

	memcpy(c->after, &fl, sizeof(fl));
	return fl < 0 ? -errno : 0;
}

static int p_ftruncate(struct case_ctx *c, uint64_t *a)
{
	int err = p_read(c, a);

	a[1] = 500;
	return err;
}

static int p_getcwd(struct case_ctx *c, uint64_t *a)
{
	a[0] = U(c->out);
	a[1] = sizeof(c->out);
	return 0;
}

static int p_getcwd_small(struct case_ctx *c, uint64_t *a)
{
	a[0] = U(c->out);
	a[1] = 1;
	return 0;
}

static int p_readlinkat(struct case_ctx *c, uint64_t *a)
{
	a[0] = (uint64_t)AT_FDCWD;
	a[1] = U("/proc/self/exe");
	a[2] = U(c->out);
	a[3] = 100;
	return 0;
}

static int p_memfd(struct case_ctx *c, uint64_t *a)
{
	a[0] = U("kfs");
	a[1] = 1;
	return 0;
}

const struct call_case cases_file[] = {
	{ "read", SYS_read, p_read, see_file },
	{ "read at the end", SYS_read, p_read_past_end, see_file },
	{ "read to a bad pointer", SYS_read, p_read_bad_ptr, see_file },
	{ "read to a kernel pointer", SYS_read, p_read_kernel_ptr, see_file },
	{ "read of a closed fd", SYS_read, p_bad_fd, NULL },
	{ "read of fd -1", SYS_read, p_negative_fd, NULL },
	{ "read, high bits in the fd", SYS_read, p_fd_high_bits, see_file },
	{ "write", SYS_write, p_write, see_file },
	{ "write to a read-only fd", SYS_write, p_write_readonly, see_file },
	{ "write from a bad pointer", SYS_write, p_write_bad_ptr, see_file },
	{ "pread64", SYS_pread64, p_pread, see_file },
	{ "pread64 at -5", SYS_pread64, p_pread_negative, see_file },
	{ "pread64 of a pipe", SYS_pread64, p_pread_pipe, NULL },
	{ "pwrite64", SYS_pwrite64, p_pwrite, see_file },
	{ "readv", SYS_readv, p_readv, see_file },
	{ "writev", SYS_writev, p_writev, see_file },
	{ "lseek", SYS_lseek, p_lseek, see_file },
	{ "lseek, bad whence", SYS_lseek, p_lseek_bad, see_file },
	{ "fstat", SYS_fstat, p_fstat, see_stat },
	{ "newfstatat", SYS_newfstatat, p_newfstatat, see_stat },
	{ "newfstatat of nothing", SYS_newfstatat, p_newfstatat_none, NULL },
	{ "newfstatat, bad path", SYS_newfstatat, p_newfstatat_bad_path, NULL },
	{ "statx", SYS_statx, p_statx, see_statx },
	{ "openat", SYS_openat, p_openat, see_new_fd },
	{ "openat of what exists", SYS_openat, p_openat_exclusive, NULL },
	{ "openat, no directory", SYS_openat, p_openat_no_dir, NULL },
	{ "close", SYS_close, p_close, see_closed },
	{ "close of a closed fd", SYS_close, p_close_bad, NULL },
	{ "dup", SYS_dup, p_dup, see_new_fd },
	{ "dup2", SYS_dup2, p_dup2, see_new_fd },
	{ "dup3 onto itself", SYS_dup3, p_dup3_same, NULL },
	{ "fcntl F_GETFL", SYS_fcntl, p_fcntl_getfl, see_flags },
	{ "fcntl F_SETFL", SYS_fcntl, p_fcntl_setfl, see_flags },
	{ "fcntl F_DUPFD_CLOEXEC", SYS_fcntl, p_fcntl_dupfd, see_new_fd },
	{ "ftruncate", SYS_ftruncate, p_ftruncate, see_file },
	{ "getcwd", SYS_getcwd, p_getcwd, NULL },
	{ "getcwd, no room", SYS_getcwd, p_getcwd_small, NULL },
	{ "readlinkat", SYS_readlinkat, p_readlinkat, NULL },
	{ "memfd_create", SYS_memfd_create, p_memfd, see_new_fd },
};

const unsigned int n_cases_file =
	sizeof(cases_file) / sizeof(cases_file[0]);
