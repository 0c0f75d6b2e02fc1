/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KFS_KICK_H
#define KFS_KICK_H

#include <linux/fs.h>
#include <linux/kvm_host.h>
#include <linux/kvm_fastsys.h>

/* main.c: read-only module parameters */
extern bool kfs_param_kick;
extern bool kfs_param_vcpu_ioctl;
extern uint kfs_param_max_kicks;

/* What a kick met; bits. */
#define KFS_KICK_COALESCED	1	/* an earlier kick was not cleared yet */
#define KFS_KICK_INTERRUPTED	2	/* a thread was inside KVM_RUN */

/*
 * kick.c: proves the mechanism. Never fails a load: without it the kick is
 * left out, with a reason, and KFS_USER_EXIT with it.
 */
void kfs_kick_init(void);
bool kfs_kick_works(void);

/* One kick of one vCPU, whose file (or KVM itself) the caller holds. */
unsigned int kfs_kick_vcpu(struct kvm_vcpu *vcpu, bool user_exit);

void kfs_kick_uncount(void);

/* Totals and mechanism; not the kick fds. */
void kfs_kick_totals(struct kfs_kick_info *info);

/* kick_fd.c */
int kfs_kick_create(const struct kfs_create_kick *req);
void kfs_kick_count_fds(struct kfs_kick_info *info);
/* kick NULL: the first one from st->id on. */
int kfs_kick_stats(struct file *kick, struct kfs_kick_stats *st);

/* user_exit.c, user_exit_entry.S */
long kfs_user_exit(struct file *file, unsigned int cmd, unsigned long flags);
void kfs_user_exit_tramp(void);
int kfs_user_exit_selftest(void);

#endif
