// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/kvm_fastsys and the fds it hands out: checks and dispatch, no logic.
 */
#include <linux/anon_inodes.h>
#include <linux/bitops.h>
#include <linux/compat.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "kfs.h"
#include "kick.h"
#include "kvm_hooks.h"

/* Structures grow: the size in an ioctl's number is not part of its name. */
#define KFS_CMD(cmd)	((cmd) & ~(_IOC_SIZEMASK << _IOC_SIZESHIFT))

/* First published sizes: no caller has a shorter structure. */
#define KFS_INFO_SIZE_1		sizeof(struct kfs_info)
#define KFS_HOOK_INFO_SIZE_1	sizeof(struct kfs_hook_info)
#define KFS_ATTACH_SIZE_1	sizeof(struct kfs_attach_vm)
#define KFS_POLICY_SIZE_1	sizeof(struct kfs_set_policy)
#define KFS_ENABLE_SIZE_1	sizeof(struct kfs_enable)
#define KFS_STATS_SIZE_1	sizeof(struct kfs_vm_stats)
#define KFS_CREATE_KICK_SIZE_1	sizeof(struct kfs_create_kick)
#define KFS_KICK_INFO_SIZE_1	sizeof(struct kfs_kick_info)
#define KFS_KICK_STATS_SIZE_1	sizeof(struct kfs_kick_stats)
#define KFS_LIVE_SIZE_1		sizeof(struct kfs_live)

/*
 * Copies in a structure that starts with its size. The size is read once; the
 * copy of it inside the structure is not looked at again.
 */
static long kfs_copy_in(void *to, size_t known, size_t least, void __user *from)
{
	u32 size;
	int err;

	if (get_user(size, (u32 __user *)from))
		return -EFAULT;
	if (size < least)
		return -EINVAL;
	if (size > PAGE_SIZE)
		return -E2BIG;
	err = copy_struct_from_user(to, known, from, size);
	/* Not in one expression with an unsigned size: errors would turn positive. */
	if (err)
		return err;
	return size;
}

static long kfs_copy_out(void __user *to, void *from, size_t known, size_t size)
{
	/* The caller's size stays what the caller wrote. */
	*(u32 *)from = size;
	return copy_to_user(to, from, min(known, size)) ? -EFAULT : 0;
}

static bool kfs_all_zero(const u64 *words, size_t bytes)
{
	return !memchr_inv(words, 0, bytes);
}

static long kfs_get_info(void __user *arg)
{
	struct kfs_info info;
	long size = kfs_copy_in(&info, sizeof(info), KFS_INFO_SIZE_1, arg);

	if (size < 0)
		return size;
	if (info.flags || !kfs_all_zero(info.reserved, sizeof(info.reserved)))
		return -EINVAL;

	memset(&info, 0, sizeof(info));
	info.abi_version = KFS_ABI_VERSION;
	info.hooks = KFS_HOOK_COUNT;
	if (kfs_param_hypercall)
		info.features |= KFS_FEATURE_HYPERCALL;
	if (kfs_param_identity)
		info.features |= KFS_FEATURE_IDENTITY;
	if (kfs_kick_works())
		info.features |= KFS_FEATURE_KICK;
	if (kfs_param_vcpu_ioctl)
		info.features |= KFS_FEATURE_VCPU_IOCTL;
	info.vms = kfs_vm_count();
	info.max_vms = kfs_param_max_vms;
	info.calls = KFS_ROW_COUNT - 1;
	info.max_filters = KFS_MAX_FILTERS;
	info.unattached = kfs_unattached();
	strscpy(info.module_version, KFS_VERSION, sizeof(info.module_version));
	return kfs_copy_out(arg, &info, sizeof(info), size);
}

static long kfs_get_hook_info(void __user *arg)
{
	struct kfs_hook_info info;
	long size = kfs_copy_in(&info, sizeof(info), KFS_HOOK_INFO_SIZE_1, arg);
	u32 index;
	int err;

	if (size < 0)
		return size;
	if (info.flags || !kfs_all_zero(info.reserved, sizeof(info.reserved)))
		return -EINVAL;

	index = info.index;
	memset(&info, 0, sizeof(info));
	info.index = index;
	err = kfs_hook_info(&info);
	return err ? err : kfs_copy_out(arg, &info, sizeof(info), size);
}

