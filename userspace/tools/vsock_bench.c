// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Throughput against bytes per write: vsock without the module, with merging,
 * with NODELAY, TCP with and without NODELAY; over loopback, or to
 * `kvm-fastsys bench vsock --serve` on the other side of a VM's vsock.
 *
 * One control connection carries a request per run; data goes over a connection
 * of its own. A run ends when the receiver has every byte, and is timed by the
 * side that asked for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <linux/tcp.h>
#include <linux/vm_sockets.h>

#include <linux/kvm_fastsys_vsock.h>

#include "tool.h"
#include "vsock.h"
#include "vsock_bench.h"

#define MAX_PACKET	65536	/* of virtio vsock */

struct request {
	uint32_t direction;	/* as the asking side sees it */
	uint32_t column;
	uint32_t size;
	uint32_t ms;
	uint32_t dither;	/* 0: equal writes; else where random starts */
};

struct report {
	uint64_t bytes;
	uint64_t packets;
	int32_t error;
	uint32_t port;
};

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static bool is_tcp(unsigned int column)
{
	return column == COL_TCP || column == COL_TCP_NODELAY;
}

static int full(int fd, void *buf, size_t len, bool writing)
{
	char *p = buf;

	while (len) {
		ssize_t n = writing ? send(fd, p, len, MSG_NOSIGNAL) :
			    recv(fd, p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE;
		p += n;
		len -= n;
	}
	return 0;
}

int bench_listen(bool tcp, unsigned int *port)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(*port) };
	struct sockaddr_vm vm = { .svm_family = AF_VSOCK,
				  .svm_cid = VMADDR_CID_ANY,
				  .svm_port = *port ? *port : VMADDR_PORT_ANY };
	void *addr = tcp ? (void *)&in : (void *)&vm;
	socklen_t len = tcp ? sizeof(in) : sizeof(vm);
	int fd = socket(tcp ? AF_INET : AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, addr, len) || getsockname(fd, addr, &len) ||
	    listen(fd, 4))
		return -errno;
	*port = tcp ? ntohs(in.sin_port) : vm.svm_port;
	return fd;
}

int bench_connect(const struct bench *b, bool tcp, unsigned int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(port) };
	struct sockaddr_vm vm = { .svm_family = AF_VSOCK, .svm_cid = b->peer,
				  .svm_port = port };
	void *addr = tcp ? (void *)&in : (void *)&vm;
	struct timeval patience = { .tv_sec = b->patience };
	int fd = socket(tcp ? AF_INET : AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (tcp && !inet_aton(b->tcp, &in.sin_addr))
		return -EINVAL;
	if (!tcp)
		setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT,
			   &patience, sizeof(patience));
	if (fd < 0 || connect(fd, addr, tcp ? sizeof(in) : sizeof(vm))) {
		int err = -errno;

		if (fd >= 0)
			close(fd);
		return err;
	}
	return fd;
}

