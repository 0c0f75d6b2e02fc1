// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * KFS_ATTACH_VM, KFS_ENABLE and what they say about the world: wrong
 * descriptors and modes, twice, from another process, listing, limits.
 */
#include "kfstest.h"
#include "kselftest_harness.h"

FIXTURE(attach) {
	struct tvm t;
};

FIXTURE_SETUP(attach)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, 0, TVM_UNATTACHED))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	self->t.dev = kfs_open();
	ASSERT_LE(0, self->t.dev);
}

FIXTURE_TEARDOWN(attach)
{
	tvm_destroy(&self->t);
}

static int attach_fd(struct tvm *t, int fd)
{
	return kfs_attach(t->dev, fd, KFS_MODE_IDENTITY, 0);
}

TEST_F(attach, wrong_descriptors)
{
	struct kfs_info before, after;
	int p[2], null, ctl;

	ASSERT_EQ(0, pipe(p));
	null = open("/dev/null", O_RDWR);
	ASSERT_EQ(0, kfs_info(self->t.dev, &before));
	EXPECT_EQ(-EBADF, attach_fd(&self->t, 9999));
	EXPECT_EQ(-EBADF, attach_fd(&self->t, -1));
	EXPECT_EQ(-EBADF, attach_fd(&self->t, 0x7fffffff));
	EXPECT_EQ(-EINVAL, attach_fd(&self->t, p[0]));
	EXPECT_EQ(-EINVAL, attach_fd(&self->t, null));
	EXPECT_EQ(-EINVAL, attach_fd(&self->t, self->t.dev));
	EXPECT_EQ(-EINVAL, attach_fd(&self->t, self->t.vm.kvm_fd));
	EXPECT_EQ(-EINVAL, attach_fd(&self->t, self->t.vcpu->fd));
	ctl = attach_fd(&self->t, self->t.vm.vm_fd);
	ASSERT_LE(0, ctl);
	EXPECT_EQ(-EINVAL, attach_fd(&self->t, ctl));
	close(ctl);
	ASSERT_EQ(0, kfs_info(self->t.dev, &after));
	EXPECT_EQ(before.max_vms, after.max_vms);
}

TEST_F(attach, modes)
{
	unsigned int mode;

	EXPECT_EQ(-EOPNOTSUPP, kfs_attach(self->t.dev, self->t.vm.vm_fd,
					  KFS_MODE_CONFINED, 0));
	for (mode = 2; mode < 40; mode++) {
		EXPECT_EQ(-EINVAL, kfs_attach(self->t.dev, self->t.vm.vm_fd,
					      mode, 0));
	}
	EXPECT_EQ(-EINVAL, kfs_attach(self->t.dev, self->t.vm.vm_fd, ~0U, 0));
}

TEST_F(attach, twice)
{
	struct tvm second;
	int ctl = attach_fd(&self->t, self->t.vm.vm_fd);
	int dup_fd, i;

	ASSERT_LE(0, ctl);
	EXPECT_EQ(-EBUSY, attach_fd(&self->t, self->t.vm.vm_fd));
	dup_fd = dup(self->t.vm.vm_fd);
	EXPECT_EQ(-EBUSY, attach_fd(&self->t, dup_fd));
	/* Another VM of the same process is none of its business. */
	ASSERT_EQ(0, tvm_create(&second, 0, 0))
		TH_LOG("%s", gvm_strerror(&second.vm));
	EXPECT_EQ(getppid(), tvm_call0(&second, SYS_getppid));
	tvm_destroy(&second);
	/* Closed, it can be attached at once, time and again. */
	for (i = 0; i < 20; i++) {
		close(ctl);
		ctl = attach_fd(&self->t, i % 2 ? dup_fd : self->t.vm.vm_fd);
		ASSERT_LE(0, ctl);
	}
	self->t.ctl = ctl;
	ASSERT_EQ(0, kfs_policy_ret(ctl, SECCOMP_RET_ALLOW));
	ASSERT_EQ(0, kfs_enable(ctl));
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
}