static long kfs_attach(void __user *arg)
{
	struct kfs_attach_vm req;
	long size = kfs_copy_in(&req, sizeof(req), KFS_ATTACH_SIZE_1, arg);

	if (size < 0)
		return size;
	if (!kfs_all_zero(req.reserved, sizeof(req.reserved)))
		return -EINVAL;
	/*
	 * The calls of a 32-bit task are parsed in 32-bit layouts, whatever
	 * the guest meant.
	 */
	if (in_compat_syscall())
		return -EOPNOTSUPP;
	return kfs_vm_attach(&req);
}

/* On the device `vm` is NULL and the id in the request chooses. */
static long kfs_get_stats(struct kfs_vm *vm, void __user *arg)
{
	struct kfs_vm_stats *st;
	struct kfs_vm *found = NULL;
	long size, err;

	st = kmalloc(sizeof(*st), GFP_KERNEL);
	if (!st)
		return -ENOMEM;
	size = kfs_copy_in(st, sizeof(*st), KFS_STATS_SIZE_1, arg);
	err = size;
	if (size < 0)
		goto out;
	err = -EINVAL;
	if (st->flags || !kfs_all_zero(st->reserved, sizeof(st->reserved)))
		goto out;
	if (!vm) {
		err = -ENOENT;
		found = kfs_vm_get_from(st->id);
		if (!found)
			goto out;
		vm = found;
	}
	err = kfs_vm_stats(vm, st);
	if (!err)
		err = kfs_copy_out(arg, st, sizeof(*st), size);
	if (found)
		kfs_vm_put(found);
out:
	kfree(st);
	return err;
}

static long kfs_create_kick(void __user *arg)
{
	struct kfs_create_kick req;
	long size = kfs_copy_in(&req, sizeof(req), KFS_CREATE_KICK_SIZE_1, arg);

	if (size < 0)
		return size;
	if (req.pad || !kfs_all_zero(req.reserved, sizeof(req.reserved)))
		return -EINVAL;
	return kfs_kick_create(&req);
}

static long kfs_get_kick_info(void __user *arg)
{
	struct kfs_kick_info info;
	long size = kfs_copy_in(&info, sizeof(info), KFS_KICK_INFO_SIZE_1, arg);

	if (size < 0)
		return size;
	if (info.flags || !kfs_all_zero(info.reserved, sizeof(info.reserved)))
		return -EINVAL;
	memset(&info, 0, sizeof(info));
	kfs_kick_totals(&info);
	kfs_kick_count_fds(&info);
	return kfs_copy_out(arg, &info, sizeof(info), size);
}

/* On the device `kick` is NULL and the id in the request chooses. */
static long kfs_get_kick_stats(struct file *kick, void __user *arg)
{
	struct kfs_kick_stats st;
	long size = kfs_copy_in(&st, sizeof(st), KFS_KICK_STATS_SIZE_1, arg);
	int err;

	if (size < 0)
		return size;
	if (st.flags || !kfs_all_zero(st.reserved, sizeof(st.reserved)))
		return -EINVAL;
	err = kfs_kick_stats(kick, &st);
	return err ? err : kfs_copy_out(arg, &st, sizeof(st), size);
}

/* The kick fd's own ioctl but for the kick itself. */
long kfs_device_kick_stats(struct file *kick, unsigned int cmd,
			   unsigned long arg)
{
	if (KFS_CMD(cmd) != KFS_CMD(KFS_KICK_STATS))
		return -ENOTTY;
	return kfs_get_kick_stats(kick, (void __user *)arg);
}

/*
 * What an open of the device keeps live. Two threads may ask at once: the one
 * that finds the word taken gives its hook back.
 */
static long kfs_live_vcpu_ioctl(struct file *file, void __user *arg)
{
	struct kfs_live req;
	long size = kfs_copy_in(&req, sizeof(req), KFS_LIVE_SIZE_1, arg);
	int err;

	if (size < 0)
		return size;
	if (req.flags || !kfs_all_zero(req.reserved, sizeof(req.reserved)))
		return -EINVAL;
	err = kfs_hook_get(KFS_HOOK_VCPU_IOCTL);
	if (err)
		return err;
	if (cmpxchg(&file->private_data, NULL, &kfs_hooks[KFS_HOOK_VCPU_IOCTL])) {
		kfs_hook_put(KFS_HOOK_VCPU_IOCTL);
		return -EALREADY;
	}
	return 0;
}

