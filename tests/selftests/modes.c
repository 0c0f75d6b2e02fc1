// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The refusals to load and to attach: the hook taken by another, ftrace off,
 * module parameters. Each gives its errno and one line that says why, and
 * works again when the reason is gone. Leaves the module as it was.
 */
#include "fentry.h"
#include "kfstest.h"
#include "kmod.h"
#include "kselftest_harness.h"

FIXTURE(modes) {
	struct gvm vm;
	int kmsg;
	int dev;
	char line[256];
};

FIXTURE_SETUP(modes)
{
	REQUIRE_MODULE();
	if (getenv("HOST") && !strcmp(getenv("HOST"), "1"))
		SKIP(_exit(255), "reloads the module: not on a host in use");
	ASSERT_EQ(0, gvm_create(&self->vm, NULL));
	ASSERT_TRUE(wait_module_refs("kvm_fastsys", 0));
	self->kmsg = kmsg_open();
	ASSERT_LE(0, self->kmsg);
	self->dev = -1;
}

/* Removed and loaded with other parameters. */
static void reload(struct __test_metadata *_metadata,
		   FIXTURE_DATA(modes) *self, const char *params)
{
	if (self->dev >= 0)
		close(self->dev);
	ASSERT_TRUE(wait_module_refs("kvm_fastsys", 0));
	ASSERT_EQ(0, kmod_unload());
	ASSERT_EQ(0, kmod_load(params)) TH_LOG("with '%s'", params);
	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
}

FIXTURE_TEARDOWN(modes)
{
	set_ftrace("1");
	gvm_destroy(&self->vm);
	if (self->dev >= 0)
		close(self->dev);
	if (module_refs("kvm_fastsys") < 0) {
		EXPECT_EQ(0, kmod_load(""));
	} else {
		reload(_metadata, self, "");
	}
	if (self->dev >= 0)
		close(self->dev);
	close(self->kmsg);
}

static int attach(int dev, int vm)
{
	return kfs_attach(dev, vm, KFS_MODE_IDENTITY, 0);
}

/* One line since the last look, and `what` is in it. */
#define EXPECT_SAID(what)						\
do {									\
	EXPECT_EQ(1, kmsg_ours(self->kmsg, self->line, sizeof(self->line))); \
	EXPECT_NE(NULL, strstr(self->line, what))			\
		TH_LOG("said: %s", self->line);				\
} while (0)

TEST_F(modes, load_without_ftrace)
{
	ASSERT_EQ(0, kmod_unload());
	ASSERT_EQ(0, set_ftrace("0"));
	kmsg_ours(self->kmsg, self->line, sizeof(self->line));
	EXPECT_EQ(-ENODEV, kmod_load(""));
	EXPECT_SAID("ftrace is off");
	EXPECT_EQ(-1, module_refs("kvm_fastsys"));
	EXPECT_NE(0, access(KFS_DEVICE_PATH, F_OK));
	ASSERT_EQ(0, set_ftrace("1"));
	EXPECT_EQ(0, kmod_load(""));
}

TEST_F(modes, load_with_the_hook_taken)
{
	const char *why;
	int other;

	ASSERT_EQ(0, kmod_unload());
	other = fentry_attach("kvm", "kvm_emulate_hypercall", &why);
	if (other == -ENOENT)
		SKIP(return, "%s", why);
	ASSERT_LE(0, other) TH_LOG("%s: %s", why, strerror(-other));
	kmsg_ours(self->kmsg, self->line, sizeof(self->line));
	EXPECT_EQ(-ENODEV, kmod_load(""));
	EXPECT_SAID("kvm_emulate_hypercall is taken");
	EXPECT_EQ(-1, module_refs("kvm_fastsys"));
	close(other);
	EXPECT_EQ(0, kmod_load(""));
}

