// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A VMM of one screen that owns its loop and gives its guest host system
 * calls. What kvm_fastsys adds to any VMM is marked with numbers:
 *
 *  1  attach the VM, give it a policy, switch it on
 *  2  make the calls that the kernel left to the VMM
 *  3  tell the guest by CPUID that it can ask (this one asks anyway)
 *
 * The guest is 30 bytes of code in ring 0. Identity mode: its addresses are
 * the VMM's, so its page lies at one address in both. Without the module the
 * guest's call answers -1000 and the VMM says so.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kfs.h>

#define BASE 0x200000UL		/* the guest's memory, here and there */
#define SIZE 0x200000UL
#define TEXT (BASE + 0x800)
#define TABLES (BASE + 0x1000)

static const char text[] = "Hello from ring 0.\n";

static const unsigned char code[] = {
	0xb8, 0x01, 0x53, 0x46, 0x4b,	/* mov $KFS_HC_SYSCALL, %eax */
	0xbb, 1, 0, 0, 0,		/* mov $1 (write), %ebx */
	0xbf, 1, 0, 0, 0,		/* mov $1 (stdout), %edi */
	0xbe, 0x00, 0x08, 0x20, 0,	/* mov $TEXT, %esi */
	0xba, sizeof(text) - 1, 0, 0, 0,	/* mov $length, %edx */
	0x0f, 0x01, 0xd9,		/* vmmcall (KVM makes it vmcall) */
	0xe7, 0x10,			/* out %eax, $0x10: the result */
};

/* 64-bit mode with one page of 2 MB, mapped to itself. */
static void start_state(int kvm, int vcpu, char *memory)
{
	__u64 *table = (__u64 *)(memory + (TABLES - BASE));
	struct kvm_regs regs = { .rip = BASE, .rflags = 2 };
	static struct {
		struct kvm_cpuid2 table;
		struct kvm_cpuid_entry2 entries[128];
	} cpuid = { .table.nent = 127 };
	struct kvm_sregs s;

	/* 3 */
	if (ioctl(kvm, KVM_GET_SUPPORTED_CPUID, &cpuid) ||
	    kfs_cpuid_add(&cpuid.table, 128) ||
	    ioctl(vcpu, KVM_SET_CPUID2, &cpuid))
		err(1, "CPUID");
	table[0] = (TABLES + 0x1000) | 3;
	table[512] = (TABLES + 0x2000) | 3;
	table[1024 + BASE / SIZE] = BASE | 0x83;
	if (ioctl(vcpu, KVM_GET_SREGS, &s))
		err(1, "KVM_GET_SREGS");
	s.cr3 = TABLES;
	s.cr4 = 1 << 5;
	s.cr0 = 0x80000001;
	s.efer = 0x500;
	s.cs = (struct kvm_segment) { .limit = ~0U, .selector = 8, .type = 11,
				      .present = 1, .s = 1, .l = 1, .g = 1 };
	if (ioctl(vcpu, KVM_SET_SREGS, &s) || ioctl(vcpu, KVM_SET_REGS, &regs))
		err(1, "KVM_SET_REGS");
}

int main(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int vm = ioctl(kvm, KVM_CREATE_VM, 0);
	int vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	char *memory = mmap((void *)BASE, SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			    -1, 0);
	struct kvm_userspace_memory_region slot = {
		.guest_phys_addr = BASE, .memory_size = SIZE,
		.userspace_addr = BASE,
	};
	struct kfs_policy *policy;
	struct kvm_run *run;
	int dev, control, ret;
	long result;

	if (vcpu < 0 || memory == MAP_FAILED)
		err(1, "KVM");
	memcpy(memory, code, sizeof(code));
	memcpy(memory + (TEXT - BASE), text, sizeof(text));
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot))
		err(1, "KVM_SET_USER_MEMORY_REGION");
	run = mmap(NULL, (size_t)ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0),
		   PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (run == MAP_FAILED)
		err(1, "kvm_run");
	start_state(kvm, vcpu, memory);

	/* 1: without the module the VM runs all the same */
	policy = kfs_policy_new(EPERM);
	if (!policy || kfs_policy_allow(policy, "write"))
		errx(1, "no policy");
	dev = kfs_open();
	if (dev < 0) {
		warnx("%s", kfs_strerror(dev, KFS_WHAT_OPEN));
	} else {
		control = kfs_attach(dev, vm, KFS_MODE_IDENTITY,
				     KFS_DEFER_EXIT);
		if (control < 0)
			errx(1, "%s", kfs_strerror(control, KFS_WHAT_ATTACH));
		ret = kfs_set_policy(control, policy);
		if (ret)
			errx(1, "%s", kfs_strerror(ret, KFS_WHAT_SET_POLICY));
		ret = kfs_enable(control);
		if (ret)
			errx(1, "%s", kfs_strerror(ret, KFS_WHAT_ENABLE));
	}

	for (;;) {
		if (ioctl(vcpu, KVM_RUN, 0))
			err(1, "KVM_RUN");
		switch (run->exit_reason) {
		case KVM_EXIT_HYPERCALL:
			/* 2 */
			if (kfs_deferred(run, policy))
				continue;
			errx(1, "a hypercall of somebody else's");
		case KVM_EXIT_IO:
			result = *(int *)((char *)run + run->io.data_offset);
			printf("The guest's write gave %ld.\n", result);
			return result == sizeof(text) - 1 ? 0 :
			       result == -KFS_ENOSYS ? 3 : 1;
		default:
			errx(1, "exit reason %u", run->exit_reason);
		}
	}
}
