// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * kvm-fastsys check: would the module work on this kernel, and if not, why and
 * what next. Every check adds one finding; nothing is changed on the way.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <kfs.h>

#include "check.h"
#include "tool.h"

/* The series that this release was tested on, as in docs/porting.md. */
#define TESTED "6.1, 6.12"
static const struct {
	unsigned int major, minor;
} tested[] = {
	{ 6, 1 }, { 6, 12 },
};

struct finding {
	enum result result;
	const char *name;
	char detail[192];
	char next[192];		/* what to do; empty when there is nothing */
};

static struct finding findings[64];
static unsigned int found;
static bool untested;

struct finding *check_add(enum result result, const char *name,
			  const char *fmt, ...)
{
	struct finding *f = &findings[found];
	va_list ap;

	if (found + 1 < sizeof(findings) / sizeof(findings[0]))
		found++;
	f->result = result;
	f->name = name;
	f->next[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
	va_end(ap);
	return f;
}

void check_next(struct finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->next, sizeof(f->next), fmt, ap);
	va_end(ap);
}

static bool failed(void)
{
	for (unsigned int i = 0; i < found; i++)
		if (findings[i].result == FAIL)
			return true;
	return false;
}

static void check_kernel(const struct utsname *uts)
{
	unsigned int major = 0, minor = 0;
	struct finding *f;

	sscanf(uts->release, "%u.%u", &major, &minor);
	untested = true;
	for (size_t i = 0; i < sizeof(tested) / sizeof(tested[0]); i++)
		if (major == tested[i].major && minor == tested[i].minor)
			untested = false;
	if (untested) {
		f = check_add(NOTE, "kernel", "%.65s is untested; tested are "
			TESTED, uts->release);
		check_next(f, "make check HOST=1 in the source tree tests it; docs/porting.md says what else to look at");
	} else {
		check_add(OK, "kernel", "%.65s is of a tested series (" TESTED ")",
		    uts->release);
	}
	if (!strcmp(uts->machine, "x86_64")) {
		check_add(OK, "processor", "x86-64");
	} else {
		f = check_add(FAIL, "processor", "%.65s, not x86-64", uts->machine);
		check_next(f, "there is no version for other processors");
	}
}

/* The running kernel's configuration from wherever this system keeps it. */
static FILE *open_config(const struct utsname *uts, bool *pipe)
{
	static const char *const places[] = {
		"/boot/config-%.65s", "/lib/modules/%.65s/config",
		"/usr/lib/modules/%.65s/config",
	};
	char path[128];

	*pipe = false;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		FILE *f;

		snprintf(path, sizeof(path), places[i], uts->release);
		f = fopen(path, "re");
		if (f)
			return f;
	}
	if (access("/proc/config.gz", R_OK))
		return NULL;
	*pipe = true;
	return popen("gzip -dc /proc/config.gz 2>/dev/null", "re");
}

/* The configuration is known, and says that only functions have symbols. */
static bool no_kallsyms_all;

