// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Modules coming and going: ours is refused removal while anything of it is
 * in use and goes cleanly otherwise, a hundred times; KVM's vendor module does
 * not go from under an attached VM. Leaves everything loaded.
 */
#include <sys/utsname.h>

#include "kfstest.h"
#include "kselftest_harness.h"

#define MODULE	"kvm_fastsys"
#define VENDOR	(gvm_is_intel ? "kvm_intel" : "kvm_amd")
#define CYCLES	100

static int delete_module(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

static int load_module(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err;

	if (fd < 0)
		return -errno;
	err = syscall(SYS_finit_module, fd, "", 0) ? -errno : 0;
	close(fd);
	return err;
}

static const char *our_file(void)
{
	const char *path = getenv("KFS_MODULE");

	return path ? path : "/kfs/kvm_fastsys.ko";
}

/* The vendor module of the machine's image, or NULL. */
static const char *vendor_file(void)
{
	static char path[256];
	struct utsname u;

	uname(&u);
	snprintf(path, sizeof(path), "/lib/modules/%s/kvm-%s.ko", u.release,
		 gvm_is_intel ? "intel" : "amd");
	return access(path, R_OK) ? NULL : path;
}

/* Loaded and registered: the node is made by devtmpfs, soon after. */
static bool device_is_there(void *unused)
{
	return !access(KFS_DEVICE_PATH, F_OK);
}

static int reload(void)
{
	int err = load_module(our_file());

	if (err)
		return err;
	return wait_for(device_is_there, NULL, SECONDS(10)) ? 0 : -ENOENT;
}

FIXTURE(unload) {
	int unused;
};

FIXTURE_SETUP(unload)
{
	struct tvm probe;

	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&probe, 0, TVM_UNATTACHED))
		TH_LOG("%s", gvm_strerror(&probe.vm));
	tvm_destroy(&probe);
	if (access(our_file(), R_OK))
		SKIP(_exit(255), "no module file %s: set KFS_MODULE",
		     our_file());
	if (!wait_module_refs(MODULE, 0))
		SKIP(_exit(255), "module in use by %d others",
		     module_refs(MODULE));
}

FIXTURE_TEARDOWN(unload)
{
	/* Whatever went wrong, the next program finds the module. */
	if (module_refs(MODULE) < 0) {
		EXPECT_EQ(0, reload());
	}
}

#define EXPECT_STAYS(what) do {						\
	EXPECT_EQ(-EWOULDBLOCK, delete_module(MODULE)) TH_LOG(what);	\
	EXPECT_LT(0, module_refs(MODULE));				\
} while (0)

TEST_F(unload, refused_while_in_use)
{
	struct tvm t;
	int ctl, dev;

	dev = kfs_open();
	ASSERT_LE(0, dev);
	EXPECT_STAYS("device open");
	close(dev);

	ASSERT_EQ(0, tvm_create(&t, 0, 0)) TH_LOG("%s", gvm_strerror(&t.vm));
	EXPECT_STAYS("attached");
	EXPECT_EQ(getppid(), tvm_call0(&t, SYS_getppid));
	close(t.dev);
	t.dev = -1;
	EXPECT_STAYS("attached, device closed");
	ctl = t.ctl;
	t.ctl = -1;
	tvm_destroy(&t);
	EXPECT_STAYS("only the control fd is open");
	close(ctl);

	ASSERT_TRUE(wait_module_refs(MODULE, 0));
	ASSERT_EQ(0, delete_module(MODULE));
	EXPECT_EQ(-1, access(KFS_DEVICE_PATH, F_OK));
	ASSERT_EQ(0, reload());
}

static uint32_t guest_unattached(uint64_t *count)
{
	uint64_t i;

	for (i = 0; i < 1000; i++)
		if (gvm_hypercall(KFS_HC_SYSCALL, SYS_getppid, 0, 0, 0, 0, 0,
				  0) != -KFS_ENOSYS)
			return 0xbad;
	++*count;
	return 0x600d;
}

struct bystander {
	int stop;
	uint64_t runs;		/* of 1,000 hypercalls each */
	uint64_t vms;
};

/* VMs that never attach, made and ended while the module comes and goes. */
static void bystander_loop(struct bystander *b)
{
	while (!__atomic_load_n(&b->stop, __ATOMIC_ACQUIRE)) {
		uint64_t *count;
		uint32_t value;
		struct tvm t;
		int i;

		if (tvm_create(&t, 0, TVM_UNATTACHED))
			_exit(1);
		count = gvm_alloc(&t.vm, sizeof(*count), 64);
		for (i = 0; i < 5; i++) {
			if (gvm_set_entry(t.vcpu, guest_unattached, count,
					  GVM_RING0) ||
			    gvm_run_to_done(t.vcpu, &value))
				_exit(2);
			if (value != 0x600d)
				_exit(3);
			__atomic_add_fetch(&b->runs, 1, __ATOMIC_RELEASE);
		}
		tvm_destroy(&t);
		b->vms++;
	}
	_exit(0);
}

