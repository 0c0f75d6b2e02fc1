// SPDX-License-Identifier: MIT OR LGPL-2.1
/* See gvm.h. Host side: memory, vCPUs, running and understanding exits. */
#include <errno.h>
#include <fcntl.h>
#include <cpuid.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "gvm.h"
#include "gvm_ports.h"

_Static_assert(GVM_PORT_DONE == GVM_ASM_PORT_DONE, "port");
_Static_assert(GVM_PORT_EXCEPTION == GVM_ASM_PORT_EXCEPTION, "port");

#define PAGE		4096UL
#define HUGE_PAGE	(2UL << 20)

#define PTE_P		(1UL << 0)
#define PTE_W		(1UL << 1)
#define PTE_U		(1UL << 2)
#define PTE_A		(1UL << 5)
#define PTE_D		(1UL << 6)
#define PTE_PS		(1UL << 7)

#define CR0_PE		(1UL << 0)
#define CR0_MP		(1UL << 1)
#define CR0_ET		(1UL << 4)
#define CR0_NE		(1UL << 5)
#define CR0_PG		(1UL << 31)
#define CR4_PAE		(1UL << 5)
#define CR4_OSFXSR	(1UL << 9)
#define CR4_OSXMMEXCPT	(1UL << 10)
#define EFER_LME	(1UL << 8)
#define EFER_LMA	(1UL << 10)
#define RFLAGS_FIXED	(1UL << 1)
#define RFLAGS_IOPL3	(3UL << 12)

/* Selectors; the TSS is loaded by KVM_SET_SREGS and needs no descriptor. */
enum {
	SEL_CODE64 = 0x08,
	SEL_DATA = 0x10,
	SEL_CODE32 = 0x18,
	SEL_USER_DATA = 0x20 | 3,
	SEL_USER_CODE64 = 0x28 | 3,
	SEL_TSS = 0x30,
};

#define IDT_VECTORS	32
#define EXC_STUB_SIZE	16
#define TSS_SIZE	104
#define TSS_IST1	36	/* offset of the first interrupt stack pointer */

extern char __executable_start[], _end[];
extern char gvm_guest_return[], gvm_exc_stubs[];

int gvm_is_intel;

static int fail(struct gvm *vm, int err, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(vm->error, sizeof(vm->error), fmt, ap);
	va_end(ap);
	n = strlen(vm->error);
	if (err)
		snprintf(vm->error + n, sizeof(vm->error) - n, ": %s",
			 strerror(err));
	return -err;
}

const char *gvm_strerror(const struct gvm *vm)
{
	return vm->error[0] ? vm->error : "no error";
}

static void detect_vendor(void)
{
	unsigned int a, b, c, d;

	if (__get_cpuid(0, &a, &b, &c, &d))
		gvm_is_intel = b == signature_INTEL_ebx;
}

void *gvm_alloc(struct gvm *vm, size_t size, size_t align)
{
	size_t at = (vm->arena_used + align - 1) & ~(align - 1);

	if (at + size > vm->arena_size) {
		fail(vm, ENOMEM, "guest arena of %zu bytes is full",
		     vm->arena_size);
		return NULL;
	}
	vm->arena_used = at + size;
	return vm->arena + at;
}

int gvm_add_slot(struct gvm *vm, void *addr, size_t size, uint32_t flags)
{
	struct kvm_userspace_memory_region region = {
		.slot = vm->next_slot,
		.flags = flags,
		.guest_phys_addr = (uintptr_t)addr,
		.memory_size = size,
		.userspace_addr = (uintptr_t)addr,
	};

	if (ioctl(vm->vm_fd, KVM_SET_USER_MEMORY_REGION, &region))
		return fail(vm, errno, "memory slot %u at %p, %#zx bytes",
			    region.slot, addr, size);
	vm->next_slot++;
	return 0;
}

