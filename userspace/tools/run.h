/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * kvm-fastsys run: a static Linux program in ring 3 of a VM.
 *
 * Guest addresses are the launcher's own (identity mode), so both kinds of
 * code see a pointer the same way. Guest physical space is small on many
 * CPUs, so a program's memory comes out of two windows of the launcher, each
 * one memory slot, and the guest's page tables say where they lie:
 *
 *	addresses				guest physical
 *	RUN_LOW  .. RUN_LOW_END			the same: programs at 0x400000
 *	RUN_HIGH .. RUN_HIGH + RUN_HIGH_SIZE	RUN_HIGH_GPA: all else
 *	RUN_SYS, ring 0 only			RUN_SYS_GPA: stub, tables
 *
 * What is mapped inside a window changes by mmap() in the launcher; slots and
 * page tables never do.
 */
#ifndef KFS_RUN_H
#define KFS_RUN_H

#define RUN_PAGE 4096UL
#define RUN_LOW 0x10000UL		/* as low as vm.mmap_min_addr lets us */
#define RUN_LOW_END 0x80000000UL
#define RUN_HIGH 0x10000000000UL	/* where no ASLR puts a launcher */
#define RUN_HIGH_SIZE (16UL << 30)
#define RUN_HIGH_END (RUN_HIGH + RUN_HIGH_SIZE)
#define RUN_HIGH_GPA (4UL << 30)
#define RUN_SYS 0xffff800000000000UL
#define RUN_SYS_GPA 0xc0000000UL

/* Ports the stub writes to; they reach the launcher only. */
#define RUN_PORT_CALL 0xe0		/* the mailbox has a call */
#define RUN_PORT_REGS 0xe1		/* the registers have a call */
#define RUN_PORT_EXCEPTION 0xe2		/* the exception stack has a frame */

/* Offsets in the pages at RUN_SYS that C and the stub share. */
#define RUN_SYS_DATA 0x1000		/* struct run_data */
#define RUN_SYS_STACK 0x2000		/* one page, for exceptions */
#define RUN_EXC_STUB_SIZE 16

#ifndef __ASSEMBLER__

#include <linux/filter.h>
#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum run_path {
	RUN_FAST,	/* hypercall; what it declines comes by an exit */
	RUN_EXIT,	/* port exit, call in a mailbox */
	RUN_EXIT_REGS,	/* port exit, call in the registers: for the bench */
};

struct run_mailbox {
	uint64_t nr;
	uint64_t args[6];
	uint64_t ret;
};

/* The data page of the stub: run_stub.S knows the first two fields. */
struct run_data {
	uint64_t save_rbx;
	struct run_mailbox mail;
	uint64_t gdt[8];
	uint8_t tss[104];
	uint64_t idt[2 * 32];
};

struct run {
	const char *name;	/* of the program, for messages */
	enum run_path path;
	/* the policy: NULL allows everything */
	struct sock_filter *filter;
	unsigned int filter_len;

	int vm, vcpu, control;	/* high numbers, hidden from the program */
	struct kvm_run *run;
	uint8_t *sys;		/* the pages at RUN_SYS */

	uint64_t entry, stack, brk_start;
	bool refused[512];	/* said already, by call number */
};

/*
 * On stderr: "kvm-fastsys run: ", the program's name, the text; run_say() in
 * one line, run_die() in 80 columns, its last line "Next: " and a command.
 */
void run_say(const struct run *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void run_die(const struct run *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
/* Ends this process as the signal would have ended the program. */
void run_kill(int sig) __attribute__((noreturn));

/*
 * run_mem.c. The calls return what the program is to see: a value or -errno.
 */
void run_mem_init(const struct run *r);
bool run_mem_inside(uint64_t at, uint64_t size);
/* Marks a fixed place as used; the allocator then leaves it alone. */
void run_mem_take(uint64_t start, uint64_t end);
void run_mem_set_brk(uint64_t start, uint64_t limit);
long run_brk(uint64_t to);
long run_mmap(uint64_t at, uint64_t size, int prot, int flags, int fd,
	      uint64_t offset);
long run_munmap(uint64_t at, uint64_t size);
long run_mprotect(uint64_t at, uint64_t size, int prot);
long run_mremap(uint64_t at, uint64_t old_size, uint64_t new_size, int flags,
		uint64_t to);

/* run_elf.c: loads the program, builds its stack, sets entry and stack. */
void run_load(struct run *r, const char *path, char **argv, char **envp);

/* run_vm.c: makes the VM ready to enter the program; runs it to its end. */
void run_create(struct run *r);
void run_loop(struct run *r) __attribute__((noreturn));
void run_set_fs(struct run *r, uint64_t base);
uint64_t run_get_fs(struct run *r);

/* Is the descriptor one of ours? */
bool run_is_hidden(const struct run *r, uint64_t fd);

/* run_calls.c: a call that the launcher has to make; its result. */
void run_calls_init(void);
long run_call(struct run *r, uint64_t nr, const uint64_t args[6]);
/*
 * The policy as the kernel gets it: calls that the launcher serves by itself
 * are declined ahead of it. Returns the length; *out is malloc()ed.
 */
unsigned int run_policy(const struct run *r, struct sock_filter **out);

extern const char run_stub[], run_stub_end[], run_stub_hypercall[];
extern const char run_stub_fast[], run_stub_exit[], run_stub_regs[];
extern const char run_stub_exceptions[];

#endif /* __ASSEMBLER__ */
#endif /* KFS_RUN_H */
