// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Identity, time, waiting and socket calls by a guest: equal to native ones,
 * and one long and one odd call through every kind of buffer.
 */
#include <limits.h>
#include <poll.h>
#include <time.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include "callcase.h"

#define BAD_PTR		0x7ffffffff000ULL

static int p_none(struct case_ctx *c, uint64_t *a)
{
	return 0;
}

/* ---- Time ---------------------------------------------------------------- */
static int p_clock(struct case_ctx *c, uint64_t *a)
{
	c->when[2] = now_ns();
	a[0] = CLOCK_MONOTONIC;
	a[1] = U(c->when);
	return 0;
}

static int see_clock(struct case_ctx *c, int64_t ret)
{
	uint64_t t = c->when[0] * 1000000000ULL + c->when[1];

	if (ret || t < c->when[2] || t > now_ns())
		return -ETIME;
	memset(c->when, 0, sizeof(c->when));
	return 0;
}

static int p_clock_bad(struct case_ctx *c, uint64_t *a)
{
	a[0] = 4711;
	a[1] = U(c->when);
	return 0;
}

static int p_sleep(struct case_ctx *c, uint64_t *a)
{
	c->when[1] = 20000000;
	c->when[2] = now_ns();
	a[0] = U(c->when);
	return 0;
}

static int see_sleep(struct case_ctx *c, int64_t ret)
{
	if (now_ns() - c->when[2] < 20000000)
		return -ETIME;
	c->when[2] = 0;
	return ret ? -EIO : 0;
}

static int p_sleep_bad(struct case_ctx *c, uint64_t *a)
{
	c->when[1] = 1000000000;
	a[0] = U(c->when);
	return 0;
}

/* ---- Futex ---------------------------------------------------------------- */
static int p_futex_again(struct case_ctx *c, uint64_t *a)
{
	c->word[0] = 5;
	a[0] = U(&c->word[0]);
	a[1] = FUTEX_WAIT;
	a[2] = 6;
	return 0;
}

static int p_futex_timeout(struct case_ctx *c, uint64_t *a)
{
	p_futex_again(c, a);
	a[1] = FUTEX_WAIT | FUTEX_PRIVATE_FLAG;
	a[2] = 5;
	c->when[1] = 5000000;
	a[3] = U(c->when);
	return 0;
}

static int p_futex_wake(struct case_ctx *c, uint64_t *a)
{
	a[0] = U(&c->word[0]);
	a[1] = FUTEX_WAKE;
	a[2] = INT_MAX;
	return 0;
}

static int p_futex_bad(struct case_ctx *c, uint64_t *a)
{
	p_futex_wake(c, a);
	a[0]++;
	return 0;
}

/* ---- Descriptors that wait ------------------------------------------------ */
static int see_fd(struct case_ctx *c, int64_t ret)
{
	int v[2] = { fcntl(ret, F_GETFD), fcntl(ret, F_GETFL) };

	if (v[0] < 0)
		return -EBADF;
	memcpy(c->after, v, sizeof(v));
	close(ret);
	return 0;
}

static int p_eventfd(struct case_ctx *c, uint64_t *a)
{
	a[0] = 7;
	a[1] = O_NONBLOCK;
	return 0;
}

static int p_eventfd_bad(struct case_ctx *c, uint64_t *a)
{
	a[1] = 0x1234;
	return 0;
}

static int p_epoll_create(struct case_ctx *c, uint64_t *a)
{
	a[0] = EPOLL_CLOEXEC;
	return 0;
}

static int epoll_pipe(struct case_ctx *c)
{
	c->fd[2] = epoll_create1(EPOLL_CLOEXEC);
	if (c->fd[2] < 0 || pipe2(c->fd, O_CLOEXEC))
		return -errno;
	return 0;
}

static int p_epoll_ctl(struct case_ctx *c, uint64_t *a)
{
	struct epoll_event *ev = (struct epoll_event *)c->in;
	int err = epoll_pipe(c);

	ev->events = EPOLLOUT;
	ev->data.u64 = 99;
	a[0] = c->fd[2];
	a[1] = EPOLL_CTL_ADD;
	a[2] = c->fd[1];
	a[3] = U(ev);
	return err;
}