/* The side that writes makes the column true. */
static int prepare(int fd, unsigned int column)
{
	int on = 1;

	if (column == COL_NODELAY &&
	    setsockopt(fd, AF_VSOCK, SO_KFS_VSOCK_NODELAY, &on, sizeof(on)))
		return -errno;
	if (column == COL_TCP_NODELAY &&
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		return -errno;
	return 0;
}

/* Merging is the module's, so it is on or off for a whole row of runs. */
static int column_mode(unsigned int column)
{
	char mode[16];
	const char *want = column == COL_STOCK ? "off" : "on";

	if (is_tcp(column))
		return 0;
	if (!vsock_get_mode(mode, sizeof(mode)))
		return column == COL_STOCK ? 0 : -ENOENT;
	return strcmp(mode, want) ? vsock_set_mode(want) : 0;
}

/*
 * Equal writes on one CPU lock into a rhythm with the window, the scheduler and
 * the reader: one of a few, each some per cent from the next. Writes that are a
 * little shorter, at random, see them all.
 */
static uint32_t dithered(uint32_t size, uint64_t *random)
{
	*random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
	return size - (*random >> 33) % (size / 64 + 1);
}

static void send_stream(int fd, const struct request *rq, struct report *rp)
{
	static char buf[512 << 10];
	long long saved = vsock_counter("packets_saved");
	double end = seconds() + rq->ms / 1e3;
	uint64_t writes = 0, random = rq->dither;

	rp->error = prepare(fd, rq->column);
	while (!rp->error) {
		uint32_t size = rq->dither ? dithered(rq->size, &random) :
				rq->size;

		rp->error = full(fd, buf, size, true);
		if (rp->error)
			break;
		rp->bytes += size;
		writes++;
		/* The clock is a system call's worth on some machines. */
		if (writes % 16 == 0 && seconds() > end)
			break;
	}
	if (is_tcp(rq->column)) {
		struct tcp_info info;
		socklen_t len = sizeof(info);

		if (!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
			rp->packets = info.tcpi_data_segs_out;
		return;
	}
	shutdown(fd, SHUT_WR);
	rp->packets = writes * ((rq->size + MAX_PACKET - 1) / MAX_PACKET);
	if (saved >= 0)
		rp->packets -= vsock_counter("packets_saved") - saved;
}

static uint64_t receive_stream(int fd)
{
	static char buf[512 << 10];
	uint64_t bytes = 0;
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		bytes += n;
	return bytes;
}

static void serve_run(int control, const struct request *rq)
{
	struct report rp = { 0 };
	bool tcp = is_tcp(rq->column);
	unsigned int port = 0;
	int listener, fd;

	if (rq->direction == DIR_RECEIVE)
		rp.error = column_mode(rq->column);
	listener = bench_listen(tcp, &port);
	if (listener < 0)
		rp.error = listener;
	rp.port = port;
	full(control, &rp, sizeof(rp), true);
	if (rp.error)
		return;
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	close(listener);
	if (fd < 0)
		return;
	if (rq->direction == DIR_SEND)
		rp.bytes = receive_stream(fd);
	else
		send_stream(fd, rq, &rp);
	shutdown(fd, SHUT_WR);
	full(control, &rp, sizeof(rp), true);
	close(fd);
}

void bench_serve(int listener, bool own)
{
	struct request rq;
	int control;

	while ((control = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		/* Our parent's mode is our parent's to keep. */
		if (!own)
			bench_keep_mode();
		while (!full(control, &rq, sizeof(rq), false))
			if (rq.column < COL_COUNT && rq.size <= 512 << 10)
				serve_run(control, &rq);
		if (!own)
			bench_restore();
		close(control);
	}
}

static void one_run(const struct bench *b, struct vsock_table *table,
		    enum vsock_direction direction, unsigned int column,
		    unsigned int size_index)
{
	struct vsock_cell *cell = &table->cell[size_index][column];
	struct request rq = { direction, column, vsock_sizes[size_index],
			      b->ms, b->dither ? 1 + cell->runs : 0 };
	struct report rp, own = { 0 };
	uint64_t received;
	double start;
	int err, fd;

	err = full(b->control, &rq, sizeof(rq), true);
	if (!err)
		err = full(b->control, &rp, sizeof(rp), false);
	if (!err)
		err = rp.error;
	if (err)
		bench_fail(-err, AGAIN, "%s %s %u bytes",
			   vsock_direction_names[direction],
			   vsock_column_names[column], rq.size);
	fd = bench_connect(b, is_tcp(column), rp.port);
	if (fd < 0)
		bench_fail(-fd, is_tcp(column) ?
			   "name its address by --tcp, or leave TCP out: --columns vsock,merging,NODELAY" :
			   AGAIN, "connection for data");
	start = seconds();
	if (direction == DIR_SEND) {
		send_stream(fd, &rq, &own);
		shutdown(fd, SHUT_WR);
	} else {
		received = receive_stream(fd);
	}
	err = full(b->control, &rp, sizeof(rp), false);
	if (!err)
		err = own.error ? own.error : rp.error;
	if (err)
		bench_fail(-err, AGAIN, "%s %u bytes",
			   vsock_column_names[column], rq.size);
	start = seconds() - start;
	close(fd);
	if (direction == DIR_SEND) {
		received = rp.bytes;
		rp = own;
	}
	if (received != rp.bytes)
		bench_fail(0, AGAIN, "%s %u bytes: %llu sent, %llu received",
			   vsock_column_names[column], rq.size,
			   (unsigned long long)rp.bytes,
			   (unsigned long long)received);
	cell->mb_per_s[cell->runs++] = received / 1e6 / start;
	cell->packets_per_mb = rp.packets / (received / 1e6);
}

/* Columns of one mode together, modes in turn: a switch takes a second. */
void bench_measure(const struct bench *b, struct vsock_table *table,
		   enum vsock_direction direction)
{
	static const unsigned int order[] = {
		COL_STOCK, COL_TCP, COL_TCP_NODELAY, COL_COALESCE, COL_NODELAY,
	};

	for (unsigned int rep = 0; rep < b->reps; rep++)
		for (int part = 0; part < 2; part++)
			for (unsigned int i = 0; i < VSOCK_SIZES; i++)
				for (unsigned int k = part ? 3 : 0;
				     k < (part ? 5u : 3u); k++) {
					unsigned int c = order[k];
					int err;

					if (!b->column[c] ||
					    (b->size &&
					     b->size != vsock_sizes[i]))
						continue;
					table->used[c] = true;
					err = direction == DIR_SEND ?
					      column_mode(c) : 0;
					if (err)
						bench_fail(-err,
							   "modprobe kvm_fastsys_vsock; dmesg says why",
							   "kvm_fastsys_vsock cannot be switched");
					one_run(b, table, direction, c, i);
				}
}
