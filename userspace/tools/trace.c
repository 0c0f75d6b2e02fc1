// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * kvm-fastsys trace: the calls of one VM as they are made. The module's
 * tracepoints go into a tracing instance of our own, limited to the VM's
 * threads, so nothing that somebody else traces is disturbed, and the calls
 * stay inside KVM_RUN, which they would not under strace.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <tracefs.h>
#include <unistd.h>

#include <kfs.h>

#include "tool.h"
#include "trace.h"

#define SYSTEM "kvm_fastsys"
#define MAX_CPUS 512

static const char *const events[] = {
	"kfs_syscall_enter", "kfs_syscall_exit", "kfs_syscall_decline",
};

struct trace {
	pid_t pid;
	bool have_vm, identity, strings;
	unsigned long long vm;
	const char *output;
	FILE *out;
	struct tracefs_instance *instance;
	struct tep_handle *tep;
	/* the process's end, then each CPU's buffer: something to read */
	struct pollfd poll[1 + MAX_CPUS];
	unsigned int npoll;
	/* the thread whose line has no end yet; 0: none */
	int open_tid;
	unsigned long long shown;
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static int fail(const char *what, int err, const char *next)
{
	complain("kvm-fastsys: trace: %s%s%s\nNext: %s", what,
		 err ? ": " : "", err ? strerror(err) : "", next);
	return EXIT_FAILED;
}

/* Which VM: by its id, by its process, or the only one there is. */
static int choose_vm(struct trace *t)
{
	int dev = kfs_open(), ret, found = 0;
	struct kfs_vm_stats s;
	pid_t pid = t->pid;

	if (dev < 0) {
		complain("kvm-fastsys: trace: %s\nNext: modprobe kvm_fastsys, or: kvm-fastsys check",
			 kfs_strerror(dev, KFS_WHAT_OPEN));
		return access(MODULE_DIR, F_OK) ? EXIT_NO_MODULE : EXIT_FAILED;
	}
	for (__u64 id = 0;; id = s.id + 1) {
		ret = kfs_vm_stats(dev, id, &s, NULL, 0);
		if (ret)
			break;
		if ((t->have_vm && s.id != t->vm) ||
		    (pid && s.pid != (__u32)pid) || !s.pid)
			continue;
		found++;
		t->pid = (pid_t)s.pid;
		t->identity = s.mode == KFS_MODE_IDENTITY;
	}
	close(dev);
	if (ret != -ENOENT)
		return fail("the list of VMs", -ret, "kvm-fastsys status");
	if (!found)
		return fail(t->have_vm || pid ? "no such VM is attached" :
			    "no VM is attached", 0, "kvm-fastsys status");
	if (found > 1 && !pid)
		return fail("several VMs are attached", 0,
			    "kvm-fastsys status, then trace --vm ID or --pid PID");
	return EXIT_OK;
}

/* The threads there are; event-fork adds those they make. */
static int limit_to_process(struct trace *t)
{
	char path[64], list[4096] = "";
	struct dirent *e;
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", t->pid);
	dir = opendir(path);
	if (!dir)
		return -1;
	while ((e = readdir(dir)) && n < sizeof(list) - 16)
		if (e->d_name[0] != '.')
			n += (size_t)snprintf(list + n, sizeof(list) - n,
					      "%s ", e->d_name);
	closedir(dir);
	if (tracefs_option_enable(t->instance, TRACEFS_OPTION_EVENT_FORK))
		return -1;
	return tracefs_instance_file_write(t->instance, "set_event_pid",
					   list) < 0 ? -1 : 0;
}

/* Only to be woken by: libtracefs opens the buffers anew each time. */
static int open_buffers(struct trace *t)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	char path[64];

	/* Woken by the first event, not by a half-full buffer. */
	tracefs_instance_file_write(t->instance, "buffer_percent", "0");
	for (int cpu = 0; cpu < cpus && t->npoll < 1 + MAX_CPUS; cpu++) {
		int fd;

		snprintf(path, sizeof(path), "per_cpu/cpu%d/trace_pipe_raw",
			 cpu);
		fd = tracefs_instance_file_open(t->instance, path, O_RDONLY);
		if (fd >= 0)
			t->poll[t->npoll++] = (struct pollfd) {
				.fd = fd, .events = POLLIN,
			};
	}
	return t->npoll > 1 ? 0 : -1;
}

static int start(struct trace *t)
{
	const char *systems[] = { SYSTEM, NULL };
	char name[64];

	if (!tracefs_tracing_dir())
		return fail("no tracefs", errno,
			    "as root: mount -t tracefs tracefs /sys/kernel/tracing");
	t->tep = tracefs_local_events_system(NULL, systems);
	if (!t->tep || !tep_find_event_by_name(t->tep, SYSTEM, events[0]))
		return fail("the module's tracepoints cannot be read", errno,
			    "run it as root; kvm-fastsys check");
	snprintf(name, sizeof(name), "kvm-fastsys-%d", getpid());
	t->instance = tracefs_instance_create(name);
	if (!t->instance)
		return fail("no tracing instance", errno, "run it as root");
	if (open_buffers(t))
		return fail("the tracing buffers", errno, "run it as root");
	if (limit_to_process(t))
		return fail("the process's threads", errno,
			    "kvm-fastsys status");
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (tracefs_event_enable(t->instance, SYSTEM, events[i]))
			return fail(events[i], errno, "run it as root");
	return EXIT_OK;
}

static unsigned long long number(struct tep_event *event,
				 struct tep_record *record, const char *field)
{
	unsigned long long value = 0;

	tep_get_field_val(NULL, event, field, record, &value, 0);
	return value;
}

