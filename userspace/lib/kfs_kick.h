/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * libkvmfastsys: the kick. Included by kfs.h; needs nothing else of it.
 *
 *	kfs_kick_open(&k, dev, vcpu_fd, run, SIGUSR1);	where the vCPU is made
 *
 *	kfs_kick_enter(&k);				in its thread
 *	while (...) {
 *		if (ioctl(vcpu_fd, KVM_RUN, 0) && errno == EINTR)
 *			kfs_kicked(run);
 *		... look at what others asked for ...
 *	}
 *	kfs_kick_leave(&k);
 *
 *	ask for something; kfs_kick(&k);		from anywhere
 *
 * Without the module, or where the kernel cannot do it, the same functions
 * work by immediate_exit and a signal. Then, and only then, kfs_kick() is for
 * threads of the VMM's own process.
 *
 * kfs_kick(), kfs_kick_all(), kfs_kicked() and kfs_kick_count() may be called
 * from signal handlers: no lock, no allocation, errno as it was.
 */
#ifndef KFS_KICK_H
#define KFS_KICK_H

#include <linux/kvm.h>
#include <linux/kvm_fastsys.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One vCPU's. Zeroed by kfs_kick_open(); its fields are the library's. */
struct kfs_kicker {
	int fd;			/* kick fd, -1: by signal */
	int sig;
	int pid, tid;		/* who runs the vCPU, when by signal */
	struct kvm_run *run;
};

/*
 * `dev` is what kfs_open() gave, negative values included. `sig` is the signal
 * to use without the module; it gets an empty handler unless it has a handler
 * already. 0: do without, and fail instead. Returns 1 for kicks by the module,
 * 0 by signal, or -errno.
 */
int kfs_kick_open(struct kfs_kicker *kicker, int dev, int vcpu_fd,
		  struct kvm_run *run, int sig);
/* No kick may be under way. */
void kfs_kick_close(struct kfs_kicker *kicker);

/* All vCPUs of a VM, those made later included: a kick fd, or -errno. */
int kfs_kick_open_vm(int dev, int vm_fd);

/*
 * In the thread that is going to run the vCPU, and when it will not do so any
 * more. Nothing to do with the module; by signal, says whom to signal and
 * unblocks it there.
 */
void kfs_kick_enter(struct kfs_kicker *kicker);
void kfs_kick_leave(struct kfs_kicker *kicker);

/*
 * The vCPU leaves KVM_RUN, or does not enter it. Returns how many it made
 * leave (a hint), or -errno.
 */
int kfs_kick(struct kfs_kicker *kicker);

/* With `vm_kick` from kfs_kick_open_vm() in one ioctl, else one by one. */
int kfs_kick_all(int vm_kick, struct kfs_kicker *kickers, unsigned int n);

/*
 * After KVM_RUN gave EINTR: 1 when it was for a kick, which is taken with
 * this. What was asked for before that kick can be read from here on. 0: a
 * signal, or a stray wake-up; run again.
 */
int kfs_kicked(struct kvm_run *run);

/*
 * Kicks by this kicker since the last call; 0 is an answer. -EOPNOTSUPP by
 * signal.
 */
__s64 kfs_kick_count(struct kfs_kicker *kicker);

/* KFS_USER_EXIT stays live on this host until `dev` is closed. */
int kfs_live_vcpu_ioctl(int dev);

/* Both fill in `size`. On the device: the first kick fd with *id* or above. */
int kfs_kick_info(int dev, struct kfs_kick_info *info);
int kfs_kick_stats(int fd, __u64 id, struct kfs_kick_stats *stats);

#ifdef __cplusplus
}
#endif

#endif /* KFS_KICK_H */
