// SPDX-License-Identifier: MIT OR LGPL-2.1
/* Calls and results in strace's look, for the calls that the module runs. */
#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/uio.h>

#include <kfs.h>

#include "trace.h"

#define SHOWN 32	/* bytes of a string, as strace's -s has it */

/*
 * A letter per argument:
 *	d  descriptor or other signed number	a  descriptor or AT_FDCWD
 *	u  unsigned number, size		o  mode, octal
 *	s  path					b  bytes, as many as the next says
 *	p  address				x  flags
 *	f  flags of open			P  poll entries
 */
static const struct shape {
	const char *name, *args;
} shapes[] = {
	{ "read", "dpu" }, { "write", "dbu" }, { "pread64", "dpuu" },
	{ "pwrite64", "dbuu" }, { "readv", "dpu" }, { "writev", "dpu" },
	{ "preadv", "dpuuu" }, { "pwritev", "dpuuu" }, { "lseek", "ddu" },
	{ "sendfile", "ddpu" }, { "copy_file_range", "dpdpux" },
	{ "getdents64", "dpu" }, { "fstat", "dp" }, { "fsync", "d" },
	{ "fdatasync", "d" }, { "ftruncate", "du" }, { "fallocate", "dxuu" },
	{ "fadvise64", "duud" }, { "close", "d" }, { "dup", "d" },
	{ "dup2", "dd" }, { "dup3", "ddx" }, { "fcntl", "ddx" },
	{ "openat", "asfo" }, { "newfstatat", "aspx" },
	{ "statx", "asxxp" }, { "faccessat", "aso" },
	{ "readlinkat", "aspu" }, { "getcwd", "pu" }, { "mkdirat", "aso" },
	{ "unlinkat", "asx" }, { "renameat2", "asasx" },
	{ "futex", "pxupxu" }, { "nanosleep", "pp" },
	{ "clock_nanosleep", "dxpp" }, { "poll", "pud" },
	{ "ppoll", "puppu" }, { "epoll_create1", "x" },
	{ "epoll_ctl", "dddp" }, { "epoll_wait", "dpdd" },
	{ "epoll_pwait", "dpddpu" }, { "sched_yield", "" },
	{ "eventfd2", "ux" }, { "pipe2", "px" }, { "memfd_create", "sx" },
	{ "timerfd_create", "dx" }, { "timerfd_settime", "dxpp" },
	{ "timerfd_gettime", "dp" }, { "socket", "ddd" },
	{ "socketpair", "dddp" }, { "bind", "dpu" }, { "listen", "dd" },
	{ "connect", "dpu" }, { "accept4", "dppx" }, { "shutdown", "dd" },
	{ "sendto", "dbuxpu" }, { "recvfrom", "dpuxpp" },
	{ "getsockname", "dpp" }, { "getpeername", "dpp" },
	{ "getpid", "" }, { "getppid", "" }, { "gettid", "" },
	{ "getuid", "" }, { "geteuid", "" }, { "getgid", "" },
	{ "getegid", "" }, { "clock_gettime", "dp" },
	{ "clock_getres", "dp" }, { "getrandom", "pux" }, { "uname", "p" },
	{ "madvise", "pud" },
};

static const char *shape_of(const char *name)
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		if (!strcmp(shapes[i].name, name))
			return shapes[i].args;
	return "xxxxxx";
}

static ssize_t peek(pid_t pid, uint64_t at, void *buf, size_t len)
{
	struct iovec here = { buf, len }, there = { (void *)at, len };

	return pid ? process_vm_readv(pid, &here, 1, &there, 1, 0) : -1;
}

static void quoted(FILE *out, const char *s, size_t len, bool more)
{
	fputc('"', out);
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c == '\n')
			fputs("\\n", out);
		else if (c == '\t')
			fputs("\\t", out);
		else if (isprint(c))
			fputc(c, out);
		else if (i + 1 < len && isdigit((unsigned char)s[i + 1]))
			fprintf(out, "\\%03o", c);
		else
			fprintf(out, "\\%o", c);
	}
	fputs(more ? "\"..." : "\"", out);
}

static void address(FILE *out, uint64_t at)
{
	if (at)
		fprintf(out, "%#llx", (unsigned long long)at);
	else
		fputs("NULL", out);
}