/* What has kept the hook from us, once it is gone, does so no more. */
TEST_F(modes, attach_with_the_hook_taken)
{
	struct kfs_hook_info info;
	const char *why;
	int other, ctl;

	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
	other = fentry_attach("kvm", "kvm_emulate_hypercall", &why);
	if (other == -ENOENT)
		SKIP(return, "%s", why);
	ASSERT_LE(0, other) TH_LOG("%s: %s", why, strerror(-other));
	kmsg_ours(self->kmsg, self->line, sizeof(self->line));
	EXPECT_EQ(-ENODEV, attach(self->dev, self->vm.vm_fd));
	EXPECT_SAID("is taken");
	info = hook_named(self->dev, "hypercall");
	EXPECT_EQ(EBUSY, info.error);
	EXPECT_NE(NULL, strstr(info.reason, "is taken")) TH_LOG("%s", info.reason);
	close(other);
	ctl = attach(self->dev, self->vm.vm_fd);
	EXPECT_LE(0, ctl);
	close(ctl);
}

TEST_F(modes, attach_without_ftrace)
{
	struct kfs_hook_info info;
	int ctl;

	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
	ASSERT_EQ(0, set_ftrace("0"));
	kmsg_ours(self->kmsg, self->line, sizeof(self->line));
	EXPECT_EQ(-ENODEV, attach(self->dev, self->vm.vm_fd));
	EXPECT_SAID("ftrace is off");
	info = hook_named(self->dev, "hypercall");
	EXPECT_NE(NULL, strstr(info.reason, "ftrace is off"))
		TH_LOG("%s", info.reason);
	ASSERT_EQ(0, set_ftrace("1"));
	ctl = attach(self->dev, self->vm.vm_fd);
	EXPECT_LE(0, ctl);
	/* Attached, it keeps ftrace from being switched off under its users. */
	EXPECT_EQ(-EBUSY, set_ftrace("0"));
	close(ctl);
}

TEST_F(modes, identity_0)
{
	struct kfs_info info;

	reload(_metadata, self, "identity=0");
	ASSERT_EQ(0, kfs_info(self->dev, &info));
	EXPECT_EQ(0, info.features & KFS_FEATURE_IDENTITY);
	EXPECT_EQ(-EOPNOTSUPP, attach(self->dev, self->vm.vm_fd));
	EXPECT_EQ(-EOPNOTSUPP, kfs_attach(self->dev, self->vm.vm_fd,
					  KFS_MODE_CONFINED, 0));
	EXPECT_EQ(0, hook_named(self->dev, "hypercall").users);
}

TEST_F(modes, hypercall_0)
{
	struct kfs_info info;

	reload(_metadata, self, "hypercall=0");
	ASSERT_EQ(0, kfs_info(self->dev, &info));
	EXPECT_EQ(0, info.features & KFS_FEATURE_HYPERCALL);
	EXPECT_EQ(KFS_HOOK_DISABLED, hook_named(self->dev, "hypercall").state);
	EXPECT_EQ(-EOPNOTSUPP, attach(self->dev, self->vm.vm_fd));
}

TEST_F(modes, max_vms)
{
	struct kfs_info info;
	struct gvm second;
	int ctl, again;

	ASSERT_EQ(0, gvm_create(&second, NULL));
	reload(_metadata, self, "max_vms=1");
	ASSERT_EQ(0, kfs_info(self->dev, &info));
	EXPECT_EQ(1, info.max_vms);
	ctl = attach(self->dev, self->vm.vm_fd);
	ASSERT_LE(0, ctl);
	EXPECT_EQ(-EDQUOT, attach(self->dev, second.vm_fd));
	EXPECT_EQ(-EBUSY, attach(self->dev, self->vm.vm_fd));
	/* Nothing of the refused one is left, and the place can be had again. */
	ASSERT_EQ(0, kfs_info(self->dev, &info));
	EXPECT_EQ(1, info.vms);
	close(ctl);
	again = attach(self->dev, second.vm_fd);
	EXPECT_LE(0, again);
	close(again);
	gvm_destroy(&second);
}

TEST_HARNESS_MAIN