/* A new attachment inherits nothing: neither policy nor counters. */
TEST_F(attach, begins_anew)
{
	struct kfs_vm_stats st;
	uint64_t id;
	int ctl;

	self->t.ctl = attach_fd(&self->t, self->t.vm.vm_fd);
	ASSERT_LE(0, self->t.ctl);
	ASSERT_EQ(0, kfs_policy_ret(self->t.ctl, SECCOMP_RET_ALLOW));
	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(1, st.ran);
	id = st.id;
	close(self->t.ctl);

	ctl = self->t.ctl = attach_fd(&self->t, self->t.vm.vm_fd);
	ASSERT_LE(0, ctl);
	ASSERT_EQ(0, kfs_stats(ctl, &st));
	EXPECT_EQ(0, st.ran + declined_sum(&st));
	EXPECT_LT(id, st.id);
	EXPECT_EQ(KFS_VM_ATTACHED, st.state);
	EXPECT_EQ(-EINVAL, kfs_enable(ctl));
	EXPECT_EQ(-KFS_ENOSYS, tvm_call0(&self->t, SYS_getppid));
}

TEST_F(attach, enable)
{
	struct kfs_vm_stats st;
	int ctl = self->t.ctl = attach_fd(&self->t, self->t.vm.vm_fd);

	ASSERT_LE(0, ctl);
	EXPECT_EQ(-EINVAL, kfs_enable(ctl));	/* no policy */
	ASSERT_EQ(0, kfs_stats(ctl, &st));
	EXPECT_EQ(KFS_VM_ATTACHED, st.state);
	ASSERT_EQ(0, kfs_policy_ret(ctl, SECCOMP_RET_ALLOW));
	ASSERT_EQ(0, kfs_enable(ctl));
	ASSERT_EQ(0, kfs_stats(ctl, &st));
	EXPECT_EQ(KFS_VM_ENABLED, st.state);
	EXPECT_EQ(-EALREADY, kfs_enable(ctl));
	EXPECT_EQ(-EALREADY, kfs_enable(ctl));
}

/* The flags come back by probe and by statistics. */
TEST_F(attach, flags)
{
	static const struct {
		uint32_t attach;
		uint64_t probe;
	} bits[] = {
		{ KFS_DEFER_EXIT, KFS_PROBE_F_DEFER },
		{ KFS_EINTR, KFS_PROBE_F_EINTR },
		{ KFS_BLOCKING, 0 },
	};
	unsigned int set, i;

	for (set = 0; set < 8; set++) {
		uint64_t want = KFS_ABI_VERSION | KFS_PROBE_F_SYSCALL |
				KFS_PROBE_F_IDENTITY;
		struct kfs_vm_stats st;
		uint32_t flags = 0;
		struct tvm t;

		for (i = 0; i < 3; i++)
			if (set & (1 << i)) {
				flags |= bits[i].attach;
				want |= bits[i].probe;
			}
		ASSERT_EQ(0, tvm_create(&t, flags, 0))
			TH_LOG("%s", gvm_strerror(&t.vm));
		EXPECT_EQ(want, tvm_probe(&t)) TH_LOG("flags %#x", flags);
		ASSERT_EQ(0, kfs_stats(t.ctl, &st));
		EXPECT_EQ(flags, st.attach_flags);
		EXPECT_EQ(1, st.probes);
		tvm_destroy(&t);
	}
}