TEST_F_TIMEOUT(unload, hundred_times_with_vms_coming_and_going, 480)
{
	struct bystander *b = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned int i, status;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, b);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		bystander_loop(b);

	for (i = 0; i < CYCLES; i++) {
		bool attach = i % 4;
		struct tvm t;

		ASSERT_TRUE(wait_module_refs(MODULE, 0)) TH_LOG("cycle %u", i);
		ASSERT_EQ(0, delete_module(MODULE)) TH_LOG("cycle %u", i);
		ASSERT_EQ(0, reload()) TH_LOG("cycle %u", i);
		if (!attach)
			continue;
		ASSERT_EQ(0, tvm_create(&t, 0, 0))
			TH_LOG("cycle %u: %s", i, gvm_strerror(&t.vm));
		EXPECT_EQ(getppid(), tvm_call0(&t, SYS_getppid))
			TH_LOG("cycle %u", i);
		/* The VM ends first, or the attachment, or both at once. */
		if (i % 4 == 2) {
			close(t.ctl);
			t.ctl = -1;
		}
		tvm_destroy(&t);
	}
	__atomic_store_n(&b->stop, 1, __ATOMIC_RELEASE);
	status = wait_child(pid, SECONDS(30));
	EXPECT_EQ(0, status) TH_LOG("bystander: %#x", status);
	EXPECT_LT(0, b->runs);
	EXPECT_LT(0, b->vms);
	ASSERT_TRUE(wait_module_refs(MODULE, 0));
}

/* One guest that runs on over an unload it never notices. */
TEST_F_TIMEOUT(unload, vm_outlives_the_module, 60)
{
	uint64_t *count;
	struct tvm t;
	int ctl;

	ASSERT_EQ(0, tvm_create(&t, 0, 0)) TH_LOG("%s", gvm_strerror(&t.vm));
	EXPECT_EQ(getppid(), tvm_call0(&t, SYS_getppid));
	close(t.ctl);
	close(t.dev);
	t.ctl = t.dev = -1;
	ASSERT_TRUE(wait_module_refs(MODULE, 0));
	ASSERT_EQ(0, delete_module(MODULE));
	count = gvm_alloc(&t.vm, sizeof(*count), 64);
	ASSERT_EQ(0, gvm_set_entry(t.vcpu, guest_unattached, count, GVM_RING0));
	ASSERT_EQ(0, gvm_run_to_done(t.vcpu, NULL));
	EXPECT_EQ(1, *count);
	ASSERT_EQ(0, reload());
	t.dev = kfs_open();
	ASSERT_LE(0, t.dev);
	ctl = kfs_attach(t.dev, t.vm.vm_fd, KFS_MODE_IDENTITY, 0);
	ASSERT_LE(0, ctl);
	t.ctl = ctl;
	ASSERT_EQ(0, kfs_policy_ret(ctl, SECCOMP_RET_ALLOW));
	ASSERT_EQ(0, kfs_enable(ctl));
	EXPECT_EQ(getppid(), tvm_call0(&t, SYS_getppid));
	tvm_destroy(&t);
}

/* ---- KVM's own modules -------------------------------------------------------- */
TEST_F_TIMEOUT(unload, vendor_module_under_a_control_fd, 60)
{
	const char *file = vendor_file();
	struct kfs_vm_stats st;
	struct tvm t;
	int err;

	if (!file)
		SKIP(return, "no vendor module file in /lib/modules");
	ASSERT_TRUE(wait_module_refs(VENDOR, 0));
	ASSERT_EQ(0, tvm_create(&t, 0, 0)) TH_LOG("%s", gvm_strerror(&t.vm));
	EXPECT_EQ(getppid(), tvm_call0(&t, SYS_getppid));
	/* Only the control fd is left. */
	munmap(t.vcpu->run, t.vcpu->run_size);
	close(t.vcpu->fd);
	close(t.vm.vm_fd);
	close(t.vm.kvm_fd);
	close(t.dev);
	t.vcpu->run = NULL;
	t.vcpu->fd = t.vm.vm_fd = t.vm.kvm_fd = t.dev = -1;

	err = delete_module(VENDOR);
	EXPECT_EQ(-EWOULDBLOCK, err);
	if (!err) {
		ASSERT_EQ(0, load_module(file));
	}
	EXPECT_EQ(0, kfs_stats(t.ctl, &st));
	EXPECT_EQ(1, st.ran);
	tvm_destroy(&t);

	/* Nothing attached: it goes and comes back under our loaded module. */
	ASSERT_TRUE(wait_module_refs(VENDOR, 0))
		TH_LOG("%d references", module_refs(VENDOR));
	ASSERT_EQ(0, delete_module(VENDOR));
	ASSERT_EQ(0, load_module(file));
	ASSERT_EQ(0, tvm_create(&t, 0, 0)) TH_LOG("%s", gvm_strerror(&t.vm));
	EXPECT_EQ(getppid(), tvm_call0(&t, SYS_getppid));
	EXPECT_EQ(-KFS_ENOSYS, tvm_call0(&t, SYS_fork));
	tvm_destroy(&t);
}

/* What our module resolved lives in kvm.ko: it must not go before us. */
TEST_F(unload, kvm_stays_under_our_module)
{
	const char *file = vendor_file();
	struct tvm t;
	int err;

	if (!file)
		SKIP(return, "no vendor module file in /lib/modules");
	ASSERT_TRUE(wait_module_refs(VENDOR, 0));
	ASSERT_EQ(0, delete_module(VENDOR));
	err = delete_module("kvm");
	EXPECT_EQ(-EWOULDBLOCK, err);
	if (!err) {
		char kvm[256];

		snprintf(kvm, sizeof(kvm), "%.*s/kvm.ko",
			 (int)(strrchr(file, '/') - file), file);
		ASSERT_EQ(0, load_module(kvm));
	}
	ASSERT_EQ(0, load_module(file));
	ASSERT_EQ(0, tvm_create(&t, 0, 0)) TH_LOG("%s", gvm_strerror(&t.vm));
	EXPECT_EQ(getppid(), tvm_call0(&t, SYS_getppid));
	tvm_destroy(&t);
}

TEST_HARNESS_MAIN
