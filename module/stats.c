// SPDX-License-Identifier: GPL-2.0
/*
 * Adds up what vCPUs counted. Counters are written without locks by one thread
 * each, so a sum is a snapshot of moving parts, each part exact.
 */
#include <linux/cred.h>
#include <linux/percpu.h>
#include <linux/pid_namespace.h>
#include <linux/uaccess.h>

#include "kfs.h"

static DEFINE_PER_CPU(u64, kfs_unattached_calls);

void kfs_count_unattached(void)
{
	this_cpu_inc(kfs_unattached_calls);
}

u64 kfs_unattached(void)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(kfs_unattached_calls, cpu));
	return sum;
}

static void kfs_add_vcpu(struct kfs_vm_stats *st, const struct kfs_vcpu *kv)
{
	unsigned int i;

	st->vcpus++;
	if (READ_ONCE(kv->task))
		st->in_call++;
	st->denied += READ_ONCE(kv->denied);
	st->deferred += READ_ONCE(kv->deferred);
	st->refused += READ_ONCE(kv->refused);
	st->interrupted += READ_ONCE(kv->interrupted);
	st->resumed += READ_ONCE(kv->resumed);
	st->probes += READ_ONCE(kv->probes);
	for (i = 0; i < KFS_REASON_COUNT; i++)
		st->declined[i] += READ_ONCE(kv->declined[i]);
	for (i = 0; i < KFS_ROW_COUNT; i++)
		st->ran += READ_ONCE(kv->row_ran[i]);
}

static struct kfs_call_stats kfs_sum_row(struct kfs_vm *vm, unsigned int row)
{
	struct kfs_call_stats sum = { .nr = kfs_row_nr[row] };
	unsigned int i;

	for (i = 0; i < KVM_MAX_VCPUS; i++) {
		struct kfs_vcpu *kv = kfs_vm_vcpu(vm, i);

		if (!kv)
			continue;
		sum.ran += READ_ONCE(kv->row_ran[row]);
		sum.denied += READ_ONCE(kv->row_denied[row]);
		sum.declined += READ_ONCE(kv->row_declined[row]);
	}
	return sum;
}

/* Calls that were asked for at least once, as many as fit. */
static int kfs_fill_calls(struct kfs_vm *vm, struct kfs_vm_stats *st)
{
	struct kfs_call_stats __user *to = u64_to_user_ptr(st->calls);
	u32 filled = 0;
	unsigned int row;

	for (row = 1; row < KFS_ROW_COUNT && filled < st->calls_len; row++) {
		struct kfs_call_stats sum = kfs_sum_row(vm, row);

		if (!sum.ran && !sum.denied && !sum.declined)
			continue;
		if (copy_to_user(to + filled, &sum, sizeof(sum)))
			return -EFAULT;
		filled++;
	}
	st->calls_len = filled;
	return 0;
}

int kfs_vm_stats(struct kfs_vm *vm, struct kfs_vm_stats *st)
{
	u64 calls = st->calls;
	u32 calls_len = st->calls_len;
	u32 size = st->size;
	unsigned int i;

	BUILD_BUG_ON(KFS_REASON_COUNT > ARRAY_SIZE(st->declined));
	memset(st, 0, sizeof(*st));
	st->size = size;
	st->calls = calls;
	st->calls_len = calls_len;
	st->id = vm->id;
	st->pid = pid_nr_ns(vm->tgid, task_active_pid_ns(current));
	st->uid = from_kuid_munged(current_user_ns(), vm->uid);
	st->mode = vm->mode;
	st->attach_flags = vm->flags;
	if (test_bit(KFS_VM_BIT_DYING, &vm->bits))
		st->state = KFS_VM_DYING;
	else if (test_bit(KFS_VM_BIT_ENABLED, &vm->bits))
		st->state = KFS_VM_ENABLED;
	else
		st->state = KFS_VM_ATTACHED;
	memcpy(st->comm, vm->comm, sizeof(st->comm));
	st->declined[KFS_REASON_NO_MEMORY] = atomic64_read(&vm->no_memory);

	for (i = 0; i < KVM_MAX_VCPUS; i++) {
		struct kfs_vcpu *kv = kfs_vm_vcpu(vm, i);

		if (kv)
			kfs_add_vcpu(st, kv);
	}
	if (!calls)
		return calls_len ? -EINVAL : 0;
	return kfs_fill_calls(vm, st);
}
