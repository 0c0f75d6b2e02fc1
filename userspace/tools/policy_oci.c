// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Seccomp profiles as OCI runtimes and Docker have them, compiled by
 * libseccomp. What a profile says and we do not understand is an error with
 * its place: a rule that is silently skipped may be the one that denied.
 * Names of calls that libseccomp does not know are the exception, as in the
 * runtimes: profiles list calls of newer kernels and other architectures.
 */
#include <errno.h>
#include <json-c/json.h>
#include <seccomp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kfs.h>

#include "bpf.h"
#include "policy.h"
#include "tool.h"

#define MAX_ARGS 6

struct reader {
	const char *file;
	const struct policy_host *host;
	struct policy_notes *notes;
	scmp_filter_ctx ctx;
	uint32_t fallback;		/* the profile's default action */
	char path[256];			/* of what is read now */
};

static int wrong(const struct reader *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static int wrong(const struct reader *r, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	complain("kvm-fastsys: %s: %s: %s\nNext: correct it there, then kvm-fastsys policy show %s",
		 r->file, r->path[0] ? r->path : "the whole", text, r->file);
	return -1;
}

/* Goes one step down in the path; the result is for leave(). */
static size_t enter(struct reader *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static size_t enter(struct reader *r, const char *fmt, ...)
{
	size_t n = strlen(r->path);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->path + n, sizeof(r->path) - n, fmt, ap);
	va_end(ap);
	return n;
}

static void leave(struct reader *r, size_t n)
{
	r->path[n] = '\0';
}

static void note(char *list, size_t size, const char *what)
{
	size_t n = strlen(list);

	snprintf(list + n, size - n, "%s%s", n ? ", " : "", what);
}

static const char *type_name(struct json_object *o)
{
	return o ? json_type_to_name(json_object_get_type(o)) : "null";
}

/* 0 found, 1 not there or null, -1 said to be wrong. */
static int get(struct reader *r, struct json_object *o, const char *key,
	       enum json_type type, struct json_object **out)
{
	size_t n;
	int ret;

	if (!json_object_object_get_ex(o, key, out) || !*out)
		return 1;
	if (json_object_is_type(*out, type))
		return 0;
	n = enter(r, "%s%s", r->path[0] ? "." : "", key);
	ret = wrong(r, "%s where %s belongs", type_name(*out),
		    json_type_to_name(type));
	leave(r, n);
	return ret;
}

static int only_keys(struct reader *r, struct json_object *o,
		     const char *const *keys)
{
	json_object_object_foreach(o, key, value) {
		size_t i = 0;

		(void)value;
		while (keys[i] && strcmp(keys[i], key))
			i++;
		if (!keys[i])
			return wrong(r, "unknown key \"%s\"", key);
	}
	return 0;
}

static int errno_range(const struct reader *r, const char *key, int64_t n)
{
	if (n < 0 || n > 4095)
		return wrong(r, "%s %lld: 0 to 4095", key, (long long)n);
	/* The guest would take the answer for "not made: take the slow path". */
	if (n == KFS_ENOSYS)
		return wrong(r, "%s %lld: to the guest that means that nobody made the call; take another",
			     key, (long long)n);
	return 0;
}

/*
 * An errno stands as a number under the key of the runtime specification, or
 * as a name under that of Podman's and CRI-O's profiles, or as both.
 */
static int errno_value(struct reader *r, struct json_object *o,
		       const char *number, const char *name, unsigned int *out)
{
	struct json_object *v;
	int ret = get(r, o, number, json_type_int, &v);
	int64_t n = -1, m;

	if (ret < 0)
		return ret;
	if (!ret) {
		n = json_object_get_int64(v);
		if (errno_range(r, number, n))
			return -1;
		*out = (unsigned int)n;
	}
	if (!json_object_object_get_ex(o, name, &v) || !v)
		return 0;
	if (json_object_is_type(v, json_type_int))
		m = json_object_get_int64(v);
	else if (json_object_is_type(v, json_type_string))
		m = bpf_errno(json_object_get_string(v));
	else
		return wrong(r, "%s: %s where an errno belongs", name,
			     type_name(v));
	if (m < 0 && json_object_is_type(v, json_type_string))
		return wrong(r, "%s \"%s\" is no errno", name,
			     json_object_get_string(v));
	if (errno_range(r, name, m))
		return -1;
	if (n >= 0 && m != n)
		return wrong(r, "%s %lld, but %s %lld", name, (long long)m,
			     number, (long long)n);
	*out = (unsigned int)m;
	return 0;
}

/* An operand, as the kernel compares it: without a sign. */
static int operand(struct reader *r, struct json_object *o, const char *key,
		   scmp_datum_t *out)
{
	struct json_object *v;
	int ret = get(r, o, key, json_type_int, &v);

	if (ret)
		return ret < 0 ? ret : 0;
	if (json_object_get_int64(v) < 0)
		return wrong(r, "%s %lld: 0 to 2^64-1", key,
			     (long long)json_object_get_int64(v));
	*out = json_object_get_uint64(v);
	return 0;
}

static int action(struct reader *r, const char *name, unsigned int err,
		  uint32_t *out)
{
	const struct {
		const char *name;
		uint32_t action;
	} actions[] = {
		{ "SCMP_ACT_ALLOW", SCMP_ACT_ALLOW },
		{ "SCMP_ACT_ERRNO", SCMP_ACT_ERRNO(err) },
		{ "SCMP_ACT_KILL", SCMP_ACT_KILL_THREAD },
		{ "SCMP_ACT_KILL_THREAD", SCMP_ACT_KILL_THREAD },
		{ "SCMP_ACT_KILL_PROCESS", SCMP_ACT_KILL_PROCESS },
		{ "SCMP_ACT_TRAP", SCMP_ACT_TRAP },
		{ "SCMP_ACT_TRACE", SCMP_ACT_TRACE(err) },
		{ "SCMP_ACT_LOG", SCMP_ACT_LOG },
		{ "SCMP_ACT_NOTIFY", SCMP_ACT_NOTIFY },
	};

	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (!strcmp(name, actions[i].name)) {
			*out = actions[i].action;
			return 0;
		}
	return wrong(r, "unknown action \"%s\" (SCMP_ACT_ALLOW, SCMP_ACT_ERRNO, ...)",
		     name);
}

static int compare(struct reader *r, struct json_object *o,
		   struct scmp_arg_cmp *out)
{
	static const char *const keys[] = {
		"index", "value", "valueTwo", "op", NULL
	};
	static const struct {
		const char *name;
		enum scmp_compare op;
	} ops[] = {
		{ "SCMP_CMP_NE", SCMP_CMP_NE }, { "SCMP_CMP_LT", SCMP_CMP_LT },
		{ "SCMP_CMP_LE", SCMP_CMP_LE }, { "SCMP_CMP_EQ", SCMP_CMP_EQ },
		{ "SCMP_CMP_GE", SCMP_CMP_GE }, { "SCMP_CMP_GT", SCMP_CMP_GT },
		{ "SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ },
	};
	struct json_object *v;
	const char *name;
	int ret;

	if (!json_object_is_type(o, json_type_object))
		return wrong(r, "%s where an object belongs", type_name(o));
	if (only_keys(r, o, keys))
		return -1;
	ret = get(r, o, "index", json_type_int, &v);
	if (ret)
		return ret < 0 ? ret : wrong(r, "no \"index\"");
	if (json_object_get_int64(v) < 0 ||
	    json_object_get_int64(v) >= MAX_ARGS)
		return wrong(r, "index %lld: 0 to 5",
			     (long long)json_object_get_int64(v));
	*out = (struct scmp_arg_cmp) {
		.arg = (unsigned int)json_object_get_int64(v),
	};
	if (operand(r, o, "value", &out->datum_a) ||
	    operand(r, o, "valueTwo", &out->datum_b))
		return -1;
	ret = get(r, o, "op", json_type_string, &v);
	if (ret)
		return ret < 0 ? ret : wrong(r, "no \"op\"");
	name = json_object_get_string(v);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (!strcmp(name, ops[i].name)) {
			out->op = ops[i].op;
			return 0;
		}
	return wrong(r, "unknown op \"%s\" (SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ, ...)",
		     name);
}

static int in_list(const char *const *list, const char *what)
{
	for (; list && *list; list++)
		if (!strcmp(*list, what))
			return 1;
	return 0;
}

static int is_our_arch(const char *name)
{
	return !strcmp(name, "amd64") || !strcmp(name, "x86_64");
}

/*
 * "includes" or "excludes": *any and *all say whether some and whether each
 * condition in it holds. Includes need all, one excluded is enough.
 */
static int conditions(struct reader *r, struct json_object *o,
		      const char *key, int *any, int *all, char *why,
		      size_t size)
{
	static const char *const keys[] = { "caps", "arches", "minKernel",
					    NULL };
	struct json_object *c, *v;
	int ret = get(r, o, key, json_type_object, &c), hit;
	size_t n;

	*any = 0;
	*all = 1;
	if (ret)
		return ret < 0 ? ret : 0;
	n = enter(r, ".%s", key);
	if (only_keys(r, c, keys))
		return -1;
	ret = get(r, c, "caps", json_type_array, &v);
	if (ret < 0)
		return ret;
	for (size_t i = 0; !ret && i < json_object_array_length(v); i++) {
		const char *cap = json_object_get_string(
				json_object_array_get_idx(v, i));

		hit = in_list(r->host->caps, cap ? cap : "");
		if (!hit || !strcmp(key, "excludes"))
			note(why, size, cap ? cap : "null");
		*any |= hit;
		*all &= hit;
	}
	ret = get(r, c, "arches", json_type_array, &v);
	if (ret < 0)
		return ret;
	if (!ret && json_object_array_length(v)) {
		hit = 0;
		for (size_t i = 0; i < json_object_array_length(v); i++) {
			const char *arch = json_object_get_string(
					json_object_array_get_idx(v, i));

			hit |= is_our_arch(arch ? arch : "");
		}
		if (!hit || !strcmp(key, "excludes"))
			note(why, size, "other architecture");
		*any |= hit;
		*all &= hit;
	}
	ret = get(r, c, "minKernel", json_type_string, &v);
	if (ret < 0)
		return ret;
	if (!ret) {
		hit = policy_kernel_at_least(r->host,
					     json_object_get_string(v));
		if (hit < 0)
			return wrong(r, "minKernel \"%s\" is no version",
				     json_object_get_string(v));
		if (!hit || !strcmp(key, "excludes"))
			note(why, size, json_object_get_string(v));
		*any |= hit;
		*all &= hit;
	}
	leave(r, n);
	return 0;
}

/* Conditions on one and the same argument are alternatives, as in runc. */
static int add(struct reader *r, uint32_t act, int nr,
	       const struct scmp_arg_cmp *args, unsigned int n)
{
	unsigned int seen = 0;
	int twice = 0, ret = 0;

	for (unsigned int i = 0; i < n; i++) {
		twice |= seen & 1U << args[i].arg ? 1 : 0;
		seen |= 1U << args[i].arg;
	}
	if (!twice)
		ret = seccomp_rule_add_array(r->ctx, act, nr, n, args);
	for (unsigned int i = 0; twice && !ret && i < n; i++)
		ret = seccomp_rule_add_array(r->ctx, act, nr, 1, &args[i]);
	/* A rule that is there already, or that a wider one covers. */
	if (ret == -EEXIST)
		ret = 0;
	return ret ? wrong(r, "libseccomp: %s", strerror(-ret)) : 0;
}

static int one_name(struct reader *r, struct json_object *name, uint32_t act,
		    const struct scmp_arg_cmp *args, unsigned int n)
{
	int nr;

	if (!json_object_is_type(name, json_type_string))
		return wrong(r, "%s where a call's name belongs",
			     type_name(name));
	nr = seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64,
					       json_object_get_string(name));
	if (nr == __NR_SCMP_ERROR) {
		note(r->notes->unknown, sizeof(r->notes->unknown),
		     json_object_get_string(name));
		r->notes->unknown_count++;
		return 0;
	}
	if (nr < 0 || act == r->fallback)
		return 0;	/* another architecture's; or nothing new */
	return add(r, act, nr, args, n);
}

static int rule(struct reader *r, struct json_object *o)
{
	static const char *const keys[] = {
		"names", "name", "action", "errnoRet", "errno", "args",
		"comment", "includes", "excludes", NULL
	};
	struct scmp_arg_cmp args[32];
	struct json_object *v, *names = NULL, *name = NULL;
	unsigned int err = EPERM, n = 0;
	int ret, any, all, no_any, no_all;
	char why[256] = "", text[512];
	uint32_t act;
	size_t at;

	if (!json_object_is_type(o, json_type_object))
		return wrong(r, "%s where a rule belongs", type_name(o));
	if (only_keys(r, o, keys))
		return -1;
	if (get(r, o, "names", json_type_array, &names) < 0 ||
	    get(r, o, "name", json_type_string, &name) < 0)
		return -1;
	if (!names && !name)
		return wrong(r, "neither \"names\" nor \"name\"");
	if (errno_value(r, o, "errnoRet", "errno", &err) < 0)
		return -1;
	ret = get(r, o, "action", json_type_string, &v);
	if (ret)
		return ret < 0 ? ret : wrong(r, "no \"action\"");
	if (action(r, json_object_get_string(v), err, &act))
		return -1;

	ret = get(r, o, "args", json_type_array, &v);
	if (ret < 0)
		return ret;
	for (size_t i = 0; !ret && i < json_object_array_length(v); i++) {
		if (n == sizeof(args) / sizeof(args[0]))
			return wrong(r, "more than 32 \"args\"");
		at = enter(r, ".args[%zu]", i);
		if (compare(r, json_object_array_get_idx(v, i), &args[n++]))
			return -1;
		leave(r, at);
	}
	if (conditions(r, o, "includes", &any, &all, why, sizeof(why)) ||
	    conditions(r, o, "excludes", &no_any, &no_all, why, sizeof(why)))
		return -1;
	if (!all || no_any) {
		snprintf(text, sizeof(text), "%s (%s)", r->path, why);
		note(r->notes->left_out, sizeof(r->notes->left_out), text);
		r->notes->left_out_count++;
		return 0;
	}
	if (name && one_name(r, name, act, args, n))
		return -1;
	for (size_t i = 0; names && i < json_object_array_length(names); i++) {
		at = enter(r, ".names[%zu]", i);
		if (one_name(r, json_object_array_get_idx(names, i), act, args,
			     n))
			return -1;
		leave(r, at);
	}
	return 0;
}

/* Guests are x86-64 only; a profile without it is for something else. */
static int architectures(struct reader *r, struct json_object *o)
{
	struct json_object *list, *v;
	int found = 0, ret = get(r, o, "architectures", json_type_array, &list);

	if (ret < 0)
		return ret;
	if (ret) {
		list = NULL;
		ret = get(r, o, "archMap", json_type_array, &list);
		if (ret)
			return ret < 0 ? ret : 0;
	}
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		const char *name;

		v = json_object_array_get_idx(list, i);
		if (json_object_is_type(v, json_type_object))
			json_object_object_get_ex(v, "architecture", &v);
		name = v ? json_object_get_string(v) : "null";
		if (!strcmp(name, "SCMP_ARCH_X86_64"))
			found = 1;
		else
			note(r->notes->arches, sizeof(r->notes->arches), name);
	}
	if (!found)
		return wrong(r, "no SCMP_ARCH_X86_64 among the architectures");
	return 0;
}

