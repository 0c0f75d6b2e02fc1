// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * kvm-fastsys bench vsock: the command. Options, both sides of loopback, what
 * is written at the end, and the module's mode, which is put back however it
 * ends.
 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <linux/vm_sockets.h>
#include <json-c/json.h>

#include "tool.h"
#include "vsock_bench.h"

#define MAX_MS	3600000

static char kept[16];		/* the module's mode; empty: not to be set */
static pid_t child;		/* loopback's other side */

void bench_keep_mode(void)
{
	if (!vsock_get_mode(kept, sizeof(kept)))
		kept[0] = '\0';
}

/* For signal handlers too. The child goes first: it may be about to switch. */
void bench_restore(void)
{
	if (child) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		child = 0;
	}
	if (kept[0])
		vsock_set_mode(kept);
	kept[0] = '\0';
}

static void on_signal(int sig)
{
	bench_restore();
	signal(sig, SIG_DFL);
	raise(sig);
}

static void on_signals(void (*handler)(int))
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = handler };

	/* One at a time: two handlers would restore twice. */
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(&sa.sa_mask, signals[i]);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct sigaction old;

		/* What nohup and shells have ignored stays so. */
		if (!sigaction(signals[i], NULL, &old) &&
		    old.sa_handler != SIG_IGN)
			sigaction(signals[i], &sa, NULL);
	}
}

_Noreturn void bench_fail(int err, const char *next, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	complain("kvm-fastsys bench vsock: %s%s%s\nNext: %s", text,
		 err ? ": " : "", err ? strerror(err) : "", next);
	exit(EXIT_FAILED);
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
		bench_fail(errno, "name a file that can be written",
			   "%s", b->json);
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

static unsigned int parse_size(const char *arg, struct argp_state *state)
{
	unsigned long long n;

	if (parse_number(arg, 1, 1 << 30, &n))
		for (int i = 0; i < VSOCK_SIZES; i++)
			if (n == vsock_sizes[i])
				return vsock_sizes[i];
	argp_error(state, "size '%s': 64, or a power of 2 from 256 to 524288",
		   arg);
	return 0;
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct bench *b = state->input;
	unsigned long long n;

	switch (key) {
	case 'p':
		/* The highest means "any". */
		if (!parse_number(arg, 1, VMADDR_CID_ANY - 1, &n))
			argp_error(state, "peer '%s': no CID", arg);
		b->peer = (unsigned int)n;
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
		if (!parse_number(arg, 1, VSOCK_MAX_REPS, &n))
			argp_error(state, "reps '%s': 1 to %d runs", arg,
				   VSOCK_MAX_REPS);
		b->reps = (unsigned int)n;
		return 0;
	case 'm':
		if (!parse_number(arg, 1, MAX_MS, &n))
			argp_error(state, "ms '%s': 1 to %d", arg, MAX_MS);
		b->ms = (unsigned int)n;
		return 0;
	case 'D':
		b->dither = true;
		return 0;
	case 'b':
		b->size = parse_size(arg, state);
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
static void own_server(void)
{
	unsigned int port = BENCH_PORT;
	int listener = bench_listen(false, &port);
	pid_t pid;

	if (listener < 0)
		bench_fail(-listener, listener == -EADDRINUSE ?
			   "end the other kvm-fastsys bench vsock" :
			   "modprobe vsock_loopback", "vsock port %u", port);
	pid = fork();
	if (pid < 0)
		bench_fail(errno, AGAIN, "fork");
	if (!pid) {
		/* Neither mode nor signals are the child's to care for. */
		kept[0] = '\0';
		on_signals(SIG_DFL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		bench_serve(listener, true);
		_exit(0);
	}
	child = pid;
	close(listener);
}

static void connect_control(struct bench *b)
{
	/*
	 * Built into the kernel it is not listed there. Without it a connection
	 * to ourselves may go to the hypervisor, which drops it.
	 */
	bool loopback = !access("/sys/module/vsock_loopback", F_OK);

	/* A guest of an emulated computer may take its time. */
	b->patience = b->peer == VMADDR_CID_LOCAL && !loopback ? 1 : 60;
	b->control = bench_connect(b, false, BENCH_PORT);
	b->patience = 60;
	if (b->control >= 0)
		return;
	if (b->peer == VMADDR_CID_LOCAL && !loopback)
		bench_fail(-b->control, "modprobe vsock_loopback",
			   "this computer's vsock has no loopback");
	if (b->peer == VMADDR_CID_LOCAL)
		bench_fail(-b->control, AGAIN, "no answer by vsock loopback");
	bench_fail(-b->control,
		   "on the other side: kvm-fastsys bench vsock --serve",
		   "no server at CID %u", b->peer);
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
				bench_fail(-err,
					   "name a file that can be written",
					   "%s", b->svg);
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
	unsigned int port = BENCH_PORT;

	parse(&argp, argc, argv, &b);
	atexit(bench_restore);
	on_signals(on_signal);
	if (b.serve) {
		int listener = bench_listen(false, &port);

		if (listener < 0)
			bench_fail(-listener, listener == -EADDRINUSE ?
				   "end the other kvm-fastsys bench vsock --serve" :
				   "modprobe vsock_loopback, or in a VM vmw_vsock_virtio_transport",
				   "vsock port %u", port);
		bench_serve(listener, false);
		return EXIT_FAILED;
	}
	if (!b.tcp)
		b.column[COL_TCP] = b.column[COL_TCP_NODELAY] = false;
	bench_keep_mode();
	if (!kept[0] && b.direction[DIR_SEND] &&
	    (b.column[COL_COALESCE] || b.column[COL_NODELAY])) {
		complain("kvm-fastsys bench vsock: kvm_fastsys_vsock is not loaded, its columns are left out\nNext: modprobe kvm_fastsys_vsock");
		b.column[COL_COALESCE] = b.column[COL_NODELAY] = false;
	}
	if (b.peer == VMADDR_CID_LOCAL)
		own_server();
	connect_control(&b);
	for (int d = 0; d < DIR_COUNT; d++)
		if (b.direction[d])
			bench_measure(&b, &tables[d], d);
	close(b.control);
	bench_restore();
	report_all(&b, tables);
	return EXIT_OK;
}

int cmd_bench(int argc, char **argv)
{
	static char name[] = "bench vsock";

	if (argc < 2 || strcmp(argv[1], "vsock")) {
		complain("kvm-fastsys bench: what? vsock\nTry: kvm-fastsys bench vsock --help");
		return EXIT_USAGE;
	}
	argv[1] = name;
	return cmd_bench_vsock(argc - 1, argv + 1);
}
