// SPDX-License-Identifier: GPL-2.0
/*
 * Kick fds: what they hold, how they are counted, read and listed.
 *
 * Locks: kfs_kicks_lock (mutex) guards the list and the users; kick->wqh.lock
 * guards the count. A kick takes only the second.
 */
#include <linux/anon_inodes.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/jiffies.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/pid_namespace.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "compat/kick.h"
#include "kfs.h"
#include "kick.h"
#include "kvm_symbols.h"

#define KFS_KICK_COUNT_MAX	(ULLONG_MAX - 1)	/* as an eventfd */

/* Lives while one of its kick fds does. */
struct kfs_kick_user {
	struct list_head list;
	kuid_t uid;
	unsigned int fds;
};

/* Freed by its file's release; the list only finds it before that. */
struct kfs_kick {
	struct file *file;		/* the vCPU's or VM's: keeps all below */
	struct kvm *kvm;
	struct kvm_vcpu *vcpu;		/* NULL: all of the VM's */
	wait_queue_head_t wqh;
	u64 count;			/* kicks not read yet; wqh.lock */
	u64 requested;			/* wqh.lock */
	atomic64_t coalesced;
	atomic64_t interrupted;
	unsigned long since;		/* jiffies of the first kick not cleared */

	struct list_head list;
	u64 id;
	struct kfs_kick_user *user;
	struct pid *tgid;
	char comm[TASK_COMM_LEN];
};

static DEFINE_MUTEX(kfs_kicks_lock);
static LIST_HEAD(kfs_kicks);		/* by ascending id */
static LIST_HEAD(kfs_kick_users);
static u64 kfs_kick_next_id = 1;
static unsigned int kfs_kick_fds;

static unsigned int kfs_kick_met(struct kfs_kick *kick, struct kvm_vcpu *vcpu)
{
	unsigned int met = kfs_kick_vcpu(vcpu, false);

	if (met & KFS_KICK_COALESCED)
		atomic64_inc(&kick->coalesced);
	else
		WRITE_ONCE(kick->since, jiffies);
	if (met & KFS_KICK_INTERRUPTED)
		atomic64_inc(&kick->interrupted);
	return !!(met & KFS_KICK_INTERRUPTED);
}

/*
 * vCPUs are only ever added while the VM lives, and counted when they are
 * whole. With none counted KVM's iterator has no upper end, and on some kernels
 * meets one that is still being made.
 */
static bool kfs_has_vcpus(struct kvm *kvm)
{
	bool any = atomic_read(&kvm->online_vcpus);

	smp_rmb();	/* with KVM's write barrier before it counts */
	return any;
}

/*
 * The count goes up before immediate_exit is set, so that a thread that sees
 * itself kicked finds the kick counted.
 */
static unsigned int kfs_kick_do(struct kfs_kick *kick, u64 n)
{
	unsigned int interrupted = 0;
	struct kvm_vcpu *vcpu;
	unsigned long flags;
	unsigned long i;

	spin_lock_irqsave(&kick->wqh.lock, flags);
	kick->requested++;
	kick->count += min(n, KFS_KICK_COUNT_MAX - kick->count);
	/* Under its lock: nobody is just queueing. */
	if (waitqueue_active(&kick->wqh))
		wake_up_locked_poll(&kick->wqh, EPOLLIN);
	spin_unlock_irqrestore(&kick->wqh.lock, flags);

	if (kick->vcpu)
		return kfs_kick_met(kick, kick->vcpu);
	if (kfs_has_vcpus(kick->kvm))
		kvm_for_each_vcpu(i, vcpu, kick->kvm)
			interrupted += kfs_kick_met(kick, vcpu);
	return interrupted;
}

static ssize_t kfs_kick_write(struct file *file, const char __user *buf,
			      size_t len, loff_t *pos)
{
	u64 n;

	if (len < sizeof(n))
		return -EINVAL;
	if (copy_from_user(&n, buf, sizeof(n)))
		return -EFAULT;
	if (!n || n > KFS_KICK_COUNT_MAX)
		return -EINVAL;
	kfs_kick_do(file->private_data, n);
	return sizeof(n);
}