static void bytes(FILE *out, pid_t pid, uint64_t at, uint64_t len)
{
	char buf[SHOWN];
	size_t want = len < SHOWN ? (size_t)len : SHOWN;
	ssize_t n = at ? peek(pid, at, buf, want) : -1;

	if (n < 0)
		address(out, at);
	else
		quoted(out, buf, (size_t)n, len > (uint64_t)n);
}

/* Page by page: behind the end of a string may be nothing. */
static void path(FILE *out, pid_t pid, uint64_t at)
{
	char buf[256];
	size_t have = 0;

	while (at && have < sizeof(buf)) {
		size_t n = 4096 - (at + have) % 4096;
		ssize_t got;

		if (n > sizeof(buf) - have)
			n = sizeof(buf) - have;
		got = peek(pid, at + have, buf + have, n);
		if (got <= 0)
			break;
		if (memchr(buf + have, 0, (size_t)got)) {
			quoted(out, buf, strlen(buf), false);
			return;
		}
		have += (size_t)got;
	}
	if (have)
		quoted(out, buf, have, true);
	else
		address(out, at);
}

static void open_flags(FILE *out, uint64_t flags)
{
	static const struct {
		unsigned int flag;
		const char *name;
	} names[] = {
		{ O_CREAT, "O_CREAT" }, { O_EXCL, "O_EXCL" },
		{ O_NOCTTY, "O_NOCTTY" }, { O_TRUNC, "O_TRUNC" },
		{ O_APPEND, "O_APPEND" }, { O_NONBLOCK, "O_NONBLOCK" },
		{ 0100000, "O_LARGEFILE" }, { O_DIRECTORY, "O_DIRECTORY" },
		{ O_NOFOLLOW, "O_NOFOLLOW" }, { O_CLOEXEC, "O_CLOEXEC" },
		{ O_PATH, "O_PATH" },
	};
	static const char *const access[] = { "O_RDONLY", "O_WRONLY",
					      "O_RDWR", "O_ACCMODE" };

	fputs(access[flags & O_ACCMODE], out);
	flags &= ~(uint64_t)O_ACCMODE;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (flags & names[i].flag) {
			fprintf(out, "|%s", names[i].name);
			flags &= ~(uint64_t)names[i].flag;
		}
	if (flags)
		fprintf(out, "|%#llx", (unsigned long long)flags);
}

void trace_call(FILE *out, unsigned int nr, const uint64_t a[6], pid_t pid)
{
	const char *name = kfs_syscall_name(nr);
	const char *shape = shape_of(name ? name : "");

	if (name)
		fprintf(out, "%s(", name);
	else
		fprintf(out, "syscall_%#x(", nr);
	for (int i = 0; shape[i]; i++) {
		/* The mode belongs to a file that is made. */
		if (i == 3 && shape[i - 1] == 'f' && !(a[2] & O_CREAT))
			break;
		if (i)
			fputs(", ", out);
		switch (shape[i]) {
		case 'a':
			if ((int)a[i] == AT_FDCWD) {
				fputs("AT_FDCWD", out);
				break;
			}
			/* fall through */
		case 'd':
			fprintf(out, "%d", (int)a[i]);
			break;
		case 'u':
			fprintf(out, "%llu", (unsigned long long)a[i]);
			break;
		case 'o':
			fprintf(out, "%#o", (unsigned int)a[i]);
			break;
		case 's':
			path(out, pid, a[i]);
			break;
		case 'b':
			bytes(out, pid, a[i], a[i + 1]);
			break;
		case 'f':
			open_flags(out, a[i]);
			break;
		case 'p':
			address(out, a[i]);
			break;
		default:
			fprintf(out, a[i] ? "%#llx" : "%llu",
				(unsigned long long)a[i]);
		}
	}
}

void trace_result(FILE *out, unsigned int nr, int64_t ret)
{
	const char *name = ret < 0 && ret > -4096 ?
			   strerrorname_np((int)-ret) : NULL;

	(void)nr;
	switch (ret) {
	case -512:
	case -513:
	case -514:
	case -516:
		fputs("? (interrupted, to be made again)", out);
		return;
	}
	if (name)
		fprintf(out, "-1 %s (%s)", name, strerrordesc_np((int)-ret));
	else
		fprintf(out, "%lld", (long long)ret);
}
