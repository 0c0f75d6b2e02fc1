// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Whatever is merged, switched and set meanwhile, the bytes that arrive are the
 * bytes that were written. KFS_VSOCK_MB sets how many (default 24; the stress
 * target uses 10240).
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <linux/sockios.h>

#include "kfstest.h"
#include "vsocktest.h"
#include "kselftest_harness.h"

#define MAX_WRITE	65536

struct flow {
	int fd;
	uint64_t bytes;
	uint64_t seed;
	bool options;		/* random MSG_MORE and NODELAY */
	bool reading;
	uint64_t done;
	char error[160];
	atomic_bool *stop;
};

static uint64_t total_bytes(void)
{
	const char *mb = getenv("KFS_VSOCK_MB");

	return (mb ? strtoull(mb, NULL, 0) : 24) << 20;
}

/* Mostly small: 1 B to 2 KiB three times out of four, else to 64 KiB. */
static size_t random_size(uint64_t *rnd)
{
	uint64_t r = random_next(rnd);

	switch (r & 7) {
	case 0:
		return 1 + (r >> 8) % 16;
	case 1 ... 3:
		return 1 + (r >> 8) % 256;
	case 4 ... 5:
		return 1 + (r >> 8) % 2048;
	case 6:
		return 1 + (r >> 8) % 4096;
	}
	return 1 + (r >> 8) % MAX_WRITE;
}

static void *sender(void *arg)
{
	struct flow *flow = arg;
	uint8_t *buf = malloc(MAX_WRITE);
	uint64_t rnd = flow->seed | 1;

	while (flow->done < flow->bytes) {
		size_t len = random_size(&rnd);
		uint64_t r = random_next(&rnd);
		int flags = 0;

		if (len > flow->bytes - flow->done)
			len = flow->bytes - flow->done;
		if (flow->options && r % 16 < 3)
			flags = MSG_MORE;
		if (flow->options && (r >> 16) % 256 == 0)
			vsock_nodelay(flow->fd, (r >> 32) & 1);
		pattern(buf, len, flow->done, flow->seed);
		if (write_all(flow->fd, buf, len, flags)) {
			snprintf(flow->error, sizeof(flow->error),
				 "send at %llu: %s",
				 (unsigned long long)flow->done,
				 strerror(errno));
			break;
		}
		flow->done += len;
	}
	free(buf);
	return NULL;
}

static void *receiver(void *arg)
{
	struct flow *flow = arg;
	uint8_t *buf = malloc(MAX_WRITE);
	uint64_t rnd = ~flow->seed | 1;

	while (flow->done < flow->bytes) {
		uint64_t r = random_next(&rnd);
		size_t want = r & 1 ? MAX_WRITE - 1 : 1 + (r >> 8) % 4093, good;
		int flags = (r >> 40) % 32 == 0 ? MSG_PEEK : 0;
		ssize_t n = recv(flow->fd, buf, want, flags);

		if (n <= 0) {
			snprintf(flow->error, sizeof(flow->error),
				 "recv at %llu: %s",
				 (unsigned long long)flow->done,
				 n ? strerror(errno) : "end of file");
			break;
		}
		good = pattern_check(buf, n, flow->done, flow->seed);
		if (good != (size_t)n) {
			snprintf(flow->error, sizeof(flow->error),
				 "wrong byte at %llu",
				 (unsigned long long)(flow->done + good));
			break;
		}
		if (!flags)
			flow->done += n;
	}
	/* The other side must not wait for ever. */
	if (flow->error[0])
		shutdown(flow->fd, SHUT_RDWR);
	free(buf);
	return NULL;
}

static void *switcher(void *arg)
{
	static const char *const modes[] = { "off", "on", "observe", "on" };
	atomic_bool *stop = arg;
	unsigned int i;

	for (i = 0; !*stop; i++) {
		vsock_set("mode", modes[i % 4]);
		/* Some traffic in each mode; time is no part of the test. */
		usleep(20000);
	}
	return NULL;
}

