/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * What the kick tests share: the ABI by raw ioctls, and a vCPU's thread whose
 * loop keeps to the contract and counts what it met.
 */
#ifndef KICKTEST_H
#define KICKTEST_H

#include "kfstest.h"

/* ---- Host ABI; a value or -errno --------------------------------------- */
int kick_create(int dev, int fd, uint32_t flags);
int kick_live(int dev);			/* KFS_LIVE_VCPU_IOCTL */
int kick_info(int dev, struct kfs_kick_info *info);
int kick_stats(int fd, uint64_t id, struct kfs_kick_stats *st);
int kick_fd(int fd);			/* KFS_KICK */
int kick_write(int fd, uint64_t n);
int64_t kick_read(int fd);
int user_exit(int vcpu_fd, unsigned long flags);

/* ---- A vCPU's thread ----------------------------------------------------- */
enum kphase { PH_START, PH_USER, PH_ENTER, PH_BACK, PH_ENDED };

struct krun {
	struct gvm_vcpu *vcpu;
	pthread_t thread;
	pid_t tid;		/* 0 until it is there */
	uint32_t posted;	/* events, by kickers */
	uint32_t seen;		/* posted, as read after the last clear; a futex */
	enum kphase phase;
	bool stop;
	bool wake_halted;	/* make it runnable again after each kick */
	int (*setup)(struct krun *k);	/* in the thread; 0 or -errno */
	void (*acked)(struct krun *k);	/* after each kick was taken */
	void *data;
	uint64_t kicked;	/* EINTR with immediate_exit set */
	uint64_t stray;		/* EINTR with it clear */
	uint64_t exits;		/* everything else */
	int error;		/* of KVM_RUN, when it ended the loop */
};

/* Starts the loop; it ends with krun_stop(), whoever kicks. */
int krun_start(struct krun *k, struct gvm_vcpu *vcpu);
/* Kicks by `kick` and joins; 0, -ETIMEDOUT (the thread is left behind). */
int krun_stop(struct krun *k, int kick);

/* One event before a kick; krun_answered() waits for it. */
uint32_t krun_post(struct krun *k);
/* Within a second, spinning the first moments when there is a second CPU. */
bool krun_answered(struct krun *k, uint32_t event);
/* What it looks like when a kick got lost; one line. */
const char *krun_describe(struct krun *k);

/* ---- Where a thread is --------------------------------------------------- */
/* The state letter of /proc for a thread of ours, 0 when it is gone. */
char task_state(pid_t tid);
/* Until it sleeps interruptibly in the named system call; see syscalls(2). */
bool wait_asleep_in(pid_t tid, long nr);
bool wait_u32(uint32_t *word, uint32_t at_least);
/* A word that counts up: set and wake; until it is there, at most a second. */
void word_set(uint32_t *word, uint32_t value);
bool word_reached(uint32_t *word, uint32_t value);
int online_cpus(void);

/*
 * A hook of ours that comes and goes patches kernel text; with two emulated CPUs
 * running that can hang the emulator. Holds it for the whole program: put it
 * before main. (For what KVM itself patches there is tests/machine/still.c.)
 */
#define KEEP_TEXT_STILL()						\
	static __attribute__((constructor)) void keep_text_still_(void)	\
	{								\
		keep_text_still();					\
	}
void keep_text_still(void);

/* ---- Signals ------------------------------------------------------------- */
/* A counting handler on every signal that can have one. */
void catch_all_signals(void);
extern uint64_t handlers_run;

/* ---- Guests --------------------------------------------------------------- */
struct kguest {
	uint32_t turns;		/* counts up while it runs */
	uint32_t halts;
	uint32_t spin;		/* guest_mixed(): turns between exits */
	uint32_t value;		/* guest_in(), guest_mmio(): what was read */
	uint64_t mmio;
};

uint32_t guest_spin(struct kguest *g);
uint32_t guest_halt(struct kguest *g);
/* Runs, halts (if `halts` is not ~0) and exits in turn, for ever. */
uint32_t guest_mixed(struct kguest *g);
uint32_t guest_exits(struct kguest *g);
uint32_t guest_in(struct kguest *g);
uint32_t guest_mmio(struct kguest *g);
#define KPORT_IN	0x4c0

#endif
