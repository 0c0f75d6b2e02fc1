// SPDX-License-Identifier: MIT OR LGPL-2.1
/* The option, the settings, observing, and the memory limit. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <linux/vm_sockets.h>
#include <linux/kvm_fastsys_vsock.h>

#include "kfstest.h"
#include "vsocktest.h"
#include "kselftest_harness.h"

static bool all_gone(void *arg)
{
	return !vsock_stat("sockets") && !vsock_stat("memory_bytes");
}

/* The option's value, or -errno. */
static int get_option(int fd, int level, int name)
{
	int val = -1;
	socklen_t len = sizeof(val);

	if (getsockopt(fd, level, name, &val, &len))
		return -errno;
	return len == sizeof(val) ? val : -EMSGSIZE;
}

static int set_option(int fd, int level, int name, int val)
{
	return setsockopt(fd, level, name, &val, sizeof(val)) ? -errno : 0;
}

/* The option's two names. */
static int get_ours(int fd)
{
	return get_option(fd, AF_VSOCK, SO_KFS_VSOCK_NODELAY);
}

static int get_tcps(int fd)
{
	return get_option(fd, IPPROTO_TCP, TCP_NODELAY);
}

static int set_ours(int fd, int val)
{
	return set_option(fd, AF_VSOCK, SO_KFS_VSOCK_NODELAY, val);
}

static int set_tcps(int fd, int val)
{
	return set_option(fd, IPPROTO_TCP, TCP_NODELAY, val);
}

/* Writes of a row that were staged. */
static long long staged_by_row(int fds[2])
{
	long long before = vsock_stat("staged_writes");
	char buf[64] = "";
	int i;

	for (i = 0; i < 50; i++)
		if (write_all(fds[0], buf, sizeof(buf), 0))
			return -1;
	for (i = 0; i < 50; i++)
		if (read_all(fds[1], buf, sizeof(buf)) != sizeof(buf))
			return -1;
	return vsock_stat("staged_writes") - before;
}

FIXTURE(options) {
	int fds[2];
};

FIXTURE_SETUP(options)
{
	const char *why = vsock_setup();

	if (why)
		SKIP(return, "%s", why);
	/* A slow machine's writes still fall into one delay. */
	ASSERT_EQ(0, vsock_set("delay_us", "1000"));
	ASSERT_EQ(0, vsock_set("mode", "on"));
	ASSERT_EQ(0, vsock_pair(self->fds));
}

FIXTURE_TEARDOWN(options)
{
	close(self->fds[0]);
	close(self->fds[1]);
	EXPECT_TRUE(wait_for(all_gone, NULL, SECONDS(10)));
	EXPECT_EQ(0, vsock_set("mode", "off"));
	EXPECT_EQ(0, vsock_set("nodelay", "0"));
	EXPECT_EQ(0, vsock_set("ports", ""));
	EXPECT_EQ(0, vsock_set("delay_us", "100"));
	EXPECT_EQ(0, vsock_set("max_kb", "16384"));
}

TEST_F(options, readable_back)
{
	int fd = self->fds[0];

	EXPECT_EQ(0, get_ours(fd));
	EXPECT_EQ(0, get_tcps(fd));
	EXPECT_EQ(0, set_ours(fd, 1));
	EXPECT_EQ(1, get_ours(fd));
	EXPECT_EQ(1, get_tcps(fd));
	EXPECT_EQ(0, set_tcps(fd, 0));
	EXPECT_EQ(0, get_ours(fd));
	EXPECT_EQ(0, set_ours(fd, 77));
	EXPECT_EQ(1, get_ours(fd));
}

TEST_F(options, effect)
{
	EXPECT_LT(0, staged_by_row(self->fds));
	EXPECT_EQ(0, set_ours(self->fds[0], 1));
	EXPECT_EQ(0, staged_by_row(self->fds));
	EXPECT_EQ(0, set_ours(self->fds[0], 0));
	EXPECT_LT(0, staged_by_row(self->fds));
}

