// SPDX-License-Identifier: GPL-2.0
/*
 * Which calls are allowed.
 *
 * A policy is a stack of seccomp-format programs, newest first. All of them
 * judge, the strictest answer counts (the lowest action, compared as a signed
 * number, as seccomp does). Programs are only ever added while calls run: a
 * published stack is never changed or freed before the VM object, so calls
 * walk it without a lock.
 *
 * From each program the set of calls it allows whatever their arguments is
 * derived once, so that the usual call costs one bit.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/slab.h>

#include "kfs.h"

struct kfs_policy {
	struct kfs_policy *prev;
	struct bpf_prog *prog;
	unsigned int depth;
};

/*
 * Classic BPF that may judge system calls: what seccomp takes. Loads come from
 * struct seccomp_data only, on whole aligned words; the code the kernel's
 * converter knows for them is LDX|W|ABS.
 */
static int kfs_check_insn(struct sock_filter *insn)
{
	switch (insn->code) {
	case BPF_LD | BPF_W | BPF_ABS:
		if (insn->k >= sizeof(struct seccomp_data) || insn->k % 4)
			return -EINVAL;
		insn->code = BPF_LDX | BPF_W | BPF_ABS;
		return 0;
	case BPF_LD | BPF_W | BPF_LEN:
		insn->code = BPF_LD | BPF_IMM;
		insn->k = sizeof(struct seccomp_data);
		return 0;
	case BPF_LDX | BPF_W | BPF_LEN:
		insn->code = BPF_LDX | BPF_IMM;
		insn->k = sizeof(struct seccomp_data);
		return 0;
	case BPF_LD | BPF_IMM:
	case BPF_LD | BPF_MEM:
	case BPF_LDX | BPF_IMM:
	case BPF_LDX | BPF_MEM:
	case BPF_ST:
	case BPF_STX:
	case BPF_MISC | BPF_TAX:
	case BPF_MISC | BPF_TXA:
	case BPF_RET | BPF_K:
	case BPF_RET | BPF_A:
	case BPF_JMP | BPF_JA:
		return 0;
	}

	if (insn->code & ~(BPF_X | 0xf7))
		return -EINVAL;
	switch (BPF_CLASS(insn->code)) {
	case BPF_ALU:
		switch (BPF_OP(insn->code)) {
		case BPF_ADD:
		case BPF_SUB:
		case BPF_MUL:
		case BPF_DIV:
		case BPF_AND:
		case BPF_OR:
		case BPF_XOR:
		case BPF_LSH:
		case BPF_RSH:
			return 0;
		case BPF_NEG:
			return BPF_SRC(insn->code) == BPF_K ? 0 : -EINVAL;
		}
		break;
	case BPF_JMP:
		switch (BPF_OP(insn->code)) {
		case BPF_JEQ:
		case BPF_JGE:
		case BPF_JGT:
		case BPF_JSET:
			return 0;
		}
		break;
	}
	return -EINVAL;
}

static int kfs_check_program(struct sock_filter *insns, unsigned int count)
{
	unsigned int i;
	int err;

	for (i = 0; i < count; i++) {
		err = kfs_check_insn(&insns[i]);
		if (err)
			return err;
	}
	return 0;
}

static bool kfs_jump_taken(const struct sock_filter *insn, u32 a)
{
	switch (BPF_OP(insn->code)) {
	case BPF_JEQ:
		return a == insn->k;
	case BPF_JGE:
		return a >= insn->k;
	case BPF_JGT:
		return a > insn->k;
	default:
		return a & insn->k;	/* BPF_JSET */
	}
}

/*
 * Does the program allow this number without looking at anything but the
 * number and the architecture? Follows the one path they decide; the first
 * instruction that could depend on more means no. Jumps only go forward (the
 * kernel has checked that), so this ends.
 */
static bool kfs_always_allows(const struct sock_fprog_kern *fp, u32 nr)
{
	unsigned int pc = 0;
	u32 a = 0;

	while (pc < fp->len) {
		const struct sock_filter *insn = &fp->filter[pc++];

		switch (insn->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (insn->k == offsetof(struct seccomp_data, nr))
				a = nr;
			else if (insn->k == offsetof(struct seccomp_data, arch))
				a = AUDIT_ARCH_X86_64;
			else
				return false;
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= insn->k;
			break;
		case BPF_JMP | BPF_JA:
			pc += insn->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
		case BPF_JMP | BPF_JGE | BPF_K:
		case BPF_JMP | BPF_JGT | BPF_K:
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += kfs_jump_taken(insn, a) ? insn->jt : insn->jf;
			break;
		case BPF_RET | BPF_K:
			return insn->k == SECCOMP_RET_ALLOW;
		default:
			return false;
		}
	}
	return false;
}

