// SPDX-License-Identifier: MIT OR LGPL-2.1
/* See kfstest.h: a VM under test and its guest. */
#include "kfstest.h"

uint32_t guest_calls(struct tlist *list)
{
	uint32_t i;

	for (i = 0; i < list->count; i++) {
		struct tcall *c = &list->call[i];

		c->ret = gvm_hypercall(c->rax ? c->rax : KFS_HC_SYSCALL, c->nr,
				       c->args[0], c->args[1], c->args[2],
				       c->args[3], c->args[4], c->args[5]);
		*(volatile uint32_t *)&list->done = i + 1;
	}
	return 0x600d;
}

static int failed(struct tvm *t, int err, const char *what)
{
	snprintf(t->vm.error, sizeof(t->vm.error), "%s: %s", what,
		 strerror(-err));
	return err;
}

int tvm_create(struct tvm *t, uint32_t attach_flags, unsigned int tvm_flags)
{
	struct gvm_opts opts = { .irqchip = tvm_flags & TVM_IRQCHIP };
	int err;

	memset(t, 0, sizeof(*t));
	t->dev = t->ctl = -1;
	err = gvm_create(&t->vm, &opts);
	if (err)
		return err;
	err = gvm_vcpu_create(&t->vm, &t->vcpu);
	if (err)
		return err;
	t->list = gvm_alloc(&t->vm, sizeof(*t->list), 64);
	if (!t->list)
		return -ENOMEM;
	if (tvm_flags & TVM_UNATTACHED)
		return 0;

	t->dev = kfs_open();
	if (t->dev < 0)
		return failed(t, t->dev, KFS_DEVICE_PATH);
	t->ctl = kfs_attach(t->dev, t->vm.vm_fd, KFS_MODE_IDENTITY,
			    attach_flags);
	if (t->ctl < 0)
		return failed(t, t->ctl, "KFS_ATTACH_VM");
	err = kfs_policy_ret(t->ctl, SECCOMP_RET_ALLOW);
	if (err)
		return failed(t, err, "KFS_SET_POLICY");
	if (tvm_flags & TVM_NOT_ENABLED)
		return 0;
	err = kfs_enable(t->ctl);
	if (err)
		return failed(t, err, "KFS_ENABLE");
	return 0;
}

void tvm_destroy(struct tvm *t)
{
	gvm_destroy(&t->vm);
	if (t->ctl >= 0)
		close(t->ctl);
	if (t->dev >= 0)
		close(t->dev);
	t->ctl = t->dev = -1;
}

int tvm_prepare(struct tvm *t, long nr, const uint64_t args[6])
{
	t->list->count = 1;
	t->list->done = 0;
	t->list->call[0] = (struct tcall){ .nr = nr };
	if (args)
		memcpy(t->list->call[0].args, args, sizeof(uint64_t) * 6);
	return gvm_set_entry(t->vcpu, guest_calls, t->list, GVM_RING0);
}

static void deferred(struct tvm *t)
{
	struct kvm_run *run = t->vcpu->run;

	t->deferred++;
	t->defer_nr = run->hypercall.nr;
	memcpy(t->defer_args, (const void *)run->hypercall.args,
	       sizeof(t->defer_args));
	if (t->serve && KFS_EXIT_IS_CALL(run->hypercall.nr))
		run->hypercall.ret = native(KFS_EXIT_CALL(run->hypercall.nr),
			run->hypercall.args[0], run->hypercall.args[1],
			run->hypercall.args[2], run->hypercall.args[3],
			run->hypercall.args[4], run->hypercall.args[5]);
}

int tvm_run(struct tvm *t, int64_t *ret)
{
	for (;;) {
		int err = gvm_run(t->vcpu);

		if (err == -EINTR) {
			t->eintr++;
			continue;
		}
		if (err)
			return failed(t, err, "KVM_RUN");
		switch (gvm_event(t->vcpu, NULL)) {
		case GVM_HYPERCALL:
			deferred(t);
			continue;
		case GVM_DONE:
			if (ret)
				*ret = t->list->call[0].ret;
			return 0;
		default:
			gvm_describe(t->vcpu);
			return -EPROTO;
		}
	}
}

int64_t tvm_call(struct tvm *t, long nr, uint64_t a0, uint64_t a1,
		 uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
	const uint64_t args[6] = { a0, a1, a2, a3, a4, a5 };
	int64_t ret;

	if (tvm_prepare(t, nr, args) || tvm_run(t, &ret))
		return INT64_MIN;
	return ret;
}

int64_t tvm_probe(struct tvm *t)
{
	int64_t ret;

	if (tvm_prepare(t, 0, NULL))
		return INT64_MIN;
	t->list->call[0].rax = KFS_HC_PROBE;
	return tvm_run(t, &ret) ? INT64_MIN : ret;
}

int tvm_set_hyperv_cpuid(struct tvm *t)
{
	struct kvm_cpuid2 *list = calloc(1, sizeof(*list) +
					 64 * sizeof(list->entries[0]));
	int err;

	list->nent = 64;
	err = ioctl(t->vcpu->fd, KVM_GET_SUPPORTED_HV_CPUID, list) ? -errno :
		gvm_vcpu_set_cpuid(t->vcpu, list->entries, list->nent);
	free(list);
	return err;
}
