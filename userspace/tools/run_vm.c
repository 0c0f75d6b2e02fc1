// SPDX-License-Identifier: MIT OR LGPL-2.1
/* The VM of kvm-fastsys run: one vCPU, three memory slots, and its loop. */
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kfs.h>

#include "run.h"

#define PTE_P (1UL << 0)
#define PTE_W (1UL << 1)
#define PTE_U (1UL << 2)
#define PTE_A (1UL << 5)
#define PTE_D (1UL << 6)
#define PTE_PS (1UL << 7)
#define HUGE_PAGE (2UL << 20)
#define GIB (1UL << 30)

#define SEL_CODE 0x08
#define SEL_DATA 0x10
#define SEL_USER_DATA (0x20 | 3)	/* in this order for SYSRET */
#define SEL_USER_CODE (0x28 | 3)
#define SEL_TSS 0x30

#define MSR_STAR 0xc0000081
#define MSR_LSTAR 0xc0000082
#define MSR_SFMASK 0xc0000084

#define RFLAGS_FIXED (1UL << 1)
#define RFLAGS_IF (1UL << 9)
#define RFLAGS_TF (1UL << 8)
#define RFLAGS_DF (1UL << 10)
#define RFLAGS_NT (1UL << 14)
#define RFLAGS_AC (1UL << 18)

#define TSS_IST1 36

/* Stub, data, exception stack, then page tables. */
enum {
	PML4 = 0x3000,
	PDPT_LOW = 0x4000,
	PDPT_HIGH = 0x5000,
	PDPT_SYS = 0x6000,
	PD_SYS = 0x7000,
	PT_SYS = 0x8000,
	PD_LOW = 0x9000,			/* 2: 2 GiB */
	PT_LOW = 0xb000,			/* what RUN_LOW leaves out */
	PD_HIGH = 0xc000,			/* 16: 16 GiB */
	SYS_SIZE = PD_HIGH + 0x1000 * (int)(RUN_HIGH_SIZE / GIB),
};

static bool is_intel(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
}

static struct run_data *data(struct run *r)
{
	return (struct run_data *)(r->sys + RUN_SYS_DATA);
}

static void add_slot(struct run *r, int slot, uint64_t gpa, uint64_t at,
		     uint64_t size)
{
	struct kvm_userspace_memory_region region = {
		.slot = (__u32)slot,
		.guest_phys_addr = gpa,
		.memory_size = size,
		.userspace_addr = at,
	};

	if (ioctl(r->vm, KVM_SET_USER_MEMORY_REGION, &region))
		run_die(r, "memory slot %d: %s", slot, strerror(errno));
}

/*
 * Whole windows by pages of 2 MB, open to ring 3: what is not mapped in the
 * launcher faults there, KVM_RUN returns EFAULT, and that is the program's
 * segmentation fault.
 */
static void page_tables(struct run *r)
{
	uint64_t *t = (uint64_t *)r->sys;
	const uint64_t table = PTE_P | PTE_W | PTE_U | PTE_A;
	const uint64_t huge = table | PTE_D | PTE_PS;
	const unsigned int high_gib = RUN_HIGH_SIZE / GIB;
#define AT(offset, i) t[(offset) / 8 + (i)]
#define GPA(offset) (RUN_SYS_GPA + (offset))

	AT(PML4, 0) = GPA(PDPT_LOW) | table;
	AT(PML4, RUN_HIGH >> 39) = GPA(PDPT_HIGH) | table;
	AT(PML4, 256) = GPA(PDPT_SYS) | PTE_P | PTE_W | PTE_A;
	for (unsigned int i = 0; i < 2; i++)
		AT(PDPT_LOW, i) = GPA(PD_LOW + 0x1000 * i) | table;
	for (unsigned int i = 0; i < 2 * 512; i++)
		AT(PD_LOW, i) = i * HUGE_PAGE | huge;
	/* Null pointers fault in the guest: no slot is below RUN_LOW. */
	AT(PD_LOW, 0) = GPA(PT_LOW) | table;
	for (unsigned int i = RUN_LOW / RUN_PAGE; i < 512; i++)
		AT(PT_LOW, i) = i * RUN_PAGE | table | PTE_D;
	for (unsigned int i = 0; i < high_gib; i++)
		AT(PDPT_HIGH, i) = GPA(PD_HIGH + 0x1000 * i) | table;
	for (unsigned int i = 0; i < high_gib * 512; i++)
		AT(PD_HIGH, i) = (RUN_HIGH_GPA + i * HUGE_PAGE) | huge;
	AT(PDPT_SYS, 0) = GPA(PD_SYS) | PTE_P | PTE_W | PTE_A;
	AT(PD_SYS, 0) = GPA(PT_SYS) | PTE_P | PTE_W | PTE_A;
	for (unsigned int i = 0; i < 3; i++)
		AT(PT_SYS, i) = GPA(i * RUN_PAGE) | PTE_P | PTE_W | PTE_A |
				PTE_D;
#undef AT
#undef GPA
}