static int map_arena(struct gvm *vm, uintptr_t base, size_t size)
{
	uintptr_t at = base ? base : GVM_ARENA_BASE;

	/* Above 2 GB compiled code could not take a static address. */
	for (; at + size <= 0x80000000UL; at += HUGE_PAGE * 8) {
		void *p = mmap((void *)at, size, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS |
			       MAP_FIXED_NOREPLACE, -1, 0);

		if (p == (void *)at) {
			vm->arena = p;
			vm->arena_size = size;
			return 0;
		}
		if (p != MAP_FAILED) {	/* kernel without NOREPLACE */
			munmap(p, size);
			errno = EEXIST;
		}
		if (base || errno != EEXIST)
			break;
	}
	return fail(vm, errno, "no room for a guest arena of %zu bytes at %#lx",
		    size, (unsigned long)at);
}

/* 2 MB pages over the low 4 GB, open to CPL 3 as well. */
static int build_page_tables(struct gvm *vm)
{
	uint64_t flags = PTE_P | PTE_W | PTE_U | PTE_A;
	uint64_t *pml4 = gvm_alloc(vm, 6 * PAGE, PAGE);
	uint64_t *pdpt, *pd;
	int i;

	if (!pml4)
		return -ENOMEM;
	pdpt = pml4 + 512;
	pd = pdpt + 512;
	pml4[0] = (uintptr_t)pdpt | flags;
	/* The same again where kernels live: GVM_UPPER_HALF. */
	pml4[256] = (uintptr_t)pdpt | flags;
	for (i = 0; i < 4; i++)
		pdpt[i] = (uintptr_t)(pd + 512 * i) | flags;
	for (i = 0; i < 4 * 512; i++)
		pd[i] = i * HUGE_PAGE | flags | PTE_D | PTE_PS;
	vm->pml4 = pml4;
	return 0;
}

static int build_descriptors(struct gvm *vm)
{
	int i;

	vm->gdt = gvm_alloc(vm, PAGE, PAGE);
	vm->idt = gvm_alloc(vm, PAGE, PAGE);
	if (!vm->gdt || !vm->idt)
		return -ENOMEM;
	vm->gdt[SEL_CODE64 / 8] = 0x00af9b000000ffffULL;
	vm->gdt[SEL_DATA / 8] = 0x00cf93000000ffffULL;
	vm->gdt[SEL_CODE32 / 8] = 0x00cf9b000000ffffULL;
	vm->gdt[SEL_USER_DATA / 8] = 0x00cff3000000ffffULL;
	vm->gdt[SEL_USER_CODE64 / 8] = 0x00affb000000ffffULL;

	for (i = 0; i < IDT_VECTORS; i++) {
		uint64_t to = (uintptr_t)(gvm_exc_stubs + i * EXC_STUB_SIZE);

		/* Interrupt gate, DPL 3 so that CPL 3 may use INT too. */
		vm->idt[2 * i] = (to & 0xffff) | (uint64_t)SEL_CODE64 << 16 |
				 1ULL << 32 | 0xeeULL << 40 |
				 (to >> 16 & 0xffff) << 48;
		vm->idt[2 * i + 1] = to >> 32;
	}
	return 0;
}

static int map_image(struct gvm *vm)
{
	uintptr_t start = (uintptr_t)__executable_start & ~(PAGE - 1);
	uintptr_t end = ((uintptr_t)_end + PAGE - 1) & ~(PAGE - 1);

	if (end > 0x80000000UL)
		return fail(vm, ENOEXEC,
			    "program not linked -static -no-pie (image ends at %#lx)",
			    (unsigned long)end);
	return gvm_add_slot(vm, (void *)start, end - start, 0);
}

