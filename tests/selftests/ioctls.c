// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Every ioctl with every field, size, flag and pointer it must refuse: a
 * defined errno, the caller's structure untouched, nothing changed.
 */
#include "kfstest.h"
#include "kicktest.h"
#include "kselftest_harness.h"

#define TAIL		64
#define BUF_SIZE	8192
#define LEN(a)		(sizeof(a) / sizeof((a)[0]))

struct field {
	size_t offset, size;
};

#define FIELD(type, member) \
	{ offsetof(struct type, member), sizeof(((struct type *)0)->member) }

/*
 * `one_shot` ioctls change something when they succeed: there the tests make a
 * new VM first and close what comes out.
 */
struct ioctl_case {
	const char *name;
	unsigned long cmd;
	size_t size;
	bool on_control;
	bool one_shot;
	bool answers;		/* writes the structure back */
	uint32_t known_flags;
	struct field zero[3];
};

static const struct ioctl_case cases[] = {
	{ "KFS_GET_INFO", KFS_GET_INFO, sizeof(struct kfs_info), false, false,
	  true, 0, { FIELD(kfs_info, reserved) } },
	{ "KFS_HOOK_INFO", KFS_HOOK_INFO, sizeof(struct kfs_hook_info), false,
	  false, true, 0, { FIELD(kfs_hook_info, reserved) } },
	{ "KFS_ATTACH_VM", KFS_ATTACH_VM, sizeof(struct kfs_attach_vm), false,
	  true, false, KFS_ATTACH_FLAGS, { FIELD(kfs_attach_vm, reserved) } },
	{ "KFS_VM_STATS on the device", KFS_VM_STATS,
	  sizeof(struct kfs_vm_stats), false, false, true, 0,
	  { FIELD(kfs_vm_stats, reserved) } },
	{ "KFS_VM_STATS", KFS_VM_STATS, sizeof(struct kfs_vm_stats), true,
	  false, true, 0, { FIELD(kfs_vm_stats, reserved) } },
	{ "KFS_SET_POLICY", KFS_SET_POLICY, sizeof(struct kfs_set_policy),
	  true, true, false, 0,
	  { FIELD(kfs_set_policy, pad), FIELD(kfs_set_policy, reserved) } },
	{ "KFS_ENABLE", KFS_ENABLE, sizeof(struct kfs_enable), true, true,
	  false, 0, { FIELD(kfs_enable, reserved) } },
	{ "KFS_CREATE_KICK", KFS_CREATE_KICK, sizeof(struct kfs_create_kick),
	  false, true, false, KFS_KICK_FLAGS,
	  { FIELD(kfs_create_kick, pad), FIELD(kfs_create_kick, reserved) } },
	{ "KFS_KICK_INFO", KFS_KICK_INFO, sizeof(struct kfs_kick_info), false,
	  false, true, 0, { FIELD(kfs_kick_info, reserved) } },
	{ "KFS_KICK_STATS on the device", KFS_KICK_STATS,
	  sizeof(struct kfs_kick_stats), false, false, true, 0,
	  { FIELD(kfs_kick_stats, reserved) } },
	{ "KFS_LIVE_VCPU_IOCTL", KFS_LIVE_VCPU_IOCTL, sizeof(struct kfs_live),
	  false, true, false, 0, { FIELD(kfs_live, reserved) } },
};

/* Every structure starts alike. */
struct head {
	uint32_t size;
	uint32_t flags;
};

FIXTURE(ioctls) {
	struct tvm keeper;	/* attached throughout: the hook stays live */
	struct tvm t;		/* attached for control ioctls, else not */
	int kick;		/* of the keeper: there is one to list */
	unsigned char *buf;
};

static struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

FIXTURE_SETUP(ioctls)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->keeper, 0, 0))
		TH_LOG("%s", gvm_strerror(&self->keeper.vm));
	ASSERT_EQ(0, tvm_create(&self->t, 0, TVM_UNATTACHED))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	self->t.dev = kfs_open();
	ASSERT_LE(0, self->t.dev);
	self->kick = kick_create(self->t.dev, self->keeper.vcpu->fd, 0);
	ASSERT_LE(0, self->kick);
	self->buf = mmap(NULL, BUF_SIZE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->buf);
}

FIXTURE_TEARDOWN(ioctls)
{
	close(self->kick);
	tvm_destroy(&self->t);
	tvm_destroy(&self->keeper);
}

