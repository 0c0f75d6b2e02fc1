// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Whether ftrace can hook the functions that the modules want, and who has
 * them already. Only one is needed by everything; what is wrong with another
 * is a note.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kfs.h>

#include "check.h"
#include "tool.h"
#include "vsock.h"

enum owner { KVM_HOOK, VSOCK_HOOK };

/* Taken from the modules' sources when this tool was built. */
static struct target {
	enum owner owner;
	const char *name;
	bool there;			/* ftrace can hook it */
	bool enabled, livepatch, taken;	/* by whom ever */
} targets[] = {
#define HOOK(owner_, name_) { .owner = owner_##_HOOK, .name = name_ },
#include "hooks.inc"
#undef HOOK
};

enum { TARGETS = sizeof(targets) / sizeof(targets[0]) };

static struct target *target_of(const char *line)
{
	for (int i = 0; i < TARGETS; i++) {
		size_t len = strlen(targets[i].name);

		if (!strncmp(line, targets[i].name, len) &&
		    isspace((unsigned char)line[len]))
			return &targets[i];
	}
	return NULL;
}

static void available(struct target *t, const char *line)
{
	(void)line;
	t->there = true;
}

/* name [module] (users) FLAGS: D another trampoline, I livepatch */
static void enabled(struct target *t, const char *line)
{
	const char *flags = strchr(line, ')');

	t->enabled = true;
	t->livepatch = flags && strchr(flags, 'I');
	t->taken = flags && strpbrk(flags, "DI");
}

/* Calls fn for the lines of a tracefs file that are about a target. */
static int read_tracefs(const char *file,
			void (*fn)(struct target *t, const char *line))
{
	static const char *const roots[] = {
		"/sys/kernel/tracing", "/sys/kernel/debug/tracing",
	};
	char path[128], line[1024];
	struct target *t;
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
	while (fgets(line, sizeof(line), f)) {
		t = target_of(line);
		if (t)
			fn(t, line);
	}
	fclose(f);
	return 0;
}

/* Is it our own hook that is live? Only then may the target be taken. */
static bool is_ours(const struct target *t)
{
	struct kfs_hook_info hook;
	bool ours = false;
	char mode[16];
	int dev;

	if (t->owner == VSOCK_HOOK)
		return vsock_get_mode(mode, sizeof(mode)) &&
		       strcmp(mode, "off");
	dev = kfs_open();
	if (dev < 0)
		return false;
	for (unsigned int i = 0; !kfs_hook_info(dev, i, &hook); i++)
		ours |= hook.state == KFS_HOOK_LIVE &&
			strstr(hook.target, t->name);
	close(dev);
	return ours;
}

static const char *only_for(const struct target *t)
{
	return t->owner == VSOCK_HOOK ? " (only for kvm_fastsys_vsock)" :
	       strcmp(t->name, HOOK_TARGET) ? " (only for kicks by ioctl)" : "";
}

/* True when there was something to say about it. */
static bool obstacle(const struct target *t)
{
	enum result result = only_for(t)[0] ? NOTE : FAIL;
	struct finding *f;

	if (!t->there) {
		f = check_add(result, "hook", "%s cannot be hooked by ftrace%s",
			      t->name, only_for(t));
		check_next(f, "boot the distribution's own kernel");
		return true;
	}
	if (!t->taken || is_ours(t))
		return false;
	f = check_add(result, "hook", "%s is taken by %s%s", t->name,
		      t->livepatch ? "a livepatch" :
		      "another trampoline (BPF fentry, a tracer)",
		      only_for(t));
	check_next(f, "bpftool prog show; ls /sys/kernel/livepatch: remove what holds it");
	return true;
}

static void check_kvm_hook(const struct target *t)
{
	if (obstacle(t))
		return;
	if (!t->enabled)
		check_add(OK, "hook", "%s can be hooked and is free", t->name);
	else if (is_ours(t))
		check_add(OK, "hook", "%s is hooked, by kvm_fastsys", t->name);
	else
		check_add(OK, "hook",
			  "%s is being traced, which costs but does no harm",
			  t->name);
}

/* Eight that matter to few: one line, unless something is wrong. */
static void check_vsock_hooks(void)
{
	unsigned int count = 0, there = 0, bad = 0;
	struct finding *f;

	for (int i = 0; i < TARGETS; i++) {
		count += targets[i].owner == VSOCK_HOOK;
		there += targets[i].owner == VSOCK_HOOK && targets[i].there;
	}
	if (!there) {
		f = check_add(NOTE, "hook",
			      "none of kvm_fastsys_vsock's %u functions is there: vsock is not loaded",
			      count);
		check_next(f, "modprobe vsock_loopback (or vhost_vsock), if its streams are to merge");
		return;
	}
	for (int i = 0; i < TARGETS; i++)
		bad += targets[i].owner == VSOCK_HOOK && obstacle(&targets[i]);
	if (!bad)
		check_add(OK, "hook",
			  "kvm_fastsys_vsock's %u functions can be hooked",
			  count);
}

void check_hooks(bool kvm)
{
	struct finding *f;
	int ret = read_tracefs("available_filter_functions", available);

	if (ret == -EACCES) {
		f = check_add(NOTE, "hook", "tracefs can be read by root only");
		check_next(f, "run kvm-fastsys check as root");
		return;
	}
	if (ret < 0) {
		f = check_add(NOTE, "hook", "tracefs is not mounted");
		check_next(f, "mount -t tracefs tracefs /sys/kernel/tracing");
		return;
	}
	read_tracefs("enabled_functions", enabled);
	/* Without KVM its functions are not there, and its own finding says so. */
	for (int i = 0; i < TARGETS; i++)
		if (targets[i].owner == KVM_HOOK && (kvm || targets[i].there))
			check_kvm_hook(&targets[i]);
	check_vsock_hooks();
}
