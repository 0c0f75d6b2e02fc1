// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * What is left when something is missing: ftrace off, the hook taken by
 * another, module parameters. Each says so, and kick fds still work unless
 * they are what was switched off. Leaves the module as it was.
 */
#include "fentry.h"
#include "kicktest.h"
#include "kmod.h"
#include "kselftest_harness.h"

FIXTURE(kick_modes) {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	int dev;
};

FIXTURE_SETUP(kick_modes)
{
	REQUIRE_MODULE();
	if (getenv("HOST") && !strcmp(getenv("HOST"), "1"))
		SKIP(_exit(255), "reloads the module: not on a host in use");
	ASSERT_EQ(0, gvm_create(&self->vm, NULL));
	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &self->vcpu));
	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
}

static void reload(struct __test_metadata *_metadata,
		   FIXTURE_DATA(kick_modes) *self, const char *params)
{
	close(self->dev);
	ASSERT_TRUE(wait_module_refs("kvm_fastsys", 0));
	ASSERT_EQ(0, kmod_unload());
	ASSERT_EQ(0, kmod_load(params)) TH_LOG("with '%s'", params);
	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
}

FIXTURE_TEARDOWN(kick_modes)
{
	gvm_destroy(&self->vm);
	reload(_metadata, self, "");
	close(self->dev);
}

/* A kick fd is made, kicks, is read and closed. */
static bool kick_fds_work(int dev, struct gvm_vcpu *vcpu)
{
	int fd = kick_create(dev, vcpu->fd, 0);
	bool good = fd >= 0 && kick_write(fd, 1) == 8 && kick_read(fd) == 1 &&
		    vcpu->run->immediate_exit == 1 &&
		    gvm_run(vcpu) == -EINTR;

	vcpu->run->immediate_exit = 0;
	close(fd);
	return good;
}

TEST_F(kick_modes, ftrace_off)
{
	struct kfs_hook_info info;

	ASSERT_EQ(0, set_ftrace("0"));
	EXPECT_EQ(-ENODEV, kick_live(self->dev));
	info = hook_named(self->dev, "vcpu_ioctl");
	EXPECT_EQ(KFS_HOOK_UNAVAILABLE, info.state);
	EXPECT_NE(NULL, strstr(info.reason, "ftrace is off"))
		TH_LOG("%s", info.reason);
	EXPECT_EQ(-EINVAL, user_exit(self->vcpu->fd, 0));
	EXPECT_TRUE(kick_fds_work(self->dev, self->vcpu));
	/* hypercall=0: its hook is the one a load without ftrace fails for. */
	reload(_metadata, self, "hypercall=0");
	EXPECT_EQ(-ENODEV, kick_live(self->dev));
	EXPECT_TRUE(kick_fds_work(self->dev, self->vcpu));

	ASSERT_EQ(0, set_ftrace("1"));
	EXPECT_EQ(0, kick_live(self->dev));
	EXPECT_EQ(0, user_exit(self->vcpu->fd, 0));
	EXPECT_EQ(KFS_HOOK_LIVE, hook_named(self->dev, "vcpu_ioctl").state);
	/* Live, it keeps ftrace from being switched off under its users. */
	EXPECT_EQ(-EBUSY, set_ftrace("0"));
}

TEST_F(kick_modes, hook_taken)
{
	struct kfs_hook_info info;
	const char *why;
	int other = fentry_attach("kvm", "kvm_vcpu_ioctl", &why);

	if (other == -ENOENT)
		SKIP(return, "%s", why);
	ASSERT_LE(0, other) TH_LOG("%s: %s", why, strerror(-other));
	EXPECT_EQ(-ENODEV, kick_live(self->dev));
	info = hook_named(self->dev, "vcpu_ioctl");
	EXPECT_EQ(KFS_HOOK_UNAVAILABLE, info.state);
	EXPECT_EQ(EBUSY, info.error);
	EXPECT_NE(NULL, strstr(info.reason, "is taken")) TH_LOG("%s", info.reason);
	EXPECT_EQ(-EINVAL, user_exit(self->vcpu->fd, 0));
	EXPECT_TRUE(kick_fds_work(self->dev, self->vcpu));

	/* Taken already when the module comes: it loads all the same. */
	reload(_metadata, self, "");
	EXPECT_EQ(KFS_HOOK_UNAVAILABLE, hook_named(self->dev, "vcpu_ioctl").state);
	EXPECT_TRUE(kick_fds_work(self->dev, self->vcpu));
	EXPECT_EQ(-ENODEV, kick_live(self->dev));
	close(other);
	EXPECT_EQ(0, kick_live(self->dev));
	EXPECT_EQ(0, user_exit(self->vcpu->fd, 0));
	EXPECT_EQ(1, self->vcpu->run->immediate_exit);
}