static void system_pages(struct run *r)
{
	static const uint8_t vmcall[] = { 0x0f, 0x01, 0xc1 };
	struct run_data *d;
	uint64_t ist = RUN_SYS + RUN_SYS_STACK + RUN_PAGE;

	r->sys = mmap(NULL, SYS_SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r->sys == MAP_FAILED)
		run_die(r, "no memory: %s", strerror(errno));
	memcpy(r->sys, run_stub, (size_t)(run_stub_end - run_stub));
	if (is_intel())
		memcpy(r->sys + (run_stub_hypercall - run_stub), vmcall, 3);

	d = data(r);
	d->gdt[SEL_CODE / 8] = 0x00af9b000000ffffULL;
	d->gdt[SEL_DATA / 8] = 0x00cf93000000ffffULL;
	d->gdt[SEL_USER_DATA / 8] = 0x00cff3000000ffffULL;
	d->gdt[SEL_USER_CODE / 8] = 0x00affb000000ffffULL;
	memcpy(d->tss + TSS_IST1, &ist, sizeof(ist));
	for (int i = 0; i < 32; i++) {
		uint64_t to = RUN_SYS + (uint64_t)(run_stub_exceptions -
						   run_stub) +
			      (uint64_t)i * RUN_EXC_STUB_SIZE;
		/* INT3 and INTO may be asked for from ring 3. */
		uint64_t type = i == 3 || i == 4 ? 0xee : 0x8e;

		d->idt[2 * i] = (to & 0xffff) | (uint64_t)SEL_CODE << 16 |
				1ULL << 32 | type << 40 |
				(to >> 16 & 0xffff) << 48;
		d->idt[2 * i + 1] = to >> 32;
	}
	page_tables(r);
}

static struct kvm_segment segment(uint16_t selector, bool code)
{
	return (struct kvm_segment) {
		.limit = 0xffffffff, .selector = selector,
		.type = code ? 11 : 3, .present = 1, .dpl = selector & 3,
		.db = !code, .s = 1, .l = code, .g = 1,
	};
}

/* Where SYSCALL leads. */
static const char *entry_of(const struct run *r)
{
	return r->path == RUN_FAST ? run_stub_fast :
	       r->path == RUN_EXIT ? run_stub_exit : run_stub_regs;
}

static void set_registers(struct run *r)
{
	uint64_t base = RUN_SYS + RUN_SYS_DATA;
	static struct {
		struct kvm_msrs head;
		struct kvm_msr_entry e[3];
	} msrs = { .head.nmsrs = 3 };
	struct kvm_regs regs = {
		.rip = r->entry, .rsp = r->stack,
		.rflags = RFLAGS_FIXED | RFLAGS_IF,
	};
	const char *stub = entry_of(r);
	struct kvm_sregs s;

	if (ioctl(r->vcpu, KVM_GET_SREGS, &s))
		run_die(r, "KVM_GET_SREGS: %s", strerror(errno));
	s.cs = segment(SEL_USER_CODE, true);
	s.ss = s.ds = s.es = s.fs = s.gs = segment(SEL_USER_DATA, false);
	s.tr = (struct kvm_segment) {
		.base = base + offsetof(struct run_data, tss), .limit = 103,
		.selector = SEL_TSS, .type = 11, .present = 1,
	};
	s.gdt.base = base + offsetof(struct run_data, gdt);
	s.gdt.limit = 63;
	s.idt.base = base + offsetof(struct run_data, idt);
	s.idt.limit = 32 * 16 - 1;
	s.cr0 = 0x80010033;	/* PG WP NE ET MP PE */
	s.cr3 = RUN_SYS_GPA + PML4;
	s.cr4 = 0x620;		/* OSXMMEXCPT OSFXSR PAE */
	s.efer = 0x501;		/* LMA LME SCE */

	msrs.e[0].index = MSR_STAR;
	msrs.e[0].data = (uint64_t)(SEL_USER_DATA - 8) << 48 |
			 (uint64_t)SEL_CODE << 32;
	msrs.e[1].index = MSR_LSTAR;
	msrs.e[1].data = RUN_SYS + (uint64_t)(stub - run_stub);
	msrs.e[2].index = MSR_SFMASK;
	msrs.e[2].data = RFLAGS_TF | RFLAGS_DF | RFLAGS_NT | RFLAGS_AC;
	if (ioctl(r->vcpu, KVM_SET_SREGS, &s) ||
	    ioctl(r->vcpu, KVM_SET_REGS, &regs) ||
	    ioctl(r->vcpu, KVM_SET_MSRS, &msrs) != 3)
		run_die(r, "the vCPU's registers: %s", strerror(errno));
}

