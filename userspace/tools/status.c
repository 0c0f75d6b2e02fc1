// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * kvm-fastsys status: what the module does now. First everything is read,
 * then it is shown, for people or as JSON, so that both say the same.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kfs.h>

#include "kick_status.h"
#include "tool.h"
#include "vsock.h"

#define MAX_CALLS 512		/* more rows than there are system calls */
#define SHOWN_CALLS 10

struct vm {
	struct kfs_vm_stats stats;
	struct kfs_call_stats calls[MAX_CALLS];
	struct vm *next;
};

struct status {
	struct kfs_info info;
	struct kfs_hook_info *hooks;
	struct vm *vms;
	__u32 hidden;		/* VMs of others, which are not in the list */
	struct kick_status kick;
};

static const char *hook_state(__u32 state)
{
	static const char *const names[] = {
		[KFS_HOOK_OFF] = "off",
		[KFS_HOOK_LIVE] = "live",
		[KFS_HOOK_UNAVAILABLE] = "unavailable",
		[KFS_HOOK_DISABLED] = "disabled",
	};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

static const char *vm_state(__u32 state)
{
	static const char *const names[] = {
		[KFS_VM_ATTACHED] = "attached",
		[KFS_VM_ENABLED] = "enabled",
		[KFS_VM_DYING] = "dying",
	};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

static const char *mode_name(__u32 mode)
{
	return mode == KFS_MODE_IDENTITY ? "identity" :
	       mode == KFS_MODE_CONFINED ? "confined" : "?";
}

static __u64 declined_total(const struct kfs_vm_stats *s)
{
	__u64 total = 0;

	for (size_t i = 0; i < sizeof(s->declined) / sizeof(s->declined[0]); i++)
		total += s->declined[i];
	return total;
}

static int most_used(const void *a, const void *b)
{
	const struct kfs_call_stats *x = a, *y = b;
	__u64 nx = x->ran + x->denied + x->declined;
	__u64 ny = y->ran + y->denied + y->declined;

	if (nx != ny)
		return nx < ny ? 1 : -1;
	return x->nr < y->nr ? -1 : x->nr > y->nr;
}

/* A VM that goes away in between is simply not in the list any more. */
static int read_vms(int dev, struct status *st)
{
	struct vm **tail = &st->vms;
	__u64 id = 0;
	int ret;

	for (;;) {
		struct vm *vm = calloc(1, sizeof(*vm));

		if (!vm)
			return -ENOMEM;
		ret = kfs_vm_stats(dev, id, &vm->stats, vm->calls, MAX_CALLS);
		if (ret) {
			free(vm);
			return ret == -ENOENT ? 0 : ret;
		}
		qsort(vm->calls, vm->stats.calls_len, sizeof(vm->calls[0]),
		      most_used);
		id = vm->stats.id + 1;
		*tail = vm;
		tail = &vm->next;
	}
}

/*
 * The module counts all VMs and lists the caller's own, or all to who may
 * administer. One that came or went in between is nobody's secret.
 */
static int count_hidden(int dev, struct status *st)
{
	__u32 listed = 0, least = st->info.vms;
	struct kfs_info again;
	int ret = kfs_get_info(dev, &again);

	if (ret)
		return ret;
	if (again.vms < least)
		least = again.vms;
	for (const struct vm *vm = st->vms; vm; vm = vm->next)
		listed++;
	st->hidden = least > listed ? least - listed : 0;
	return 0;
}

static int read_status(int dev, struct status *st)
{
	int ret = kfs_get_info(dev, &st->info);

	if (ret)
		return ret;
	st->hooks = calloc(st->info.hooks + 1, sizeof(*st->hooks));
	if (!st->hooks)
		return -ENOMEM;
	for (__u32 i = 0; i < st->info.hooks; i++) {
		ret = kfs_hook_info(dev, i, &st->hooks[i]);
		if (ret)
			return ret;
	}
	ret = kick_status_read(dev, &st->kick);
	if (ret)
		return ret;
	ret = read_vms(dev, st);
	return ret ? ret : count_hidden(dev, st);
}

static void free_status(struct status *st)
{
	while (st->vms) {
		struct vm *next = st->vms->next;

		free(st->vms);
		st->vms = next;
	}
	free(st->hooks);
	kick_status_free(&st->kick);
}

static const char *call_name(__u32 nr, char *buf, size_t len)
{
	const char *name = kfs_syscall_name(nr);

	if (name)
		return name;
	snprintf(buf, len, "#%u", nr);
	return buf;
}

static void show_reasons(const struct kfs_vm_stats *s)
{
	__u64 total = declined_total(s);

	if (!total)
		return;
	printf("  declined %s:\n", grouped(total));
	for (unsigned int i = 0; i < 32; i++)
		if (s->declined[i])
			printf("    %3.0f %%  %-12s %s\n",
			       100.0 * (double)s->declined[i] / (double)total,
			       kfs_reason_name(i), kfs_reason_text(i));
}

static void show_calls(const struct vm *vm)
{
	__u32 n = vm->stats.calls_len;
	char buf[16];

	if (!n)
		return;
	printf("  %-20s %15s %12s %12s\n", "call", "ran", "denied", "declined");
	for (__u32 i = 0; i < n && i < SHOWN_CALLS; i++) {
		const struct kfs_call_stats *c = &vm->calls[i];

		printf("  %-20s %15s %12s %12s\n",
		       call_name(c->nr, buf, sizeof(buf)), grouped(c->ran),
		       grouped(c->denied), grouped(c->declined));
	}
	if (n > SHOWN_CALLS)
		printf("  and %u more: kvm-fastsys status --json\n",
		       n - SHOWN_CALLS);
}

static void show_vm(const struct vm *vm)
{
	const struct kfs_vm_stats *s = &vm->stats;
	char text[256];

	printf("\nVM %llu: pid %u (%.16s), %s, %s%s%s%s\n",
	       (unsigned long long)s->id, s->pid, s->comm, mode_name(s->mode),
	       vm_state(s->state),
	       s->attach_flags & KFS_DEFER_EXIT ? ", defer" : "",
	       s->attach_flags & KFS_EINTR ? ", eintr" : "",
	       s->attach_flags & KFS_BLOCKING ? ", blocking" : "");
	printf("  vCPUs that called %u, in a call now %u\n", s->vcpus,
	       s->in_call);
	snprintf(text, sizeof(text),
		 "ran %s, denied %s, deferred %s, refused %s, interrupted %s",
		 grouped(s->ran), grouped(s->denied), grouped(s->deferred),
		 grouped(s->refused), grouped(s->interrupted));
	wrapped(stdout, "  ", 2, text);
	show_reasons(s);
	show_calls(vm);
}

static void show_text(const struct status *st)
{
	const struct kfs_info *info = &st->info;
	bool dead = false;

	printf("kvm_fastsys %.32s loaded, ABI %u, %u host calls can run\n",
	       info->module_version, info->abi_version, info->calls);
	printf("%-12s %-28s %-12s %5s\n", "hook", "kernel function", "state",
	       "users");
	for (__u32 i = 0; i < info->hooks; i++) {
		const struct kfs_hook_info *h = &st->hooks[i];
		bool bad = h->state == KFS_HOOK_UNAVAILABLE;

		printf("%-12.32s %-28.64s %s%-12s%s %5u\n", h->name, h->target,
		       colour(bad ? BAD : h->state == KFS_HOOK_LIVE ? GOOD :
			      PLAIN),
		       hook_state(h->state), colour(PLAIN), h->users);
		if (h->reason[0])
			wrapped(stdout, "  ", 2, h->reason);
		dead |= bad;
	}
	if (dead)
		printf("A hook is missing. Next: kvm-fastsys check\n");
	if (info->unattached)
		printf("%s hypercalls came from VMs that are not attached\n",
		       grouped(info->unattached));
	kick_status_text(&st->kick);
	if (st->hidden)
		printf("\n%u VM%s of other users; run as root to see %s.\n",
		       st->hidden, st->hidden == 1 ? "" : "s",
		       st->hidden == 1 ? "it" : "them");
	else if (!st->vms)
		printf("\nNo VM is attached.\n");
	for (const struct vm *vm = st->vms; vm; vm = vm->next)
		show_vm(vm);
}

static void add_u64(struct json_object *o, const char *key, __u64 value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

static void add_str(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

/* An array out of the ABI: not to be read past its end, whatever is in it. */
#define add_field(o, key, field)					\
	json_object_object_add(o, key, json_object_new_string_len(field, \
			(int)strnlen(field, sizeof(field))))

static struct json_object *vm_json(const struct vm *vm)
{
	const struct kfs_vm_stats *s = &vm->stats;
	struct json_object *o = json_object_new_object();
	struct json_object *declined = json_object_new_object();
	struct json_object *calls = json_object_new_array();
	__u64 total = declined_total(s);
	char buf[16];

	add_u64(o, "id", s->id);
	add_u64(o, "pid", s->pid);
	add_u64(o, "uid", s->uid);
	add_field(o, "comm", s->comm);
	add_str(o, "state", vm_state(s->state));
	add_str(o, "mode", mode_name(s->mode));
	add_u64(o, "attach_flags", s->attach_flags);
	add_u64(o, "vcpus", s->vcpus);
	add_u64(o, "in_call", s->in_call);
	add_u64(o, "ran", s->ran);
	add_u64(o, "denied", s->denied);
	add_u64(o, "deferred", s->deferred);
	add_u64(o, "refused", s->refused);
	add_u64(o, "interrupted", s->interrupted);
	add_u64(o, "resumed", s->resumed);
	add_u64(o, "probes", s->probes);
	for (unsigned int i = 0; i < 32; i++) {
		struct json_object *r;

		if (!s->declined[i])
			continue;
		r = json_object_new_object();
		add_u64(r, "count", s->declined[i]);
		json_object_object_add(r, "share",
			json_object_new_double((double)s->declined[i] /
					       (double)total));
		json_object_object_add(declined, kfs_reason_name(i), r);
	}
	json_object_object_add(o, "declined", declined);
	for (__u32 i = 0; i < s->calls_len; i++) {
		const struct kfs_call_stats *c = &vm->calls[i];
		struct json_object *r = json_object_new_object();

		add_str(r, "name", call_name(c->nr, buf, sizeof(buf)));
		add_u64(r, "nr", c->nr);
		add_u64(r, "ran", c->ran);
		add_u64(r, "denied", c->denied);
		add_u64(r, "declined", c->declined);
		json_object_array_add(calls, r);
	}
	json_object_object_add(o, "calls", calls);
	return o;
}

static void show_json(const struct status *st)
{
	const struct kfs_info *info = &st->info;
	struct json_object *o = json_object_new_object();
	struct json_object *hooks = json_object_new_array();
	struct json_object *vms = json_object_new_array();
	struct json_object *vsock = vsock_status_json();

	json_object_object_add(o, "loaded", json_object_new_boolean(true));
	add_field(o, "module_version", info->module_version);
	add_u64(o, "abi_version", info->abi_version);
	add_u64(o, "features", info->features);
	add_u64(o, "runnable_calls", info->calls);
	add_u64(o, "unattached", info->unattached);
	for (__u32 i = 0; i < info->hooks; i++) {
		const struct kfs_hook_info *h = &st->hooks[i];
		struct json_object *r = json_object_new_object();

		add_field(r, "name", h->name);
		add_field(r, "target", h->target);
		add_str(r, "state", hook_state(h->state));
		add_u64(r, "users", h->users);
		add_u64(r, "error", h->error);
		add_field(r, "reason", h->reason);
		json_object_array_add(hooks, r);
	}
	json_object_object_add(o, "hooks", hooks);
	for (const struct vm *vm = st->vms; vm; vm = vm->next)
		json_object_array_add(vms, vm_json(vm));
	json_object_object_add(o, "vms", vms);
	add_u64(o, "other_users_vms", st->hidden);
	json_object_object_add(o, "kick", kick_status_json(&st->kick));
	if (vsock)
		json_object_object_add(o, "vsock", vsock);
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
						 JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

static int not_there(int err, bool json)
{
	bool loaded = !access(MODULE_DIR, F_OK);
	const char *text = kfs_strerror(err, KFS_WHAT_OPEN);

	if (json) {
		struct json_object *o = json_object_new_object();
		struct json_object *vsock;

		json_object_object_add(o, "loaded",
				       json_object_new_boolean(loaded));
		add_str(o, "error", text);
		vsock = vsock_status_json();
		if (vsock)
			json_object_object_add(o, "vsock", vsock);
		puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
						 JSON_C_TO_STRING_NOSLASHESCAPE));
		json_object_put(o);
	} else if (loaded) {
		wrapped(stderr, "kvm-fastsys: ", 2, text);
	} else {
		printf("kvm_fastsys is not loaded.\n"
		       "Next: modprobe kvm_fastsys    (as root)\n"
		       "      kvm-fastsys check       (would it work on this kernel?)\n");
		vsock_status_text();
	}
	return loaded ? EXIT_FAILED : EXIT_NO_MODULE;
}

struct options {
	bool json;
	unsigned int every;	/* seconds; 0: once */
};

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	unsigned long long n;

	switch (key) {
	case 'j':
		o->json = true;
		return 0;
	case 'w':
		if (!parse_number(arg ? arg : "2", 1, 1U << 30, &n))
			argp_error(state, "--watch=SECONDS, at least 1");
		o->every = (unsigned int)n;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "status takes no arguments");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static int show_once(bool json)
{
	struct status st = { 0 };
	int dev = kfs_open(), ret;

	if (dev < 0)
		return not_there(dev, json);
	ret = read_status(dev, &st);
	close(dev);
	if (ret) {
		wrapped(stderr, "kvm-fastsys: status: ", 2,
			kfs_strerror(ret, KFS_WHAT_GET_INFO));
	} else if (json) {
		show_json(&st);
	} else {
		show_text(&st);
		vsock_status_text();
	}
	free_status(&st);
	return ret ? EXIT_FAILED : EXIT_OK;
}

/* Until ^C, or until it fails. The device is not kept open in between. */
static int watch(const struct options *o)
{
	bool screen = isatty(STDOUT_FILENO) && !o->json;
	int ret;

	for (;;) {
		if (screen)
			fputs("\033[H\033[2J", stdout);
		ret = show_once(o->json);
		if (fflush(stdout) || ferror(stdout))
			return EXIT_FAILED;	/* nobody reads on */
		if (ret)
			return ret;
		if (!screen && !o->json)
			putchar('\n');
		sleep(o->every);
	}
}

int cmd_status(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "json", 'j', NULL, 0, "for machines: one JSON object", 0 },
		{ "watch", 'w', "SECONDS", OPTION_ARG_OPTIONAL,
		  "again and again, every 2 seconds", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_opt,
		.doc = "Shows what kvm_fastsys does now: its hooks and who uses them, the VMs\n"
		       "attached, the calls they made and why some were declined.\v"
		       "Exit status: 0 shown, 1 failed, 3 the module is not loaded.",
	};
	struct options o = { 0 };

	parse(&argp, argc, argv, &o);
	return o.every ? watch(&o) : show_once(o.json);
}