int gvm_create(struct gvm *vm, const struct gvm_opts *opts)
{
	struct gvm_opts o = opts ? *opts : (struct gvm_opts){ 0 };
	size_t arena_size = (o.arena_mb ? o.arena_mb : 4) * (1UL << 20);
	uint64_t identity_map = 0xfffbc000;
	int err;

	memset(vm, 0, sizeof(*vm));
	vm->vm_fd = -1;
	vm->max_vcpus = o.max_vcpus ? o.max_vcpus : GVM_MAX_VCPUS;
	if (vm->max_vcpus > GVM_MAX_VCPUS)
		return fail(vm, EINVAL, "%u vCPUs asked for, at most %d",
			    vm->max_vcpus, GVM_MAX_VCPUS);
	detect_vendor();

	vm->kvm_fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (vm->kvm_fd < 0)
		return fail(vm, errno, "/dev/kvm (try: modprobe kvm_%s)",
			    gvm_is_intel ? "intel" : "amd");
	vm->vm_fd = ioctl(vm->kvm_fd, KVM_CREATE_VM, 0UL);
	if (vm->vm_fd < 0) {
		err = fail(vm, errno, "KVM_CREATE_VM");
		goto out;
	}
	/* Real-mode helpers of older Intel CPUs; nobody else looks. */
	if (ioctl(vm->vm_fd, KVM_SET_IDENTITY_MAP_ADDR, &identity_map) ||
	    ioctl(vm->vm_fd, KVM_SET_TSS_ADDR, 0xfffbd000UL)) {
		err = fail(vm, errno, "KVM_SET_TSS_ADDR");
		goto out;
	}
	if (o.irqchip && ioctl(vm->vm_fd, KVM_CREATE_IRQCHIP, 0UL)) {
		err = fail(vm, errno, "KVM_CREATE_IRQCHIP");
		goto out;
	}
	err = map_arena(vm, o.arena_base, arena_size);
	if (!err)
		err = build_page_tables(vm);
	if (!err)
		err = build_descriptors(vm);
	if (!err)
		err = map_image(vm);
	if (!err)
		err = gvm_add_slot(vm, vm->arena, vm->arena_size, 0);
out:
	if (err)
		gvm_destroy(vm);
	return err;
}

void gvm_destroy(struct gvm *vm)
{
	unsigned int i;

	for (i = 0; i < vm->nr_vcpus; i++) {
		struct gvm_vcpu *vcpu = &vm->vcpu[i];

		if (vcpu->run)
			munmap(vcpu->run, vcpu->run_size);
		if (vcpu->fd >= 0)
			close(vcpu->fd);
		vcpu->run = NULL;
		vcpu->fd = -1;
	}
	if (vm->vm_fd >= 0)
		close(vm->vm_fd);
	if (vm->kvm_fd >= 0)
		close(vm->kvm_fd);
	if (vm->arena)
		munmap(vm->arena, vm->arena_size);
	vm->vm_fd = vm->kvm_fd = -1;
	vm->arena = NULL;
}

int gvm_vcpu_set_cpuid(struct gvm_vcpu *vcpu,
		       const struct kvm_cpuid_entry2 *extra, unsigned int n)
{
	struct gvm *vm = vcpu->vm;
	const unsigned int max = 256;
	struct kvm_cpuid2 *list;
	unsigned int i, j;
	int err = 0;

	list = calloc(1, sizeof(*list) + max * sizeof(list->entries[0]));
	if (!list)
		return fail(vm, ENOMEM, "CPUID list");
	list->nent = max;
	if (ioctl(vm->kvm_fd, KVM_GET_SUPPORTED_CPUID, list)) {
		err = fail(vm, errno, "KVM_GET_SUPPORTED_CPUID");
		goto out;
	}
	for (i = 0; i < n; i++) {
		for (j = 0; j < list->nent; j++)
			if (list->entries[j].function == extra[i].function &&
			    list->entries[j].index == extra[i].index)
				break;
		if (j == max) {
			err = fail(vm, E2BIG, "CPUID list");
			goto out;
		}
		list->entries[j] = extra[i];
		if (j == list->nent)
			list->nent++;
	}
	if (ioctl(vcpu->fd, KVM_SET_CPUID2, list))
		err = fail(vm, errno, "KVM_SET_CPUID2");
out:
	free(list);
	return err;
}

