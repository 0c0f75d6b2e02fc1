// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The kick, by the module or by a signal. On both ways immediate_exit is set
 * first: it covers a thread that is not inside KVM_RUN yet.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "internal.h"
#include "kfs_kick.h"

static int kick_ioctl(int fd, unsigned long cmd, unsigned long arg)
{
	int saved = errno;
	int ret = ioctl(fd, cmd, arg);

	if (ret < 0)
		ret = -errno;
	errno = saved;
	return ret;
}

static int create(int dev, int fd, __u32 flags)
{
	struct kfs_create_kick arg = {
		.size = sizeof(arg), .flags = flags, .fd = (__u32)fd,
	};

	if (dev < 0)
		return dev;
	return kick_ioctl(dev, KFS_CREATE_KICK, (unsigned long)&arg);
}

static void nothing(int sig)
{
	(void)sig;
}

/* A handler of the VMM's own stays: any handler ends KVM_RUN. */
static int prepare_signal(int sig)
{
	struct sigaction sa, own = { .sa_handler = nothing };
	int saved = errno, ret = 0;

	if (sigaction(sig, NULL, &sa) ||
	    ((sa.sa_handler == SIG_DFL || sa.sa_handler == SIG_IGN) &&
	     sigaction(sig, &own, NULL)))
		ret = -errno;
	errno = saved;
	return ret;
}

KFS_PUBLIC int kfs_kick_open(struct kfs_kicker *kicker, int dev, int vcpu_fd,
			     struct kvm_run *run, int sig)
{
	int fd = create(dev, vcpu_fd, KFS_KICK_NONBLOCK);

	memset(kicker, 0, sizeof(*kicker));
	kicker->run = run;
	kicker->fd = fd;
	if (fd >= 0)
		return 1;
	/*
	 * No device, one of an older module, one that cannot kick: by signal.
	 * Any other error is a mistake of the caller's, or a limit.
	 */
	if (!sig || (dev >= 0 && fd != -EOPNOTSUPP && fd != -ENOTTY))
		return fd;
	kicker->fd = -1;
	kicker->sig = sig;
	kicker->pid = getpid();
	return prepare_signal(sig);
}

KFS_PUBLIC void kfs_kick_close(struct kfs_kicker *kicker)
{
	int saved = errno;

	if (kicker->fd >= 0)
		close(kicker->fd);
	kicker->fd = -1;
	kicker->sig = 0;
	errno = saved;
}

KFS_PUBLIC int kfs_kick_open_vm(int dev, int vm_fd)
{
	return create(dev, vm_fd, KFS_KICK_VM | KFS_KICK_NONBLOCK);
}

KFS_PUBLIC void kfs_kick_enter(struct kfs_kicker *kicker)
{
	sigset_t set;

	if (kicker->fd >= 0)
		return;
	sigemptyset(&set);
	sigaddset(&set, kicker->sig);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	/*
	 * A kicker that does not see this has set immediate_exit before, and
	 * KVM_RUN reads that after.
	 */
	__atomic_store_n(&kicker->tid, (int)syscall(SYS_gettid),
			 __ATOMIC_SEQ_CST);
}

KFS_PUBLIC void kfs_kick_leave(struct kfs_kicker *kicker)
{
	__atomic_store_n(&kicker->tid, 0, __ATOMIC_SEQ_CST);
}

/*
 * A thread that ended between the look and the signal may have lent its number
 * to another of this process, which then takes one signal with an empty
 * handler for nothing.
 */
static int by_signal(struct kfs_kicker *kicker)
{
	int saved = errno, ret = 0;
	int tid;

	if (!kicker->sig)
		return -EBADF;
	__atomic_exchange_n(&kicker->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
	tid = __atomic_load_n(&kicker->tid, __ATOMIC_SEQ_CST);
	if (tid)
		ret = !syscall(SYS_tgkill, kicker->pid, tid, kicker->sig);
	errno = saved;
	return ret;
}

KFS_PUBLIC int kfs_kick(struct kfs_kicker *kicker)
{
	if (kicker->fd >= 0)
		return kick_ioctl(kicker->fd, KFS_KICK, 0);
	return by_signal(kicker);
}

KFS_PUBLIC int kfs_kick_all(int vm_kick, struct kfs_kicker *kickers,
			    unsigned int n)
{
	int sum = 0;

	if (vm_kick >= 0)
		return kick_ioctl(vm_kick, KFS_KICK, 0);
	/* One that fails does not keep the rest running. */
	for (unsigned int i = 0; i < n; i++) {
		int ret = kfs_kick(&kickers[i]);

		if (ret < 0 || sum < 0)
			sum = sum < 0 ? sum : ret;
		else
			sum += ret;
	}
	return sum;
}

KFS_PUBLIC int kfs_kicked(struct kvm_run *run)
{
	if (!__atomic_load_n(&run->immediate_exit, __ATOMIC_SEQ_CST))
		return 0;
	/*
	 * Cleared before the events are read: a kicker posts, then sets it. So
	 * either its event is seen from here on, or immediate_exit is set again
	 * and the next KVM_RUN returns at once.
	 */
	__atomic_exchange_n(&run->immediate_exit, 0, __ATOMIC_SEQ_CST);
	return 1;
}

KFS_PUBLIC __s64 kfs_kick_count(struct kfs_kicker *kicker)
{
	int saved = errno;
	__s64 ret = -EOPNOTSUPP;
	__u64 n = 0;

	if (kicker->fd >= 0) {
		ret = 0;
		if (read(kicker->fd, &n, sizeof(n)) > 0)
			ret = (__s64)n;
		else if (errno != EAGAIN)
			ret = -errno;
	}
	errno = saved;
	return ret;
}

KFS_PUBLIC int kfs_live_vcpu_ioctl(int dev)
{
	struct kfs_live arg = { .size = sizeof(arg) };

	return kick_ioctl(dev, KFS_LIVE_VCPU_IOCTL, (unsigned long)&arg);
}

KFS_PUBLIC int kfs_kick_info(int dev, struct kfs_kick_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return kick_ioctl(dev, KFS_KICK_INFO, (unsigned long)info);
}

KFS_PUBLIC int kfs_kick_stats(int fd, __u64 id, struct kfs_kick_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	stats->id = id;
	return kick_ioctl(fd, KFS_KICK_STATS, (unsigned long)stats);
}