static long kfs_device_ioctl(struct file *file, unsigned int cmd,
			     unsigned long arg)
{
	void __user *argp = (void __user *)arg;

	switch (KFS_CMD(cmd)) {
	case KFS_CMD(KFS_GET_INFO):
		return kfs_get_info(argp);
	case KFS_CMD(KFS_HOOK_INFO):
		return kfs_get_hook_info(argp);
	case KFS_CMD(KFS_ATTACH_VM):
		return kfs_attach(argp);
	case KFS_CMD(KFS_VM_STATS):
		return kfs_get_stats(NULL, argp);
	case KFS_CMD(KFS_CREATE_KICK):
		return kfs_create_kick(argp);
	case KFS_CMD(KFS_KICK_INFO):
		return kfs_get_kick_info(argp);
	case KFS_CMD(KFS_KICK_STATS):
		return kfs_get_kick_stats(NULL, argp);
	case KFS_CMD(KFS_LIVE_VCPU_IOCTL):
		return kfs_live_vcpu_ioctl(file, argp);
	default:
		return -ENOTTY;
	}
}

static long kfs_control_set_policy(struct kfs_vm *vm, void __user *arg)
{
	struct kfs_set_policy req;
	long size = kfs_copy_in(&req, sizeof(req), KFS_POLICY_SIZE_1, arg);

	if (size < 0)
		return size;
	if (req.flags || req.pad ||
	    !kfs_all_zero(req.reserved, sizeof(req.reserved)))
		return -EINVAL;
	return kfs_vm_set_policy(vm, &req);
}

static long kfs_control_enable(struct kfs_vm *vm, void __user *arg)
{
	struct kfs_enable req;
	long size = kfs_copy_in(&req, sizeof(req), KFS_ENABLE_SIZE_1, arg);

	if (size < 0)
		return size;
	if (req.flags || !kfs_all_zero(req.reserved, sizeof(req.reserved)))
		return -EINVAL;
	return kfs_vm_enable(vm);
}

static long kfs_control_ioctl(struct file *file, unsigned int cmd,
			      unsigned long arg)
{
	void __user *argp = (void __user *)arg;
	struct kfs_vm *vm = file->private_data;

	switch (KFS_CMD(cmd)) {
	case KFS_CMD(KFS_VM_STATS):
		return kfs_get_stats(vm, argp);
	case KFS_CMD(KFS_SET_POLICY):
	case KFS_CMD(KFS_ENABLE):
		break;
	default:
		return -ENOTTY;
	}
	/* As KVM does: its memory is the creator's, so is its control. */
	if (vm->mm != current->mm || test_bit(KFS_VM_BIT_DYING, &vm->bits))
		return -EIO;
	if (KFS_CMD(cmd) == KFS_CMD(KFS_SET_POLICY))
		return kfs_control_set_policy(vm, argp);
	return kfs_control_enable(vm, argp);
}

static int kfs_control_release(struct inode *inode, struct file *file)
{
	struct kfs_vm *vm = file->private_data;

	kfs_vm_end(vm);
	kfs_vm_put(vm);
	return 0;
}

static const struct file_operations kfs_control_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = kfs_control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = kfs_control_release,
	.llseek = noop_llseek,
};

int kfs_control_fd(struct kfs_vm *vm)
{
	return anon_inode_getfd("kvm-fastsys-vm", &kfs_control_fops, vm,
				O_RDWR | O_CLOEXEC);
}

static int kfs_device_open(struct inode *inode, struct file *file)
{
	/* The misc layer left its own pointer there. */
	file->private_data = NULL;
	return 0;
}

static int kfs_device_release(struct inode *inode, struct file *file)
{
	if (file->private_data)
		kfs_hook_put(KFS_HOOK_VCPU_IOCTL);
	return 0;
}

static const struct file_operations kfs_device_fops = {
	.owner = THIS_MODULE,
	.open = kfs_device_open,
	.release = kfs_device_release,
	.unlocked_ioctl = kfs_device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

bool kfs_file_is_ours(const struct file *file)
{
	return within_module((unsigned long)file->f_op, THIS_MODULE);
}

static struct miscdevice kfs_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kvm_fastsys",
	.fops = &kfs_device_fops,
	.mode = 0660,
};

int __init kfs_device_init(void)
{
	return misc_register(&kfs_device);
}

void kfs_device_exit(void)
{
	misc_deregister(&kfs_device);
}
