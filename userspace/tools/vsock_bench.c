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
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <linux/tcp.h>
#include <linux/vm_sockets.h>
#include <json-c/json.h>

#include <linux/kvm_fastsys_vsock.h>

#include "tool.h"
#include "vsock.h"

#define BENCH_PORT	5209
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

struct bench {
	unsigned int peer;	/* CID; VMADDR_CID_LOCAL: our own child */
	const char *tcp;
	const char *json;
	const char *svg;
	bool serve;
	bool to_stdout;
	unsigned int reps;
	bool dither;
	unsigned int ms;
	unsigned int size;	/* the only one, or 0 */
	bool column[COL_COUNT];
	bool direction[DIR_COUNT];
	int control;
};

_Noreturn static void __attribute__((format(printf, 2, 3)))
fail(int err, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "kvm-fastsys bench vsock: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	if (err)
		fprintf(stderr, ": %s", strerror(err));
	fputc('\n', stderr);
	exit(EXIT_FAILED);
}

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

static int listen_on(bool tcp, unsigned int *port)
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

static int connect_to(const struct bench *b, bool tcp, unsigned int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(port) };
	struct sockaddr_vm vm = { .svm_family = AF_VSOCK, .svm_cid = b->peer,
				  .svm_port = port };
	void *addr = tcp ? (void *)&in : (void *)&vm;
	/* A guest of an emulated computer may take its time. */
	struct timeval patience = { .tv_sec = 60 };
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
	listener = listen_on(tcp, &port);
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

static void serve(int listener)
{
	struct request rq;
	int control;

	while ((control = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		while (!full(control, &rq, sizeof(rq), false))
			if (rq.column < COL_COUNT && rq.size <= 512 << 10)
				serve_run(control, &rq);
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
		fail(-err, "%s %s %u bytes", vsock_direction_names[direction],
		     vsock_column_names[column], rq.size);
	fd = connect_to(b, is_tcp(column), rp.port);
	if (fd < 0)
		fail(-fd, "connection for data");
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
		fail(-err, "%s %u bytes", vsock_column_names[column], rq.size);
	start = seconds() - start;
	close(fd);
	if (direction == DIR_SEND) {
		received = rp.bytes;
		rp = own;
	}
	if (received != rp.bytes)
		fail(0, "%s %u bytes: %llu sent, %llu received",
		     vsock_column_names[column], rq.size,
		     (unsigned long long)rp.bytes,
		     (unsigned long long)received);
	cell->mb_per_s[cell->runs++] = received / 1e6 / start;
	cell->packets_per_mb = rp.packets / (received / 1e6);
}

/* Columns of one mode together, modes in turn: a switch takes a second. */
static void measure(const struct bench *b, struct vsock_table *table,
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
						fail(-err, "kvm_fastsys_vsock cannot be switched (modprobe kvm_fastsys_vsock; dmesg says why)");
					one_run(b, table, direction, c, i);
				}
}

static bool has_smap(void)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[8192];
	bool found = false;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "flags", 5))
			found |= !!strstr(line, " smap");
	if (f)
		fclose(f);
	return found;
}