static void kfs_policy_free_one(struct kfs_policy *policy)
{
	bpf_prog_destroy(policy->prog);
	kfree(policy);
}

void kfs_policy_free(struct kfs_policy *policy)
{
	while (policy) {
		struct kfs_policy *prev = policy->prev;

		kfs_policy_free_one(policy);
		policy = prev;
	}
}

/*
 * Adds a program to the stack or, before any call can run, puts it in place of
 * the stack. Under vm->lock. On error nothing has changed.
 */
int kfs_policy_add(struct kfs_vm *vm, const struct kfs_set_policy *req)
{
	struct sock_fprog fprog = {
		.len = req->count,
		.filter = u64_to_user_ptr(req->filter),
	};
	bool stack = test_bit(KFS_VM_BIT_ENABLED, &vm->bits);
	struct kfs_policy *old = vm->policy;
	struct kfs_policy *below = stack ? old : NULL;
	struct kfs_policy *policy;
	unsigned int nr;
	int err;

	if (!req->count || req->count > BPF_MAXINSNS)
		return -EINVAL;
	if (below && below->depth >= KFS_MAX_FILTERS)
		return -ENOSPC;

	policy = kzalloc(sizeof(*policy), GFP_KERNEL_ACCOUNT);
	if (!policy)
		return -ENOMEM;
	/*
	 * The kernel keeps the program as it was given too: the bitmap is
	 * derived from those very bytes, not from a second read.
	 */
	err = bpf_prog_create_from_user(&policy->prog, &fprog,
					kfs_check_program, true);
	if (err) {
		kfree(policy);
		return err;
	}
	/*
	 * Judged by the pointer, not by `stack`: gcc 14 turned the latter into
	 * a load through the pointer first and a mask after it.
	 */
	policy->depth = below ? below->depth + 1 : 1;
	policy->prev = below;

	if (!stack)
		bitmap_fill(vm->allowed, KFS_NR_LIMIT);
	/*
	 * A call that still sees a bit or a plain row about to go was allowed
	 * before this ioctl returned. One that finds it gone must find the
	 * program: publish it first.
	 */
	smp_store_release(&vm->policy, policy);
	for (nr = 0; nr < KFS_NR_LIMIT; nr++) {
		if (kfs_always_allows(policy->prog->orig_prog, nr))
			continue;
		/* After the program, as said above. */
		smp_store_release(&vm->plain[nr], KFS_ROW_NONE);
		clear_bit(nr, vm->allowed);
	}

	if (!stack)
		kfs_policy_free(old);
	return 0;
}

/*
 * The verdict on what the guest asked. *answer is the guest's result for
 * KFS_ANSWER. The instruction pointer a program sees is that of the VMM's own
 * KVM_RUN, as seccomp would show it.
 */
enum kfs_verdict kfs_policy_judge(const struct kfs_policy *policy,
				  unsigned int nr, const struct pt_regs *regs,
				  long *answer)
{
	struct seccomp_data sd = {
		.nr = nr,
		.arch = AUDIT_ARCH_X86_64,
		.instruction_pointer = task_pt_regs(current)->ip,
		.args = { regs->di, regs->si, regs->dx,
			  regs->r10, regs->r8, regs->r9 },
	};
	u32 strictest = SECCOMP_RET_ALLOW;

	for (; policy; policy = policy->prev) {
		u32 ret = bpf_prog_run_pin_on_cpu(policy->prog, &sd);

		if ((s32)(ret & SECCOMP_RET_ACTION_FULL) <
		    (s32)(strictest & SECCOMP_RET_ACTION_FULL))
			strictest = ret;
	}

	switch (strictest & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ALLOW:
		return KFS_ALLOW;
	case SECCOMP_RET_ERRNO:
		*answer = -(long)min_t(u32, strictest & SECCOMP_RET_DATA,
				       MAX_ERRNO);
		return KFS_ANSWER;
	default:
		return KFS_DECLINE;
	}
}
