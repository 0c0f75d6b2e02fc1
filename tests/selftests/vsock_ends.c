// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Every byte that a write accepted arrives, whatever comes right behind it, or
 * the socket says so; and nothing of ours is left afterwards.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <linux/vm_sockets.h>

#include "kfstest.h"
#include "vsocktest.h"
#include "kselftest_harness.h"

#define ROW	20

static bool all_gone(void *arg)
{
	return !vsock_stat("sockets") && !vsock_stat("memory_bytes");
}

FIXTURE(ends) {
	int fds[2];
};

FIXTURE_SETUP(ends)
{
	const char *why = vsock_setup();

	if (why)
		SKIP(return, "%s", why);
	signal(SIGPIPE, SIG_IGN);
	/* Long enough that what comes next finds the bytes still waiting. */
	ASSERT_EQ(0, vsock_set("delay_us", "1000"));
	ASSERT_EQ(0, vsock_set("mode", "on"));
	ASSERT_EQ(0, vsock_pair(self->fds));
}

FIXTURE_TEARDOWN(ends)
{
	if (self->fds[0] >= 0)
		close(self->fds[0]);
	if (self->fds[1] >= 0)
		close(self->fds[1]);
	EXPECT_TRUE(wait_for(all_gone, NULL, SECONDS(10)));
	EXPECT_EQ(0, vsock_set("mode", "off"));
	EXPECT_EQ(0, vsock_set("delay_us", "100"));
}

/* A row of small writes, the last of which are staged, one byte at the end. */
static int staged_row(int fd, char last)
{
	char buf[32];
	int i;

	memset(buf, 'x', sizeof(buf));
	for (i = 0; i < ROW; i++)
		if (write_all(fd, buf, sizeof(buf), 0))
			return -1;
	return write_all(fd, &last, 1, 0);
}

/* The row, then the end of the stream. */
static const char *row_and_end(int fd, char last)
{
	char buf[ROW * 32 + 8];
	ssize_t n = read_all(fd, buf, sizeof(buf));
	static char why[64];

	if (n == ROW * 32 + 1 && buf[n - 1] == last)
		return "";
	snprintf(why, sizeof(why), "%zd bytes, errno %d", n, errno);
	return why;
}

/*
 * On a busy machine the timer is sometimes quicker than what comes next; a few
 * more rounds then, until the case itself was seen (the counter moved). Each
 * round is judged.
 */
#define ROUNDS	50
#define FOR_ROUNDS_UNTIL(counter)					\
	for (long long before_ = vsock_stat(counter), round_ = 0;	\
	     round_ < ROUNDS && (!round_ || vsock_stat(counter) == before_); \
	     round_++)
#define EXPECT_MOVED(counter, since)					\
	EXPECT_LT(since, vsock_stat(counter))

TEST_F(ends, shut_wr)
{
	long long before = vsock_stat("flush_shutdown");

	FOR_ROUNDS_UNTIL("flush_shutdown") {
		int fds[2];

		ASSERT_EQ(0, vsock_pair(fds));
		ASSERT_EQ(0, staged_row(fds[0], 'a'));
		ASSERT_EQ(0, shutdown(fds[0], SHUT_WR));
		EXPECT_STREQ("", row_and_end(fds[1], 'a'));
		close(fds[0]);
		close(fds[1]);
	}
	EXPECT_MOVED("flush_shutdown", before);
}

TEST_F(ends, close)
{
	long long before = vsock_stat("flush_close");

	FOR_ROUNDS_UNTIL("flush_close") {
		int fds[2];

		ASSERT_EQ(0, vsock_pair(fds));
		ASSERT_EQ(0, staged_row(fds[0], 'b'));
		close(fds[0]);
		EXPECT_STREQ("", row_and_end(fds[1], 'b'));
		close(fds[1]);
	}
	EXPECT_MOVED("flush_close", before);
}

TEST_F(ends, linger)
{
	struct linger linger = { .l_onoff = 1, .l_linger = 2 };

	ASSERT_EQ(0, setsockopt(self->fds[0], SOL_SOCKET, SO_LINGER, &linger,
				sizeof(linger)));
	ASSERT_EQ(0, staged_row(self->fds[0], 'c'));
	close(self->fds[0]);
	self->fds[0] = -1;
	EXPECT_STREQ("", row_and_end(self->fds[1], 'c'));
}

TEST_F(ends, corked_then_closed)
{
	ASSERT_EQ(0, write_all(self->fds[0], "0123456789", 10, MSG_MORE));
	close(self->fds[0]);
	self->fds[0] = -1;
	char buf[16];

	EXPECT_EQ(10, read_all(self->fds[1], buf, sizeof(buf)));
}

TEST_F(ends, exit_without_close)
{
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid) {
		close(self->fds[1]);
		staged_row(self->fds[0], 'd');
		_exit(0);
	}
	close(self->fds[0]);
	self->fds[0] = -1;
	EXPECT_STREQ("", row_and_end(self->fds[1], 'd'));
	EXPECT_EQ(0, wait_child(pid, SECONDS(10)));
}