static ssize_t kfs_kick_read(struct file *file, char __user *buf, size_t len,
			     loff_t *pos)
{
	struct kfs_kick *kick = file->private_data;
	int err = 0;
	u64 n;

	if (len < sizeof(n))
		return -EINVAL;
	spin_lock_irq(&kick->wqh.lock);
	if (!kick->count) {
		if (file->f_flags & O_NONBLOCK)
			err = -EAGAIN;
		else
			err = wait_event_interruptible_locked_irq(kick->wqh,
								  kick->count);
	}
	n = kick->count;
	if (!err)
		kick->count = 0;
	spin_unlock_irq(&kick->wqh.lock);
	if (err)
		return err;
	return copy_to_user(buf, &n, sizeof(n)) ? -EFAULT : sizeof(n);
}

static __poll_t kfs_kick_poll(struct file *file, poll_table *wait)
{
	struct kfs_kick *kick = file->private_data;
	__poll_t events = EPOLLOUT;

	/* Queued before the count is read; a kick counts, then looks here. */
	poll_wait(file, &kick->wqh, wait);
	if (READ_ONCE(kick->count))
		events |= EPOLLIN;
	return events;
}

static void kfs_kick_free(struct kfs_kick *kick)
{
	put_pid(kick->tgid);
	fput(kick->file);
	kfree(kick);
}

/* Under kfs_kicks_lock. */
static void kfs_kick_user_put(struct kfs_kick_user *user)
{
	if (--user->fds)
		return;
	list_del(&user->list);
	kfree(user);
}

static int kfs_kick_release(struct inode *inode, struct file *file)
{
	struct kfs_kick *kick = file->private_data;

	mutex_lock(&kfs_kicks_lock);
	list_del(&kick->list);
	kfs_kick_fds--;
	kfs_kick_user_put(kick->user);
	mutex_unlock(&kfs_kicks_lock);
	kfs_kick_free(kick);
	return 0;
}

static long kfs_kick_ioctl(struct file *file, unsigned int cmd,
			   unsigned long arg)
{
	if (cmd == KFS_KICK)
		return arg ? -EINVAL : kfs_kick_do(file->private_data, 1);
	return kfs_device_kick_stats(file, cmd, arg);
}

static const struct file_operations kfs_kick_fops = {
	.owner = THIS_MODULE,
	.read = kfs_kick_read,
	.write = kfs_kick_write,
	.poll = kfs_kick_poll,
	.unlocked_ioctl = kfs_kick_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = kfs_kick_release,
	.llseek = noop_llseek,
};

/* Under kfs_kicks_lock. */
static struct kfs_kick_user *kfs_kick_user_get(void)
{
	struct kfs_kick_user *user;

	list_for_each_entry(user, &kfs_kick_users, list) {
		if (!uid_eq(user->uid, current_uid()))
			continue;
		if (user->fds >= kfs_param_max_kicks)
			return ERR_PTR(-EDQUOT);
		user->fds++;
		return user;
	}
	if (!kfs_param_max_kicks)
		return ERR_PTR(-EDQUOT);
	user = kzalloc(sizeof(*user), GFP_KERNEL_ACCOUNT);
	if (!user)
		return ERR_PTR(-ENOMEM);
	user->uid = current_uid();
	user->fds = 1;
	list_add(&user->list, &kfs_kick_users);
	return user;
}

/* vCPU files are told by the one function KVM answers their ioctls with. */
static bool kfs_file_is_vcpu(const struct file *file)
{
	return file->f_op->unlocked_ioctl == kfs_addr.vcpu_ioctl;
}

static int kfs_kick_target(struct kfs_kick *kick,
			   const struct kfs_create_kick *req)
{
	struct file *file = kick->file;

	if (req->flags & KFS_KICK_VM) {
		if (!static_call(kfs_file_is_kvm)(file))
			return -EINVAL;
		kick->kvm = file->private_data;
	} else {
		if (!kfs_file_is_vcpu(file))
			return -EINVAL;
		kick->vcpu = file->private_data;
		kick->kvm = kick->vcpu->kvm;
	}
	return kick->kvm->mm == current->mm ? 0 : -EIO;
}

