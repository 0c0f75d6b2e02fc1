// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * What a write costs that is not merged, with merging on and off, and what a
 * flood that is merged does to the socket beside it. In the
 * counting machine a nanosecond is an instruction, so the difference of the
 * quickest of many is the code's own length; elsewhere the limit is not judged.
 */
#include <stdatomic.h>
#include <sys/socket.h>

#include "kfstest.h"
#include "vsocktest.h"
#include "kselftest_harness.h"

#define ROUNDS		2000
#define EXCHANGES	500
#define TURNS		5	/* off, on, off, on ... */
#define MAX_ADDED	60	/* instructions */

struct cost {
	uint64_t write;		/* quickest send() */
	uint64_t exchange;	/* median of a request and its answer */
};

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void *answer(void *arg)
{
	int fd = *(int *)arg;
	static char buf[8192];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		if (buf[n - 1] == '?' && send(fd, "!", 1, MSG_NOSIGNAL) != 1)
			break;
	return NULL;
}

/* `head` bytes in a write of their own when not 0, then `len`. */
static struct cost exchanges(int fd, size_t head, size_t len)
{
	static uint64_t took[EXCHANGES];
	static char buf[8192];
	struct cost cost = { .write = UINT64_MAX };
	unsigned int i;
	char reply;

	memset(buf, 'x', sizeof(buf));
	buf[len - 1] = '?';
	for (i = 0; i < EXCHANGES; i++) {
		uint64_t start = now_ns(), mid;

		if (head)
			send(fd, buf + 4096, head, 0);
		mid = now_ns();
		send(fd, buf, len, 0);
		took[i] = now_ns();
		if (took[i] - mid < cost.write)
			cost.write = took[i] - mid;
		recv(fd, &reply, 1, 0);
		took[i] = now_ns() - start;
	}
	qsort(took, EXCHANGES, sizeof(took[0]), compare);
	cost.exchange = took[EXCHANGES / 2];
	return cost;
}

/* Quickest of `n` writes in a row to a reader that keeps up. */
static uint64_t row(int fd, size_t len, unsigned int n)
{
	static char buf[8192];
	uint64_t best = UINT64_MAX;

	memset(buf, 'x', sizeof(buf));
	while (n--) {
		uint64_t start = now_ns(), took;

		send(fd, buf, len, 0);
		took = now_ns() - start;
		if (took < best)
			best = took;
	}
	return best;
}

FIXTURE(cost) {
	int fds[2];
	pthread_t thread;
	bool counting;
};

FIXTURE_SETUP(cost)
{
	const char *why = vsock_setup();
	const char *mode = getenv("KFS_MODE");

	if (why)
		SKIP(return, "%s", why);
	self->counting = mode && !strcmp(mode, "counting");
	ASSERT_EQ(0, vsock_set("mode", "off"));
	ASSERT_EQ(0, vsock_pair(self->fds));
	pthread_create(&self->thread, NULL, answer, &self->fds[1]);
}

FIXTURE_TEARDOWN(cost)
{
	vsock_set("mode", "off");
	shutdown(self->fds[0], SHUT_RDWR);
	pthread_join(self->thread, NULL);
	close(self->fds[0]);
	close(self->fds[1]);
}

/*
 * Requests and answers, with the module's work off and on in turns: medians,
 * and the interval that each one's turns span.
 */
TEST_F_TIMEOUT(cost, exchange, 600)
{
	static const size_t sizes[] = { 1, 64, 512, 2048, 4096 };
	uint64_t median[2][TURNS], write[2];
	unsigned int i, turn, on;

	for (i = 0; i < 5; i++) {
		size_t head = i == 2 ? 10 : 0;

		write[0] = write[1] = UINT64_MAX;
		for (turn = 0; turn < 2 * TURNS; turn++) {
			struct cost cost;

			on = turn & 1;
			ASSERT_EQ(0, vsock_set("mode", on ? "on" : "off"));
			exchanges(self->fds[0], head, sizes[i]);
			cost = exchanges(self->fds[0], head, sizes[i]);
			median[on][turn / 2] = cost.exchange;
			if (cost.write < write[on])
				write[on] = cost.write;
		}
		for (on = 0; on < 2; on++)
			qsort(median[on], TURNS, sizeof(median[on][0]),
			      compare);
		TH_LOG("%s%zu B: write %llu, on +%lld; exchange %llu (%llu to %llu), on %llu (%llu to %llu)",
		       head ? "10 + " : "", sizes[i],
		       (unsigned long long)write[0],
		       (long long)(write[1] - write[0]),
		       (unsigned long long)median[0][TURNS / 2],
		       (unsigned long long)median[0][0],
		       (unsigned long long)median[0][TURNS - 1],
		       (unsigned long long)median[1][TURNS / 2],
		       (unsigned long long)median[1][0],
		       (unsigned long long)median[1][TURNS - 1]);
		if (self->counting) {
			EXPECT_GE(MAX_ADDED, (long long)(write[1] - write[0]));
			uint64_t slowest = median[0][TURNS - 1];

			/* The intervals meet, but for the hooks: 1 %. */
			EXPECT_GE(slowest + slowest / 100, median[1][0]);
		}
	}
	EXPECT_EQ(0, vsock_stat("staged_writes"));
}