static void check_config(const struct utsname *uts)
{
	static const struct {
		const char *option, *why;
		bool modular;		/* has to be =m */
	} wanted[] = {
		{ "KVM", "KVM as a module", true },
		{ "KALLSYMS_ALL", "finding KVM's functions", false },
		{ "KPROBES", "finding KVM's functions", false },
		{ "DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "the hook", false },
		{ "HAVE_STATIC_CALL", "calling what was found", false },
		{ "BPF", "policies", false },
		{ "SECCOMP_FILTER", "policies", false },
		{ "MMU_NOTIFIER", "the end of a VMM", false },
	};
	enum { COUNT = sizeof(wanted) / sizeof(wanted[0]) };
	char value[COUNT] = { 0 };
	char line[512];
	bool pipe, bad = false;
	FILE *f = open_config(uts, &pipe);
	struct finding *finding;

	if (!f) {
		finding = check_add(NOTE, "config",
			      "the kernel's configuration is not to be found");
		check_next(finding, "the checks below tell as much");
		return;
	}
	while (fgets(line, sizeof(line), f)) {
		char *eq = strchr(line, '=');

		if (strncmp(line, "CONFIG_", 7) || !eq)
			continue;
		*eq = '\0';
		for (int i = 0; i < COUNT; i++)
			if (!strcmp(line + 7, wanted[i].option))
				value[i] = eq[1];
	}
	if (pipe)
		pclose(f);
	else
		fclose(f);

	for (int i = 0; i < COUNT; i++) {
		if (value[i] == 'm' || (value[i] == 'y' && !wanted[i].modular))
			continue;
		bad = true;
		if (!strcmp(wanted[i].option, "KALLSYMS_ALL"))
			no_kallsyms_all = true;
		finding = check_add(FAIL, "config", "CONFIG_%s=%c, needed for %s",
			      wanted[i].option, value[i] ? value[i] : 'n',
			      wanted[i].why);
		check_next(finding, "boot a kernel with CONFIG_%s=%c (Debian's has it)",
		     wanted[i].option, wanted[i].modular ? 'm' : 'y');
	}
	if (!bad)
		check_add(OK, "config", "all %d options that matter are on", COUNT);
}

static const char *vendor_module(void)
{
	char line[512];
	FILE *f = fopen("/proc/cpuinfo", "re");
	const char *module = NULL;

	while (f && !module && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "flags", 5))
			continue;
		if (strstr(line, " svm"))
			module = "kvm_amd";
		else if (strstr(line, " vmx"))
			module = "kvm_intel";
		else
			break;
	}
	if (f)
		fclose(f);
	return module;
}

/* Returns whether kvm.ko is there, as the symbols need it. */
static bool check_kvm(void)
{
	const char *vendor = vendor_module();
	bool kvm = !access("/sys/module/kvm", F_OK);
	bool modular = !access("/sys/module/kvm/initstate", F_OK);
	struct finding *f;

	if (kvm && !modular) {
		f = check_add(FAIL, "kvm", "KVM is built into this kernel");
		check_next(f, "boot a kernel with CONFIG_KVM=m (Debian's has it)");
	} else if (!kvm) {
		f = check_add(FAIL, "kvm", "KVM is not loaded");
		if (vendor)
			check_next(f, "modprobe %s", vendor);
		else
			check_next(f, "turn virtualisation on in the firmware, or give this VM nested virtualisation");
	} else {
		check_add(OK, "kvm", "loaded, as a module");
	}

	if (!access("/dev/kvm", R_OK | W_OK)) {
		check_add(OK, "/dev/kvm", "can be opened");
	} else if (errno == ENOENT) {
		f = check_add(FAIL, "/dev/kvm", "is not there");
		if (vendor)
			check_next(f, "modprobe %s; dmesg says why if that fails",
			     vendor);
		else
			check_next(f, "this processor shows neither VMX nor SVM: turn virtualisation on in the firmware");
	} else {
		f = check_add(FAIL, "/dev/kvm", "%s", strerror(errno));
		check_next(f, "usermod -aG kvm USER, then log in again");
	}
	return kvm && modular;
}

/*
 * The names the module looks up, taken from its sources when this tool was
 * built: "name", or "kvm:name" for one that has to be kvm.ko's.
 */
static const char *const symbols[] = {
#include "symbols.inc"
};

enum { SYMBOLS = sizeof(symbols) / sizeof(symbols[0]) };

static void match_symbol(char *line, bool *seen)
{
	/* address type name [module] */
	char *save, *name, *module;

	if (!strtok_r(line, " \t\n", &save) || !strtok_r(NULL, " \t\n", &save))
		return;
	name = strtok_r(NULL, " \t\n", &save);
	if (!name)
		return;
	module = strtok_r(NULL, " \t\n", &save);
	for (int i = 0; i < SYMBOLS; i++) {
		const char *want = symbols[i];
		bool of_kvm = !strncmp(want, "kvm:", 4);

		if (of_kvm && (!module || strcmp(module, "[kvm]")))
			continue;
		if (!strcmp(name, of_kvm ? want + 4 : want))
			seen[i] = true;
	}
}