static int profile(struct reader *r, struct json_object *o)
{
	static const char *const keys[] = {
		"defaultAction", "defaultErrnoRet", "defaultErrno",
		"architectures", "archMap", "syscalls", "flags", "comment",
		"listenerPath", "listenerMetadata", NULL
	};
	struct json_object *v;
	unsigned int err = EPERM;
	int ret;

	if (!json_object_is_type(o, json_type_object))
		return wrong(r, "%s where a profile belongs", type_name(o));
	/* A container's whole config.json has it further down. */
	if (json_object_object_get_ex(o, "linux", &v) &&
	    json_object_object_get_ex(v, "seccomp", &v)) {
		enter(r, "linux.seccomp");
		o = v;
	}
	if (only_keys(r, o, keys) ||
	    errno_value(r, o, "defaultErrnoRet", "defaultErrno", &err) < 0)
		return -1;
	ret = get(r, o, "defaultAction", json_type_string, &v);
	if (ret)
		return ret < 0 ? ret : wrong(r, "no \"defaultAction\"");
	if (action(r, json_object_get_string(v), err, &r->fallback) ||
	    architectures(r, o))
		return -1;
	r->ctx = seccomp_init(r->fallback);
	if (!r->ctx)
		return wrong(r, "libseccomp does not take its default action");
	/* Wherever this runs, the program is for x86-64 alone. */
	if (seccomp_arch_native() != SCMP_ARCH_X86_64 &&
	    (seccomp_arch_add(r->ctx, SCMP_ARCH_X86_64) ||
	     seccomp_arch_remove(r->ctx, SCMP_ARCH_NATIVE)))
		return wrong(r, "libseccomp without x86-64");

	ret = get(r, o, "syscalls", json_type_array, &v);
	if (ret < 0)
		return ret;
	for (size_t i = 0; !ret && i < json_object_array_length(v); i++) {
		size_t at = enter(r, "%ssyscalls[%zu]",
				  r->path[0] ? "." : "", i);

		if (rule(r, json_object_array_get_idx(v, i)))
			return -1;
		leave(r, at);
	}
	return 0;
}