/* Nobody comes: the timer sends. */
TEST_F(ends, timer)
{
	char buf[ROW * 32 + 1];
	long long before = vsock_stat("flush_timer");

	ASSERT_EQ(0, staged_row(self->fds[0], 'e'));
	EXPECT_EQ(sizeof(buf), read_all(self->fds[1], buf, sizeof(buf)));
	EXPECT_LT(before, vsock_stat("flush_timer"));
}

/* Who asks a question and waits does not wait for the timer. */
TEST_F(ends, receive_flushes)
{
	long long before = vsock_stat("flush_receive");
	char c;

	FOR_ROUNDS_UNTIL("flush_receive") {
		ASSERT_EQ(0, staged_row(self->fds[0], 'f'));
		EXPECT_EQ(-1, recv(self->fds[0], &c, 1, MSG_DONTWAIT));
		EXPECT_EQ(EAGAIN, errno);
	}
	EXPECT_MOVED("flush_receive", before);
}

TEST_F(ends, poll_flushes)
{
	struct pollfd pfd = { .fd = self->fds[0], .events = POLLIN };
	long long before = vsock_stat("flush_poll");

	FOR_ROUNDS_UNTIL("flush_poll") {
		ASSERT_EQ(0, staged_row(self->fds[0], 'g'));
		EXPECT_EQ(0, poll(&pfd, 1, 0));
	}
	EXPECT_MOVED("flush_poll", before);
}

static void *pour(void *arg)
{
	static const char buf[100];
	long *sent = arg;

	*sent = 0;
	while (send(*(int *)(sent + 1), buf, sizeof(buf), MSG_NOSIGNAL) > 0)
		*sent += sizeof(buf);
	*sent = -errno;
	return NULL;
}

/* The reader goes away in mid-stream: the writer is told, nothing is left. */
TEST_F(ends, peer_closes)
{
	struct { long sent; int fd; } arg = { 0, self->fds[0] };
	pthread_t thread;
	char buf[4096];
	int i;

	pthread_create(&thread, NULL, pour, &arg);
	for (i = 0; i < 50; i++)
		ASSERT_LT(0, recv(self->fds[1], buf, sizeof(buf), 0));
	close(self->fds[1]);
	self->fds[1] = -1;
	pthread_join(thread, NULL);
	EXPECT_TRUE(arg.sent == -EPIPE || arg.sent == -ECONNRESET) {
		TH_LOG("errno %ld", -arg.sent);
	}
}

TEST_F(ends, peer_killed)
{
	struct { long sent; int fd; } arg = { 0, self->fds[0] };
	pthread_t thread;
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid) {
		char buf[4096];

		close(self->fds[0]);
		while (recv(self->fds[1], buf, sizeof(buf), 0) > 0)
			;
		_exit(0);
	}
	close(self->fds[1]);
	self->fds[1] = -1;
	pthread_create(&thread, NULL, pour, &arg);
	ASSERT_TRUE(vsock_stat("staged_writes") >= 0);
	usleep(20000);
	kill(pid, SIGKILL);
	wait_child(pid, SECONDS(10));
	pthread_join(thread, NULL);
	EXPECT_TRUE(arg.sent == -EPIPE || arg.sent == -ECONNRESET) {
		TH_LOG("errno %ld", -arg.sent);
	}
}

/* Shut for reading by the peer: the next write fails as ever. */
TEST_F(ends, peer_shut_rd)
{
	ASSERT_EQ(0, staged_row(self->fds[0], 'h'));
	ASSERT_EQ(0, shutdown(self->fds[1], SHUT_RD));
	while (send(self->fds[0], "x", 1, MSG_NOSIGNAL) == 1)
		;
	EXPECT_EQ(EPIPE, errno);
}

/* Staged bytes do not overtake, nor are overtaken by, a large write. */
TEST_F(ends, order)
{
	static uint8_t buf[20000], got[60000];
	uint64_t at = 0;
	int i;

	for (i = 0; i < 60; i++) {
		size_t len = i % 6 == 5 ? 5000 : i % 6 == 4 ? 2048 : 1 + i * 7;

		pattern(buf, len, at, 3);
		ASSERT_EQ(0, write_all(self->fds[0], buf, len,
				       i % 4 == 3 ? MSG_MORE : 0));
		at += len;
	}
	shutdown(self->fds[0], SHUT_WR);
	ASSERT_GT(sizeof(got) * 3, at);
	for (uint64_t done = 0; done < at;) {
		ssize_t n = recv(self->fds[1], got, sizeof(got), 0);

		ASSERT_LT(0, n);
		ASSERT_EQ(n, pattern_check(got, n, done, 3));
		done += n;
	}
}

/* A bad address is an error of that write; what was staged before arrives. */
TEST_F(ends, bad_address)
{
	char buf[ROW * 32 + 1];

	ASSERT_EQ(0, staged_row(self->fds[0], 'i'));
	EXPECT_EQ(-1, send(self->fds[0], (void *)16, 8, 0));
	EXPECT_EQ(sizeof(buf), read_all(self->fds[1], buf, sizeof(buf)));
	EXPECT_EQ('i', buf[sizeof(buf) - 1]);
}

