// SPDX-License-Identifier: MIT OR LGPL-2.1
/* kvm-fastsys run: the options, and what is said about a program. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kfs.h>

#include "policy.h"
#include "run.h"
#include "tool.h"

/* One line, whatever its length: it stands among the program's own output. */
void run_say(const struct run *r, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* Not stdio: the program shares the descriptor, not our buffer. */
	dprintf(STDERR_FILENO, "kvm-fastsys run: %s: %s\n", r->name, text);
}

void run_die(const struct run *r, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	complain("kvm-fastsys run: %s: %s%s", r->name, text,
		 strstr(text, "\nNext: ") ? "" :
		 "\nNext: kvm-fastsys check; dmesg may say why");
	_exit(EXIT_RUN_FAILED);
}

void run_kill(int sig)
{
	struct rlimit none = { 0, 0 };
	sigset_t set;

	/* A core would be the launcher's, not the program's. */
	setrlimit(RLIMIT_CORE, &none);
	signal(sig, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(sig);
	_exit(128 + sig);
}

/* As a shell finds it. */
static const char *find_program(const char *name, char *buf, size_t len)
{
	const char *path = getenv("PATH"), *next;
	struct stat st;

	if (strchr(name, '/'))
		return name;
	for (; path && *path; path = *next ? next + 1 : next) {
		next = strchrnul(path, ':');
		snprintf(buf, len, "%.*s/%s", (int)(next - path), path, name);
		if (!access(buf, X_OK) && !stat(buf, &st) &&
		    S_ISREG(st.st_mode))
			return buf;
	}
	return NULL;
}

struct options {
	const char *policy, *mode;
	int argc;
	char **argv;
};

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'p':
		o->policy = arg;
		return 0;
	case 'm':
		if (strcmp(arg, "fast") && strcmp(arg, "exit") &&
		    strcmp(arg, "exit-regs"))
			argp_error(state, "mode '%s': fast or exit", arg);
		o->mode = arg;
		return 0;
	case ARGP_KEY_ARG:
		/* The rest is the program's, its options included. */
		o->argc = state->argc - (state->next - 1);
		o->argv = state->argv + state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which program?");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static enum run_path choose_path(const char *mode)
{
	int dev;

	if (mode)
		return !strcmp(mode, "fast") ? RUN_FAST :
		       !strcmp(mode, "exit") ? RUN_EXIT : RUN_EXIT_REGS;
	dev = kfs_open();
	if (dev < 0)
		return RUN_EXIT;
	close(dev);
	return RUN_FAST;
}

int cmd_run(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "policy", 'p', "FILE", 0,
		  "what it may call: an OCI or Docker seccomp profile, or the output of `policy compile'", 0 },
		{ "mode", 'm', "fast|exit", 0,
		  "calls by hypercall, or by leaving KVM_RUN (default: fast when the module is loaded)", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_opt,
		.args_doc = "PROGRAM [ARGUMENT...]",
		.doc = "Runs a static x86-64 Linux program in ring 3 of a VM.\v"
		       "Its system calls are made on the host with this user's rights. It has\n"
		       "one thread and gets no signals. Its pointers are the launcher's: the\n"
		       "policy limits which calls it has, not which memory they reach, so this\n"
		       "is no jail for a hostile program.\n"
		       "Exit status: the program's; 125 when it could not be run.",
	};
	static struct run r;
	struct options o = { 0 };
	char buf[PATH_MAX];
	const char *path;

	parse_in_order(&argp, argc, argv, &o);
	r.name = o.argv[0];
	r.path = choose_path(o.mode);
	path = find_program(o.argv[0], buf, sizeof(buf));
	if (!path)
		run_die(&r, "not found in PATH\nNext: kvm-fastsys run /path/to/%s",
			r.name);
	if (o.policy && policy_load(o.policy, &r.filter, &r.filter_len))
		return EXIT_RUN_FAILED;
	prctl(PR_SET_NAME, basename(strdupa(path)));
	run_calls_init();
	run_mem_init(&r);
	run_load(&r, path, o.argv, environ);
	run_create(&r);
	run_loop(&r);
}