int gvm_vcpu_create(struct gvm *vm, struct gvm_vcpu **out)
{
	struct gvm_vcpu *vcpu = &vm->vcpu[vm->nr_vcpus];
	int size = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0UL);
	uint64_t ist;
	void *run;

	*out = NULL;
	if (size < 0)
		return fail(vm, errno, "KVM_GET_VCPU_MMAP_SIZE");
	if (vm->nr_vcpus == vm->max_vcpus)
		return fail(vm, ENOSPC, "all %u vCPUs are made", vm->max_vcpus);

	memset(vcpu, 0, sizeof(*vcpu));
	vcpu->vm = vm;
	vcpu->id = vm->nr_vcpus;
	vcpu->stack = gvm_alloc(vm, GVM_STACK_SIZE, PAGE);
	vcpu->exc_stack = gvm_alloc(vm, PAGE, PAGE);
	vcpu->tss = gvm_alloc(vm, TSS_SIZE, 128);
	if (!vcpu->stack || !vcpu->exc_stack || !vcpu->tss)
		return -ENOMEM;
	ist = (uintptr_t)vcpu->exc_stack + PAGE;
	memcpy(vcpu->tss + TSS_IST1, &ist, sizeof(ist));

	vcpu->fd = ioctl(vm->vm_fd, KVM_CREATE_VCPU, (unsigned long)vcpu->id);
	if (vcpu->fd < 0)
		return fail(vm, errno, "KVM_CREATE_VCPU %u", vcpu->id);
	run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu->fd, 0);
	if (run == MAP_FAILED) {
		int err = fail(vm, errno, "mmap of vCPU %u", vcpu->id);

		close(vcpu->fd);
		return err;
	}
	vcpu->run = run;
	vcpu->run_size = size;
	vm->nr_vcpus++;
	*out = vcpu;
	return gvm_vcpu_set_cpuid(vcpu, NULL, 0);
}

static struct kvm_segment segment(uint16_t selector, bool code, bool bits64)
{
	struct kvm_segment seg = {
		.limit = 0xffffffff,
		.selector = selector,
		.type = code ? 11 : 3,
		.present = 1,
		.dpl = selector & 3,
		.db = !(code && bits64),
		.s = 1,
		.l = code && bits64,
		.g = 1,
	};

	return seg;
}

static int set_sregs(struct gvm_vcpu *vcpu, enum gvm_mode mode)
{
	struct gvm *vm = vcpu->vm;
	struct kvm_segment data;
	struct kvm_sregs sregs;

	if (ioctl(vcpu->fd, KVM_GET_SREGS, &sregs))
		return fail(vm, errno, "KVM_GET_SREGS");
	switch (mode) {
	case GVM_RING3:
		sregs.cs = segment(SEL_USER_CODE64, true, true);
		data = segment(SEL_USER_DATA, false, true);
		break;
	case GVM_32BIT:
		sregs.cs = segment(SEL_CODE32, true, false);
		data = segment(SEL_DATA, false, true);
		break;
	default:
		sregs.cs = segment(SEL_CODE64, true, true);
		data = segment(SEL_DATA, false, true);
	}
	sregs.ss = sregs.ds = sregs.es = sregs.fs = sregs.gs = data;
	sregs.tr = (struct kvm_segment){
		.base = (uintptr_t)vcpu->tss, .limit = TSS_SIZE - 1,
		.selector = SEL_TSS, .type = 11, .present = 1,
	};
	sregs.gdt.base = (uintptr_t)vm->gdt;
	sregs.gdt.limit = PAGE - 1;
	sregs.idt.base = (uintptr_t)vm->idt;
	sregs.idt.limit = IDT_VECTORS * 16 - 1;
	sregs.cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_PG;
	sregs.cr3 = (uintptr_t)vm->pml4;
	sregs.cr4 = CR4_PAE | CR4_OSFXSR | CR4_OSXMMEXCPT;
	sregs.efer = EFER_LME | EFER_LMA;
	if (ioctl(vcpu->fd, KVM_SET_SREGS, &sregs))
		return fail(vm, errno, "KVM_SET_SREGS");
	return 0;
}

int gvm_set_entry(struct gvm_vcpu *vcpu, void *fn, void *arg,
		  enum gvm_mode mode)
{
	uint64_t *top = (uint64_t *)(vcpu->stack + GVM_STACK_SIZE - 64);
	struct kvm_regs regs = {
		.rip = (uintptr_t)fn,
		.rdi = (uintptr_t)arg,
		.rdx = gvm_is_intel,
		.rflags = RFLAGS_FIXED | RFLAGS_IOPL3,
	};
	int err = set_sregs(vcpu, mode);

	if (err)
		return err;
	/* As after a CALL: 16-byte alignment minus the return address. */
	*--top = (uintptr_t)gvm_guest_return;
	regs.rsp = (uintptr_t)top;
	if (ioctl(vcpu->fd, KVM_SET_REGS, &regs))
		return fail(vcpu->vm, errno, "KVM_SET_REGS");
	return 0;
}

