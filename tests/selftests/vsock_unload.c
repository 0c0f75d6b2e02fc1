// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Load and unload under traffic that goes on and stays exact. KFS_VSOCK_CYCLES: how often (6; 200 in the stress target).
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "kfstest.h"
#include "vsocktest.h"
#include "kselftest_harness.h"

struct stream {
	int fd;
	atomic_bool *stop;
	uint64_t bytes;
	char error[96];
};

static void *writer(void *arg)
{
	struct stream *s = arg;
	uint64_t rnd = 42;
	uint8_t buf[600];

	while (!*s->stop) {
		size_t len = 1 + random_next(&rnd) % sizeof(buf);

		pattern(buf, len, s->bytes, 5);
		if (write_all(s->fd, buf, len, rnd & 256 ? MSG_MORE : 0)) {
			snprintf(s->error, sizeof(s->error), "send: %s",
				 strerror(errno));
			break;
		}
		s->bytes += len;
	}
	shutdown(s->fd, SHUT_WR);
	return NULL;
}

static void *reader(void *arg)
{
	struct stream *s = arg;
	static uint8_t buf[65536];
	ssize_t n;

	while ((n = recv(s->fd, buf, sizeof(buf), 0)) > 0) {
		if (pattern_check(buf, n, s->bytes, 5) != (size_t)n) {
			snprintf(s->error, sizeof(s->error), "wrong near %llu",
				 (unsigned long long)s->bytes);
			break;
		}
		s->bytes += n;
	}
	if (n < 0)
		snprintf(s->error, sizeof(s->error), "recv: %s",
			 strerror(errno));
	return NULL;
}

/* Writes modes whenever the module is there, also on its way out. */
static void *meddler(void *arg)
{
	atomic_bool *stop = arg;
	unsigned int i;

	for (i = 0; !*stop; i++) {
		vsock_set("mode", i & 1 ? "on" : "observe");
		vsock_set("delay_us", i & 2 ? "1000" : "100");
	}
	return NULL;
}

FIXTURE(unload) { };

FIXTURE_SETUP(unload)
{
	const char *why = vsock_setup();

	if (why)
		SKIP(return, "%s", why);
}

FIXTURE_TEARDOWN(unload) { }

TEST_F_TIMEOUT(unload, cycles_under_traffic, 3600)
{
	const char *n = getenv("KFS_VSOCK_CYCLES");
	int i, count = n ? atoi(n) : 6, fds[2];
	atomic_bool stop = false;
	struct stream out = { .stop = &stop }, in = { .stop = &stop };
	pthread_t threads[3];

	ASSERT_EQ(0, vsock_pair(fds));
	out.fd = fds[0];
	in.fd = fds[1];
	pthread_create(&threads[0], NULL, writer, &out);
	pthread_create(&threads[1], NULL, reader, &in);
	pthread_create(&threads[2], NULL, meddler, &stop);
	for (i = 0; i < count; i++) {
		uint64_t before = in.bytes;

		EXPECT_EQ(0, vsock_unload());
		ASSERT_EQ(0, vsock_load("mode=on delay_us=1000"));
		/* Traffic goes on. */
		for (int k = 0; k < 1000 && in.bytes == before; k++)
			usleep(1000);
		EXPECT_NE(before, in.bytes);
	}
	stop = true;
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	pthread_join(threads[2], NULL);
	EXPECT_STREQ("", out.error);
	EXPECT_STREQ("", in.error);
	EXPECT_EQ(out.bytes, in.bytes);
	close(fds[0]);
	close(fds[1]);
	EXPECT_EQ(0, vsock_unload());
	TH_LOG("%d cycles, %llu bytes", count, (unsigned long long)in.bytes);
}

TEST_HARNESS_MAIN