static int see_epoll(struct case_ctx *c, int64_t ret)
{
	int n = epoll_wait(c->fd[2], (struct epoll_event *)c->after, 3, 0);

	return n == 1 ? 0 : -ENOENT;
}

static int p_epoll_ctl_file(struct case_ctx *c, uint64_t *a)
{
	int err = p_epoll_ctl(c, a);

	if (err)
		return err;
	c->fd[3] = open(CASE_FILE, O_RDONLY | O_CLOEXEC);
	a[2] = c->fd[3];	/* a regular file cannot wait: EPERM */
	return c->fd[3] < 0 ? -errno : 0;
}

static int p_epoll_wait(struct case_ctx *c, uint64_t *a)
{
	struct epoll_event ev = { .events = EPOLLOUT, .data.u64 = 55 };
	int err = epoll_pipe(c);

	if (err || epoll_ctl(c->fd[2], EPOLL_CTL_ADD, c->fd[1], &ev))
		return -errno;
	a[0] = c->fd[2];
	a[1] = U(c->out);
	a[2] = 4;
	a[3] = (uint64_t)-1;
	return 0;
}

static int p_poll(struct case_ctx *c, uint64_t *a)
{
	struct pollfd *p = (struct pollfd *)c->when;

	if (pipe2(c->fd, O_CLOEXEC))
		return -errno;
	*p = (struct pollfd){ .fd = c->fd[1], .events = POLLOUT | POLLIN };
	a[0] = U(p);
	a[1] = 1;
	a[2] = 1000;
	return 0;
}

static int p_pipe2(struct case_ctx *c, uint64_t *a)
{
	a[0] = U(c->word);
	a[1] = O_CLOEXEC | O_NONBLOCK;
	return 0;
}

static int see_pipe2(struct case_ctx *c, int64_t ret)
{
	if (ret || write(c->word[1], "pipe", 4) != 4 ||
	    read(c->word[0], c->after, 10) != 4)
		return -EPIPE;
	close(c->word[0]);
	close(c->word[1]);
	return 0;
}

static int p_pipe2_bad(struct case_ctx *c, uint64_t *a)
{
	a[0] = BAD_PTR;
	return 0;
}

/* ---- Sockets ---------------------------------------------------------------- */
static int sockets(struct case_ctx *c, uint64_t *a)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c->fd))
		return -errno;
	a[0] = c->fd[0];
	return 0;
}

static int p_sendto(struct case_ctx *c, uint64_t *a)
{
	a[1] = U(c->in);
	a[2] = 333;
	a[3] = MSG_NOSIGNAL;
	return sockets(c, a);
}

static int see_sent(struct case_ctx *c, int64_t ret)
{
	ssize_t n = recv(c->fd[1], c->after, sizeof(c->after), MSG_DONTWAIT);

	return n == ret ? 0 : -EIO;
}

static int p_recvfrom(struct case_ctx *c, uint64_t *a)
{
	int err = sockets(c, a);

	if (err || send(c->fd[1], c->in, 222, 0) != 222)
		return -EIO;
	a[1] = U(c->out);
	a[2] = 100;
	a[3] = MSG_TRUNC;
	return 0;
}

static int p_recv_nothing(struct case_ctx *c, uint64_t *a)
{
	a[1] = U(c->out);
	a[2] = 100;
	a[3] = MSG_DONTWAIT;
	return sockets(c, a);
}

static int p_recv_no_socket(struct case_ctx *c, uint64_t *a)
{
	p_recv_nothing(c, a);
	a[0] = STDIN_FILENO;
	return 0;
}

/* ---- Others ----------------------------------------------------------------- */
static int p_getrandom_bad(struct case_ctx *c, uint64_t *a)
{
	a[0] = U(c->out);
	a[1] = 10;
	a[2] = 0x8000;
	return 0;
}