/* NODELAY sends what waits; MSG_MORE holds back even then. */
TEST_F(options, nodelay_and_more)
{
	long long before = vsock_stat("flush_option");
	char c;

	ASSERT_EQ(1, send(self->fds[0], "a", 1, MSG_MORE));
	EXPECT_EQ(0, set_ours(self->fds[0], 1));
	EXPECT_EQ(1, recv(self->fds[1], &c, 1, 0));
	EXPECT_LE(before, vsock_stat("flush_option"));
	before = vsock_stat("packets_saved");
	ASSERT_EQ(1, send(self->fds[0], "b", 1, MSG_MORE));
	ASSERT_EQ(1, send(self->fds[0], "c", 1, 0));
	EXPECT_EQ(1, recv(self->fds[1], &c, 1, 0));
	EXPECT_EQ(1, recv(self->fds[1], &c, 1, 0));
	EXPECT_LE(before, vsock_stat("packets_saved"));
}

TEST_F(options, wrong_use)
{
	int fd = self->fds[0], name = SO_KFS_VSOCK_NODELAY, val = 1, fds[2];
	socklen_t len = -1;
	uint64_t size = 0;
	char byte = 1;

	EXPECT_EQ(-1, setsockopt(fd, AF_VSOCK, name, &byte, 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, setsockopt(fd, AF_VSOCK, name, (void *)16,
				 sizeof(int)));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, getsockopt(fd, AF_VSOCK, name, &val, &len));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, getsockopt(fd, AF_VSOCK, name, &val, (void *)16));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-ENOPROTOOPT, set_option(fd, IPPROTO_TCP, TCP_CORK, 1));
	EXPECT_EQ(-ENOPROTOOPT, set_option(fd, SOL_VSOCK, 1, 1));
	/* Number 1 at AF_VSOCK level is what it always was. */
	len = sizeof(size);
	EXPECT_EQ(0, getsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MIN_SIZE,
				&size, &len));
	EXPECT_EQ(128, size);
	ASSERT_EQ(0, vsock_pair_type(fds, SOCK_SEQPACKET));
	EXPECT_EQ(-ENOPROTOOPT, set_ours(fds[0], 1));
	EXPECT_EQ(-ENOPROTOOPT, get_tcps(fds[0]));
	close(fds[0]);
	close(fds[1]);
}

/* Before there is a connection, and on sockets that never get one. */
TEST_F(options, unconnected)
{
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
	struct sockaddr_vm addr = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_LOCAL,
		.svm_port = 1,
	};

	ASSERT_LE(0, fd);
	EXPECT_EQ(0, set_ours(fd, 1));
	EXPECT_EQ(1, get_ours(fd));
	EXPECT_EQ(-1, connect(fd, (struct sockaddr *)&addr, sizeof(addr)));
	EXPECT_EQ(1, get_ours(fd));
	EXPECT_LE(1, vsock_stat("sockets"));
	close(fd);
}

TEST_F(options, off_is_absent)
{
	ASSERT_EQ(0, vsock_set("mode", "off"));
	EXPECT_EQ(-ENOPROTOOPT, set_ours(self->fds[0], 1));
	EXPECT_EQ(-ENOPROTOOPT, set_tcps(self->fds[0], 1));
	EXPECT_EQ(-ENOPROTOOPT, get_ours(self->fds[0]));
	EXPECT_EQ(0, staged_by_row(self->fds));
}

TEST_F(options, observe_touches_nothing)
{
	long long saved = vsock_stat("observed_saved");
	long long flushes = vsock_stat("flush_timer");

	ASSERT_EQ(0, vsock_set("mode", "observe"));
	EXPECT_EQ(-ENOPROTOOPT, set_ours(self->fds[0], 1));
	EXPECT_EQ(0, staged_by_row(self->fds));
	EXPECT_LT(saved, vsock_stat("observed_saved"));
	EXPECT_EQ(flushes, vsock_stat("flush_timer"));
}