/* Streams that are not merged: too large, or NODELAY. */
TEST_F_TIMEOUT(cost, streams, 300)
{
	uint64_t off_small, off_large, on;

	row(self->fds[0], 64, ROUNDS);
	off_small = row(self->fds[0], 64, ROUNDS);
	row(self->fds[0], 4096, ROUNDS);
	off_large = row(self->fds[0], 4096, ROUNDS);
	ASSERT_EQ(0, vsock_set("mode", "on"));
	ASSERT_EQ(0, vsock_nodelay(self->fds[0], 1));
	row(self->fds[0], 64, ROUNDS);
	on = row(self->fds[0], 64, ROUNDS);
	TH_LOG("64 B NODELAY: %llu + %lld", (unsigned long long)off_small,
	       (long long)(on - off_small));
	if (self->counting)
		EXPECT_GE(MAX_ADDED, (long long)(on - off_small));
	on = row(self->fds[0], 4096, ROUNDS);
	TH_LOG("4096 B: %llu + %lld", (unsigned long long)off_large,
	       (long long)(on - off_large));
	if (self->counting)
		EXPECT_GE(MAX_ADDED, (long long)(on - off_large));
	EXPECT_EQ(0, vsock_stat("staged_writes"));
	ASSERT_EQ(0, vsock_nodelay(self->fds[0], 0));
	row(self->fds[0], 64, ROUNDS);
	on = row(self->fds[0], 64, ROUNDS);
	TH_LOG("64 B merged: %llu, sent %llu", (unsigned long long)on,
	       (unsigned long long)off_small);
	EXPECT_LT(0, vsock_stat("staged_writes"));
}

#define PINGS 5000

static atomic_bool flood_stop;

static void *flood(void *arg)
{
	static char buf[64];

	while (!flood_stop && send(*(int *)arg, buf, sizeof(buf),
				   MSG_NOSIGNAL) == sizeof(buf))
		;
	shutdown(*(int *)arg, SHUT_WR);
	return NULL;
}

static void *drain(void *arg)
{
	static char buf[65536];

	while (recv(*(int *)arg, buf, sizeof(buf), 0) > 0)
		;
	return NULL;
}

/* Of the pings of a turn, in ns: the usual, the slow, the very slow, the mean. */
enum { P50, P99, P999, MEAN, FIGURES };
static const char *const figure_names[] = { "p50", "p99", "p99.9", "mean" };

/* Pings on `fd` beside another socket that is flooded with small writes. */
static bool ping(int fd, const char *mode, uint64_t out[FIGURES])
{
	static uint64_t took[PINGS];
	pthread_t threads[2];
	uint64_t sum = 0;
	int fds[2], i;
	char c;

	if (vsock_set("mode", mode) || vsock_pair(fds))
		return false;
	flood_stop = false;
	pthread_create(&threads[0], NULL, flood, &fds[0]);
	pthread_create(&threads[1], NULL, drain, &fds[1]);
	for (i = 0; i < PINGS; i++) {
		c = '?';
		took[i] = now_ns();
		if (send(fd, &c, 1, 0) != 1 || recv(fd, &c, 1, 0) != 1)
			break;
		took[i] = now_ns() - took[i];
		sum += took[i];
	}
	flood_stop = true;
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	close(fds[0]);
	close(fds[1]);
	qsort(took, PINGS, sizeof(took[0]), compare);
	out[P50] = took[PINGS / 2];
	out[P99] = took[PINGS * 99 / 100];
	out[P999] = took[PINGS * 999 / 1000];
	out[MEAN] = sum / PINGS;
	return i == PINGS;
}

/* Not worse off: neither the usual ping nor the slow ones. */
TEST_F_TIMEOUT(cost, ping_beside_flood, 600)
{
	uint64_t all[FIGURES][2][TURNS], turn_is[FIGURES];
	unsigned int turn, i;

	for (turn = 0; turn < 2 * TURNS; turn++) {
		ASSERT_TRUE(ping(self->fds[0], turn & 1 ? "on" : "off",
				 turn_is));
		for (i = 0; i < FIGURES; i++)
			all[i][turn & 1][turn / 2] = turn_is[i];
	}
	for (i = 0; i < FIGURES; i++) {
		uint64_t *off = all[i][0], *on = all[i][1];

		qsort(off, TURNS, sizeof(*off), compare);
		qsort(on, TURNS, sizeof(*on), compare);
		TH_LOG("%s: %llu (%llu to %llu), on %llu (%llu to %llu)",
		       figure_names[i], (unsigned long long)off[TURNS / 2],
		       (unsigned long long)off[0],
		       (unsigned long long)off[TURNS - 1],
		       (unsigned long long)on[TURNS / 2],
		       (unsigned long long)on[0],
		       (unsigned long long)on[TURNS - 1]);
		/* Stock's own turns lie some per cent apart. */
		if (self->counting)
			EXPECT_GE(off[TURNS - 1] + off[TURNS - 1] / 100,
				  on[TURNS / 2]);
	}
	EXPECT_LT(0, vsock_stat("staged_writes"));
}

TEST_HARNESS_MAIN