/* A request that would succeed, and the descriptor it goes to. */
static int valid(FIXTURE_DATA(ioctls) *self, const struct ioctl_case *ic)
{
	struct tvm *t = &self->t;

	memset(self->buf, 0, BUF_SIZE);
	((struct head *)self->buf)->size = ic->size;
	if (ic->on_control && (t->ctl < 0 || ic->one_shot)) {
		if (t->ctl >= 0)
			close(t->ctl);
		t->ctl = kfs_attach(t->dev, t->vm.vm_fd, KFS_MODE_IDENTITY, 0);
		if (t->ctl < 0 || kfs_policy(t->ctl, &allow, 1))
			return -1;
	}
	if (!ic->on_control && t->ctl >= 0) {
		close(t->ctl);
		t->ctl = -1;
	}
	switch (ic->cmd) {
	case KFS_ATTACH_VM: {
		struct kfs_attach_vm *req = (void *)self->buf;

		req->vm_fd = t->vm.vm_fd;
		req->mode = KFS_MODE_IDENTITY;
		break;
	}
	case KFS_CREATE_KICK:
		((struct kfs_create_kick *)self->buf)->fd = t->vcpu->fd;
		break;
	case KFS_LIVE_VCPU_IOCTL:
		/* Once for each open of the device. */
		close(t->dev);
		t->dev = kfs_open();
		break;
	case KFS_SET_POLICY: {
		struct kfs_set_policy *req = (void *)self->buf;

		req->count = 1;
		req->filter = U(&allow);
		break;
	}
	}
	return ic->on_control ? t->ctl : t->dev;
}

/* What must not change: VMs, hooks, this VM's state and counters. */
struct world {
	struct kfs_info info;
	struct kfs_hook_info hook;
	struct kfs_vm_stats keeper, vm;
};

static int look(FIXTURE_DATA(ioctls) *self, struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->hook.size = sizeof(w->hook);
	if (kfs_info(self->t.dev, &w->info) ||
	    ioctl(self->t.dev, KFS_HOOK_INFO, &w->hook) ||
	    kfs_stats(self->keeper.ctl, &w->keeper))
		return -1;
	/* Ends of VMs made before come through whenever they do. */
	w->info.vms = 0;
	w->hook.users = 0;
	return self->t.ctl < 0 ? 0 : kfs_stats(self->t.ctl, &w->vm);
}

static int make(int fd, unsigned long cmd, void *arg)
{
	int ret = ioctl(fd, cmd, arg);

	return ret < 0 ? -errno : ret;
}

/* After a success: give back what came out. */
static void undo(const struct ioctl_case *ic, int ret)
{
	if ((ic->cmd == KFS_ATTACH_VM || ic->cmd == KFS_CREATE_KICK) && ret > 0)
		close(ret);
}