static void write_json(const struct bench *b, const struct vsock_table *tables)
{
	struct json_object *top = json_object_new_object();
	struct utsname uts;

	uname(&uts);
	json_object_object_add(top, "kernel", json_object_new_string(uts.release));
	json_object_object_add(top, "smap", json_object_new_boolean(has_smap()));
	json_object_object_add(top, "over", json_object_new_string(
		b->peer == VMADDR_CID_LOCAL ? "loopback" : "virtio"));
	json_object_object_add(top, "run_ms", json_object_new_int(b->ms));
	for (int d = 0; d < DIR_COUNT; d++)
		if (b->direction[d])
			json_object_object_add(top, vsock_direction_names[d],
					       vsock_json(&tables[d]));
	if (b->json && json_object_to_file_ext(b->json, top,
					       JSON_C_TO_STRING_PRETTY |
						 JSON_C_TO_STRING_NOSLASHESCAPE))
		fail(errno, "%s", b->json);
	if (b->to_stdout)
		puts(json_object_to_json_string_ext(top,
						    JSON_C_TO_STRING_PRETTY |
						 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(top);
}

static const struct argp_option options[] = {
	{ "peer", 'p', "CID", 0, "the other side of a VM's vsock, where --serve runs (default: loopback)", 0 },
	{ "tcp", 't', "ADDRESS", 0, "the other side's IPv4 address for the TCP columns", 0 },
	{ "serve", 's', NULL, 0, "be the other side", 0 },
	{ "reps", 'r', "N", 0, "runs of each cell, medians are shown (3)", 0 },
	{ "ms", 'm', "MS", 0, "milliseconds a run (300)", 0 },
	{ "dither", 'D', NULL, 0, "writes up to 1/64 shorter at random, against rhythms of one CPU", 0 },
	{ "columns", 'c', "LIST", 0, "of vsock,merging,NODELAY,TCP,TCP_NODELAY", 0 },
	{ "direction", 'd', "DIRECTION", 0, "send (default), receive or both", 0 },
	{ "size", 'b', "BYTES", 0, "of the sizes only this one", 0 },
	{ "json", 'j', "FILE", OPTION_ARG_OPTIONAL, "results as JSON, to FILE or in the table's place", 0 },
	{ "svg", 'g', "FILE", 0, "a plot of the (first) direction", 0 },
	{ 0 }
};

static void parse_columns(struct bench *b, char *list,
			  struct argp_state *state)
{
	memset(b->column, 0, sizeof(b->column));
	for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
		int c = 0;

		while (c < COL_COUNT && strcasecmp(word, vsock_column_names[c]))
			c++;
		if (c == COL_COUNT)
			argp_error(state, "no column '%s'", word);
		else
			b->column[c] = true;
	}
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct bench *b = state->input;

	switch (key) {
	case 'p':
		b->peer = strtoul(arg, NULL, 0);
		if (!b->tcp || !strcmp(b->tcp, "127.0.0.1"))
			b->tcp = NULL;
		return 0;
	case 't':
		b->tcp = arg;
		return 0;
	case 's':
		b->serve = true;
		return 0;
	case 'r':
		b->reps = strtoul(arg, NULL, 0);
		if (!b->reps || b->reps > VSOCK_MAX_REPS)
			argp_error(state, "1 to %d runs", VSOCK_MAX_REPS);
		return 0;
	case 'm':
		b->ms = strtoul(arg, NULL, 0);
		return 0;
	case 'D':
		b->dither = true;
		return 0;
	case 'b':
		b->size = strtoul(arg, NULL, 0);
		return 0;
	case 'c':
		parse_columns(b, arg, state);
		return 0;
	case 'd':
		b->direction[DIR_SEND] = !strcmp(arg, "send") ||
					 !strcmp(arg, "both");
		b->direction[DIR_RECEIVE] = !strcmp(arg, "receive") ||
					    !strcmp(arg, "both");
		if (!b->direction[DIR_SEND] && !b->direction[DIR_RECEIVE])
			argp_error(state, "send, receive or both");
		return 0;
	case 'j':
		b->json = arg;
		b->to_stdout = !arg;
		return 0;
	case 'g':
		b->svg = arg;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* Loopback: our own child is the other side. */
static pid_t own_server(void)
{
	unsigned int port = BENCH_PORT;
	int listener = listen_on(false, &port);
	pid_t pid;

	if (listener < 0)
		fail(-listener, "vsock port %u (modprobe vsock_loopback)", port);
	pid = fork();
	if (pid < 0)
		fail(errno, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(listener);
		_exit(0);
	}
	close(listener);
	return pid;
}

static void report_all(const struct bench *b, const struct vsock_table *tables)
{
	bool plotted = false;

	for (int d = 0; d < DIR_COUNT; d++) {
		char title[96];

		if (!b->direction[d])
			continue;
		snprintf(title, sizeof(title), "%s, %s",
			 b->peer == VMADDR_CID_LOCAL ? "loopback" : "VM",
			 vsock_direction_names[d]);
		if (!b->to_stdout)
			vsock_print(&tables[d], title);
		if (b->svg && !plotted) {
			int err = vsock_plot(b->svg, title, &tables[d]);

			if (err)
				fail(-err, "%s", b->svg);
			plotted = true;
		}
	}
	write_json(b, tables);
}

static int cmd_bench_vsock(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_opt,
		.doc = "Throughput of vsock and TCP against bytes per write.",
	};
	static struct vsock_table tables[DIR_COUNT];
	struct bench b = {
		.peer = VMADDR_CID_LOCAL, .tcp = "127.0.0.1", .reps = 3,
		.ms = 300, .column = { true, true, true, true, true },
		.direction = { true, false },
	};
	char mode[16] = "";
	unsigned int port = BENCH_PORT;
	pid_t pid = 0;

	parse(&argp, argc, argv, &b);
	if (b.serve) {
		int listener = listen_on(false, &port);

		if (listener < 0)
			fail(-listener, "vsock port %u", port);
		serve(listener);
		return EXIT_FAILED;
	}
	if (!b.tcp)
		b.column[COL_TCP] = b.column[COL_TCP_NODELAY] = false;
	if (!vsock_get_mode(mode, sizeof(mode)) && b.direction[DIR_SEND]) {
		fprintf(stderr, "kvm-fastsys bench vsock: kvm_fastsys_vsock is not loaded, its columns are left out\n");
		b.column[COL_COALESCE] = b.column[COL_NODELAY] = false;
	}
	if (b.peer == VMADDR_CID_LOCAL)
		pid = own_server();
	b.control = connect_to(&b, false, BENCH_PORT);
	if (b.control < 0)
		fail(-b.control, "no server at CID %u: run there kvm-fastsys bench vsock --serve",
		     b.peer);
	for (int d = 0; d < DIR_COUNT; d++)
		if (b.direction[d])
			measure(&b, &tables[d], d);
	close(b.control);
	if (pid) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	if (mode[0])
		vsock_set_mode(mode);
	report_all(&b, tables);
	return EXIT_OK;
}

int cmd_bench(int argc, char **argv)
{
	static char name[] = "bench vsock";

	if (argc < 2 || strcmp(argv[1], "vsock")) {
		fprintf(stderr, "kvm-fastsys bench: what? vsock\nTry: kvm-fastsys bench vsock --help\n");
		return EXIT_USAGE;
	}
	argv[1] = name;
	return cmd_bench_vsock(argc - 1, argv + 1);
}
