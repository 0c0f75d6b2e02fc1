/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * gvm: a small virtual machine whose guest is ordinary C functions of the
 * program that creates it.
 *
 * The program image and an arena are mapped into the guest at the addresses
 * they have in the host (host virtual = guest physical = guest virtual), so a
 * pointer means the same on both sides. For that the program must be linked
 * -static -no-pie (see GVM_LDFLAGS in the Makefile), and guest functions must
 * be compiled with GVM_CFLAGS: no vector registers, no red zone, no stack
 * protector. Guest functions call no libc: its routines are picked at start
 * for a CPU the guest need not have.
 *
 * Functions return 0 or -errno; vm->error then holds one line for a person.
 */
#ifndef GVM_H
#define GVM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/kvm.h>

#define GVM_MAX_VCPUS		8
#define GVM_ARENA_BASE		0x10000000UL

/* Ports by which guest code leaves; the value is 32 bits wide. */
#define GVM_PORT_DONE		0x4b0	/* gvm_exit(), or the function returned */
#define GVM_PORT_EXCEPTION	0x4b4	/* the guest's exception handler */
#define GVM_PORT_DOORBELL	0x4b8	/* gvm_doorbell(): anything a caller likes */

enum gvm_mode {
	GVM_RING0,		/* 64-bit code, CPL 0 */
	GVM_RING3,		/* 64-bit code, CPL 3, port I/O allowed */
	GVM_32BIT,		/* compatibility mode, CPL 0: see gvm_code32 */
};

struct gvm_opts {
	unsigned int max_vcpus;	/* 0: GVM_MAX_VCPUS */
	bool irqchip;		/* in-kernel interrupt controller */
	unsigned int arena_mb;	/* 0: 4 MB */
	uintptr_t arena_base;	/* 0: the first free place from GVM_ARENA_BASE */
};

struct gvm;

struct gvm_vcpu {
	struct gvm *vm;
	int fd;
	unsigned int id;
	struct kvm_run *run;
	size_t run_size;
	char *stack;		/* lowest byte; GVM_STACK_SIZE long */
	char *exc_stack;
	char *tss;
};

struct gvm {
	int kvm_fd;
	int vm_fd;
	char *arena;
	size_t arena_size;
	size_t arena_used;
	uint64_t *pml4;
	uint64_t *gdt;
	uint64_t *idt;
	unsigned int max_vcpus;
	unsigned int nr_vcpus;
	unsigned int next_slot;
	struct gvm_vcpu vcpu[GVM_MAX_VCPUS];
	char error[256];
};

#define GVM_STACK_SIZE		0x10000

/* What the last KVM_RUN ended with, as far as gvm knows it. */
enum gvm_event {
	GVM_DONE,		/* value: what the guest function returned */
	GVM_EXCEPTION,		/* see gvm_get_exception() */
	GVM_DOORBELL,		/* value: the doorbell's */
	GVM_HYPERCALL,		/* KVM_EXIT_HYPERCALL: run->hypercall */
	GVM_DEBUG,		/* KVM_EXIT_DEBUG */
	GVM_SHUTDOWN,		/* triple fault */
	GVM_OTHER,		/* run->exit_reason says what */
};

struct gvm_exception {
	uint64_t vector;
	uint64_t error_code;
	uint64_t rip;
	uint64_t cs;
	uint64_t rflags;
	uint64_t rsp;
	uint64_t cr2;
};

/* Creates the VM with its memory, no vCPU yet. opts may be NULL. */
int gvm_create(struct gvm *vm, const struct gvm_opts *opts);
/* Closes and unmaps what is left; descriptors the caller closed are -1. */
void gvm_destroy(struct gvm *vm);

int gvm_vcpu_create(struct gvm *vm, struct gvm_vcpu **vcpu);
/* KVM's supported CPUID leaves plus `extra`; an extra leaf replaces its like. */
int gvm_vcpu_set_cpuid(struct gvm_vcpu *vcpu,
		       const struct kvm_cpuid_entry2 *extra, unsigned int n);
/*
 * Added to a function's address: it runs in the upper half, where guest kernels
 * usually live. Its data stays where it is.
 */
#define GVM_UPPER_HALF 0xffff800000000000ULL

/* fn(arg) runs from the next gvm_run() on; its return value is GVM_DONE's. */
int gvm_set_entry(struct gvm_vcpu *vcpu, void *fn, void *arg,
		  enum gvm_mode mode);
/* One KVM_RUN: 0, or -errno with -EINTR for a signal or immediate_exit. */
int gvm_run(struct gvm_vcpu *vcpu);
enum gvm_event gvm_event(const struct gvm_vcpu *vcpu, uint32_t *value);
int gvm_get_exception(struct gvm_vcpu *vcpu, struct gvm_exception *exc);
/*
 * gvm_run() until the guest is done: -EINTR and doorbells run again. Anything
 * else gives -EPROTO (deferred calls too: those are the caller's loop's).
 */
int gvm_run_to_done(struct gvm_vcpu *vcpu, uint32_t *value);

/* Memory both sides see, zeroed, released with the VM; NULL when full. */
void *gvm_alloc(struct gvm *vm, size_t size, size_t align);
/* A further memory slot; addresses are page-aligned, guest = host address. */
int gvm_add_slot(struct gvm *vm, void *addr, size_t size, uint32_t flags);

const char *gvm_strerror(const struct gvm *vm);
/* One line about what the last KVM_RUN ended with, in vm->error. */
const char *gvm_describe(struct gvm_vcpu *vcpu);

/* True on Intel, where the hypercall instruction is VMCALL; guests read it. */
extern int gvm_is_intel;

/*
 * 32-bit guest code: entry for GVM_32BIT, argument a struct gvm_regs32 below
 * 4 GB. Loads the registers, executes the hypercall, stores EAX, is done.
 */
struct gvm_regs32 {
	uint32_t eax, ebx, ecx, edx, esi, edi;
};
extern char gvm_code32[];

/* ---- Guest side ------------------------------------------------------ */

static inline void gvm_out(uint16_t port, uint32_t value)
{
	__asm__ volatile("outl %0, %1" : : "a" (value), "d" (port) : "memory");
}

static inline void gvm_exit(uint32_t code)
{
	for (;;)
		gvm_out(GVM_PORT_DONE, code);
}

static inline void gvm_doorbell(uint32_t value)
{
	gvm_out(GVM_PORT_DOORBELL, value);
}

/* RAX = rax; RBX = nr; RDI RSI RDX R10 R8 R9 = arguments; answers RAX. */
static inline int64_t gvm_hypercall(uint64_t rax, uint64_t nr, uint64_t a0,
				    uint64_t a1, uint64_t a2, uint64_t a3,
				    uint64_t a4, uint64_t a5)
{
	register uint64_t r10 __asm__("r10") = a3;
	register uint64_t r8 __asm__("r8") = a4;
	register uint64_t r9 __asm__("r9") = a5;
	int64_t ret;

	if (gvm_is_intel)
		__asm__ volatile("vmcall" : "=a" (ret)
			: "a" (rax), "b" (nr), "D" (a0), "S" (a1), "d" (a2),
			  "r" (r10), "r" (r8), "r" (r9) : "memory", "cc");
	else
		__asm__ volatile("vmmcall" : "=a" (ret)
			: "a" (rax), "b" (nr), "D" (a0), "S" (a1), "d" (a2),
			  "r" (r10), "r" (r8), "r" (r9) : "memory", "cc");
	return ret;
}

#endif /* GVM_H */
