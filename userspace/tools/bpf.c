// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The part of classic BPF that seccomp programs may use: checked, run, shown.
 * The launcher judges calls by it when the kernel left them to it, with the
 * same answer.
 */
#include <errno.h>
#include <linux/audit.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <kfs.h>

#include "bpf.h"
#include "tool.h"

static int known(const struct sock_filter *i)
{
	switch (i->code) {
	case BPF_LD | BPF_W | BPF_ABS:
		return i->k < sizeof(struct seccomp_data) && i->k % 4 == 0;
	case BPF_LD | BPF_MEM:
	case BPF_LDX | BPF_MEM:
	case BPF_ST:
	case BPF_STX:
		return i->k < BPF_MEMWORDS;
	case BPF_ALU | BPF_DIV | BPF_K:
		return i->k != 0;
	case BPF_ALU | BPF_LSH | BPF_K:
	case BPF_ALU | BPF_RSH | BPF_K:
		return i->k < 32;
	case BPF_LD | BPF_W | BPF_LEN:
	case BPF_LDX | BPF_W | BPF_LEN:
	case BPF_LD | BPF_IMM:
	case BPF_LDX | BPF_IMM:
	case BPF_MISC | BPF_TAX:
	case BPF_MISC | BPF_TXA:
	case BPF_RET | BPF_K:
	case BPF_RET | BPF_A:
	case BPF_JMP | BPF_JA:
	case BPF_ALU | BPF_NEG:
		return 1;
	}
	if (BPF_CLASS(i->code) == BPF_ALU && !(i->code & ~0xffU))
		switch (BPF_OP(i->code)) {
		case BPF_ADD:
		case BPF_SUB:
		case BPF_MUL:
		case BPF_DIV:
		case BPF_AND:
		case BPF_OR:
		case BPF_XOR:
		case BPF_LSH:
		case BPF_RSH:
			return 1;
		}
	if (BPF_CLASS(i->code) == BPF_JMP && !(i->code & ~0xffU))
		switch (BPF_OP(i->code)) {
		case BPF_JEQ:
		case BPF_JGE:
		case BPF_JGT:
		case BPF_JSET:
			return 1;
		}
	return 0;
}

const char *bpf_check(const struct sock_filter *f, unsigned int len,
		      unsigned int *at)
{
	for (unsigned int pc = 0; pc < len; pc++) {
		uint64_t last = pc + 1UL;

		*at = pc;
		if (!known(&f[pc]))
			return "no instruction of a seccomp program";
		if (BPF_CLASS(f[pc].code) == BPF_JMP)
			last += BPF_OP(f[pc].code) == BPF_JA ? f[pc].k :
				f[pc].jt > f[pc].jf ? f[pc].jt : f[pc].jf;
		if (last >= len && BPF_CLASS(f[pc].code) != BPF_RET)
			return "it leads behind the end";
	}
	*at = 0;
	return len ? NULL : "it has no instruction";
}

static uint32_t alu(uint16_t code, uint32_t a, uint32_t b)
{
	switch (BPF_OP(code)) {
	case BPF_ADD:
		return a + b;
	case BPF_SUB:
		return a - b;
	case BPF_MUL:
		return a * b;
	case BPF_DIV:
		return b ? a / b : 0;
	case BPF_AND:
		return a & b;
	case BPF_OR:
		return a | b;
	case BPF_XOR:
		return a ^ b;
	case BPF_LSH:
		return a << (b & 31);
	case BPF_RSH:
		return a >> (b & 31);
	default:
		return -a;
	}
}

static int taken(uint16_t code, uint32_t a, uint32_t b)
{
	switch (BPF_OP(code)) {
	case BPF_JEQ:
		return a == b;
	case BPF_JGE:
		return a >= b;
	case BPF_JGT:
		return a > b;
	default:
		return !!(a & b);
	}
}

