/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * The VM of vmm.c and jailed.c: plain KVM, nothing of kvm_fastsys but the CPUID
 * leaf. One vCPU and 45 bytes of guest code in ring 0.
 */
#ifndef VM_H
#define VM_H

#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <kfs.h>

#define BASE 0x200000UL		/* the guest's memory, here and there */
#define SIZE 0x200000UL
#define TEXT (BASE + 0x800)
#define TABLES (BASE + 0x1000)

struct vm {
	int kvm, fd, vcpu;
	struct kvm_run *run;
};

static const char vm_text[] = "Hello from ring 0.\n";

static const unsigned char vm_code[] = {
	0xb8, 0x01, 0x53, 0x46, 0x4b,	/* mov $KFS_HC_SYSCALL, %eax */
	0xbb, 1, 0, 0, 0,		/* mov $1 (write), %ebx */
	0xbf, 1, 0, 0, 0,		/* mov $1 (stdout), %edi */
	0xbe, 0x00, 0x08, 0x20, 0,	/* mov $TEXT, %esi */
	0xba, sizeof(vm_text) - 1, 0, 0, 0,	/* mov $length, %edx */
	0x0f, 0x01, 0xd9,		/* vmmcall (KVM makes it vmcall) */
	0xe7, 0x10,			/* out %eax, $0x10: the result */
	0xb8, 0x01, 0x53, 0x46, 0x4b,	/* the same for call 39, getpid */
	0xbb, 39, 0, 0, 0,
	0x0f, 0x01, 0xd9,
	0xe7, 0x11,			/* out %eax, $0x11 */
};

/* 64-bit mode with one page of 2 MB, mapped to itself. */
static void vm_start_state(struct vm *vm)
{
	__u64 *table = (__u64 *)TABLES;
	struct kvm_regs regs = { .rip = BASE, .rflags = 2 };
	static struct {
		struct kvm_cpuid2 table;
		struct kvm_cpuid_entry2 entries[128];
	} cpuid = { .table.nent = 127 };
	struct kvm_sregs s;

	/* So that guests find kvm_fastsys; this one asks anyway. */
	if (ioctl(vm->kvm, KVM_GET_SUPPORTED_CPUID, &cpuid) ||
	    kfs_cpuid_add(&cpuid.table, 128) ||
	    ioctl(vm->vcpu, KVM_SET_CPUID2, &cpuid))
		err(1, "CPUID");
	table[0] = (TABLES + 0x1000) | 3;
	table[512] = (TABLES + 0x2000) | 3;
	table[1024 + BASE / SIZE] = BASE | 0x83;
	if (ioctl(vm->vcpu, KVM_GET_SREGS, &s))
		err(1, "KVM_GET_SREGS");
	s.cr3 = TABLES;
	s.cr4 = 1 << 5;
	s.cr0 = 0x80000001;
	s.efer = 0x500;
	s.cs = (struct kvm_segment) { .limit = ~0U, .selector = 8, .type = 11,
				      .present = 1, .s = 1, .l = 1, .g = 1 };
	if (ioctl(vm->vcpu, KVM_SET_SREGS, &s) ||
	    ioctl(vm->vcpu, KVM_SET_REGS, &regs))
		err(1, "KVM_SET_REGS");
}

static void vm_create(struct vm *vm)
{
	struct kvm_userspace_memory_region slot = {
		.guest_phys_addr = BASE, .memory_size = SIZE,
		.userspace_addr = BASE,
	};
	char *memory = mmap((void *)BASE, SIZE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			    -1, 0);

	vm->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	vm->fd = ioctl(vm->kvm, KVM_CREATE_VM, 0);
	vm->vcpu = ioctl(vm->fd, KVM_CREATE_VCPU, 0);
	if (vm->vcpu < 0 || memory == MAP_FAILED)
		err(1, "KVM");
	memcpy(memory, vm_code, sizeof(vm_code));
	memcpy(memory + (TEXT - BASE), vm_text, sizeof(vm_text));
	if (ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &slot))
		err(1, "KVM_SET_USER_MEMORY_REGION");
	vm->run = mmap(NULL, (size_t)ioctl(vm->kvm, KVM_GET_VCPU_MMAP_SIZE, 0),
		       PROT_READ | PROT_WRITE, MAP_SHARED, vm->vcpu, 0);
	if (vm->run == MAP_FAILED)
		err(1, "kvm_run");
	vm_start_state(vm);
}

/* The guest's OUT: says what came, 1 when that was the last. */
static int vm_result(const struct kvm_run *run, int *result)
{
	*result = *(const int *)((const char *)run + run->io.data_offset);
	printf("The guest's %s gave %d.\n",
	       run->io.port == 0x10 ? "write" : "getpid", *result);
	return run->io.port == 0x11;
}

#endif /* VM_H */