int gvm_run(struct gvm_vcpu *vcpu)
{
	if (ioctl(vcpu->fd, KVM_RUN, 0UL) < 0)
		return -errno;
	return 0;
}

enum gvm_event gvm_event(const struct gvm_vcpu *vcpu, uint32_t *value)
{
	const struct kvm_run *run = vcpu->run;
	uint32_t v = 0;

	switch (run->exit_reason) {
	case KVM_EXIT_HYPERCALL:
		return GVM_HYPERCALL;
	case KVM_EXIT_DEBUG:
		return GVM_DEBUG;
	case KVM_EXIT_SHUTDOWN:
		return GVM_SHUTDOWN;
	case KVM_EXIT_IO:
		break;
	default:
		return GVM_OTHER;
	}
	if (run->io.direction != KVM_EXIT_IO_OUT || run->io.size != 4)
		return GVM_OTHER;
	memcpy(&v, (const char *)run + run->io.data_offset, sizeof(v));
	if (value)
		*value = v;
	switch (run->io.port) {
	case GVM_PORT_DONE:
		return GVM_DONE;
	case GVM_PORT_EXCEPTION:
		return GVM_EXCEPTION;
	case GVM_PORT_DOORBELL:
		return GVM_DOORBELL;
	}
	return GVM_OTHER;
}

int gvm_get_exception(struct gvm_vcpu *vcpu, struct gvm_exception *exc)
{
	struct kvm_sregs sregs;
	struct kvm_regs regs;
	const uint64_t *frame;

	if (ioctl(vcpu->fd, KVM_GET_REGS, &regs) ||
	    ioctl(vcpu->fd, KVM_GET_SREGS, &sregs))
		return fail(vcpu->vm, errno, "KVM_GET_REGS");
	if (regs.rsp < (uintptr_t)vcpu->exc_stack ||
	    regs.rsp > (uintptr_t)vcpu->exc_stack + PAGE - 7 * 8)
		return fail(vcpu->vm, ENOENT, "guest is in no exception");
	frame = (const uint64_t *)regs.rsp;
	*exc = (struct gvm_exception){
		.vector = frame[0], .error_code = frame[1], .rip = frame[2],
		.cs = frame[3], .rflags = frame[4], .rsp = frame[5],
		.cr2 = sregs.cr2,
	};
	return 0;
}

const char *gvm_describe(struct gvm_vcpu *vcpu)
{
	struct gvm_exception exc;
	struct kvm_regs regs = { 0 };
	uint32_t value = 0;

	switch (gvm_event(vcpu, &value)) {
	case GVM_DONE:
		fail(vcpu->vm, 0, "guest done, value %#x", value);
		break;
	case GVM_DOORBELL:
		fail(vcpu->vm, 0, "guest doorbell %#x", value);
		break;
	case GVM_EXCEPTION:
		if (!gvm_get_exception(vcpu, &exc))
			fail(vcpu->vm, 0,
			     "guest exception %llu, error code %#llx, rip %#llx, cr2 %#llx",
			     (unsigned long long)exc.vector,
			     (unsigned long long)exc.error_code,
			     (unsigned long long)exc.rip,
			     (unsigned long long)exc.cr2);
		break;
	case GVM_HYPERCALL:
		fail(vcpu->vm, 0, "hypercall exit, nr %#llx",
		     (unsigned long long)vcpu->run->hypercall.nr);
		break;
	default:
		ioctl(vcpu->fd, KVM_GET_REGS, &regs);
		fail(vcpu->vm, 0, "KVM exit reason %u at rip %#llx%s",
		     vcpu->run->exit_reason, (unsigned long long)regs.rip,
		     vcpu->run->exit_reason == KVM_EXIT_SHUTDOWN ?
		     " (triple fault)" : "");
	}
	return vcpu->vm->error;
}

int gvm_run_to_done(struct gvm_vcpu *vcpu, uint32_t *value)
{
	for (;;) {
		int err = gvm_run(vcpu);

		if (err == -EINTR)
			continue;
		if (err)
			return fail(vcpu->vm, -err, "KVM_RUN");
		switch (gvm_event(vcpu, value)) {
		case GVM_DONE:
			return 0;
		case GVM_DOORBELL:
			continue;
		default:
			gvm_describe(vcpu);
			return -EPROTO;
		}
	}
}