/* Counters are exact once nobody is on the way any more. */
static bool all_gone(void *arg)
{
	return !vsock_stat("sockets") && !vsock_stat("memory_bytes");
}

/* `ways` flows between one pair of sockets; "" or what went wrong. */
static const char *transfer(uint64_t bytes, bool both, bool options,
			    bool switching)
{
	static char why[256];
	atomic_bool stop = false;
	struct flow flow[4] = { };
	pthread_t thread[4], switch_thread;
	unsigned int n = both ? 4 : 2, i;
	int fds[2], err;

	why[0] = 0;
	err = vsock_pair(fds);
	if (err)
		return strerror(-err);
	for (i = 0; i < n; i++) {
		/* 0 writes to 1, 2 writes to 3 the other way. */
		flow[i].fd = fds[(i == 1 || i == 2)];
		flow[i].bytes = bytes / (both ? 2 : 1);
		flow[i].seed = 0x1234567 + (i / 2) * 77;
		flow[i].options = options;
		pthread_create(&thread[i], NULL, i & 1 ? receiver : sender,
			       &flow[i]);
	}
	if (switching)
		pthread_create(&switch_thread, NULL, switcher, &stop);
	for (i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	stop = true;
	if (switching)
		pthread_join(switch_thread, NULL);
	for (i = 0; i < n; i++)
		if (flow[i].error[0] && !why[0])
			snprintf(why, sizeof(why), "flow %u: %s", i,
				 flow[i].error);
	close(fds[0]);
	close(fds[1]);
	return why;
}

/*
 * Two CPUs in true parallel: the emulator then trips over kernel text that is
 * patched while it runs, so merging stays on from the first test to the last.
 */
static bool no_patching(void)
{
	const char *mode = getenv("KFS_MODE");

	return mode && !strcmp(mode, "parallel");
}

#define NO_PATCHING	"this machine cannot switch under load"

FIXTURE(exact) {
	long long errors;
	long long dropped;
};

FIXTURE_SETUP(exact)
{
	const char *why = vsock_setup();

	if (why)
		SKIP(return, "%s", why);
	/* Making the pattern takes time; writes should still meet. */
	ASSERT_EQ(0, vsock_set("delay_us", "1000"));
	ASSERT_EQ(0, vsock_set("mode", "on"));
	self->errors = vsock_stat("errors");
	self->dropped = vsock_stat("dropped_bytes");
}

FIXTURE_TEARDOWN(exact)
{
	EXPECT_EQ(0, vsock_set("delay_us", "100"));
	EXPECT_TRUE(wait_for(all_gone, NULL, SECONDS(10)));
	if (!no_patching())
		EXPECT_EQ(0, vsock_set("mode", "off"));
	EXPECT_EQ(self->errors, vsock_stat("errors"));
	EXPECT_EQ(self->dropped, vsock_stat("dropped_bytes"));
}

TEST_F_TIMEOUT(exact, one_way, 3600)
{
	EXPECT_STREQ("", transfer(total_bytes() / 4, false, false, false));
	EXPECT_LT(0, vsock_stat("staged_writes"));
	EXPECT_LT(0, vsock_stat("packets_saved"));
}

TEST_F_TIMEOUT(exact, both_ways_more_nodelay, 3600)
{
	EXPECT_STREQ("", transfer(total_bytes() / 4, true, true, false));
	EXPECT_LT(0, vsock_stat("staged_writes"));
}

TEST_F_TIMEOUT(exact, one_way_live_switch, 3600)
{
	if (no_patching())
		SKIP(return, NO_PATCHING);
	EXPECT_STREQ("", transfer(total_bytes() / 4, false, true, true));
}

TEST_F_TIMEOUT(exact, both_ways_live_switch, 3600)
{
	if (no_patching())
		SKIP(return, NO_PATCHING);
	EXPECT_STREQ("", transfer(total_bytes() / 4, true, true, true));
}

/* The queue is told truthfully: SIOCOUTQ comes to 0, POLLOUT means room. */
TEST_F_TIMEOUT(exact, outq_and_poll, 120)
{
	struct pollfd pfd = { .events = POLLOUT };
	static char block[8000], drain[65536];
	int fds[2], outq = -1, i;
	uint64_t sent = 0, got = 0;

	ASSERT_EQ(0, vsock_pair(fds));
	pfd.fd = fds[0];
	/* Without a reader until the window is full, in small writes. */
	for (;;) {
		ssize_t n = send(fds[0], block, 500, MSG_DONTWAIT);

		if (n < 0) {
			ASSERT_EQ(EAGAIN, errno);
			break;
		}
		sent += n;
	}
	EXPECT_EQ(0, poll(&pfd, 1, 0));
	/* As much as the window, to the byte: credit is taken when staged. */
	EXPECT_EQ(256 * 1024, sent);
	for (i = 0; got < sent; i++) {
		ssize_t n = recv(fds[1], drain, sizeof(drain), 0);

		ASSERT_LT(0, n);
		got += n;
	}
	ASSERT_EQ(1, poll(&pfd, 1, 10000));
	EXPECT_EQ(1, send(fds[0], block, 1, MSG_DONTWAIT));
	EXPECT_EQ(1, recv(fds[1], drain, sizeof(drain), 0));
	if (ioctl(fds[0], SIOCOUTQ, &outq)) {
		TH_LOG("no SIOCOUTQ on this kernel");
	} else {
		EXPECT_EQ(0, outq);
		/* Staged bytes count as not sent yet. */
		for (i = 0; i < 40; i++) {
			EXPECT_EQ(1, send(fds[0], block, 1, MSG_MORE));
		}
		EXPECT_EQ(40, recv(fds[1], drain, 40, MSG_WAITALL));
		ioctl(fds[0], SIOCOUTQ, &outq);
		EXPECT_EQ(0, outq);
	}
	close(fds[0]);
	close(fds[1]);
}

/* 2 MiB one way without blocking (F26, F27): nothing stalls. */
TEST_F_TIMEOUT(exact, nonblocking, 120)
{
	struct flow in = { .bytes = 2 << 20, .seed = 99 };
	struct pollfd pfd = { .events = POLLOUT };
	static uint8_t buf[700];
	uint64_t sent = 0;
	pthread_t thread;
	int fds[2];

	ASSERT_EQ(0, vsock_pair(fds));
	in.fd = fds[1];
	pthread_create(&thread, NULL, receiver, &in);
	pfd.fd = fds[0];
	while (sent < in.bytes) {
		size_t len = in.bytes - sent < sizeof(buf) ? in.bytes - sent :
			     sizeof(buf);
		ssize_t n;

		pattern(buf, len, sent, in.seed);
		n = send(fds[0], buf, len, MSG_DONTWAIT);
		if (n < 0) {
			ASSERT_EQ(EAGAIN, errno);
			ASSERT_EQ(1, poll(&pfd, 1, 10000));
			continue;
		}
		sent += n;
	}
	pthread_join(thread, NULL);
	EXPECT_STREQ("", in.error);
	close(fds[0]);
	close(fds[1]);
}

/* Seqpacket keeps its records. */
TEST_F_TIMEOUT(exact, seqpacket_untouched, 60)
{
	long long before = vsock_stat("staged_writes");
	char buf[256];
	int fds[2], i;

	ASSERT_EQ(0, vsock_pair_type(fds, SOCK_SEQPACKET));
	for (i = 0; i < 200; i++) {
		ASSERT_EQ(i % 100 + 1, send(fds[0], buf, i % 100 + 1, 0));
	}
	for (i = 0; i < 200; i++) {
		ASSERT_EQ(i % 100 + 1, recv(fds[1], buf, sizeof(buf), 0));
	}
	EXPECT_EQ(before, vsock_stat("staged_writes"));
	close(fds[0]);
	close(fds[1]);
}

TEST_HARNESS_MAIN
