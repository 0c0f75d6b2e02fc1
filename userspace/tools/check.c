// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * kvm-fastsys check: would the module work on this kernel, and if not, why and
 * what next. Every check adds one finding; nothing is changed on the way.
 */
#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <kfs.h>

#include "tool.h"

/* The kernels this release is made for: major * 100 + minor. */
#define OLDEST 510
#define NEWEST 702

#define HOOK_TARGET "kvm_emulate_hypercall"

enum result {
	OK,		/* as it should be */
	NOTE,		/* cannot be told, or worth knowing, and no obstacle */
	FAIL,		/* the module would not work */
};

struct finding {
	enum result result;
	const char *name;
	char detail[192];
	char next[192];		/* what to do; empty when there is nothing */
};

static struct finding findings[64];
static unsigned int found;

static struct finding *add(enum result result, const char *name,
			   const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static struct finding *add(enum result result, const char *name,
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

static void next(struct finding *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void next(struct finding *f, const char *fmt, ...)
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
	unsigned int major = 0, minor = 0, version;
	struct finding *f;

	sscanf(uts->release, "%u.%u", &major, &minor);
	version = major * 100 + minor;
	if (version >= OLDEST && version <= NEWEST) {
		add(OK, "kernel", "%.65s is between %d.%d and %d.%d",
		    uts->release, OLDEST / 100, OLDEST % 100, NEWEST / 100,
		    NEWEST % 100);
	} else {
		f = add(FAIL, "kernel", "%.65s is not between %d.%d and %d.%d",
			uts->release, OLDEST / 100, OLDEST % 100, NEWEST / 100,
			NEWEST % 100);
		next(f, "boot one of those kernels");
	}
	if (!strcmp(uts->machine, "x86_64")) {
		add(OK, "processor", "x86-64");
	} else {
		f = add(FAIL, "processor", "%.65s, not x86-64", uts->machine);
		next(f, "there is no version for other processors");
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
		finding = add(NOTE, "config",
			      "the kernel's configuration is not to be found");
		next(finding, "the checks below tell as much");
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
		finding = add(FAIL, "config", "CONFIG_%s=%c, needed for %s",
			      wanted[i].option, value[i] ? value[i] : 'n',
			      wanted[i].why);
		next(finding, "boot a kernel with CONFIG_%s=%c (Debian's has it)",
		     wanted[i].option, wanted[i].modular ? 'm' : 'y');
	}
	if (!bad)
		add(OK, "config", "all %d options that matter are on", COUNT);
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
		f = add(FAIL, "kvm", "KVM is built into this kernel");
		next(f, "boot a kernel with CONFIG_KVM=m (Debian's has it)");
	} else if (!kvm) {
		f = add(FAIL, "kvm", "KVM is not loaded");
		if (vendor)
			next(f, "modprobe %s", vendor);
		else
			next(f, "turn virtualisation on in the firmware, or give this VM nested virtualisation");
	} else {
		add(OK, "kvm", "loaded, as a module");
	}

	if (!access("/dev/kvm", R_OK | W_OK)) {
		add(OK, "/dev/kvm", "can be opened");
	} else if (errno == ENOENT) {
		f = add(FAIL, "/dev/kvm", "is not there");
		if (vendor)
			next(f, "modprobe %s; dmesg says why if that fails",
			     vendor);
		else
			next(f, "this processor shows neither VMX nor SVM: turn virtualisation on in the firmware");
	} else {
		f = add(FAIL, "/dev/kvm", "%s", strerror(errno));
		next(f, "usermod -aG kvm USER, then log in again");
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
		finding = add(FAIL, "symbols", "/proc/kallsyms: %s",
			      strerror(errno));
		next(finding, "boot a kernel with CONFIG_KALLSYMS=y");
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
		finding = add(FAIL, "symbols", "this kernel has no %s",
			      symbols[i]);
		next(finding, "boot a newer update of this kernel series");
	}
	if (missing)
		return;
	if (untold) {
		finding = add(NOTE, "symbols",
			      "%d of %d found, the others are KVM's",
			      SYMBOLS - untold, (int)SYMBOLS);
		next(finding, "load KVM, then check again");
	} else {
		add(OK, "symbols", "all %d found", (int)SYMBOLS);
	}
}

static void check_ftrace(void)
{
	char value[16];
	struct finding *f;

	if (!first_line("/proc/sys/kernel/ftrace_enabled", value,
			sizeof(value))) {
		f = add(FAIL, "ftrace", "this kernel has no ftrace");
		next(f, "boot a kernel with CONFIG_DYNAMIC_FTRACE=y");
	} else if (value[0] == '0') {
		f = add(FAIL, "ftrace", "is switched off");
		next(f, "sysctl kernel.ftrace_enabled=1");
	} else {
		add(OK, "ftrace", "is on");
	}
}

/* The line of a tracefs file about the hook's target, if there is one. */
static int tracefs_line(const char *file, char *line, size_t len)
{
	static const char *const roots[] = {
		"/sys/kernel/tracing", "/sys/kernel/debug/tracing",
	};
	size_t name = strlen(HOOK_TARGET);
	char path[128];
	FILE *f = NULL;
	int ret = -ENOENT;

	for (size_t i = 0; !f && i < sizeof(roots) / sizeof(roots[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", roots[i], file);
		f = fopen(path, "re");
		if (!f && errno == EACCES)
			ret = -EACCES;
	}
	if (!f)
		return ret;
	ret = 0;
	while (!ret && fgets(line, (int)len, f))
		ret = !strncmp(line, HOOK_TARGET, name) &&
		      isspace((unsigned char)line[name]);
	fclose(f);
	return ret;
}

/* Is it our own hook that is live? Only then may the target be taken. */
static bool hook_is_ours(void)
{
	struct kfs_hook_info hook;
	int dev = kfs_open();
	bool ours = false;

	if (dev < 0)
		return false;
	for (unsigned int i = 0; !kfs_hook_info(dev, i, &hook); i++)
		ours |= hook.state == KFS_HOOK_LIVE &&
			strstr(hook.target, HOOK_TARGET);
	close(dev);
	return ours;
}

static void check_hook(bool kvm)
{
	char line[1024], *flags;
	struct finding *f;
	int ret = tracefs_line("available_filter_functions", line,
			       sizeof(line));

	if (ret == -EACCES) {
		f = add(NOTE, "hook", "tracefs can be read by root only");
		next(f, "run kvm-fastsys check as root");
		return;
	}
	if (ret < 0) {
		f = add(NOTE, "hook", "tracefs is not mounted");
		next(f, "mount -t tracefs tracefs /sys/kernel/tracing");
		return;
	}
	if (!ret && !kvm)
		return;		/* KVM's own finding says it */
	if (!ret) {
		f = add(FAIL, "hook", HOOK_TARGET " cannot be hooked by ftrace");
		next(f, "boot the distribution's own kernel");
		return;
	}
	ret = tracefs_line("enabled_functions", line, sizeof(line));
	if (ret <= 0) {
		add(OK, "hook", HOOK_TARGET " can be hooked and is free");
		return;
	}
	/* name [module] (users) FLAGS: D another trampoline, I livepatch */
	flags = strchr(line, ')');
	if (hook_is_ours()) {
		add(OK, "hook", HOOK_TARGET " is hooked, by kvm_fastsys");
	} else if (flags && strpbrk(flags, "DI")) {
		f = add(FAIL, "hook", HOOK_TARGET " is taken by %s",
			strchr(flags, 'I') ? "a livepatch" :
			"another trampoline (BPF fentry, a tracer)");
		next(f, "bpftool prog show; ls /sys/kernel/livepatch: remove what holds it");
	} else {
		add(OK, "hook",
		    HOOK_TARGET " is being traced, which costs but does no harm");
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
	f = add(NOTE, "signing", "this kernel loads signed modules only");
	next(f, "sign kvm_fastsys.ko with a key that is enrolled (mokutil --import)");
}

static void check_module(void)
{
	char version[32];
	struct finding *f;
	struct kfs_info info;
	int dev;

	if (access(MODULE_DIR, F_OK)) {
		f = add(NOTE, "module", "kvm_fastsys is not loaded");
		next(f, "modprobe kvm_fastsys");
		return;
	}
	if (!first_line(MODULE_DIR "/version", version, sizeof(version)))
		strcpy(version, "?");
	add(OK, "module", "kvm_fastsys %s is loaded", version);

	dev = kfs_open();
	if (dev < 0) {
		f = add(FAIL, "device", "%s", KFS_DEVICE_PATH);
		next(f, "%s", kfs_strerror(dev, KFS_WHAT_OPEN));
		return;
	}
	if (kfs_get_info(dev, &info)) {
		f = add(FAIL, "device", "module and tool are of different versions");
		next(f, "install both from one release");
	} else if (info.abi_version != KFS_ABI_VERSION) {
		f = add(FAIL, "device", "ABI %u, this tool speaks %u",
			info.abi_version, KFS_ABI_VERSION);
		next(f, "install module and tool from one release");
	} else {
		add(OK, "device", "%s can be opened, ABI %u", KFS_DEVICE_PATH,
		    info.abi_version);
	}
	for (unsigned int i = 0; i < info.hooks; i++) {
		struct kfs_hook_info hook;

		if (kfs_hook_info(dev, i, &hook) ||
		    hook.state != KFS_HOOK_UNAVAILABLE)
			continue;
		f = add(FAIL, "hook", "%.32s: %.128s", hook.name, hook.reason);
		next(f, "see dmesg");
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
		printf("%-9s %s\n", f->name, f->detail);
		if (f->next[0])
			wrapped(stdout, "                next: ", 22, f->next);
	}
	if (failed())
		printf("\nkvm_fastsys would not work on %s.\n", uts->release);
	else
		printf("\nkvm_fastsys would work on %s.\n", uts->release);
}

static void show_json(const struct utsname *uts)
{
	struct json_object *o = json_object_new_object();
	struct json_object *list = json_object_new_array();

	json_object_object_add(o, "would_work",
			       json_object_new_boolean(!failed()));
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
		       "Exit status: 0 it would work, 1 it would not.",
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
	check_hook(kvm);
	check_signing();
	check_module();
	if (json)
		show_json(&uts);
	else
		show_text(&uts);
	return failed() ? EXIT_FAILED : EXIT_OK;
}