/*
 * No XSAVE and nothing that needs it: the program then stays with SSE2, whose
 * registers need no XCR0 that somebody would have to set in ring 0.
 */
static void set_cpuid(struct run *r, int kvm)
{
	static struct {
		struct kvm_cpuid2 table;
		struct kvm_cpuid_entry2 e[256];
	} list = { .table.nent = 255 };

	if (ioctl(kvm, KVM_GET_SUPPORTED_CPUID, &list))
		run_die(r, "KVM_GET_SUPPORTED_CPUID: %s", strerror(errno));
	for (__u32 i = 0; i < list.table.nent; i++) {
		struct kvm_cpuid_entry2 *e = &list.e[i];

		switch (e->function) {
		case 1:	/* FMA, XSAVE, OSXSAVE, AVX, F16C */
			e->ecx &= ~(1U << 12 | 7U << 26 | 1U << 29);
			break;
		case 7:	/* keep BMI1, BMI2, ERMS, RDSEED, ADX, CLFLUSHOPT, CLWB, SHA */
			e->ebx &= 1U << 3 | 1U << 8 | 1U << 9 | 1U << 18 |
				  1U << 19 | 1U << 23 | 1U << 24 | 1U << 29;
			e->ecx = 0;
			e->edx &= 1U << 4;	/* short REP MOVSB */
			if (e->index)
				e->eax = e->ebx = e->edx = 0;
			break;
		case 0xd:
			e->eax = e->ebx = e->ecx = e->edx = 0;
			break;
		case 0x80000001:	/* XOP, FMA4 */
			e->ecx &= ~(1U << 11 | 1U << 16);
			break;
		}
	}
	if (kfs_cpuid_add(&list.table, 256) ||
	    ioctl(r->vcpu, KVM_SET_CPUID2, &list))
		run_die(r, "KVM_SET_CPUID2: %s", strerror(errno));
}

/*
 * Moves a descriptor out of the program's way: it is to see the numbers it
 * would see without us. As high as its limit lets it, within reason: the
 * kernel's table of descriptors is as long.
 */
static int hide(struct run *r, int fd)
{
	struct rlimit limit;
	int high;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		limit.rlim_cur = 256;
	if (limit.rlim_cur > 1UL << 16)
		limit.rlim_cur = 1UL << 16;
	high = fcntl(fd, F_DUPFD_CLOEXEC, (int)limit.rlim_cur - 4);
	if (high < 0)
		run_die(r, "no descriptor at %d: %s\nNext: ulimit -n 1024",
			(int)limit.rlim_cur - 4, strerror(errno));
	close(fd);
	return high;
}

bool run_is_hidden(const struct run *r, uint64_t fd)
{
	return (int)fd == r->vm || (int)fd == r->vcpu ||
	       (r->control && (int)fd == r->control);
}