static int p_getrandom(struct case_ctx *c, uint64_t *a)
{
	a[0] = U(c->out);
	a[1] = 256;
	return 0;
}

static int see_random(struct case_ctx *c, int64_t ret)
{
	static unsigned char last[256];
	unsigned char before[256];

	memset(before, 0xaa, sizeof(before));
	if (!memcmp(c->out, before, 256) || !memcmp(c->out, last, 256))
		return -ENODATA;
	memcpy(last, c->out, 256);
	memset(c->out, 0, 256);
	return 0;
}

static int p_uname(struct case_ctx *c, uint64_t *a)
{
	a[0] = U(c->out);
	return 0;
}

static unsigned char page[4096] __attribute__((aligned(4096)));

static int p_madvise(struct case_ctx *c, uint64_t *a)
{
	page[0] = 1;
	a[0] = U(page);
	a[1] = sizeof(page);
	a[2] = MADV_DONTNEED;
	return 0;
}

static int see_dontneed(struct case_ctx *c, int64_t ret)
{
	return page[0] ? -ENOTEMPTY : 0;
}

static int p_madvise_bad(struct case_ctx *c, uint64_t *a)
{
	p_madvise(c, a);
	a[0]++;
	return 0;
}

const struct call_case cases_sync[] = {
	{ "getppid", SYS_getppid, p_none, NULL },
	{ "getpid", SYS_getpid, p_none, NULL },
	{ "gettid", SYS_gettid, p_none, NULL },
	{ "getuid", SYS_getuid, p_none, NULL },
	{ "clock_gettime", SYS_clock_gettime, p_clock, see_clock },
	{ "clock_gettime, bad clock", SYS_clock_gettime, p_clock_bad, NULL },
	{ "nanosleep", SYS_nanosleep, p_sleep, see_sleep },
	{ "nanosleep, bad time", SYS_nanosleep, p_sleep_bad, NULL },
	{ "futex wait, other value", SYS_futex, p_futex_again, NULL },
	{ "futex wait, timeout", SYS_futex, p_futex_timeout, NULL },
	{ "futex wake", SYS_futex, p_futex_wake, NULL },
	{ "futex, odd address", SYS_futex, p_futex_bad, NULL },
	{ "sched_yield", SYS_sched_yield, p_none, NULL },
	{ "eventfd2", SYS_eventfd2, p_eventfd, see_fd },
	{ "eventfd2, bad flags", SYS_eventfd2, p_eventfd_bad, NULL },
	{ "epoll_create1", SYS_epoll_create1, p_epoll_create, see_fd },
	{ "epoll_ctl", SYS_epoll_ctl, p_epoll_ctl, see_epoll },
	{ "epoll_ctl of a file", SYS_epoll_ctl, p_epoll_ctl_file, NULL },
	{ "epoll_wait", SYS_epoll_wait, p_epoll_wait, NULL },
	{ "poll", SYS_poll, p_poll, NULL },
	{ "pipe2", SYS_pipe2, p_pipe2, see_pipe2 },
	{ "pipe2, bad pointer", SYS_pipe2, p_pipe2_bad, NULL },
	{ "sendto", SYS_sendto, p_sendto, see_sent },
	{ "recvfrom", SYS_recvfrom, p_recvfrom, NULL },
	{ "recvfrom of nothing", SYS_recvfrom, p_recv_nothing, NULL },
	{ "recvfrom, no socket", SYS_recvfrom, p_recv_no_socket, NULL },
	{ "getrandom", SYS_getrandom, p_getrandom, see_random },
	{ "getrandom, bad flags", SYS_getrandom, p_getrandom_bad, NULL },
	{ "uname", SYS_uname, p_uname, NULL },
	{ "madvise", SYS_madvise, p_madvise, see_dontneed },
	{ "madvise, odd address", SYS_madvise, p_madvise_bad, NULL },
};

const unsigned int n_cases_sync =
	sizeof(cases_sync) / sizeof(cases_sync[0]);
