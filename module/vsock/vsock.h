/* SPDX-License-Identifier: GPL-2.0 */
/* What the files of kvm_fastsys_vsock.ko share; docs/vsock.md first. */
#ifndef KFS_VSOCK_H
#define KFS_VSOCK_H

#ifdef pr_fmt
#undef pr_fmt
#endif
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/percpu.h>
#include <linux/rculist.h>
#include <linux/srcu.h>
#include <linux/types.h>
#include <linux/virtio_vsock.h>
#include <linux/workqueue.h>
#include <net/af_vsock.h>

#include <linux/kvm_fastsys_vsock.h>

#include "../entry.h"

/* Writes up to this may be merged; larger ones gain nothing from it. */
#define KFS_VSOCK_SMALL		2048
/* Writes since the last receive or poll that always leave at once. */
#define KFS_VSOCK_STREAK	4
/* What one receive buffer of a Linux guest takes beside the header. */
#define KFS_VSOCK_GUEST_LIMIT						\
	(SKB_WITH_OVERHEAD(SZ_4K) - sizeof(struct virtio_vsock_hdr))
/* One 16 KiB allocation once the kernel puts the data into a packet. */
#define KFS_VSOCK_LIMIT							\
	(SKB_WITH_OVERHEAD(SZ_16K) - sizeof(struct virtio_vsock_hdr))
#define KFS_VSOCK_MAX_PORTS	16

enum kfs_vsock_mode {
	KFS_VSOCK_OFF,
	KFS_VSOCK_ON,
	KFS_VSOCK_OBSERVE,
};

enum kfs_vsock_kind {
	KFS_VSOCK_NEVER,	/* not ours: nothing is looked at */
	KFS_VSOCK_CORK,		/* NODELAY on the socket: MSG_MORE only */
	KFS_VSOCK_MERGE,
};

enum kfs_vsock_reason {
	KFS_FLUSH_FULL,		/* the next write would not fit */
	KFS_FLUSH_TIME,		/* a writer found delay_us nearly over */
	KFS_FLUSH_TIMER,	/* delay_us over and no writer came */
	KFS_FLUSH_CREDIT,	/* the peer's window is used up */
	KFS_FLUSH_UNCORK,	/* the write that ends a MSG_MORE row */
	KFS_FLUSH_RECEIVE,
	KFS_FLUSH_POLL,
	KFS_FLUSH_DIRECT,	/* a write that is not merged comes behind */
	KFS_FLUSH_SHUTDOWN,
	KFS_FLUSH_CLOSE,
	KFS_FLUSH_OPTION,
	KFS_FLUSH_OFF,
	KFS_FLUSH_REASONS
};

/*
 * One socket. Made by its first small write or its option, freed by the hook
 * on vsock_sk_destruct. The fields below `vsk` are under the socket lock but
 * where said. While `armed`, the timer or the work holds a reference on the
 * socket, so destruct cannot come.
 */
struct kfs_vsock_sock {
	struct hlist_node node;		/* kfs_vsock_lock, read under RCU */
	struct vsock_sock *vsk;

	/* All that a write looks at which is not merged. */
	u32 quick;			/* `generation`; 0 when staged or busy */
	u8 kind;			/* enum kfs_vsock_kind, of `generation` */
	u8 streak;

	s8 nodelay;			/* the option; -1: never set */
	bool busy;			/* our own send, or the self-test */
	bool selftest;
	u32 generation;
	u32 staged;			/* bytes waiting; timer peeks */

	u8 *buf;
	u32 size;
	u32 limit;			/* of `staged`, at most size */
	u32 uncredited;			/* of `staged`; see kfs_vsock_flush() */
	u32 writes;			/* in the buffer */
	u32 virtual;			/* observe mode's `staged` */
	u64 start;			/* first byte staged, ns; timer peeks */
	u64 last_sent;
	u64 retry_ns;			/* a flush was refused; 0: it was not */
	u64 direct_until;		/* see kfs_vsock_note_lateness() */
	u8 late;

	bool armed;
	struct hrtimer timer;
	struct work_struct work;
	struct rcu_head rcu;
};

struct kfs_vsock_stats {
	u64 staged_writes;
	u64 staged_bytes;
	u64 packets_saved;
	u64 observed_writes;
	u64 observed_bytes;
	u64 observed_saved;
	u64 no_memory;
	u64 late_pauses;
	u64 dropped_bytes;
	u64 errors;
	u64 flushes[KFS_FLUSH_REASONS];
};