/* On success the file owns the kick. */
static int kfs_kick_publish(struct kfs_kick *kick, unsigned int flags)
{
	unsigned int mode = O_RDWR | O_CLOEXEC;
	struct file *file;
	int fd, err;

	if (flags & KFS_KICK_NONBLOCK)
		mode |= O_NONBLOCK;
	fd = get_unused_fd_flags(mode);
	if (fd < 0)
		return fd;

	mutex_lock(&kfs_kicks_lock);
	kick->user = kfs_kick_user_get();
	err = PTR_ERR_OR_ZERO(kick->user);
	if (err)
		goto fail;
	file = anon_inode_getfile("kvm-fastsys-kick", &kfs_kick_fops, kick,
				  mode);
	err = PTR_ERR_OR_ZERO(file);
	if (err) {
		kfs_kick_user_put(kick->user);
		goto fail;
	}
	kick->id = kfs_kick_next_id++;
	list_add_tail(&kick->list, &kfs_kicks);
	kfs_kick_fds++;
	mutex_unlock(&kfs_kicks_lock);

	fd_install(fd, file);
	return fd;
fail:
	mutex_unlock(&kfs_kicks_lock);
	put_unused_fd(fd);
	return err;
}

int kfs_kick_create(const struct kfs_create_kick *req)
{
	struct kfs_kick *kick;
	int fd;

	if (req->flags & ~KFS_KICK_FLAGS)
		return -EINVAL;
	if (!kfs_kick_works())
		return -EOPNOTSUPP;
	kick = kzalloc(sizeof(*kick), GFP_KERNEL_ACCOUNT);
	if (!kick)
		return -ENOMEM;
	init_waitqueue_head(&kick->wqh);
	kick->file = fget(req->fd);
	if (!kick->file) {
		kfree(kick);
		return -EBADF;
	}
	kick->tgid = get_pid(task_tgid(current));
	get_task_comm(kick->comm, current->group_leader);
	fd = kfs_kick_target(kick, req);
	if (!fd)
		fd = kfs_kick_publish(kick, req->flags);
	if (fd < 0)
		kfs_kick_free(kick);
	return fd;
}

void kfs_kick_count_fds(struct kfs_kick_info *info)
{
	mutex_lock(&kfs_kicks_lock);
	info->fds = kfs_kick_fds;
	mutex_unlock(&kfs_kicks_lock);
	info->max_fds = kfs_param_max_kicks;
}

static void kfs_kick_see(struct kfs_kick_stats *st, struct kvm_vcpu *vcpu)
{
	st->vcpus++;
	if (kfs_compat_immediate_exit(vcpu->run))
		st->unacknowledged++;
}

static void kfs_kick_fill(struct kfs_kick *kick, struct kfs_kick_stats *st)
{
	struct kvm_vcpu *vcpu;
	unsigned long i;

	st->id = kick->id;
	st->pid = pid_vnr(kick->tgid);
	st->uid = from_kuid_munged(current_user_ns(), kick->user->uid);
	strscpy(st->comm, kick->comm, sizeof(st->comm));
	st->vcpu = kick->vcpu ? kick->vcpu->vcpu_id : U32_MAX;
	if (kick->vcpu)
		kfs_kick_see(st, kick->vcpu);
	else if (kfs_has_vcpus(kick->kvm))
		kvm_for_each_vcpu(i, vcpu, kick->kvm)
			kfs_kick_see(st, vcpu);
	if (st->unacknowledged)
		st->age_ms = jiffies_to_msecs(jiffies - READ_ONCE(kick->since));
	spin_lock_irq(&kick->wqh.lock);
	st->requested = kick->requested;
	st->unread = kick->count;
	spin_unlock_irq(&kick->wqh.lock);
	st->coalesced = atomic64_read(&kick->coalesced);
	st->interrupted = atomic64_read(&kick->interrupted);
}

/* As for VMs: one's own, or all with CAP_SYS_ADMIN. */
static bool kfs_kick_visible(const struct kfs_kick *kick)
{
	return uid_eq(kick->user->uid, current_uid()) || capable(CAP_SYS_ADMIN);
}

int kfs_kick_stats(struct file *file, struct kfs_kick_stats *st)
{
	struct kfs_kick *kick, *found = file ? file->private_data : NULL;
	u64 from = st->id;

	memset(st, 0, sizeof(*st));
	mutex_lock(&kfs_kicks_lock);
	if (!found) {
		list_for_each_entry(kick, &kfs_kicks, list)
			if (kick->id >= from && kfs_kick_visible(kick)) {
				found = kick;
				break;
			}
	}
	if (found)
		kfs_kick_fill(found, st);
	mutex_unlock(&kfs_kicks_lock);
	return found ? 0 : -ENOENT;
}