static int export(struct reader *r, struct sock_filter **filter,
		  unsigned int *len)
{
	int fd = memfd_create("policy", MFD_CLOEXEC);
	off_t size;

	if (fd < 0 || seccomp_export_bpf(r->ctx, fd))
		return wrong(r, "libseccomp cannot write the program");
	size = lseek(fd, 0, SEEK_END);
	*filter = malloc((size_t)size);
	if (!*filter || pread(fd, *filter, (size_t)size, 0) != size)
		return wrong(r, "no memory");
	*len = (unsigned int)size / sizeof(**filter);
	close(fd);
	if (*len > BPF_MAXINSNS)
		return wrong(r, "%u instructions, the kernel takes %u", *len,
			     BPF_MAXINSNS);
	return 0;
}

static int syntax(const char *file, const char *text, size_t at,
		  enum json_tokener_error error)
{
	unsigned int line = 1, column = 1;

	for (size_t i = 0; i < at && text[i]; i++) {
		column++;
		if (text[i] == '\n') {
			line++;
			column = 1;
		}
	}
	complain("kvm-fastsys: %s:%u:%u: not JSON: %s\nNext: correct it there, then kvm-fastsys policy show %s",
		 file, line, column,
		 error == json_tokener_continue ? "it ends too early" :
		 json_tokener_error_desc(error), file);
	return -1;
}

int policy_from_json(const char *file, const char *text,
		     const struct policy_host *host,
		     struct sock_filter **filter, unsigned int *len,
		     struct policy_notes *notes)
{
	struct json_tokener *tok = json_tokener_new();
	struct reader r = { .file = file, .host = host, .notes = notes };
	enum json_tokener_error error;
	struct json_object *o;
	size_t end;
	int ret;

	if (!tok)
		return -1;
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
	o = json_tokener_parse_ex(tok, text, (int)strlen(text));
	error = json_tokener_get_error(tok);
	end = json_tokener_get_parse_end(tok);
	json_tokener_free(tok);
	if (error != json_tokener_success)
		return syntax(file, text, end, error);
	end += strspn(text + end, " \t\r\n");
	if (text[end])
		ret = syntax(file, text, end, json_tokener_error_parse_unexpected);
	else
		ret = profile(&r, o);
	if (!ret)
		ret = export(&r, filter, len);
	if (r.ctx)
		seccomp_release(r.ctx);
	json_object_put(o);
	return ret;
}