TEST_F(kick_modes, vcpu_ioctl_0)
{
	struct kfs_info info;

	reload(_metadata, self, "vcpu_ioctl=0");
	ASSERT_EQ(0, kfs_info(self->dev, &info));
	EXPECT_EQ(0, info.features & KFS_FEATURE_VCPU_IOCTL);
	EXPECT_NE(0, info.features & KFS_FEATURE_KICK);
	EXPECT_EQ(KFS_HOOK_DISABLED, hook_named(self->dev, "vcpu_ioctl").state);
	EXPECT_EQ(-EOPNOTSUPP, kick_live(self->dev));
	EXPECT_EQ(-EINVAL, user_exit(self->vcpu->fd, 0));
	EXPECT_TRUE(kick_fds_work(self->dev, self->vcpu));
}

TEST_F(kick_modes, kick_0)
{
	struct kfs_kick_info kick;
	struct kfs_info info;

	reload(_metadata, self, "kick=0");
	ASSERT_EQ(0, kfs_info(self->dev, &info));
	EXPECT_EQ(0, info.features & KFS_FEATURE_KICK);
	EXPECT_EQ(0, info.features & KFS_FEATURE_VCPU_IOCTL);
	ASSERT_EQ(0, kick_info(self->dev, &kick));
	EXPECT_EQ(KFS_KICK_BY_NONE, kick.mechanism);
	EXPECT_EQ(EOPNOTSUPP, kick.error);
	EXPECT_NE(NULL, strstr(kick.reason, "kick=0"));
	EXPECT_EQ(-EOPNOTSUPP, kick_create(self->dev, self->vcpu->fd, 0));
	EXPECT_EQ(-EOPNOTSUPP, kick_live(self->dev));
	EXPECT_EQ(KFS_HOOK_DISABLED, hook_named(self->dev, "vcpu_ioctl").state);
	EXPECT_EQ(0, self->vcpu->run->immediate_exit);
}

static int two_and_no_more(int dev, int vcpu_fd)
{
	int a = kick_create(dev, vcpu_fd, 0), b = kick_create(dev, vcpu_fd, 0);
	int c = kick_create(dev, vcpu_fd, 0), again;

	if (a < 0 || b < 0 || c != -EDQUOT)
		return 1;
	close(a);
	again = kick_create(dev, vcpu_fd, 0);
	return again < 0 ? 2 : 0;
}

TEST_F(kick_modes, limit_per_user)
{
	struct kfs_kick_info kick;
	pid_t pid;

	reload(_metadata, self, "max_kicks=2");
	ASSERT_EQ(0, two_and_no_more(self->dev, self->vcpu->fd));
	/* Another user has a limit of its own, with a VM of its own. */
	pid = fork();
	if (!pid) {
		int vm, vcpu;

		if (setuid(12345))
			_exit(3);
		vm = ioctl(self->vm.kvm_fd, KVM_CREATE_VM, 0UL);
		vcpu = ioctl(vm, KVM_CREATE_VCPU, 0UL);
		_exit(two_and_no_more(self->dev, vcpu));
	}
	EXPECT_EQ(0, wait_child(pid, SECONDS(10)));
	ASSERT_EQ(0, kick_info(self->dev, &kick));
	EXPECT_EQ(2, kick.fds);
	EXPECT_EQ(2, kick.max_fds);
	/* Those two fds are this test's own and hold the module. */
	EXPECT_EQ(-EWOULDBLOCK, kmod_unload());
	closefrom(self->dev + 1);
}

/* Lines of the trace that end so. */
static int traced(const char *end)
{
	FILE *f = fopen(TRACING "trace", "re");
	char line[512];
	int n = 0;

	while (f && fgets(line, sizeof(line), f)) {
		char *at = strstr(line, "kfs_kick: vcpu 0 by ");

		n += at && !strcmp(at + strlen("kfs_kick: vcpu 0 by "), end);
	}
	if (f)
		fclose(f);
	return n;
}

TEST_F(kick_modes, tracepoint)
{
	int fd = kick_create(self->dev, self->vcpu->fd, 0);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kick_live(self->dev));
	ASSERT_EQ(0, put_text(TRACING "trace", ""));
	ASSERT_EQ(0, put_text(TRACING "events/kvm_fastsys/kfs_kick/enable", "1"));
	EXPECT_EQ(8, kick_write(fd, 1));
	EXPECT_EQ(8, kick_write(fd, 1));
	EXPECT_EQ(0, user_exit(self->vcpu->fd, 0));
	EXPECT_EQ(-EINTR, gvm_run(self->vcpu));
	self->vcpu->run->immediate_exit = 0;
	EXPECT_EQ(0, user_exit(self->vcpu->fd, 0));
	self->vcpu->run->immediate_exit = 0;
	EXPECT_EQ(0, put_text(TRACING "events/kvm_fastsys/kfs_kick/enable", "0"));
	EXPECT_EQ(1, traced("fd\n"));
	EXPECT_EQ(1, traced("fd coalesced\n"));
	EXPECT_EQ(1, traced("ioctl coalesced\n"));
	EXPECT_EQ(1, traced("ioctl\n"));
	close(fd);
}

TEST_HARNESS_MAIN
