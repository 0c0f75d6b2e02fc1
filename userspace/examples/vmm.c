// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A VMM of one screen that owns its loop and gives its guest host system
 * calls. What kvm_fastsys adds to any VMM is marked with numbers:
 *
 *  1  attach the VM, give it a policy, switch it on
 *  2  make the calls that the kernel left to the VMM
 *  3  tell the guest by CPUID that it can ask (in vm.h)
 *
 * Identity mode: the guest's addresses are the VMM's. It may write and nothing
 * else. Without the module its calls answer -1000 and the VMM says so.
 * vmm.rs and vmm.go are the same without a library.
 */
#include <errno.h>
#include <unistd.h>

#include "vm.h"

/* 1: without the module the VM runs all the same */
static void attach(int vm, struct kfs_policy *policy)
{
	int dev = kfs_open();
	int control, ret;

	if (dev < 0) {
		warnx("%s", kfs_strerror(dev, KFS_WHAT_OPEN));
		return;
	}
	control = kfs_attach(dev, vm, KFS_MODE_IDENTITY, KFS_DEFER_EXIT);
	if (control < 0)
		errx(1, "%s", kfs_strerror(control, KFS_WHAT_ATTACH));
	ret = kfs_set_policy(control, policy);
	if (ret)
		errx(1, "%s", kfs_strerror(ret, KFS_WHAT_SET_POLICY));
	ret = kfs_enable(control);
	if (ret)
		errx(1, "%s", kfs_strerror(ret, KFS_WHAT_ENABLE));
}

int main(void)
{
	struct kfs_policy *policy = kfs_policy_new(EPERM);
	struct vm vm;
	int result;

	vm_create(&vm);
	if (!policy || kfs_policy_allow(policy, "write"))
		errx(1, "no policy");
	attach(vm.fd, policy);

	for (;;) {
		if (ioctl(vm.vcpu, KVM_RUN, 0))
			err(1, "KVM_RUN");
		switch (vm.run->exit_reason) {
		case KVM_EXIT_HYPERCALL:
			/* 2 */
			if (kfs_deferred(vm.run, policy))
				continue;
			errx(1, "a hypercall of somebody else's");
		case KVM_EXIT_IO:
			if (vm_result(vm.run, &result))
				return result == -KFS_ENOSYS ? 3 : 0;
			continue;
		default:
			errx(1, "exit reason %u", vm.run->exit_reason);
		}
	}
}