static void check_symbols(bool kvm)
{
	bool seen[SYMBOLS] = { false };
	FILE *f = fopen("/proc/kallsyms", "re");
	struct finding *finding;
	int missing = 0, untold = 0;
	char line[1024];

	if (!f) {
		finding = check_add(FAIL, "symbols", "/proc/kallsyms: %s",
			      strerror(errno));
		check_next(finding, "boot a kernel with CONFIG_KALLSYMS=y");
		return;
	}
	while (fgets(line, sizeof(line), f))
		match_symbol(line, seen);
	fclose(f);
	for (int i = 0; i < SYMBOLS; i++) {
		if (seen[i])
			continue;
		if (!kvm && !strncmp(symbols[i], "kvm:", 4)) {
			untold++;
			continue;
		}
		missing++;
		finding = check_add(FAIL, "symbols", "this kernel has no %s",
			      symbols[i]);
		check_next(finding, no_kallsyms_all ?
		     "boot a kernel with CONFIG_KALLSYMS_ALL=y" :
		     "boot a newer update of this kernel series");
	}
	if (missing)
		return;
	if (untold) {
		finding = check_add(NOTE, "symbols",
			      "%d of %d found, the others are KVM's",
			      SYMBOLS - untold, (int)SYMBOLS);
		check_next(finding, "load KVM, then check again");
	} else {
		check_add(OK, "symbols", "all %d found", (int)SYMBOLS);
	}
}

static void check_ftrace(void)
{
	char value[16];
	struct finding *f;

	if (!first_line("/proc/sys/kernel/ftrace_enabled", value,
			sizeof(value))) {
		f = check_add(FAIL, "ftrace", "this kernel has no ftrace");
		check_next(f, "boot a kernel with CONFIG_DYNAMIC_FTRACE=y");
	} else if (value[0] == '0') {
		f = check_add(FAIL, "ftrace", "is switched off");
		check_next(f, "sysctl kernel.ftrace_enabled=1");
	} else {
		check_add(OK, "ftrace", "is on");
	}
}

/* Signatures: an unsigned module is the commonest reason not to load. */
static void check_signing(void)
{
	char value[128];
	struct finding *f;
	bool enforced = first_line("/sys/module/module/parameters/sig_enforce",
				   value, sizeof(value)) && value[0] == 'Y';
	bool locked = first_line("/sys/kernel/security/lockdown", value,
				 sizeof(value)) && !strstr(value, "[none]");

	if (!enforced && !locked)
		return;
	f = check_add(NOTE, "signing", "this kernel loads signed modules only");
	check_next(f, "sign kvm_fastsys.ko with a key that is enrolled (mokutil --import)");
}