static void attach(struct run *r)
{
	struct kfs_set_policy policy = { .size = sizeof(policy) };
	struct sock_filter *filter;
	int dev = kfs_open(), ret;

	if (dev < 0)
		run_die(r, "%s\nNext: modprobe kvm_fastsys, or without it: kvm-fastsys run --mode exit",
			kfs_strerror(dev, KFS_WHAT_OPEN));
	ret = kfs_attach(dev, r->vm, KFS_MODE_IDENTITY, KFS_DEFER_EXIT);
	if (ret < 0)
		run_die(r, "%s\nNext: kvm-fastsys status, or: kvm-fastsys run --mode exit",
			kfs_strerror(ret, KFS_WHAT_ATTACH));
	close(dev);
	r->control = ret;
	policy.count = run_policy(r, &filter);
	policy.filter = (uintptr_t)filter;
	if (ioctl(r->control, KFS_SET_POLICY, &policy))
		run_die(r, "%s\nNext: kvm-fastsys policy show FILE",
			kfs_strerror(errno, KFS_WHAT_SET_POLICY));
	free(filter);
	ret = kfs_enable(r->control);
	if (ret)
		run_die(r, "%s", kfs_strerror(ret, KFS_WHAT_ENABLE));
	r->control = hide(r, r->control);
}

void run_create(struct run *r)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC), size;

	if (kvm < 0)
		run_die(r, "/dev/kvm: %s\nNext: kvm-fastsys check",
			strerror(errno));
	r->vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (r->vm < 0)
		run_die(r, "KVM_CREATE_VM: %s\nNext: kvm-fastsys check",
			strerror(errno));
	r->vm = hide(r, r->vm);
	/* Between our last page and 4 GiB; Intel's KVM wants it somewhere. */
	ioctl(r->vm, KVM_SET_TSS_ADDR, 0xfffbd000UL);
	system_pages(r);
	add_slot(r, 0, RUN_LOW, RUN_LOW, RUN_LOW_END - RUN_LOW);
	add_slot(r, 1, RUN_HIGH_GPA, RUN_HIGH, RUN_HIGH_SIZE);
	add_slot(r, 2, RUN_SYS_GPA, (uintptr_t)r->sys, SYS_SIZE);

	r->vcpu = ioctl(r->vm, KVM_CREATE_VCPU, 0);
	size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (r->vcpu < 0 || size < 0)
		run_die(r, "KVM_CREATE_VCPU: %s", strerror(errno));
	r->vcpu = hide(r, r->vcpu);
	r->run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED,
		      r->vcpu, 0);
	if (r->run == MAP_FAILED)
		run_die(r, "the vCPU's page: %s", strerror(errno));
	set_cpuid(r, kvm);
	close(kvm);
	set_registers(r);
	if (r->path == RUN_FAST)
		attach(r);
}

void run_set_fs(struct run *r, uint64_t base)
{
	struct kvm_sregs s;

	if (ioctl(r->vcpu, KVM_GET_SREGS, &s))
		run_die(r, "KVM_GET_SREGS: %s", strerror(errno));
	s.fs.base = base;
	if (ioctl(r->vcpu, KVM_SET_SREGS, &s))
		run_die(r, "KVM_SET_SREGS: %s", strerror(errno));
}

uint64_t run_get_fs(struct run *r)
{
	struct kvm_sregs s;

	if (ioctl(r->vcpu, KVM_GET_SREGS, &s))
		run_die(r, "KVM_GET_SREGS: %s", strerror(errno));
	return s.fs.base;
}

#define PF_RESERVED 8		/* of a page fault's error code */

/*
 * The stub in ring 0 is ours and faults nowhere that KVM runs it as the
 * processor would; so this is not the program's doing. A KVM without VMX and
 * SVM may tell such a fault as one of ring 3, right where SYSCALL leads.
 */
static bool is_stub_fault(const struct run *r, const uint64_t *frame)
{
	uint64_t rip = frame[2], cs = frame[3];

	if (rip < RUN_SYS || rip >= RUN_SYS + RUN_SYS_DATA)
		return false;
	return !(cs & 3) || (frame[0] == 14 && frame[1] & PF_RESERVED) ||
	       rip == RUN_SYS + (uint64_t)(entry_of(r) - run_stub);
}

static void __attribute__((noreturn))
no_ring0(const struct run *r, uint64_t rip)
{
	run_die(r, "this KVM does not run the guest's ring 0 here (it faulted %#lx bytes into our code)\nNext: run it where KVM has VMX or SVM: grep -cw -e vmx -e svm /proc/cpuinfo",
		(unsigned long)(rip - RUN_SYS));
}