/* From another process: EIO, as KVM answers there; statistics may be read. */
TEST_F(attach, other_process)
{
	int status;
	pid_t pid;

	self->t.ctl = attach_fd(&self->t, self->t.vm.vm_fd);
	ASSERT_LE(0, self->t.ctl);
	ASSERT_EQ(0, kfs_policy_ret(self->t.ctl, SECCOMP_RET_ALLOW));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		struct kfs_vm_stats st;
		struct tvm own;

		if (kfs_enable(self->t.ctl) != -EIO)
			_exit(1);
		if (kfs_policy_ret(self->t.ctl, SECCOMP_RET_ALLOW) != -EIO)
			_exit(2);
		if (kfs_stats(self->t.ctl, &st) || st.pid != getppid() ||
		    st.state != KFS_VM_ATTACHED)
			_exit(3);
		if (attach_fd(&self->t, self->t.vm.vm_fd) != -EIO)
			_exit(4);
		/* The device is inherited and good for VMs of one's own. */
		if (tvm_create(&own, 0, TVM_UNATTACHED))
			_exit(5);
		own.ctl = attach_fd(&self->t, own.vm.vm_fd);
		if (own.ctl < 0)
			_exit(6);
		_exit(0);
	}
	status = wait_child(pid, SECONDS(10));
	EXPECT_EQ(0, status) TH_LOG("child status %#x", status);
	ASSERT_EQ(0, kfs_enable(self->t.ctl));
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
}

TEST_F(attach, listing)
{
	struct kfs_vm_stats own, st = { .size = sizeof(st) };
	struct kfs_info info;
	unsigned int seen = 0;
	uint64_t last = 0;

	self->t.ctl = attach_fd(&self->t, self->t.vm.vm_fd);
	ASSERT_LE(0, self->t.ctl);
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &own));
	while (!ioctl(self->t.dev, KFS_VM_STATS, &st)) {
		EXPECT_LT(last, st.id);
		last = st.id;
		if (st.id == own.id) {
			EXPECT_EQ(getpid(), st.pid);
			EXPECT_EQ(0, strncmp("attach", st.comm, 16))
				TH_LOG("comm %.16s", st.comm);
			seen++;
		}
		st = (struct kfs_vm_stats){ .size = sizeof(st),
					    .id = last + 1 };
	}
	EXPECT_EQ(ENOENT, errno);
	EXPECT_EQ(1, seen);
	ASSERT_EQ(0, kfs_info(self->t.dev, &info));
	EXPECT_LE(1, info.vms);
	EXPECT_EQ(KFS_ABI_VERSION, info.abi_version);
	EXPECT_LT(25, info.calls);
	EXPECT_TRUE(info.features & KFS_FEATURE_HYPERCALL);
	EXPECT_TRUE(info.features & KFS_FEATURE_IDENTITY);
	EXPECT_FALSE(info.features & KFS_FEATURE_CONFINED);
	EXPECT_NE(0, info.module_version[0]);
}

static bool hook_is_off(void *arg)
{
	struct kfs_hook_info info = { .size = sizeof(info) };

	return !ioctl(*(int *)arg, KFS_HOOK_INFO, &info) &&
	       info.state == KFS_HOOK_OFF && !info.users;
}

/* Live while somebody is attached, not a moment longer than the end takes. */
TEST_F(attach, hook_lives_only_while_used)
{
	struct kfs_hook_info info = { .size = sizeof(info) };
	bool alone = wait_for(hook_is_off, &self->t.dev, SECONDS(3));
	uint32_t others;

	ASSERT_EQ(0, ioctl(self->t.dev, KFS_HOOK_INFO, &info));
	others = info.users;
	self->t.ctl = attach_fd(&self->t, self->t.vm.vm_fd);
	ASSERT_LE(0, self->t.ctl);
	ASSERT_EQ(0, ioctl(self->t.dev, KFS_HOOK_INFO, &info));
	EXPECT_EQ(KFS_HOOK_LIVE, info.state);
	EXPECT_EQ(others + 1, info.users);
	EXPECT_NE(NULL, strstr(info.target, "kvm_emulate_hypercall"))
		TH_LOG("target %s", info.target);
	EXPECT_EQ(0, info.reason[0]);
	close(self->t.ctl);
	self->t.ctl = -1;
	if (!alone)
		SKIP(return, "%u others keep the hook live", others);
	EXPECT_TRUE(wait_for(hook_is_off, &self->t.dev, SECONDS(10)));

	info.index = 1000;
	EXPECT_EQ(-1, ioctl(self->t.dev, KFS_HOOK_INFO, &info));
	EXPECT_EQ(ENOENT, errno);
}

TEST_HARNESS_MAIN