static void check_module(void)
{
	char version[32];
	struct finding *f;
	struct kfs_info info;
	int dev;

	if (access(MODULE_DIR, F_OK)) {
		f = check_add(NOTE, "module", "kvm_fastsys is not loaded");
		check_next(f, "modprobe kvm_fastsys");
		return;
	}
	if (!first_line(MODULE_DIR "/version", version, sizeof(version)))
		strcpy(version, "?");
	check_add(OK, "module", "kvm_fastsys %s is loaded", version);

	dev = kfs_open();
	if (dev < 0) {
		f = check_add(FAIL, "device", "%s", KFS_DEVICE_PATH);
		check_next(f, "%s", kfs_strerror(dev, KFS_WHAT_OPEN));
		return;
	}
	if (kfs_get_info(dev, &info)) {
		f = check_add(FAIL, "device", "module and tool are of different versions");
		check_next(f, "install both from one release");
	} else if (info.abi_version != KFS_ABI_VERSION) {
		f = check_add(FAIL, "device", "ABI %u, this tool speaks %u",
			info.abi_version, KFS_ABI_VERSION);
		check_next(f, "install module and tool from one release");
	} else {
		check_add(OK, "device", "%s can be opened, ABI %u", KFS_DEVICE_PATH,
		    info.abi_version);
	}
	for (unsigned int i = 0; i < info.hooks; i++) {
		struct kfs_hook_info hook;

		if (kfs_hook_info(dev, i, &hook) ||
		    hook.state != KFS_HOOK_UNAVAILABLE)
			continue;
		/* Kicks by the vCPU's ioctl are one way of two. */
		f = check_add(strstr(hook.target, HOOK_TARGET) ? FAIL : NOTE,
			      "hook", "%.32s: %.128s", hook.name, hook.reason);
		check_next(f, "see dmesg");
	}
	close(dev);
}

static const char *const words[] = {
	[OK] = "ok",
	[NOTE] = "note",
	[FAIL] = "FAIL",
};

static void show_text(const struct utsname *uts)
{
	for (unsigned int i = 0; i < found; i++) {
		const struct finding *f = &findings[i];

		printf("%s%-5s%s ",
		       colour(f->result == OK ? GOOD :
			      f->result == FAIL ? BAD : FAINT),
		       words[f->result], colour(PLAIN));
		printf("%-9s ", f->name);
		wrapped_from(stdout, 16, 16, f->detail);
		if (f->next[0])
			wrapped(stdout, "                next: ", 22, f->next);
	}
	if (failed())
		printf("\nkvm_fastsys would not work on %s.\n", uts->release);
	else if (untested)
		printf("\nkvm_fastsys is untested on %s; no check speaks against it.\n",
		       uts->release);
	else
		printf("\nkvm_fastsys would work on %s.\n", uts->release);
}

static void show_json(const struct utsname *uts)
{
	struct json_object *o = json_object_new_object();
	struct json_object *list = json_object_new_array();

	json_object_object_add(o, "would_work",
			       json_object_new_boolean(!failed()));
	json_object_object_add(o, "tested", json_object_new_boolean(!untested));
	json_object_object_add(o, "kernel",
			       json_object_new_string(uts->release));
	for (unsigned int i = 0; i < found; i++) {
		const struct finding *f = &findings[i];
		struct json_object *r = json_object_new_object();

		json_object_object_add(r, "check",
				       json_object_new_string(f->name));
		json_object_object_add(r, "result",
			json_object_new_string(f->result == FAIL ? "fail" :
					       words[f->result]));
		json_object_object_add(r, "detail",
				       json_object_new_string(f->detail));
		if (f->next[0])
			json_object_object_add(r, "next",
				json_object_new_string(f->next));
		json_object_array_add(list, r);
	}
	json_object_object_add(o, "checks", list);
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
						 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	bool *json = state->input;

	(void)arg;
	switch (key) {
	case 'j':
		*json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "check takes no arguments");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int cmd_check(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "json", 'j', NULL, 0, "for machines: one JSON object", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_opt,
		.doc = "Says whether kvm_fastsys would work on this kernel and, if not, why and\n"
		       "what to do next. Changes nothing. Root sees more.\v"
		       "Exit status: 0 nothing speaks against it, 1 it would not work.",
	};
	struct utsname uts;
	bool json = false;
	bool kvm;

	parse(&argp, argc, argv, &json);
	uname(&uts);
	check_kernel(&uts);
	check_config(&uts);
	kvm = check_kvm();
	check_symbols(kvm);
	check_ftrace();
	check_hooks(kvm);
	check_signing();
	check_module();
	if (json)
		show_json(&uts);
	else
		show_text(&uts);
	return failed() ? EXIT_FAILED : EXIT_OK;
}