static void exception(struct run *r)
{
	static const int signals[32] = {
		[0] = SIGFPE, [1] = SIGTRAP, [3] = SIGTRAP, [4] = SIGSEGV,
		[6] = SIGILL, [16] = SIGFPE, [17] = SIGBUS, [19] = SIGFPE,
	};
	struct kvm_sregs s = { 0 };
	struct kvm_regs regs;
	uint64_t frame[7];

	ioctl(r->vcpu, KVM_GET_SREGS, &s);
	if (ioctl(r->vcpu, KVM_GET_REGS, &regs) ||
	    regs.rsp < RUN_SYS + RUN_SYS_STACK ||
	    regs.rsp + sizeof(frame) > RUN_SYS + RUN_SYS_STACK + RUN_PAGE)
		run_die(r, "an exception without a frame");
	memcpy(frame, r->sys + (regs.rsp - RUN_SYS), sizeof(frame));
	if (is_stub_fault(r, frame))
		no_ring0(r, frame[2]);
	if (frame[0] == 14)
		run_say(r, "segmentation fault at %#lx, code at %#lx",
			(unsigned long)s.cr2, (unsigned long)frame[2]);
	else
		run_say(r, "exception %lu, code at %#lx",
			(unsigned long)frame[0], (unsigned long)frame[2]);
	run_kill(signals[frame[0] & 31] ? signals[frame[0] & 31] : SIGSEGV);
}

static void call_in_registers(struct run *r)
{
	struct kvm_regs regs;
	uint64_t args[6];

	if (ioctl(r->vcpu, KVM_GET_REGS, &regs))
		run_die(r, "KVM_GET_REGS: %s", strerror(errno));
	args[0] = regs.rdi;
	args[1] = regs.rsi;
	args[2] = regs.rdx;
	args[3] = regs.r10;
	args[4] = regs.r8;
	args[5] = regs.r9;
	regs.rax = (uint64_t)run_call(r, regs.rax, args);
	if (ioctl(r->vcpu, KVM_SET_REGS, &regs))
		run_die(r, "KVM_SET_REGS: %s", strerror(errno));
}

static void port(struct run *r)
{
	struct run_mailbox *mail = &data(r)->mail;
	uint64_t args[6];

	switch (r->run->io.port) {
	case RUN_PORT_CALL:
		/* A copy: the call may write there. */
		memcpy(args, mail->args, sizeof(args));
		mail->ret = (uint64_t)run_call(r, mail->nr, args);
		return;
	case RUN_PORT_REGS:
		call_in_registers(r);
		return;
	case RUN_PORT_EXCEPTION:
		exception(r);
	}
	run_die(r, "port %#x", r->run->io.port);
}

static void no_memory_there(struct run *r)
{
	struct kvm_regs regs = { 0 };

	ioctl(r->vcpu, KVM_GET_REGS, &regs);
	/* The program's own addresses are all below. */
	if (regs.rip >= RUN_SYS && regs.rip < RUN_SYS + RUN_SYS_DATA)
		no_ring0(r, regs.rip);
	run_say(r, "segmentation fault, code at %#lx",
		(unsigned long)regs.rip);
	run_kill(SIGSEGV);
}

void run_loop(struct run *r)
{
	struct kvm_run *run = r->run;
	uint64_t args[6];

	for (;;) {
		if (ioctl(r->vcpu, KVM_RUN, 0)) {
			if (errno == EINTR || errno == EAGAIN)
				continue;
			if (errno == EFAULT)
				no_memory_there(r);
			run_die(r, "KVM_RUN: %s", strerror(errno));
		}
		switch (run->exit_reason) {
		case KVM_EXIT_HYPERCALL:
			if (!KFS_EXIT_IS_CALL(run->hypercall.nr))
				run_die(r, "hypercall %#llx",
					run->hypercall.nr);
			memcpy(args, run->hypercall.args, sizeof(args));
			run->hypercall.ret = (uint64_t)
				run_call(r, KFS_EXIT_CALL(run->hypercall.nr),
					 args);
			break;
		case KVM_EXIT_IO:
			port(r);
			break;
		default:
			run_die(r, "KVM cannot run it further: exit reason %u",
				run->exit_reason);
		}
	}
}