TEST_F(options, defaults)
{
	struct sockaddr_vm addr;
	socklen_t len = sizeof(addr);
	char port[16];

	ASSERT_EQ(0, vsock_set("nodelay", "1"));
	EXPECT_EQ(0, staged_by_row(self->fds));
	EXPECT_EQ(1, get_ours(self->fds[0]));
	EXPECT_EQ(0, set_ours(self->fds[0], 0));
	EXPECT_LT(0, staged_by_row(self->fds));
	EXPECT_EQ(0, set_ours(self->fds[1], 1));
	ASSERT_EQ(0, vsock_set("nodelay", "0"));
	ASSERT_EQ(0, vsock_set("ports", "7,8"));
	EXPECT_EQ(1, get_ours(self->fds[1]));
	close(self->fds[0]);
	close(self->fds[1]);
	ASSERT_EQ(0, vsock_pair(self->fds));
	EXPECT_EQ(0, staged_by_row(self->fds));
	ASSERT_EQ(0, getsockname(self->fds[1], (struct sockaddr *)&addr, &len));
	snprintf(port, sizeof(port), "5,%u", addr.svm_port);
	ASSERT_EQ(0, vsock_set("ports", port));
	EXPECT_LT(0, staged_by_row(self->fds));
}

TEST_F(options, settings_are_checked)
{
	EXPECT_EQ(-EINVAL, vsock_set("mode", "perhaps"));
	EXPECT_EQ(-ERANGE, vsock_set("delay_us", "5"));
	EXPECT_EQ(-ERANGE, vsock_set("delay_us", "1001"));
	EXPECT_EQ(-EINVAL, vsock_set("ports", "1,,2"));
	EXPECT_EQ(-EINVAL, vsock_set("ports", "1,x"));
	EXPECT_EQ(-E2BIG, vsock_set("ports",
				    "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"));
	EXPECT_LT(0, staged_by_row(self->fds));
}

/* No memory allowed: writes go out directly. */
TEST_F(options, no_memory)
{
	ASSERT_EQ(0, vsock_set("max_kb", "0"));
	close(self->fds[0]);
	close(self->fds[1]);
	ASSERT_EQ(0, vsock_pair(self->fds));
	EXPECT_EQ(0, staged_by_row(self->fds));
	EXPECT_EQ(-ENOMEM, set_ours(self->fds[0], 0));
	EXPECT_EQ(0, vsock_stat("memory_bytes"));
}

/* A limit of nothing is a limit, not a reason to refuse the module. */
TEST_F(options, loads_with_no_memory)
{
	ASSERT_EQ(0, vsock_unload());
	EXPECT_EQ(0, vsock_load("max_kb=0 mode=on"));
	EXPECT_EQ(0, vsock_unload());
	ASSERT_EQ(0, vsock_load("mode=on"));
}

/* Many sockets that all hold something back stay under the limit. */
TEST_F_TIMEOUT(options, many_sockets, 900)
{
	const char *n = getenv("KFS_VSOCK_SOCKETS");
	int i, count = n ? atoi(n) : 1000, (*fds)[2];
	struct rlimit limit = { 2 * count + 100, 2 * count + 100 };
	long long most = 0, now;
	char buf[16];

	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	ASSERT_EQ(0, vsock_set("max_kb", "128"));
	fds = calloc(count, sizeof(*fds));
	for (i = 0; i < count; i++)
		ASSERT_EQ(0, vsock_pair(fds[i]));
	for (i = 0; i < count; i++) {
		ASSERT_EQ(10, send(fds[i][0], "0123456789", 10, MSG_MORE));
		now = vsock_stat("memory_bytes");
		if (now > most)
			most = now;
	}
	EXPECT_GE(128 * 1024, most);
	for (i = 0; i < count; i++)
		ASSERT_EQ(10, read_all(fds[i][1], buf, 10));
	for (i = 0; i < count; i++) {
		close(fds[i][0]);
		close(fds[i][1]);
	}
	TH_LOG("%d sockets, most memory %lld bytes", count, most);
}

TEST_HARNESS_MAIN