/* strace's way of showing that another thread came in between. */
static void begin_line(struct trace *t, int tid)
{
	if (t->open_tid)
		fputs(" <unfinished ...>\n", t->out);
	t->open_tid = 0;
	if (tid != t->pid)
		fprintf(t->out, "[pid %d] ", tid);
}

static bool get_args(struct tep_event *event, struct tep_record *record,
		     uint64_t args[6])
{
	struct tep_format_field *field = tep_find_field(event, "args");
	const size_t size = 6 * sizeof(args[0]);

	if (!field || (size_t)field->size != size)
		return false;
	memcpy(args, (char *)record->data + field->offset, size);
	return true;
}

static void entered(struct trace *t, struct tep_event *event,
		    struct tep_record *record, int tid)
{
	uint64_t args[6] = { 0 };

	get_args(event, record, args);
	begin_line(t, tid);
	trace_call(t->out, (unsigned int)number(event, record, "nr"), args,
		   t->strings && t->identity ? t->pid : 0);
	t->open_tid = tid;
}

static void left(struct trace *t, struct tep_event *event,
		 struct tep_record *record, int tid)
{
	unsigned int nr = (unsigned int)number(event, record, "nr");
	const char *name = kfs_syscall_name(nr);

	if (t->open_tid != tid) {
		begin_line(t, tid);
		fprintf(t->out, "<... %s resumed>", name ? name : "call");
	}
	t->open_tid = 0;
	fputs(") = ", t->out);
	trace_result(t->out, nr, (int64_t)number(event, record, "ret"));
	fputc('\n', t->out);
}

static void declined(struct trace *t, struct tep_event *event,
		     struct tep_record *record, int tid)
{
	unsigned long long nr = number(event, record, "nr");
	const char *name = nr < 1024 ? kfs_syscall_name((unsigned int)nr) :
				       NULL;
	uint64_t args[6];

	begin_line(t, tid);
	/* Not every version of the module records them here. */
	if (get_args(event, record, args))
		trace_call(t->out, (unsigned int)nr, args,
			   t->strings && t->identity ? t->pid : 0);
	else if (name)
		fprintf(t->out, "%s(...", name);
	else
		fprintf(t->out, "syscall_%#llx(...", nr);
	fprintf(t->out, ") = ? <declined: %s>\n",
		kfs_reason_name((unsigned int)number(event, record,
						     "reason")));
}

static int on_event(struct tep_event *event, struct tep_record *record,
		    int cpu, void *context)
{
	struct trace *t = context;
	int tid = tep_data_pid(t->tep, record);

	(void)cpu;
	t->shown++;
	if (!strcmp(event->name, events[0]))
		entered(t, event, record, tid);
	else if (!strcmp(event->name, events[1]))
		left(t, event, record, tid);
	else if (!strcmp(event->name, events[2]))
		declined(t, event, record, tid);
	return stop;
}

static void follow(struct trace *t)
{
	while (!stop && !t->poll[0].revents) {
		/* EINTR: on_signal() has been there. */
		poll(t->poll, t->npoll, -1);
		tracefs_iterate_raw_events(t->tep, t->instance, NULL, 0,
					   on_event, t);
		fflush(t->out);
	}
	if (t->open_tid)
		fputs(" <unfinished ...>\n", t->out);
	fflush(t->out);
}

static void end(struct trace *t)
{
	if (t->instance) {
		tracefs_event_disable(t->instance, SYSTEM, NULL);
		tracefs_instance_destroy(t->instance);
		tracefs_instance_free(t->instance);
	}
	if (t->tep)
		tep_free(t->tep);
	if (t->output && t->out)
		fclose(t->out);
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct trace *t = state->input;
	char *rest;

	switch (key) {
	case 'p':
		t->pid = (pid_t)strtol(arg, &rest, 10);
		if (*rest || t->pid <= 0)
			argp_error(state, "'%s' is no process id", arg);
		return 0;
	case 'v':
		t->vm = strtoull(arg, &rest, 10);
		if (*rest || rest == arg)
			argp_error(state, "'%s' is no VM's id: kvm-fastsys status",
				   arg);
		t->have_vm = true;
		return 0;
	case 's':
		t->strings = true;
		return 0;
	case 'o':
		t->output = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "trace takes no arguments");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int cmd_trace(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "pid", 'p', "PID", 0, "the VM of this process", 0 },
		{ "vm", 'v', "ID", 0, "this VM, as status numbers them", 0 },
		{ "strings", 's', NULL, 0,
		  "paths and bytes, read when a line is shown: by then the program may have put others there", 0 },
		{ "output", 'o', "FILE", 0, "where to (stdout)", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_opt,
		.doc = "Shows a VM's system calls as they are made, in strace's look.\v"
		       "Without options: the only VM there is. Calls are not slowed down to\n"
		       "exits as under strace; what the module leaves to the VMM is shown\n"
		       "without arguments, as <declined: REASON>. Ends with the process or at\n"
		       "^C. Needs root.",
	};
	struct sigaction sa = { .sa_handler = on_signal };
	static struct trace t;
	int ret;

	t.out = stdout;
	parse(&argp, argc, argv, &t);
	ret = choose_vm(&t);
	if (ret)
		return ret;
	t.poll[0].fd = (int)syscall(SYS_pidfd_open, t.pid, 0);
	t.poll[0].events = POLLIN;
	t.npoll = 1;
	if (t.poll[0].fd < 0)
		return fail("the process", errno, "kvm-fastsys status");
	if (t.output) {
		t.out = fopen(t.output, "we");
		if (!t.out)
			return fail(t.output, errno, "name another file");
	}
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	ret = start(&t);
	if (!ret) {
		fprintf(stderr, "kvm-fastsys: tracing process %d\n", t.pid);
		follow(&t);
	}
	end(&t);
	return ret;
}
