// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

const char *argp_program_version = "kvm-fastsys " KFS_VERSION;

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "status", cmd_status },
	{ "check", cmd_check },
	{ "demo", cmd_demo },
	{ "bench", cmd_bench },
	{ "policy", cmd_policy },
	{ "run", cmd_run },
	{ "trace", cmd_trace },
};

static const char doc[] =
	"Host system calls from a KVM guest without leaving the kernel.\v"
	"Commands:\n"
	"  status  what the module does now: hooks, VMs, calls, declined by reason\n"
	"  check   would the module work on this kernel; if not, why and what next\n"
	"  demo    the whole thing on a guest of one page, in half a minute\n"
	"  bench   bench vsock: throughput of small writes, beside TCP's\n"
	"  policy  compile, show or explain an OCI or Docker seccomp profile\n"
	"  run     a static Linux program in ring 3 of a VM of its own\n"
	"  trace   a VM's calls as they are made, in strace's look\n"
	"\n"
	"`kvm-fastsys COMMAND --help' says more. Exit status: 0 done, 1 failed,\n"
	"2 wrong usage, 3 the module is not loaded.";

struct choice {
	int argc;
	char **argv;
};

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct choice *choice = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		/* The rest is the subcommand's, its options included. */
		(void)arg;
		choice->argc = state->argc - (state->next - 1);
		choice->argv = state->argv + state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which command? status, check, demo, bench, policy, run or trace");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static void parse_with(const struct argp *argp, int argc, char **argv,
		       unsigned int flags, void *input)
{
	char name[64];

	snprintf(name, sizeof(name), "kvm-fastsys %s", argv[0]);
	argv[0] = name;
	/* argp leaves by itself on wrong usage, and returns only other errors */
	if (argp_parse(argp, argc, argv, flags, NULL, input))
		exit(EXIT_FAILED);
}

void parse(const struct argp *argp, int argc, char **argv, void *input)
{
	parse_with(argp, argc, argv, 0, input);
}

void parse_in_order(const struct argp *argp, int argc, char **argv,
		    void *input)
{
	parse_with(argp, argc, argv, ARGP_IN_ORDER, input);
}

bool first_line(const char *path, char *buf, size_t len)
{
	FILE *f = fopen(path, "re");
	bool found;

	if (!f)
		return false;
	found = fgets(buf, (int)len, f);
	fclose(f);
	if (found)
		buf[strcspn(buf, "\n")] = '\0';
	return found;
}

const char *colour(enum colour c)
{
	static const char *const codes[] = {
		[PLAIN] = "\033[0m",
		[GOOD] = "\033[32m",
		[BAD] = "\033[1;31m",
		[FAINT] = "\033[2m",
	};
	static int on = -1;

	if (on < 0) {
		const char *term = getenv("TERM");

		on = isatty(STDOUT_FILENO) && !getenv("NO_COLOR") && term &&
		     strcmp(term, "dumb");
	}
	return on ? codes[c] : "";
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = parse_opt,
		.args_doc = "COMMAND [OPTION...]",
		.doc = doc,
	};
	struct choice choice = { 0 };

	argp_err_exit_status = EXIT_USAGE;
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &choice))
		return EXIT_FAILED;

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(choice.argv[0], commands[i].name))
			return commands[i].run(choice.argc, choice.argv);

	complain("kvm-fastsys: no command '%s'\nTry: kvm-fastsys --help",
		 choice.argv[0]);
	return EXIT_USAGE;
}