/* A receiver that reads nothing survives a flood of small writes. */
TEST_F(ends, flood)
{
	static char buf[256 * 1024];
	size_t sent = 0, got = 0;

	while (sent < sizeof(buf)) {
		ssize_t n = send(self->fds[0], buf, 64, MSG_DONTWAIT);

		if (n < 0)
			break;
		sent += n;
	}
	EXPECT_EQ(sizeof(buf), sent);
	while (got < sent) {
		ssize_t n = recv(self->fds[1], buf, sizeof(buf), 0);

		ASSERT_LT(0, n);
		got += n;
	}
}

/* Short connections one after the other (F32). */
TEST_F_TIMEOUT(ends, churn, 600)
{
	const char *n = getenv("KFS_VSOCK_CHURN");
	int i, count = n ? atoi(n) : 500;

	for (i = 0; i < count; i++) {
		int fds[2];
		char c = 'x';

		ASSERT_EQ(0, vsock_pair(fds));
		ASSERT_EQ(1, send(fds[0], &c, 1, 0));
		ASSERT_EQ(1, recv(fds[1], &c, 1, 0));
		ASSERT_EQ(1, send(fds[1], &c, 1, MSG_MORE));
		ASSERT_EQ(1, recv(fds[0], &c, 1, 0));
		close(fds[i & 1]);
		close(fds[!(i & 1)]);
	}
}

static int resize(int fd, uint64_t size)
{
	return setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size,
			  sizeof(size)) ? -errno : 0;
}

/* A lot on the way that nobody reads, and something waiting behind it. */
#define LOT	60000
static int lot_and_staged(int fd)
{
	static char buf[LOT];

	if (write_all(fd, buf, sizeof(buf), 0))
		return -1;
	return write_all(fd, "0123456789", 10, MSG_MORE);
}

static int new_pair(int fds[2])
{
	close(fds[0]);
	close(fds[1]);
	return vsock_pair(fds);
}

/* The own buffer made smaller takes no credit from what was accepted before. */
TEST_F(ends, own_buffer_shrinks)
{
	static char buf[LOT + 32];
	int how;

	for (how = 0; how < 2; how++) {
		ASSERT_EQ(0, new_pair(self->fds));
		ASSERT_EQ(0, lot_and_staged(self->fds[0]));
		ASSERT_EQ(0, resize(self->fds[0], 4096));
		if (how) {
			close(self->fds[0]);
			self->fds[0] = -1;
		} else {
			ASSERT_EQ(0, shutdown(self->fds[0], SHUT_WR));
		}
		EXPECT_EQ(LOT + 10, read_all(self->fds[1], buf, sizeof(buf)));
		EXPECT_EQ(0, memcmp(buf + LOT, "0123456789", 10));
	}
}

/*
 * The peer's buffer made smaller while something waits that then cannot go. It
 * is tried again, ever more rarely, and none of that counts as lateness. At the
 * end the socket says that something is lost, and nothing follows it.
 */
TEST_F_TIMEOUT(ends, peer_buffer_shrinks, 120)
{
	long long errors = vsock_stat("errors"), pauses, tries;
	static char buf[LOT + 32];
	int round;

	for (round = 0; round < 50 && vsock_stat("errors") == errors; round++) {
		int err = 0;
		socklen_t len = sizeof(err);

		ASSERT_EQ(0, new_pair(self->fds));
		ASSERT_EQ(0, lot_and_staged(self->fds[0]));
		ASSERT_EQ(0, resize(self->fds[1], 4096));
		pauses = vsock_stat("late_pauses");
		tries = vsock_stat("flush_timer");
		usleep(300000);
		EXPECT_EQ(pauses, vsock_stat("late_pauses"));
		EXPECT_GE(tries + 20, vsock_stat("flush_timer"));
		ASSERT_EQ(0, shutdown(self->fds[0], SHUT_WR));
		ASSERT_EQ(0, getsockopt(self->fds[0], SOL_SOCKET, SO_ERROR,
					&err, &len));
		if (!err) {
			/* The timer was quicker than the peer. */
			EXPECT_EQ(LOT + 10, read_all(self->fds[1], buf,
						     sizeof(buf)));
			continue;
		}
		EXPECT_EQ(ENOBUFS, err);
		EXPECT_LT(errors, vsock_stat("errors"));
		EXPECT_EQ(-1, send(self->fds[0], "x", 1, MSG_NOSIGNAL));
		EXPECT_EQ(EPIPE, errno);
		/* What was there before, and the end of it. */
		EXPECT_EQ(LOT, read_all(self->fds[1], buf, sizeof(buf)));
	}
	EXPECT_LT(errors, vsock_stat("errors"));
}

/* A write that fails keeps no buffer. */
TEST_F(ends, bad_write_keeps_nothing)
{
	long long before = vsock_stat("memory_bytes");

	/* What the kernel's own function says: EFAULT or ENOMEM. */
	EXPECT_EQ(-1, send(self->fds[0], (void *)1, 100, MSG_MORE));
	EXPECT_GE(before + 1024, vsock_stat("memory_bytes"));
}

TEST_HARNESS_MAIN
