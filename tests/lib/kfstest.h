/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * What the test programs share. Raw ioctls on purpose: these programs judge
 * the ABI itself, so nothing of the library stands between.
 */
#ifndef KFSTEST_H
#define KFSTEST_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include <linux/kvm_fastsys.h>
#include "gvm.h"

/* One guest call; guest_calls() makes an array of them. */
struct tcall {
	uint64_t rax;		/* 0: KFS_HC_SYSCALL */
	uint64_t nr;
	uint64_t args[6];
	int64_t ret;
};

struct tlist {
	uint32_t count;
	uint32_t done;
	struct tcall call[64];
};

/* A VM with one vCPU, attached or not. */
struct tvm {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	struct tlist *list;	/* guest-visible */
	int dev;
	int ctl;
	/* What tvm_run() does with deferred calls, and what it saw. */
	bool serve;		/* make the call natively and hand in its result */
	unsigned int deferred;
	uint64_t defer_nr;
	uint64_t defer_args[6];
	unsigned int eintr;	/* KVM_RUN ended with EINTR, run again */
};

/* ---- Host ABI; all answer a value or -errno ---------------------------- */
int kfs_open(void);
int kfs_info(int dev, struct kfs_info *info);
int kfs_attach(int dev, int vm_fd, uint32_t mode, uint32_t flags);
int kfs_policy(int ctl, const struct sock_filter *filter, uint32_t count);
int kfs_policy_ret(int ctl, uint32_t seccomp_ret);	/* the same for all */
int kfs_enable(int ctl);
int kfs_stats(int fd, struct kfs_vm_stats *st);

/* ---- Test VMs ----------------------------------------------------------- */
#define TVM_NOT_ENABLED		(1U << 0)	/* policy set, not enabled */
#define TVM_UNATTACHED		(1U << 1)
#define TVM_IRQCHIP		(1U << 2)

/* Everything allowed by policy. 0, -errno; why in t->vm.error. */
int tvm_create(struct tvm *t, uint32_t attach_flags, unsigned int tvm_flags);
void tvm_destroy(struct tvm *t);
/* Puts one call on the list and points the vCPU at it; tvm_run() makes it. */
int tvm_prepare(struct tvm *t, long nr, const uint64_t args[6]);
/* Until the guest is done; the first result in *ret. 0 or -errno. */
int tvm_run(struct tvm *t, int64_t *ret);
/* prepare + run; INT64_MIN and t->vm.error when the VM itself failed. */
int64_t tvm_call(struct tvm *t, long nr, uint64_t a0, uint64_t a1,
		 uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5);
#define tvm_call0(t, nr)	tvm_call(t, nr, 0, 0, 0, 0, 0, 0)
int64_t tvm_probe(struct tvm *t);
/* Before the first run. -EINVAL, -ENOTTY: KVM without Hyper-V. */
int tvm_set_hyperv_cpuid(struct tvm *t);
/* Guest function: makes list->call[0 .. count). */
uint32_t guest_calls(struct tlist *list);

#define U(p)	((uint64_t)(uintptr_t)(p))

/* ---- Counters ----------------------------------------------------------- */
/*
 * Whether, between two looks, exactly `n` calls were declined for `reason` and
 * nothing ran; otherwise one line in `why`.
 */
bool declined_only(const struct kfs_vm_stats *before,
		   const struct kfs_vm_stats *after, unsigned int reason,
		   uint64_t n, char *why, size_t size);
uint64_t declined_sum(const struct kfs_vm_stats *st);

/* ---- Waiting, always bounded ------------------------------------------- */
uint64_t now_ns(void);
#define SECONDS(n)	((n) * 1000000000ULL)
/* Calls done(arg) until true or the time is over; yields in between. */
bool wait_for(bool (*done)(void *), void *arg, uint64_t ns);
/* Until a vCPU of this VM is inside a host call. */
bool wait_in_call(int ctl, unsigned int n);
/* Until the module's (or another's) reference count is `n`; -1: not loaded. */
int module_refs(const char *name);
bool wait_module_refs(const char *name, int n);
/* A native call that gives -errno as the guest's does. */
int64_t native(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
	       uint64_t a4, uint64_t a5);
/* The exit status of a child, or -ETIMEDOUT (then killed and reaped). */
int wait_child(pid_t pid, uint64_t ns);

/* An empty handler without SA_RESTART. */
void catch_signal(int sig);

/* For the harness: skip with a reason unless the module is there. */
const char *why_not_here(void);
#define REQUIRE_MODULE() do {						\
	const char *why_ = why_not_here();				\
	if (why_)							\
		SKIP(_exit(255), "%s", why_);				\
} while (0)

#endif /* KFSTEST_H */
