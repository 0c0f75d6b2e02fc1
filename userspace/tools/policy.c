// SPDX-License-Identifier: MIT OR LGPL-2.1
/* kvm-fastsys policy: compile, show, explain. */
#include <asm/unistd_64.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <kfs.h>

#include "bpf.h"
#include "policy.h"
#include "tool.h"

#define MAX_FILE (1 << 20)
#define MAX_CAPS 64
#define CALLS 512

/* The module's table, as this tool was built beside it. */
static const struct row {
	const char *check, *why;
} table[CALLS] = {
#define KFS_CALL(name, check_, flags, why_) \
	[__NR_##name] = { #check_, why_ },
#include "syscalls.tbl"
#undef KFS_CALL
};

static char *read_file(const char *file, size_t *size)
{
	char *text = malloc(MAX_FILE + 1);
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n = 0;

	*size = 0;
	while (fd >= 0 && text && *size < MAX_FILE) {
		n = read(fd, text + *size, MAX_FILE - *size);
		if (n <= 0)
			break;
		*size += (size_t)n;
	}
	if (fd < 0 || n < 0) {
		complain("kvm-fastsys: %s: %s\nNext: name a seccomp profile in JSON, or what policy compile wrote",
			 file, strerror(errno));
		free(text);
		text = NULL;
	} else if (*size == MAX_FILE) {
		complain("kvm-fastsys: %s: longer than 1 MiB, this is no policy\nNext: name a seccomp profile in JSON",
			 file);
		free(text);
		text = NULL;
	}
	if (fd >= 0)
		close(fd);
	if (text)
		text[*size] = '\0';
	return text;
}

/* A compiled program: the bytes that KFS_SET_POLICY takes. */
static int load_program(const char *file, const char *text, size_t size,
			struct sock_filter **filter, unsigned int *len)
{
	unsigned int at = 0;
	const char *why = NULL;

	*len = (unsigned int)(size / sizeof(**filter));
	*filter = malloc(size ? size : 1);
	if (!*filter)
		return -1;
	memcpy(*filter, text, size);
	if (!size)
		why = "empty";
	else if (size % sizeof(**filter) || *len > BPF_MAXINSNS)
		why = "neither JSON nor a compiled policy";
	else
		why = bpf_check(*filter, *len, &at);
	if (!why)
		return 0;
	complain("kvm-fastsys: %s: byte %zu: %s\nNext: kvm-fastsys policy compile PROFILE.json -o FILE",
		 file, at * sizeof(**filter), why);
	free(*filter);
	*filter = NULL;
	return -1;
}

int policy_load_for(const char *file, const struct policy_host *host,
		    struct sock_filter **filter, unsigned int *len,
		    struct policy_notes *notes)
{
	size_t size, skip;
	char *text = read_file(file, &size);
	int ret;

	if (!text)
		return -1;
	skip = strspn(text, " \t\r\n");
	/* A program starts with a load, whose first byte is a blank as well. */
	if (text[skip] == '{' || text[skip] == '[')
		ret = policy_from_json(file, text, host, filter, len, notes);
	else if (memchr(text, '\0', size))
		ret = load_program(file, text, size, filter, len);
	else
		ret = policy_from_json(file, text, host, filter, len, notes);
	free(text);
	return ret;
}

int policy_load(const char *file, struct sock_filter **filter,
		unsigned int *len)
{
	static const struct policy_host host;
	struct policy_notes notes = { 0 };

	return policy_load_for(file, &host, filter, len, &notes);
}

int policy_kernel_at_least(const struct policy_host *host, const char *least)
{
	int have[2] = { 0 }, want[2] = { 0 };
	struct utsname uts;
	const char *kernel = host->kernel;

	if (!kernel) {
		uname(&uts);
		kernel = uts.release;
	}
	sscanf(kernel, "%d.%d", &have[0], &have[1]);
	if (sscanf(least, "%d.%d", &want[0], &want[1]) < 1)
		return -1;
	return have[0] > want[0] ||
	       (have[0] == want[0] && have[1] >= want[1]);
}

struct options {
	const char *what, *file, *output, *call;
	const char *args[6];
	int nargs;
	struct policy_host host;
	const char *caps[MAX_CAPS + 1];
	int ncaps;
};

/* "6.1", and whatever a distribution puts behind it */
static bool is_version(const char *text)
{
	size_t major = strspn(text, "0123456789");

	return major && major < 6 && text[major] == '.' &&
	       isdigit((unsigned char)text[major + 1]);
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 'o':
		o->output = arg;
		return 0;
	case 'c':
		if (o->ncaps == MAX_CAPS)
			argp_error(state, "more than %d capabilities",
				   MAX_CAPS);
		o->caps[o->ncaps++] = arg;
		return 0;
	case 'k':
		if (!is_version(arg))
			argp_error(state, "kernel '%s': a version, as 6.1",
				   arg);
		o->host.kernel = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (!o->what)
			o->what = arg;
		else if (!o->file)
			o->file = arg;
		else if (strcmp(o->what, "explain"))
			argp_error(state, "%s takes one file", o->what);
		else {
			o->call = arg;
			/* The rest are numbers, negative ones included. */
			while (state->next < state->argc) {
				if (o->nargs == 6)
					argp_error(state, "a call has six arguments at most");
				o->args[o->nargs++] = state->argv[state->next++];
			}
		}
		return 0;
	case ARGP_KEY_END:
		if (!o->what ||
		    (strcmp(o->what, "compile") && strcmp(o->what, "show") &&
		     strcmp(o->what, "explain")))
			argp_error(state, "compile, show or explain?");
		if (!o->file)
			argp_error(state, "%s which file?", o->what);
		if (o->output && strcmp(o->what, "compile"))
			argp_error(state, "--output is for compile");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static int write_program(const struct options *o, const struct sock_filter *f,
			 unsigned int len)
{
	size_t size = len * sizeof(*f);
	FILE *out = stdout;

	if (o->output)
		out = fopen(o->output, "we");
	else if (isatty(STDOUT_FILENO)) {
		complain("kvm-fastsys: a program is not for terminals\nNext: kvm-fastsys policy compile %s -o FILE, or: policy show %s",
			 o->file, o->file);
		return EXIT_USAGE;
	}
	if (!out || fwrite(f, 1, size, out) != size || fflush(out) ||
	    (o->output && fclose(out))) {
		complain("kvm-fastsys: %s: %s\nNext: name a file that can be written",
			 o->output ? o->output : "stdout", strerror(errno));
		return EXIT_FAILED;
	}
	return EXIT_OK;
}

static void show_notes(FILE *out, const struct policy_notes *n)
{
	char text[1200];

	if (n->arches[0]) {
		snprintf(text, sizeof(text), "guests are x86-64, left out: %s",
			 n->arches);
		wrapped(out, "note: ", 6, text);
	}
	if (n->unknown_count) {
		snprintf(text, sizeof(text),
			 "%u names that libseccomp does not know: %s",
			 n->unknown_count, n->unknown);
		wrapped(out, "note: ", 6, text);
	}
	if (n->left_out_count) {
		snprintf(text, sizeof(text),
			 "%u rules whose conditions are not met: %s",
			 n->left_out_count, n->left_out);
		wrapped(out, "note: ", 6, text);
	}
}

enum { BY_ARGUMENTS = -2, NO_CALL = -1 };

/* What a call gets: the index of its verdict in seen[], or one of those. */
static int verdict(const struct sock_filter *f, unsigned int len,
		   unsigned int nr, const uint32_t *seen, int n)
{
	uint32_t ret;

	if (!kfs_syscall_name(nr))
		return NO_CALL;
	if (!bpf_by_number(f, len, nr, &ret))
		return BY_ARGUMENTS;
	for (int i = 0; i < n; i++)
		if (seen[i] == ret)
			return i;
	return NO_CALL;
}

static void list(const char *title, const int *verdicts, int which, int most)
{
	char names[8192] = "";
	unsigned int count = 0;
	size_t n = 0;

	for (unsigned int nr = 0; nr < CALLS; nr++) {
		if (verdicts[nr] != which)
			continue;
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s",
				      count ? " " : "", kfs_syscall_name(nr));
		count++;
	}
	if (!count)
		return;
	if (which == most) {
		printf("%s: all others, %u calls\n", title, count);
		return;
	}
	printf("%s: %u calls\n", title, count);
	wrapped(stdout, "  ", 2, names);
}

static void show(const struct options *o, const struct sock_filter *f,
		 unsigned int len, const struct policy_notes *notes)
{
	unsigned int inside = 0, counts[32] = { 0 };
	int verdicts[CALLS], n = 0, most = 0;
	uint32_t seen[32];
	char buf[64];

	printf("%s: %u instructions\n", o->file, len);
	show_notes(stdout, notes);
	for (unsigned int pc = 0; pc < len; pc++) {
		int i = 0;

		if (BPF_CLASS(f[pc].code) != BPF_RET)
			continue;
		while (i < n && seen[i] != f[pc].k)
			i++;
		if (i == n && n < 32)
			seen[n++] = f[pc].k;
	}
	for (unsigned int nr = 0; nr < CALLS; nr++) {
		verdicts[nr] = verdict(f, len, nr, seen, n);
		if (verdicts[nr] >= 0)
			counts[verdicts[nr]]++;
		inside += bpf_always_allows(f, len, nr) && table[nr].why;
	}
	for (int i = 1; i < n; i++)
		if (counts[i] > counts[most])
			most = i;
	for (int i = 0; i < n; i++)
		if (i != most)
			list(bpf_action(seen[i], buf, sizeof(buf)), verdicts,
			     i, most);
	list("by their arguments", verdicts, BY_ARGUMENTS, most);
	if (n)
		list(bpf_action(seen[most], buf, sizeof(buf)), verdicts, most,
		     most);
	printf("made inside KVM_RUN whatever their arguments: %u calls\n\n",
	       inside);
	bpf_print(stdout, f, len);
}

static int read_args(const struct options *o, struct seccomp_data *sd)
{
	for (int i = 0; i < o->nargs; i++) {
		char *end;

		errno = 0;
		sd->args[i] = o->args[i][0] == '-' ?
			      (__u64)strtoll(o->args[i], &end, 0) :
			      strtoull(o->args[i], &end, 0);
		if (errno || *end || end == o->args[i]) {
			complain("kvm-fastsys: argument %d, '%s', is no number\nNext: decimal, 0x hexadecimal or 0 octal",
				 i, o->args[i]);
			return -1;
		}
	}
	return 0;
}

static const char *condition(const char *check)
{
	static const struct {
		const char *check, *text;
	} texts[] = {
		{ "CLOSE", "unless the descriptor is KVM's or kvm_fastsys'" },
		{ "DUP_ONTO", "unless the target is KVM's or kvm_fastsys'" },
		{ "FCNTL", "for commands that it lists" },
		{ "FUTEX", "for operations that it lists" },
		{ "MADVISE", "for advice that it lists" },
		{ "NO_MASK_4", "if argument 3, the signal mask, is 0" },
		{ "NO_MASK_5", "if argument 4, the signal mask, is 0" },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (!strcmp(check, texts[i].check))
			return texts[i].text;
	return strcmp(check, "ANY") ? "for some arguments" : NULL;
}

/* By name or number; -1 when there is none. */
static int call_number(const char *call)
{
	unsigned long long n;

	if (!isdigit((unsigned char)call[0]))
		return kfs_syscall_nr(call);
	if (!parse_number(call, 0, CALLS - 1, &n) ||
	    !kfs_syscall_name((unsigned int)n))
		return -1;
	return (int)n;
}

static int explain(const struct options *o, const struct sock_filter *f,
		   unsigned int len)
{
	struct seccomp_data sd = { .arch = AUDIT_ARCH_X86_64 };
	char buf[64], text[512];
	const struct row *row;
	const char *when;
	uint32_t ret;
	int nr;

	if (!o->call) {
		complain("kvm-fastsys: which call?\nNext: kvm-fastsys policy explain %s openat",
			 o->file);
		return EXIT_USAGE;
	}
	nr = call_number(o->call);
	if (nr < 0) {
		complain("kvm-fastsys: '%s' is no x86-64 system call\nNext: name one, or give its number: kvm-fastsys policy explain %s openat",
			 o->call, o->file);
		return EXIT_USAGE;
	}
	sd.nr = nr;
	if (read_args(o, &sd))
		return EXIT_USAGE;
	printf("%s(", kfs_syscall_name((unsigned int)nr) ?
	       kfs_syscall_name((unsigned int)nr) : o->call);
	for (int i = 0; i < o->nargs; i++)
		printf("%s%s", i ? ", " : "", o->args[i]);
	printf(")\n");

	ret = bpf_judge(f, len, &sd);
	printf("policy: %s", bpf_action(ret, buf, sizeof(buf)));
	if (bpf_always_allows(f, len, (uint32_t)nr))
		printf(", whatever its arguments\n");
	else
		printf(o->nargs ? "\n" : " (arguments taken as 0)\n");

	row = &table[nr];
	when = row->why ? condition(row->check) : NULL;
	if (!row->why)
		snprintf(text, sizeof(text),
			 "not listed, left to the VMM (reason: unlisted)");
	else
		snprintf(text, sizeof(text), "may run inside KVM_RUN%s%s: %s",
			 when ? " " : "", when ? when : "", row->why);
	wrapped(stdout, "module: ", 8, text);

	switch (ret & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ERRNO:
		snprintf(text, sizeof(text),
			 "the guest gets -%u without leaving KVM_RUN; the call is not made",
			 ret & SECCOMP_RET_DATA);
		break;
	case SECCOMP_RET_ALLOW:
		snprintf(text, sizeof(text), "%s", !row->why ?
			 "the VMM may make it: an exit, or -1000 without KFS_DEFER_EXIT" :
			 when ? "made inside KVM_RUN if that holds, else left to the VMM" :
			 "made inside KVM_RUN");
		break;
	default:
		snprintf(text, sizeof(text),
			 "not made inside KVM_RUN; left to the VMM (reason: policy)");
	}
	wrapped(stdout, "result: ", 8, text);
	return EXIT_OK;
}

int cmd_policy(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "output", 'o', "FILE", 0, "compile: where to (stdout)", 0 },
		{ "cap", 'c', "CAP", 0,
		  "a capability that \"includes\" and \"excludes\" find held (none)", 0 },
		{ "kernel", 'k', "VERSION", 0,
		  "what \"minKernel\" is compared with (the running kernel)", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_opt,
		.args_doc = "compile FILE\nshow FILE\nexplain FILE CALL [ARGUMENT...]",
		.doc = "OCI and Docker seccomp profiles for KFS_SET_POLICY.\v"
		       "FILE is a profile in JSON, or for show and explain also a compiled one.\n"
		       "compile writes struct sock_filter[], as the ioctl takes it; show lists\n"
		       "what it does to which calls and the program itself; explain says what\n"
		       "one call would get from the policy and from the module's own table.",
	};
	struct options o = { 0 };
	struct policy_notes notes = { 0 };
	struct sock_filter *filter = NULL;
	unsigned int len = 0;
	int ret = EXIT_OK;

	o.host.caps = o.caps;
	parse_in_order(&argp, argc, argv, &o);
	if (policy_load_for(o.file, &o.host, &filter, &len, &notes))
		return EXIT_FAILED;
	if (!strcmp(o.what, "compile")) {
		show_notes(stderr, &notes);
		ret = write_program(&o, filter, len);
	} else if (!strcmp(o.what, "show")) {
		show(&o, filter, len, &notes);
	} else {
		ret = explain(&o, filter, len);
	}
	free(filter);
	return ret;
}