uint32_t bpf_judge(const struct sock_filter *f, unsigned int len,
		   const struct seccomp_data *sd)
{
	uint32_t a = 0, x = 0, mem[BPF_MEMWORDS] = { 0 };

	for (unsigned int pc = 0; pc < len;) {
		const struct sock_filter *i = &f[pc++];
		uint32_t b = BPF_SRC(i->code) == BPF_X ? x : i->k;

		switch (BPF_CLASS(i->code)) {
		case BPF_LD:
			if (BPF_MODE(i->code) == BPF_ABS)
				memcpy(&a, (const char *)sd + i->k, 4);
			else
				a = BPF_MODE(i->code) == BPF_MEM ? mem[i->k] :
				    BPF_MODE(i->code) == BPF_LEN ?
				    (uint32_t)sizeof(*sd) : i->k;
			break;
		case BPF_LDX:
			x = BPF_MODE(i->code) == BPF_MEM ? mem[i->k] :
			    BPF_MODE(i->code) == BPF_LEN ?
			    (uint32_t)sizeof(*sd) : i->k;
			break;
		case BPF_ST:
			mem[i->k] = a;
			break;
		case BPF_STX:
			mem[i->k] = x;
			break;
		case BPF_ALU:
			a = alu(i->code, a, b);
			break;
		case BPF_JMP:
			if (BPF_OP(i->code) == BPF_JA)
				pc += i->k;
			else
				pc += taken(i->code, a, b) ? i->jt : i->jf;
			break;
		case BPF_RET:
			return BPF_RVAL(i->code) == BPF_A ? a : i->k;
		case BPF_MISC:
			if (BPF_MISCOP(i->code) == BPF_TAX)
				x = a;
			else
				a = x;
			break;
		}
	}
	return SECCOMP_RET_KILL_PROCESS;
}

int bpf_by_number(const struct sock_filter *f, unsigned int len, uint32_t nr,
		  uint32_t *ret)
{
	uint32_t a = 0;

	for (unsigned int pc = 0; pc < len;) {
		const struct sock_filter *i = &f[pc++];

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (i->k == offsetof(struct seccomp_data, nr))
				a = nr;
			else if (i->k == offsetof(struct seccomp_data, arch))
				a = AUDIT_ARCH_X86_64;
			else
				return 0;
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= i->k;
			break;
		case BPF_JMP | BPF_JA:
			pc += i->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
		case BPF_JMP | BPF_JGE | BPF_K:
		case BPF_JMP | BPF_JGT | BPF_K:
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += taken(i->code, a, i->k) ? i->jt : i->jf;
			break;
		case BPF_RET | BPF_K:
			*ret = i->k;
			return 1;
		default:
			return 0;
		}
	}
	return 0;
}

int bpf_always_allows(const struct sock_filter *f, unsigned int len,
		      uint32_t nr)
{
	uint32_t ret;

	return bpf_by_number(f, len, nr, &ret) && ret == SECCOMP_RET_ALLOW;
}

const char *bpf_action(uint32_t ret, char *buf, size_t size)
{
	unsigned int value = ret & SECCOMP_RET_DATA;
	const char *name;

	switch (ret & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ALLOW:
		return "allow";
	case SECCOMP_RET_ERRNO:
		name = strerrorname_np((int)value);
		snprintf(buf, size, "errno %s (%u)", name ? name : "?", value);
		return buf;
	case SECCOMP_RET_TRACE:
		snprintf(buf, size, "trace (%u)", value);
		return buf;
	case SECCOMP_RET_TRAP:
		return "trap";
	case SECCOMP_RET_LOG:
		return "log";
	case SECCOMP_RET_USER_NOTIF:
		return "notify";
	case SECCOMP_RET_KILL_THREAD:
		return "kill thread";
	case SECCOMP_RET_KILL_PROCESS:
		return "kill process";
	}
	snprintf(buf, size, "unknown action %#x", ret);
	return buf;
}

static const char *field(uint32_t k, char *buf, size_t size)
{
	uint32_t i = k - offsetof(struct seccomp_data, args);

	switch (k) {
	case offsetof(struct seccomp_data, nr):
		return "nr";
	case offsetof(struct seccomp_data, arch):
		return "arch";
	case offsetof(struct seccomp_data, instruction_pointer):
		return "ip.low";
	case offsetof(struct seccomp_data, instruction_pointer) + 4:
		return "ip.high";
	}
	snprintf(buf, size, "args[%u].%s", i / 8, i % 8 ? "high" : "low");
	return buf;
}

static void print_alu(FILE *out, const struct sock_filter *i)
{
	static const char *const ops[16] = {
		"+", "-", "*", "/", "|", "&", "<<", ">>", "neg", "%", "^",
	};

	if (BPF_OP(i->code) == BPF_NEG)
		fprintf(out, "A = -A\n");
	else if (BPF_SRC(i->code) == BPF_X)
		fprintf(out, "A = A %s X\n", ops[BPF_OP(i->code) >> 4]);
	else
		fprintf(out, "A = A %s %#x\n", ops[BPF_OP(i->code) >> 4], i->k);
}

