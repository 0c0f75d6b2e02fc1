// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The tracepoints say what the counters say, and a socket that moves from one
 * transport to another takes its state along properly.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <linux/vm_sockets.h>

#include "kfstest.h"
#include "kmod.h"
#include "vsocktest.h"
#include "kselftest_harness.h"

#define EVENTS		TRACING "events/kvm_fastsys_vsock/enable"
#define WRITES		200
#define NOBODY		77	/* a context id that no guest has here */

static bool all_gone(void *arg)
{
	return !vsock_stat("sockets") && !vsock_stat("memory_bytes");
}

/* No buffer is left, only what each socket has for itself. */
static bool nothing_waits(void *arg)
{
	return vsock_stat("memory_bytes") < 1024;
}

/* What one pass over the trace finds, all for one stream. */
struct seen {
	unsigned int local;
	long stages, staged_bytes;
	long flushes, flushed_writes, flushed_bytes, short_ones;
	long strange;
};

static void look(struct seen *seen)
{
	FILE *f = fopen(TRACING "trace", "re");
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		unsigned int local, cid, port, reason, len, more;
		char *at = strstr(line, "kfs_vsock_");
		long sent;

		if (*line == '#' || !at)
			continue;
		if (sscanf(at, "kfs_vsock_stage: port %u to %u:%u len %u staged %u",
			   &local, &cid, &port, &len, &more) == 5 &&
		    local == seen->local) {
			seen->stages++;
			seen->staged_bytes += len;
			if (more < len || cid != VMADDR_CID_LOCAL)
				seen->strange++;
		} else if (sscanf(at, "kfs_vsock_flush: port %u to %u:%u reason %u len %u writes %u sent %ld",
				  &local, &cid, &port, &reason, &len, &more,
				  &sent) == 7 && local == seen->local) {
			seen->flushes++;
			seen->flushed_writes += more;
			seen->flushed_bytes += sent > 0 ? sent : 0;
			seen->short_ones += sent != (long)len;
		} else {
			seen->strange++;
		}
	}
	if (f)
		fclose(f);
	else
		seen->strange = -1;
}

FIXTURE(watch) {
	int fds[2];
};

FIXTURE_SETUP(watch)
{
	const char *why = vsock_setup();

	if (why)
		SKIP(return, "%s", why);
	self->fds[0] = -1;
	self->fds[1] = -1;
	ASSERT_EQ(0, vsock_set("delay_us", "1000"));
	ASSERT_EQ(0, vsock_set("mode", "on"));
}

FIXTURE_TEARDOWN(watch)
{
	close(self->fds[0]);
	close(self->fds[1]);
	EXPECT_TRUE(wait_for(all_gone, NULL, SECONDS(10)));
	EXPECT_EQ(0, vsock_set("mode", "off"));
	EXPECT_EQ(0, vsock_set("delay_us", "100"));
}

TEST_F(watch, tracepoints)
{
	long long staged = vsock_stat("staged_writes");
	long long bytes = vsock_stat("staged_bytes");
	long long saved = vsock_stat("packets_saved");
	struct sockaddr_vm addr;
	socklen_t len = sizeof(addr);
	struct seen seen = { };
	char buf[WRITES * 8];
	int i;

	ASSERT_EQ(0, vsock_pair(self->fds));
	ASSERT_EQ(0, getsockname(self->fds[0], (struct sockaddr *)&addr, &len));
	seen.local = addr.svm_port;
	ASSERT_EQ(0, put_text(TRACING "trace", ""));
	ASSERT_EQ(0, put_text(EVENTS, "1"));
	for (i = 0; i < WRITES; i++)
		EXPECT_EQ(0, write_all(self->fds[0], "12345678", 8, 0));
	EXPECT_EQ(0, shutdown(self->fds[0], SHUT_WR));
	EXPECT_EQ((ssize_t)sizeof(buf), read_all(self->fds[1], buf, sizeof(buf)));
	EXPECT_EQ(0, put_text(EVENTS, "0"));
	look(&seen);
	EXPECT_EQ(0, seen.strange);
	EXPECT_LT(0, seen.stages);
	EXPECT_EQ(vsock_stat("staged_writes") - staged, seen.stages);
	EXPECT_EQ(vsock_stat("staged_bytes") - bytes, seen.staged_bytes);
	EXPECT_EQ(vsock_stat("packets_saved") - saved,
		  seen.flushed_writes - seen.flushes);
	EXPECT_EQ(seen.stages, seen.flushed_writes);
	EXPECT_EQ(seen.staged_bytes, seen.flushed_bytes);
	EXPECT_EQ(0, seen.short_ones);
	TH_LOG("%ld staged, %ld flushes", seen.stages, seen.flushes);
}