#define EXPECT_REFUSED(ic, fd, cmd, arg, want, fmt, ...) do {		\
	static unsigned char copy_[BUF_SIZE];				\
	struct world before_, after_;					\
	int ret_;							\
	memcpy(copy_, self->buf, BUF_SIZE);				\
	ASSERT_EQ(0, look(self, &before_));				\
	ret_ = make(fd, cmd, arg);					\
	undo(ic, ret_);							\
	ASSERT_EQ(want, ret_)						\
		TH_LOG("%s, " fmt, (ic)->name, ##__VA_ARGS__);		\
	ASSERT_EQ(0, look(self, &after_));				\
	EXPECT_EQ(0, memcmp(&before_, &after_, sizeof(after_)))		\
		TH_LOG("%s, " fmt ": something changed", (ic)->name,	\
		       ##__VA_ARGS__);					\
	EXPECT_EQ(0, memcmp(copy_, self->buf, BUF_SIZE))		\
		TH_LOG("%s, " fmt ": structure changed", (ic)->name,	\
		       ##__VA_ARGS__);					\
} while (0)

#define EXPECT_TAKEN(ic, fd, cmd, fmt, ...) do {			\
	int ret_ = make(fd, cmd, self->buf);				\
	EXPECT_LE(0, ret_)						\
		TH_LOG("%s, " fmt, (ic)->name, ##__VA_ARGS__);		\
	undo(ic, ret_);							\
} while (0)

TEST_F(ioctls, valid_requests_are_taken)
{
	unsigned int i;

	for (i = 0; i < LEN(cases); i++) {
		int fd = valid(self, &cases[i]);

		ASSERT_LE(0, fd) TH_LOG("%s", cases[i].name);
		EXPECT_TAKEN(&cases[i], fd, cases[i].cmd, "as it is");
	}
}

TEST_F(ioctls, reserved_bytes)
{
	unsigned int i, f;
	size_t b;

	for (i = 0; i < LEN(cases); i++)
		for (f = 0; f < LEN(cases[i].zero); f++)
			for (b = 0; b < cases[i].zero[f].size; b++) {
				size_t at = cases[i].zero[f].offset + b;
				int fd = valid(self, &cases[i]);

				ASSERT_LE(0, fd);
				self->buf[at] = 1 << b % 8;
				EXPECT_REFUSED(&cases[i], fd, cases[i].cmd,
					       self->buf, -EINVAL, "byte %zu",
					       at);
			}
}

TEST_F(ioctls, unknown_flags)
{
	unsigned int i, bit;

	for (i = 0; i < LEN(cases); i++)
		for (bit = 0; bit < 32; bit++) {
			int fd;

			if (cases[i].known_flags & (1U << bit))
				continue;
			fd = valid(self, &cases[i]);
			ASSERT_LE(0, fd);
			((struct head *)self->buf)->flags = 1U << bit;
			EXPECT_REFUSED(&cases[i], fd, cases[i].cmd, self->buf,
				       -EINVAL, "flag %u", bit);
		}
}

TEST_F(ioctls, sizes)
{
	static const uint32_t huge[] = { 4097, 8192, 0x10000, 0x7fffffff,
					 0x80000000, 0xffffffff };
	unsigned int i, j;
	size_t size;

	for (i = 0; i < LEN(cases); i++) {
		const struct ioctl_case *ic = &cases[i];
		struct head *head = (struct head *)self->buf;
		int fd;

		for (size = 0; size < ic->size; size++) {
			fd = valid(self, ic);
			ASSERT_LE(0, fd);
			head->size = size;
			EXPECT_REFUSED(ic, fd, ic->cmd, self->buf, -EINVAL,
				       "size %zu", size);
		}
		for (size = ic->size; size <= ic->size + TAIL; size++) {
			fd = valid(self, ic);
			ASSERT_LE(0, fd);
			head->size = size;
			/* Behind what it says it has, anything may be. */
			memset(self->buf + size, 0xff, TAIL);
			EXPECT_TAKEN(ic, fd, ic->cmd, "size %zu", size);
			EXPECT_EQ(size, head->size);
			if (size == ic->size)
				continue;
			fd = valid(self, ic);
			ASSERT_LE(0, fd);
			head->size = size;
			self->buf[size - 1] = 1;
			EXPECT_REFUSED(ic, fd, ic->cmd, self->buf, -E2BIG,
				       "size %zu, last byte set", size);
		}
		for (j = 0; j < LEN(huge); j++) {
			fd = valid(self, ic);
			ASSERT_LE(0, fd);
			head->size = huge[j];
			EXPECT_REFUSED(ic, fd, ic->cmd, self->buf, -E2BIG,
				       "size %#x", huge[j]);
		}
	}
}

TEST_F(ioctls, bad_pointers)
{
	static const uint64_t bad[] = {
		0, 1, 0xfff, 0x7ffffffff000ULL, 0x800000000000ULL,
		0xffff800000000000ULL, 0xffffffff81000000ULL, ~0ULL,
	};
	unsigned int i, j;

	for (i = 0; i < LEN(cases); i++) {
		const struct ioctl_case *ic = &cases[i];
		int fd;

		for (j = 0; j < LEN(bad); j++) {
			fd = valid(self, ic);
			ASSERT_LE(0, fd);
			EXPECT_REFUSED(ic, fd, ic->cmd, (void *)bad[j],
				       -EFAULT, "pointer %#llx",
				       (unsigned long long)bad[j]);
		}
	}
}

/* The structure ends in a page that is not there, or cannot be written. */
TEST_F(ioctls, half_pointers)
{
	unsigned char *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int i;

	ASSERT_NE(MAP_FAILED, two);
	ASSERT_EQ(0, munmap(two + 4096, 4096));
	for (i = 0; i < LEN(cases); i++) {
		const struct ioctl_case *ic = &cases[i];
		unsigned char *at;
		int fd = valid(self, ic);

		ASSERT_LE(0, fd);
		at = two + 4096 - ic->size + 1;
		memcpy(at, self->buf, ic->size - 1);
		EXPECT_REFUSED(ic, fd, ic->cmd, at, -EFAULT, "half mapped");
		if (!ic->answers)
			continue;
		memcpy(two, self->buf, ic->size);
		ASSERT_EQ(0, mprotect(two, 4096, PROT_READ));
		EXPECT_REFUSED(ic, fd, ic->cmd, two, -EFAULT, "read-only");
		ASSERT_EQ(0, mprotect(two, 4096, PROT_READ | PROT_WRITE));
	}
}

/* Structures grow: their size is not part of the ioctl's name. */
TEST_F(ioctls, size_in_the_number)
{
	unsigned int i;

	for (i = 0; i < LEN(cases); i++) {
		unsigned long cmd = cases[i].cmd &
			~((unsigned long)_IOC_SIZEMASK << _IOC_SIZESHIFT);
		int fd = valid(self, &cases[i]);

		ASSERT_LE(0, fd);
		EXPECT_TAKEN(&cases[i], fd,
			     cmd | (cases[i].size + 8) << _IOC_SIZESHIFT,
			     "larger in the number");
	}
}

static bool is_known(unsigned long cmd, bool on_control)
{
	unsigned int i;

	for (i = 0; i < LEN(cases); i++)
		if (cases[i].on_control == on_control && cases[i].cmd == cmd)
			return true;
	return false;
}

TEST_F(ioctls, unknown_numbers)
{
	static const unsigned int dirs[] = { _IOC_NONE, _IOC_READ, _IOC_WRITE,
					     _IOC_READ | _IOC_WRITE };
	unsigned int nr, d, on_control, i;

	self->t.ctl = kfs_attach(self->t.dev, self->t.vm.vm_fd,
				 KFS_MODE_IDENTITY, 0);
	ASSERT_LE(0, self->t.ctl);
	for (on_control = 0; on_control < 2; on_control++) {
		int fd = on_control ? self->t.ctl : self->t.dev;

		for (nr = 0; nr < 256; nr++)
			for (d = 0; d < LEN(dirs); d++) {
				unsigned long cmd;
				bool known = false;

				for (i = 0; i < LEN(cases); i++) {
					cmd = _IOC(dirs[d], KFSIO, nr,
						   cases[i].size);
					known |= is_known(cmd, on_control);
				}
				if (known)
					continue;
				cmd = _IOC(dirs[d], KFSIO, nr, 64);
				EXPECT_EQ(-ENOTTY, make(fd, cmd, self->buf))
					TH_LOG("nr %#x, dir %u, control %u",
					       nr, dirs[d], on_control);
			}
		EXPECT_EQ(-ENOTTY, make(fd, KVM_GET_API_VERSION, NULL));
		EXPECT_EQ(-ENOTTY, make(fd, KVM_RUN, NULL));
	}
	/* KVM's descriptors do not take ours either. */
	memset(self->buf, 0, BUF_SIZE);
	((struct head *)self->buf)->size = sizeof(struct kfs_info);
	EXPECT_EQ(-EINVAL, make(self->t.vm.kvm_fd, KFS_GET_INFO, self->buf));
	EXPECT_EQ(-ENOTTY, make(self->t.vm.vm_fd, KFS_GET_INFO, self->buf));
}

/* Descriptors of ours are for ioctl only. */
TEST_F(ioctls, no_other_file_operation)
{
	int fds[2], i;
	char c = 0;

	self->t.ctl = kfs_attach(self->t.dev, self->t.vm.vm_fd,
				 KFS_MODE_IDENTITY, 0);
	ASSERT_LE(0, self->t.ctl);
	EXPECT_EQ(FD_CLOEXEC, fcntl(self->t.ctl, F_GETFD));
	fds[0] = self->t.dev;
	fds[1] = self->t.ctl;
	for (i = 0; i < 2; i++) {
		EXPECT_EQ(-1, read(fds[i], &c, 1));
		EXPECT_EQ(EINVAL, errno);
		EXPECT_EQ(-1, write(fds[i], &c, 1));
		EXPECT_EQ(EINVAL, errno);
		EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED,
					   fds[i], 0));
		EXPECT_EQ(ENODEV, errno);
	}
}

TEST_HARNESS_MAIN