/* `loaded` is where A came from, so that numbers can be named. */
static void print_jump(FILE *out, const struct sock_filter *i,
		       unsigned int pc, uint32_t loaded)
{
	static const char *const ops[] = { NULL, "==", ">", ">=", "&" };
	const char *name = NULL;

	if (BPF_OP(i->code) == BPF_JA) {
		fprintf(out, "go to %u\n", pc + 1 + i->k);
		return;
	}
	if (BPF_SRC(i->code) == BPF_X) {
		fprintf(out, "A %s X", ops[BPF_OP(i->code) >> 4]);
	} else {
		fprintf(out, "A %s %#x", ops[BPF_OP(i->code) >> 4], i->k);
		if (loaded == offsetof(struct seccomp_data, nr))
			name = kfs_syscall_name(i->k);
		else if (loaded == offsetof(struct seccomp_data, arch) &&
			 i->k == AUDIT_ARCH_X86_64)
			name = "x86-64";
		if (name)
			fprintf(out, " (%s)", name);
	}
	fprintf(out, " ? %u : %u\n", pc + 1 + i->jt, pc + 1 + i->jf);
}

void bpf_print(FILE *out, const struct sock_filter *f, unsigned int len)
{
	/* where A came from: at each target of a jump, and now */
	uint32_t *at = calloc(len, sizeof(*at)), loaded = ~0U;
	char buf[64];

	for (unsigned int pc = 0; at && pc < len; pc++) {
		const struct sock_filter *i = &f[pc];
		char reg = BPF_CLASS(i->code) & 1 ? 'X' : 'A';

		if (pc && (BPF_CLASS(f[pc - 1].code) == BPF_JMP ||
			   BPF_CLASS(f[pc - 1].code) == BPF_RET))
			loaded = at[pc];
		fprintf(out, "%5u  ", pc);
		switch (BPF_CLASS(i->code)) {
		case BPF_LD:
		case BPF_LDX:
			if (BPF_CLASS(i->code) == BPF_LD)
				loaded = BPF_MODE(i->code) == BPF_ABS ? i->k :
					 ~0U;
			if (BPF_MODE(i->code) == BPF_ABS)
				fprintf(out, "%c = %s\n", reg,
					field(i->k, buf, sizeof(buf)));
			else if (BPF_MODE(i->code) == BPF_MEM)
				fprintf(out, "%c = M[%u]\n", reg, i->k);
			else
				fprintf(out, "%c = %#x\n", reg,
					BPF_MODE(i->code) == BPF_LEN ?
					(uint32_t)sizeof(struct seccomp_data) :
					i->k);
			break;
		case BPF_ST:
		case BPF_STX:
			fprintf(out, "M[%u] = %c\n", i->k, reg);
			break;
		case BPF_ALU:
			loaded = ~0U;
			print_alu(out, i);
			break;
		case BPF_JMP:
			print_jump(out, i, pc, loaded);
			if (BPF_OP(i->code) == BPF_JA) {
				at[pc + 1 + i->k] = loaded;
			} else {
				at[pc + 1 + i->jt] = loaded;
				at[pc + 1 + i->jf] = loaded;
			}
			break;
		case BPF_RET:
			fprintf(out, "%s\n", BPF_RVAL(i->code) == BPF_A ?
				"return A" :
				bpf_action(i->k, buf, sizeof(buf)));
			break;
		default:
			fprintf(out, BPF_MISCOP(i->code) == BPF_TAX ?
				"X = A\n" : "A = X\n");
		}
	}
	free(at);
}

int bpf_errno(const char *text)
{
	static const struct {
		const char *name;
		int err;
	} second_names[] = {
		{ "EWOULDBLOCK", EWOULDBLOCK }, { "EDEADLOCK", EDEADLOCK },
		{ "ENOTSUP", ENOTSUP },
	};
	unsigned long long n;

	if (parse_number(text, 0, 1 << 20, &n))
		return (int)n;
	for (int err = 1; err < 256; err++) {
		const char *name = strerrorname_np(err);

		if (name && !strcmp(name, text))
			return err;
	}
	for (size_t i = 0; i < sizeof(second_names) / sizeof(second_names[0]);
	     i++)
		if (!strcmp(second_names[i].name, text))
			return second_names[i].err;
	return -1;
}
