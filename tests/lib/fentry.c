// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * By hand, without libbpf: the function's id is in the kernel's own type
 * information, the program is two instructions.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <linux/bpf.h>
#include <linux/btf.h>

#include "fentry.h"

struct blob {
	char *data;
	size_t size;
	const struct btf_header *head;
	const char *types, *strings;
};

static int load(const char *name, struct blob *b)
{
	char path[128];
	size_t room = 1 << 20;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/btf/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	memset(b, 0, sizeof(*b));
	do {
		if (room - b->size < 65536)
			room *= 2;
		b->data = realloc(b->data, room);
		if (!b->data)
			abort();
		n = read(fd, b->data + b->size, room - b->size);
		b->size += n > 0 ? n : 0;
	} while (n > 0);
	close(fd);
	if (b->size < sizeof(*b->head))
		return -EINVAL;
	b->head = (void *)b->data;
	b->types = b->data + b->head->hdr_len + b->head->type_off;
	b->strings = b->data + b->head->hdr_len + b->head->str_off;
	return 0;
}

/* What follows a type of this kind. */
static size_t trailer(const struct btf_type *t)
{
	size_t n = BTF_INFO_VLEN(t->info);

	switch (BTF_INFO_KIND(t->info)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
	case BTF_KIND_DATASEC:
	case BTF_KIND_ENUM64:
		return n * 12;
	case BTF_KIND_ENUM:
	case BTF_KIND_FUNC_PROTO:
		return n * 8;
	}
	return 0;
}

/* The function's position among the types, from 1; 0 when it is not there. */
static uint32_t find(const struct blob *b, const char *function,
		     uint32_t strings_before, uint32_t *count)
{
	const char *p = b->types, *end = p + b->head->type_len;
	uint32_t id = 0, found = 0;

	while (p < end) {
		const struct btf_type *t = (const void *)p;

		id++;
		if (function && BTF_INFO_KIND(t->info) == BTF_KIND_FUNC &&
		    t->name_off >= strings_before &&
		    !strcmp(b->strings + t->name_off - strings_before,
			    function))
			found = id;
		p += sizeof(*t) + trailer(t);
	}
	*count = id;
	return found;
}

static int bpf(int cmd, union bpf_attr *attr)
{
	long ret = syscall(SYS_bpf, cmd, attr, sizeof(*attr));

	return ret < 0 ? -errno : ret;
}

static int module_btf(const char *module)
{
	uint32_t id = 0;

	for (;;) {
		char name[64] = "";
		struct bpf_btf_info info = {
			.name = (uintptr_t)name, .name_len = sizeof(name),
		};
		union bpf_attr attr = { .start_id = id };
		int fd;

		if (bpf(BPF_BTF_GET_NEXT_ID, &attr))
			return -ENOENT;
		id = attr.next_id;
		attr = (union bpf_attr){ .btf_id = id };
		fd = bpf(BPF_BTF_GET_FD_BY_ID, &attr);
		if (fd < 0)
			continue;
		attr = (union bpf_attr){ .info = {
			.bpf_fd = fd, .info_len = sizeof(info),
			.info = (uintptr_t)&info,
		} };
		if (!bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) && info.kernel_btf &&
		    !strcmp(name, module))
			return fd;
		close(fd);
	}
}

static int attach(int btf, uint32_t id, const char **why)
{
	/* r0 = 0; exit */
	static const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_TRACING,
		.expected_attach_type = BPF_TRACE_FENTRY,
		.attach_btf_id = id, .attach_btf_obj_fd = btf,
		.insns = (uintptr_t)insns, .insn_cnt = 2,
		.license = (uintptr_t)"GPL",
	};
	int prog = bpf(BPF_PROG_LOAD, &attr);
	int link;

	if (prog < 0) {
		*why = "the kernel takes no program for this function";
		return prog;
	}
	attr = (union bpf_attr){ .raw_tracepoint = { .prog_fd = prog } };
	link = bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);
	close(prog);
	if (link < 0)
		*why = "the program cannot be attached";
	return link;
}

int fentry_attach(const char *module, const char *function, const char **why)
{
	struct blob base, split;
	uint32_t before, count, id;
	int btf, err;

	*why = "no type information for this module in /sys/kernel/btf";
	err = load("vmlinux", &base);
	if (!err)
		err = load(module, &split);
	if (err)
		return err;
	find(&base, NULL, 0, &before);
	id = find(&split, function, base.head->str_len, &count);
	btf = module_btf(module);
	if (!id || btf < 0)
		return -ENOENT;
	err = attach(btf, before + id, why);
	close(btf);
	free(base.data);
	free(split.data);
	return err;
}
