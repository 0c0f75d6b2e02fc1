// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A VMM that locks itself in before its guest runs: everything it needs is
 * opened first, then the root directory is an empty one, the user is nobody,
 * and a seccomp filter leaves it what KVM_RUN and its guest's calls take. It
 * attaches the VM from inside the jail: rights are looked at when the device
 * is opened.
 *
 * A filter watches the thread, so that no call of the guest may pass it by:
 * such calls are left to the VMM (KFS_DEFER_EXIT), which makes them where the
 * filter sees them. What the policy answers is answered inside KVM_RUN as ever.
 *
 * Start it as root. The VM is vmm.c's, made by vm.h.
 */
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vm.h"

#define NOBODY 65534

static void lock_in(void)
{
	char dir[] = "/tmp/jail-XXXXXX";

	if (!mkdtemp(dir) || chdir(dir) || rmdir(dir) || chroot("."))
		err(1, "chroot (start it as root)");
	if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		err(1, "nobody");
}

/* What stands between here and the end of the program, and no more. */
static const unsigned int allowed[] = {
	SYS_ioctl, SYS_write, SYS_exit_group,
	/* printf() looks once at what it prints to */
	SYS_newfstatat, SYS_fstat,
};

#define N_ALLOWED (sizeof(allowed) / sizeof(allowed[0]))

static void install_filter(void)
{
	struct sock_filter filter[5 + 2 * N_ALLOWED] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
	}, *f = filter + 4;
	struct sock_fprog program = {
		.len = sizeof(filter) / sizeof(filter[0]), .filter = filter,
	};

	for (size_t i = 0; i < N_ALLOWED; i++) {
		*f++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
						    allowed[i], 0, 1);
		*f++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
						    SECCOMP_RET_ALLOW);
	}
	*f = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
					  SECCOMP_RET_KILL_PROCESS);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1UL, 0UL, 0UL, 0UL) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0UL, &program))
		err(1, "seccomp");
}

static void run(struct vm *vm, const struct kfs_policy *policy)
{
	int result;

	for (;;) {
		if (ioctl(vm->vcpu, KVM_RUN, 0))
			err(1, "KVM_RUN");
		if (kfs_deferred(vm->run, policy))
			continue;
		if (vm->run->exit_reason != KVM_EXIT_IO)
			errx(1, "exit reason %u", vm->run->exit_reason);
		if (vm_result(vm->run, &result))
			return;
	}
}

int main(void)
{
	struct kfs_policy *policy = kfs_policy_new(EPERM);
	const struct sock_filter *filter;
	struct kfs_vm_stats stats;
	int dev, control, ret;
	struct vm vm;

	/* While all is there: devices, memory, the policy's program. */
	vm_create(&vm);
	dev = kfs_open();
	if (dev < 0)
		errx(1, "%s", kfs_strerror(dev, KFS_WHAT_OPEN));
	if (!policy || kfs_policy_allow(policy, "write") ||
	    kfs_policy_filter(policy, &filter) < 0)
		errx(1, "no policy");
	setvbuf(stdout, NULL, _IONBF, 0);

	lock_in();
	install_filter();

	control = kfs_attach(dev, vm.fd, KFS_MODE_IDENTITY, KFS_DEFER_EXIT);
	if (control < 0)
		errx(1, "%s", kfs_strerror(control, KFS_WHAT_ATTACH));
	ret = kfs_set_policy(control, policy);
	if (ret)
		errx(1, "%s", kfs_strerror(ret, KFS_WHAT_SET_POLICY));
	ret = kfs_enable(control);
	if (ret)
		errx(1, "%s", kfs_strerror(ret, KFS_WHAT_ENABLE));
	run(&vm, policy);
	if (!kfs_vm_stats(control, 0, &stats, NULL, 0))
		printf("In KVM_RUN %llu, by the VMM %llu, by the policy %llu.\n",
		       stats.ran, stats.deferred, stats.denied);
	return 0;
}