DECLARE_PER_CPU(struct kfs_vsock_stats, kfs_vsock_counters);
#define kfs_vsock_count(field)		this_cpu_inc(kfs_vsock_counters.field)
#define kfs_vsock_add(field, n)		this_cpu_add(kfs_vsock_counters.field, n)
extern const char *const kfs_vsock_reasons[KFS_FLUSH_REASONS];

/* settings.c */
extern u32 kfs_vsock_generation;	/* moves with each setting */
void kfs_vsock_moved(void);
extern unsigned int kfs_vsock_delay_us;
extern unsigned int kfs_vsock_max_kb;
enum kfs_vsock_kind kfs_vsock_default(const struct vsock_sock *vsk);
int kfs_vsock_settings_init(void);
void kfs_vsock_settings_exit(void);

/* main.c */
extern int kfs_vsock_live;		/* enum kfs_vsock_mode */
int kfs_vsock_set_mode(int mode);

/* socket.c: the table */
#define KFS_VSOCK_BITS	12
extern struct hlist_head kfs_vsock_table[1 << KFS_VSOCK_BITS];

static inline struct hlist_head *kfs_vsock_bucket(const struct vsock_sock *vsk)
{
	return &kfs_vsock_table[hash_ptr((void *)vsk, KFS_VSOCK_BITS)];
}

/*
 * Callers hold the socket's lock and so keep its state; RCU is for its
 * neighbours in the chain. In line, for it is in the path of every write.
 */
static inline struct kfs_vsock_sock *
kfs_vsock_find(const struct vsock_sock *vsk)
{
	struct kfs_vsock_sock *st;

	rcu_read_lock_sched_notrace();
	hlist_for_each_entry_rcu_notrace(st, kfs_vsock_bucket(vsk), node)
		if (st->vsk == vsk)
			break;
	rcu_read_unlock_sched_notrace();
	return st;
}

struct kfs_vsock_sock *kfs_vsock_make(struct vsock_sock *vsk);
void kfs_vsock_forget(struct vsock_sock *vsk);
int kfs_vsock_selftest_add(struct vsock_sock *vsk);
int kfs_vsock_selftest_hit(const struct kfs_vsock_sock *st);
extern unsigned int kfs_vsock_selftest_hits;
struct vsock_sock *kfs_vsock_next(unsigned int *bucket);
void kfs_vsock_free_all(void);
void kfs_vsock_set_limit(struct kfs_vsock_sock *st);
bool kfs_vsock_buffer_get(struct kfs_vsock_sock *st);
void kfs_vsock_buffer_put(struct kfs_vsock_sock *st);
extern atomic_t kfs_vsock_sockets;
extern atomic64_t kfs_vsock_memory;

/* flush.c: all under the socket lock but kfs_vsock_drain() */
extern struct srcu_struct kfs_vsock_srcu;
extern struct workqueue_struct *kfs_vsock_wq;
int kfs_vsock_flush(struct kfs_vsock_sock *st, enum kfs_vsock_reason why);
void kfs_vsock_flush_report(struct kfs_vsock_sock *st,
			    enum kfs_vsock_reason why);
void kfs_vsock_finish(struct kfs_vsock_sock *st, enum kfs_vsock_reason why);
void kfs_vsock_drain(struct vsock_sock *vsk);	/* takes the lock itself */
void kfs_vsock_arm(struct kfs_vsock_sock *st);
void kfs_vsock_state_init(struct kfs_vsock_sock *st);

static inline u64 kfs_vsock_now(void)
{
	return ktime_get_mono_fast_ns();
}

static inline u64 kfs_vsock_delay_ns(void)
{
	return (u64)READ_ONCE(kfs_vsock_delay_us) * NSEC_PER_USEC;
}

/* stage.c: under the socket lock */
void kfs_vsock_judge(struct kfs_vsock_sock *st);

static inline void kfs_vsock_settle(struct kfs_vsock_sock *st)
{
	st->quick = st->staged || st->busy ? 0 : st->generation;
}

/* Entered from trampolines; KFS_PASS lets the kernel's function run. */
ssize_t kfs_vsock_enqueue(struct vsock_sock *vsk, struct msghdr *msg,
			  size_t len);
int kfs_vsock_recv(struct vsock_sock *vsk);
int kfs_vsock_poll(struct vsock_sock *vsk);
int kfs_vsock_shutdown(struct vsock_sock *vsk, int mode);
int kfs_vsock_release(struct vsock_sock *vsk);
int kfs_vsock_destruct(struct sock *sk);
int kfs_vsock_setsockopt(struct socket *sock, int level, int name,
			 sockptr_t val, unsigned int len);
int kfs_vsock_getsockopt(struct socket *sock, int level, int name,
			 char __user *val, int __user *len);

#endif