/*
 * A connection that failed through one transport is tried through another, with
 * the option set before: the state stays the socket's, merges there and ends.
 */
TEST_F(watch, transport_changes)
{
	struct sockaddr_vm addr = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_LOCAL,
		.svm_port = VMADDR_PORT_ANY,
	};
	struct sockaddr_vm nobody = {
		.svm_family = AF_VSOCK,
		.svm_cid = NOBODY,
		.svm_port = 1,
	};
	struct timeval soon = { .tv_usec = 20000 };
	socklen_t len = sizeof(addr);
	long long staged;
	char buf[64];
	int listener, i;

	if (system("modprobe vhost_vsock") != 0)
		SKIP(return, "no vhost_vsock: a second transport is needed");
	listener = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ASSERT_EQ(0, bind(listener, (struct sockaddr *)&addr, sizeof(addr)));
	ASSERT_EQ(0, getsockname(listener, (struct sockaddr *)&addr, &len));
	addr.svm_cid = VMADDR_CID_LOCAL;
	ASSERT_EQ(0, listen(listener, 1));

	self->fds[0] = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ASSERT_EQ(0, setsockopt(self->fds[0], AF_VSOCK,
				SO_VM_SOCKETS_CONNECT_TIMEOUT, &soon,
				sizeof(soon)));
	ASSERT_EQ(0, vsock_nodelay(self->fds[0], 0));
	EXPECT_EQ(1, vsock_stat("sockets"));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(-1, connect(self->fds[0], (struct sockaddr *)&nobody,
				      sizeof(nobody)));
		EXPECT_NE(EISCONN, errno);
		EXPECT_EQ(-1, send(self->fds[0], "x", 1, MSG_NOSIGNAL));
	}
	ASSERT_EQ(0, connect(self->fds[0], (struct sockaddr *)&addr,
			     sizeof(addr)));
	self->fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ASSERT_LE(0, self->fds[1]);
	close(listener);

	staged = vsock_stat("staged_writes");
	for (i = 0; i < 50; i++)
		ASSERT_EQ(0, write_all(self->fds[0], "abcd", 4, 0));
	/* No way to another transport while bytes wait: refused, all arrive. */
	EXPECT_EQ(-1, connect(self->fds[0], (struct sockaddr *)&nobody,
			      sizeof(nobody)));
	EXPECT_EQ(EISCONN, errno);
	EXPECT_EQ(0, shutdown(self->fds[0], SHUT_WR));
	EXPECT_LT(staged, vsock_stat("staged_writes"));
	for (i = 0; i < 50; i++) {
		ASSERT_EQ(4, read_all(self->fds[1], buf, 4));
		EXPECT_EQ(0, memcmp(buf, "abcd", 4));
	}
	EXPECT_EQ(0, recv(self->fds[1], buf, 1, 0));
}

/* Small writes, the last of which wait; then the CPU is kept for a while. */
static int burst_and_keep(int fd)
{
	struct sched_param rt = { .sched_priority = 1 };
	uint64_t end;
	int i;

	if (sched_setscheduler(0, SCHED_FIFO, &rt))
		return -1;
	for (i = 0; i < 16; i++)
		if (write_all(fd, "abcd", 4, 0))
			return -1;
	end = now_ns() + 2000000;
	while (now_ns() < end)
		;
	rt.sched_priority = 0;
	if (sched_setscheduler(0, SCHED_OTHER, &rt))
		return -1;
	return wait_for(nothing_waits, &fd, SECONDS(10)) ? 0 : -1;
}

/*
 * Where the flush comes late again and again, merging stops for a second: made
 * here by a real-time thread that keeps the one CPU from the work.
 */
TEST_F(watch, late_flushes_stop_merging)
{
	long long pauses = vsock_stat("late_pauses"), staged;
	uint64_t end;
	int i;

	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		SKIP(return, "needs a machine with one CPU");
	ASSERT_EQ(0, vsock_set("delay_us", "100"));
	ASSERT_EQ(0, vsock_pair(self->fds));
	for (i = 0; i < 50 && vsock_stat("late_pauses") == pauses; i++)
		EXPECT_EQ(0, burst_and_keep(self->fds[0]));
	EXPECT_EQ(pauses + 1, vsock_stat("late_pauses"));

	/* As without the module, for a while; then as before. */
	staged = vsock_stat("staged_writes");
	EXPECT_EQ(0, burst_and_keep(self->fds[0]));
	EXPECT_EQ(staged, vsock_stat("staged_writes"));
	end = now_ns() + SECONDS(10);
	while (now_ns() < end && vsock_stat("staged_writes") == staged)
		EXPECT_EQ(0, burst_and_keep(self->fds[0]));
	EXPECT_LT(staged, vsock_stat("staged_writes"));
}

TEST_HARNESS_MAIN
