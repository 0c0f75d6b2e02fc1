/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * The guest's side, for code that runs in ring 0 of a VM. Freestanding: no
 * library, no floating point, no thread-local data; C and C++, gcc and clang.
 *
 *	if (kfs_guest_present()) {
 *		long ret = kfs_guest_call(39, 0, 0, 0, 0, 0, 0);
 *
 *		if (ret == -KFS_ENOSYS)
 *			ret = the slow path;
 *
 * or, with a doorbell to fall back to:
 *
 *	kfs_guest_init(&guest, mailboxes, my_vcpu, KFS_DOORBELL_PORT);
 *	ret = kfs_guest_syscall(&guest, 39, 0, 0, 0, 0, 0, 0);
 *
 * -KFS_ENOSYS can come at any time (detached, migrated, switched off), so the
 * answer to "is it there" is worth nothing for the next call: never keep it.
 */
#ifndef KFS_GUEST_H
#define KFS_GUEST_H

#include <linux/kvm_fastsys.h>

#include "kfs_doorbell.h"

/* Which instruction reaches the host: Intel's or AMD's. */
enum kfs_guest_insn {
	KFS_GUEST_DETECT = 0,
	KFS_GUEST_VMCALL = 1,
	KFS_GUEST_VMMCALL = 2,
};

/*
 * Set it to spare the detection, which is two CPUID exits, once per program
 * (C: once per file that includes this).
 */
static int kfs_guest_insn __attribute__((unused));

static inline void kfs_guest_cpuid(__u32 leaf, __u32 *eax, __u32 *ebx,
				   __u32 *ecx, __u32 *edx)
{
	__asm__ volatile("cpuid"
			 : "=a"(*eax), "=b"(*ebx), "=c"(*ecx), "=d"(*edx)
			 : "0"(leaf), "2"(0));
}

/*
 * By vendor, as the CPUID that the VMM set tells it. One that says nothing of
 * AMD or Hygon gets VMCALL; should that be wrong, KVM's own default is to
 * mend the instruction in place.
 */
static inline int kfs_guest_detect(void)
{
	__u32 a, b, c, d;

	kfs_guest_cpuid(0, &a, &b, &c, &d);
	/* "AuthenticAMD", "HygonGenuine": the last four letters do */
	if (c == 0x444d4163U || c == 0x656e6975U)
		return KFS_GUEST_VMMCALL;
	return KFS_GUEST_VMCALL;
}

/*
 * True when the VMM says by CPUID that it serves us. Executes nothing that
 * another hypervisor could take amiss.
 */
static inline int kfs_guest_present(void)
{
	__u32 a, b, c, d;

	kfs_guest_cpuid(KFS_CPUID_LEAF, &a, &b, &c, &d);
	return a >= 1 && b == KFS_CPUID_EBX && c == KFS_CPUID_ECX &&
	       d == KFS_CPUID_EDX;
}

/* The same by a given instruction, for who keeps the choice elsewhere. */
static inline long kfs_guest_hypercall_by(int insn, __u64 rax, __u64 rbx,
					  __u64 a0, __u64 a1, __u64 a2,
					  __u64 a3, __u64 a4, __u64 a5)
{
	register __u64 r10 __asm__("r10") = a3;
	register __u64 r8 __asm__("r8") = a4;
	register __u64 r9 __asm__("r9") = a5;
	long ret;

	/*
	 * "memory", since the call writes where its arguments point. Every
	 * register but RAX comes back as it was: no other clobber.
	 */
	if (insn == KFS_GUEST_VMMCALL)
		__asm__ volatile("vmmcall"
				 : "=a"(ret)
				 : "0"(rax), "b"(rbx), "D"(a0), "S"(a1),
				   "d"(a2), "r"(r10), "r"(r8), "r"(r9)
				 : "memory");
	else
		__asm__ volatile("vmcall"
				 : "=a"(ret)
				 : "0"(rax), "b"(rbx), "D"(a0), "S"(a1),
				   "d"(a2), "r"(r10), "r"(r8), "r"(r9)
				 : "memory");
	return ret;
}

static inline long kfs_guest_hypercall(__u64 rax, __u64 rbx, __u64 a0,
				       __u64 a1, __u64 a2, __u64 a3, __u64 a4,
				       __u64 a5)
{
	if (kfs_guest_insn == KFS_GUEST_DETECT)
		kfs_guest_insn = kfs_guest_detect();
	return kfs_guest_hypercall_by(kfs_guest_insn, rax, rbx, a0, a1, a2, a3,
				      a4, a5);
}

/*
 * KFS_PROBE_VERSION() and KFS_PROBE_F_* of what serves this guest right now;
 * 0 when nothing does.
 */
static inline __u64 kfs_guest_probe(void)
{
	long ret = kfs_guest_hypercall(KFS_HC_PROBE, 0, 0, 0, 0, 0, 0, 0);

	return ret > 0 ? (__u64)ret : 0;
}

/* The host's result or -errno; -KFS_ENOSYS: not made, take the slow path. */
static inline long kfs_guest_call(__u64 nr, __u64 a0, __u64 a1, __u64 a2,
				  __u64 a3, __u64 a4, __u64 a5)
{
	return kfs_guest_hypercall(KFS_HC_SYSCALL, nr, a0, a1, a2, a3, a4, a5);
}

/* One vCPU's way out: the hypercall while it is served, else the doorbell. */
struct kfs_guest {
	struct kfs_mailbox *mailbox;	/* this vCPU's own, NULL: no doorbell */
	__u32 index;
	__u16 port;
	__u16 leaf;			/* the VMM announces us by CPUID */
};

/*
 * Once per vCPU. `mailboxes` is where the guest sees the page that the VMM
 * gave for it; `index` is this vCPU's row, below KFS_MAILBOXES. NULL: there is
 * no doorbell.
 *
 * A guest whose VMM does not announce us never executes the hypercall, which
 * another hypervisor could take for one of its own.
 */
static inline void kfs_guest_init(struct kfs_guest *guest, void *mailboxes,
				  __u32 index, __u16 port)
{
	struct kfs_mailbox *rows = (struct kfs_mailbox *)mailboxes;

	guest->mailbox = rows ? rows + index : rows;
	guest->index = index;
	guest->port = port;
	guest->leaf = kfs_guest_present() ? 1 : 0;
}

/*
 * The call by mailbox and port. Nothing that rings the same mailbox may come
 * in between: a guest with interrupts masks them, or has a row for each level.
 */
static inline long kfs_guest_ring(struct kfs_guest *guest, __u64 nr, __u64 a0,
				  __u64 a1, __u64 a2, __u64 a3, __u64 a4,
				  __u64 a5)
{
	struct kfs_mailbox *box = guest->mailbox;

	if (!box)
		return -KFS_ENOSYS;
	box->nr = nr;
	box->args[0] = a0;
	box->args[1] = a1;
	box->args[2] = a2;
	box->args[3] = a3;
	box->args[4] = a4;
	box->args[5] = a5;
	/* What a VMM leaves there that does not know the port. */
	box->ret = -KFS_ENOSYS;
	__asm__ volatile("outl %0, %1"
			 : : "a"(guest->index), "d"(guest->port) : "memory");
	return (long)box->ret;
}

/*
 * One call by whatever way there is now: the host's result or -errno;
 * -KFS_ENOSYS: by none.
 */
static inline long kfs_guest_syscall(struct kfs_guest *guest, __u64 nr,
				     __u64 a0, __u64 a1, __u64 a2, __u64 a3,
				     __u64 a4, __u64 a5)
{
	if (guest->leaf) {
		long ret = kfs_guest_call(nr, a0, a1, a2, a3, a4, a5);

		if (ret != -KFS_ENOSYS)
			return ret;
	}
	return kfs_guest_ring(guest, nr, a0, a1, a2, a3, a4, a5);
}

#endif /* KFS_GUEST_H */
