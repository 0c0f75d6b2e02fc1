// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The kick's ABI: what is refused and that nothing has changed then, reading,
 * writing and polling a kick fd, what it keeps alive, who may do what.
 */
#include <poll.h>
#include <sys/socket.h>

#include "kicktest.h"
#include "kselftest_harness.h"

FIXTURE(kick_abi) {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	int dev;
};

FIXTURE_SETUP(kick_abi)
{
	struct gvm_opts opts = { .irqchip = true };

	REQUIRE_MODULE();
	ASSERT_EQ(0, gvm_create(&self->vm, &opts))
		TH_LOG("%s", gvm_strerror(&self->vm));
	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &self->vcpu));
	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
}

FIXTURE_TEARDOWN(kick_abi)
{
	gvm_destroy(&self->vm);
	close(self->dev);
}

/* What must not move when a request is refused. */
static uint64_t totals(int dev, uint32_t *fds)
{
	struct kfs_kick_info info;

	if (kick_info(dev, &info))
		return ~0ULL;
	*fds = info.fds;
	return info.requested;
}

TEST_F(kick_abi, mechanism_is_proved)
{
	struct kfs_kick_info info;
	struct kfs_info all;

	ASSERT_EQ(0, kick_info(self->dev, &info));
	EXPECT_EQ(KFS_KICK_BY_NOTIFY, info.mechanism) TH_LOG("%s", info.reason);
	EXPECT_EQ(0, info.error);
	EXPECT_EQ(0, info.reason[0]);
	ASSERT_EQ(0, kfs_info(self->dev, &all));
	EXPECT_NE(0, all.features & KFS_FEATURE_KICK);
	EXPECT_NE(0, all.features & KFS_FEATURE_VCPU_IOCTL);
}

/* Every field of every structure, one wrong at a time. */
TEST_F(kick_abi, refused_requests)
{
	struct kfs_create_kick good = {
		.size = sizeof(good), .fd = self->vcpu->fd,
	};
	uint32_t fds, fds_after;
	uint64_t before = totals(self->dev, &fds);
	union {
		struct kfs_create_kick req;
		char bytes[4096];
	} u;
	unsigned int i;

	for (i = 2; i < 32; i++) {
		u.req = good;
		u.req.flags = 1U << i;
		EXPECT_EQ(-1, ioctl(self->dev, KFS_CREATE_KICK, &u));
		EXPECT_EQ(EINVAL, errno) TH_LOG("flag %u", i);
	}
	for (i = offsetof(struct kfs_create_kick, pad); i < sizeof(good); i++) {
		u.req = good;
		u.bytes[i] = 1;
		EXPECT_EQ(-1, ioctl(self->dev, KFS_CREATE_KICK, &u));
		EXPECT_EQ(EINVAL, errno) TH_LOG("byte %u", i);
	}
	for (i = 0; i < sizeof(good); i++) {
		u.req = good;
		u.req.size = i;
		EXPECT_EQ(-1, ioctl(self->dev, KFS_CREATE_KICK, &u));
		EXPECT_EQ(EINVAL, errno) TH_LOG("size %u", i);
	}
	memset(&u, 0, sizeof(u));
	u.req = good;
	u.req.size = sizeof(u);
	u.bytes[sizeof(u) - 1] = 1;
	EXPECT_EQ(-1, ioctl(self->dev, KFS_CREATE_KICK, &u));
	EXPECT_EQ(E2BIG, errno);
	u.req.size = 4097;
	EXPECT_EQ(-1, ioctl(self->dev, KFS_CREATE_KICK, &u));
	EXPECT_EQ(E2BIG, errno);
	EXPECT_EQ(-1, ioctl(self->dev, KFS_CREATE_KICK, NULL));
	EXPECT_EQ(EFAULT, errno);

	EXPECT_EQ(-EBADF, kick_create(self->dev, 12345, 0));
	EXPECT_EQ(-EBADF, kick_create(self->dev, -1, 0));
	/* Neither the VM for the vCPU, nor the other way round, nor others. */
	EXPECT_EQ(-EINVAL, kick_create(self->dev, self->vm.vm_fd, 0));
	EXPECT_EQ(-EINVAL, kick_create(self->dev, self->vm.kvm_fd, 0));
	EXPECT_EQ(-EINVAL, kick_create(self->dev, self->dev, 0));
	EXPECT_EQ(-EINVAL, kick_create(self->dev, 1, 0));
	EXPECT_EQ(-EINVAL, kick_create(self->dev, self->vcpu->fd, KFS_KICK_VM));
	EXPECT_EQ(-EINVAL, kick_create(self->dev, 1, KFS_KICK_VM));

	EXPECT_EQ(before, totals(self->dev, &fds_after));
	EXPECT_EQ(fds, fds_after);
	EXPECT_EQ(0, self->vcpu->run->immediate_exit);
}

TEST_F(kick_abi, refused_on_a_kick_fd)
{
	int fd = kick_create(self->dev, self->vcpu->fd, KFS_KICK_NONBLOCK);
	struct kfs_kick_stats st = { .size = sizeof(st), .flags = 1 };
	uint64_t eight[2] = { 1, 1 };
	int kick;

	ASSERT_LE(0, fd);
	EXPECT_EQ(-1, write(fd, eight, 7));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, write(fd, eight, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, syscall(SYS_write, fd, NULL, 8));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-EINVAL, kick_write(fd, 0));
	EXPECT_EQ(-EINVAL, kick_write(fd, ~0ULL));
	EXPECT_EQ(-1, read(fd, eight, 7));
	EXPECT_EQ(EINVAL, errno);
	for (kick = 0; kick < 64; kick++) {
		EXPECT_EQ(-1, ioctl(fd, KFS_KICK, 1UL << kick));
		EXPECT_EQ(EINVAL, errno);
	}
	EXPECT_EQ(-1, ioctl(fd, KFS_USER_EXIT, 0UL));
	EXPECT_EQ(ENOTTY, errno);
	EXPECT_EQ(-1, ioctl(fd, KFS_CREATE_KICK, 0UL));
	EXPECT_EQ(ENOTTY, errno);
	EXPECT_EQ(-1, ioctl(fd, KFS_KICK_STATS, &st));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-EAGAIN, kick_read(fd));
	EXPECT_EQ(0, self->vcpu->run->immediate_exit);
	close(fd);
}

TEST_F(kick_abi, counts_like_an_eventfd)
{
	int fd = kick_create(self->dev, self->vcpu->fd, KFS_KICK_NONBLOCK);
	struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };
	uint64_t two[2] = { 5, 7 };

	ASSERT_LE(0, fd);
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));
	EXPECT_EQ(-EAGAIN, kick_read(fd));
	EXPECT_EQ(1, poll(&p, 1, 0));
	EXPECT_EQ(POLLOUT, p.revents);
	EXPECT_EQ(8, kick_write(fd, 1));
	EXPECT_EQ(1, poll(&p, 1, 0));
	EXPECT_EQ(POLLIN | POLLOUT, p.revents);
	EXPECT_EQ(0, kick_fd(fd));
	EXPECT_EQ(8, write(fd, two, sizeof(two)));
	EXPECT_EQ(7, kick_read(fd));
	EXPECT_EQ(-EAGAIN, kick_read(fd));
	/* Full is full, and no kick is refused for it. */
	EXPECT_EQ(8, kick_write(fd, ~0ULL - 1));
	EXPECT_EQ(8, kick_write(fd, 1));
	EXPECT_EQ((int64_t)(~0ULL - 1), kick_read(fd));
	EXPECT_EQ(1, self->vcpu->run->immediate_exit);
	close(fd);
}

static void *reader(void *arg)
{
	return (void *)kick_read(*(int *)arg);
}

TEST_F(kick_abi, read_blocks)
{
	int fd = kick_create(self->dev, self->vcpu->fd, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	pthread_t thread;
	void *got = NULL;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, pthread_create(&thread, NULL, reader, &fd));
	EXPECT_EQ(0, poll(&p, 1, 20));
	EXPECT_EQ(8, kick_write(fd, 3));
	pthread_join(thread, &got);
	EXPECT_EQ(3, (int64_t)got);
	close(fd);
}

TEST_F(kick_abi, stats)
{
	int fd = kick_create(self->dev, self->vcpu->fd, 0);
	struct kfs_kick_info before, after;
	struct kfs_kick_stats st;
	struct gvm_vcpu *second;
	int all;

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &second));
	all = kick_create(self->dev, self->vm.vm_fd, KFS_KICK_VM);
	ASSERT_LE(0, all);
	ASSERT_EQ(0, kick_info(self->dev, &before));
	EXPECT_EQ(2, before.fds);
	EXPECT_EQ(8, kick_write(fd, 1));
	EXPECT_EQ(0, kick_fd(all));
	EXPECT_EQ(1, self->vcpu->run->immediate_exit);
	EXPECT_EQ(1, second->run->immediate_exit);

	ASSERT_EQ(0, kick_stats(fd, 0, &st));
	EXPECT_EQ(getpid(), st.pid);
	EXPECT_EQ(0, st.vcpu);
	EXPECT_EQ(1, st.vcpus);
	EXPECT_EQ(1, st.requested);
	EXPECT_EQ(0, st.coalesced);
	EXPECT_EQ(0, st.interrupted);
	EXPECT_EQ(1, st.unread);
	EXPECT_EQ(1, st.unacknowledged);
	/* The device lists them all, in order. */
	ASSERT_EQ(0, kick_stats(self->dev, 0, &st));
	ASSERT_EQ(0, kick_stats(self->dev, st.id + 1, &st));
	EXPECT_EQ(~0U, st.vcpu);
	EXPECT_EQ(2, st.vcpus);
	EXPECT_EQ(1, st.requested);
	EXPECT_EQ(1, st.coalesced);
	EXPECT_EQ(2, st.unacknowledged);
	EXPECT_EQ(-ENOENT, kick_stats(self->dev, st.id + 1, &st));
	self->vcpu->run->immediate_exit = 0;
	ASSERT_EQ(0, kick_stats(fd, 0, &st));
	EXPECT_EQ(0, st.unacknowledged);
	EXPECT_EQ(0, st.age_ms);

	ASSERT_EQ(0, kick_info(self->dev, &after));
	EXPECT_EQ(3, after.requested - before.requested);
	EXPECT_EQ(1, after.coalesced - before.coalesced);
	EXPECT_EQ(0, after.interrupted - before.interrupted);
	close(fd);
	close(all);
	ASSERT_EQ(0, kick_info(self->dev, &after));
	EXPECT_EQ(0, after.fds);
}

/* In a child with a memory of its own: its exit status is what went wrong. */
static int in_child(int (*fn)(FIXTURE_DATA(kick_abi) *, int),
		    FIXTURE_DATA(kick_abi) *self, int fd)
{
	pid_t pid = fork();

	if (!pid)
		_exit(fn(self, fd));
	return wait_child(pid, SECONDS(10));
}

static int stranger(FIXTURE_DATA(kick_abi) *self, int fd)
{
	if (kick_create(self->dev, self->vcpu->fd, 0) != -EIO)
		return 1;
	if (kick_create(self->dev, self->vm.vm_fd, KFS_KICK_VM) != -EIO)
		return 2;
	if (user_exit(self->vcpu->fd, 0) != -EIO)
		return 3;
	if (self->vcpu->run->immediate_exit)
		return 4;
	/* What it was given it may use. */
	return kick_write(fd, 1) == 8 ? 0 : 5;
}

TEST_F(kick_abi, another_process)
{
	int fd = kick_create(self->dev, self->vcpu->fd, 0);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, kick_live(self->dev));
	EXPECT_EQ(0, in_child(stranger, self, fd));
	EXPECT_EQ(1, kick_read(fd));
	/* kvm_run is shared memory, so the child's kick is here. */
	EXPECT_EQ(1, self->vcpu->run->immediate_exit);
	close(fd);
}

TEST_F(kick_abi, vcpu_ioctl_only_while_live)
{
	int other = kfs_open();

	ASSERT_LE(0, other);
	EXPECT_EQ(-EINVAL, user_exit(self->vcpu->fd, 0));
	EXPECT_EQ(0, self->vcpu->run->immediate_exit);

	ASSERT_EQ(0, kick_live(self->dev));
	EXPECT_EQ(-EALREADY, kick_live(self->dev));
	EXPECT_EQ(0, user_exit(self->vcpu->fd, 0));
	EXPECT_EQ(1, self->vcpu->run->immediate_exit);
	self->vcpu->run->immediate_exit = 0;
	for (int bit = 0; bit < 64; bit++) {
		EXPECT_EQ(-EINVAL, user_exit(self->vcpu->fd, 1UL << bit));
	}
	EXPECT_EQ(0, self->vcpu->run->immediate_exit);
	/* Only that number, and only a vCPU's. */
	EXPECT_EQ(-1, ioctl(self->vcpu->fd, KFS_USER_EXIT + 1, 0UL));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_GT(0, user_exit(self->vm.vm_fd, 0));
	EXPECT_GT(0, user_exit(self->vm.kvm_fd, 0));

	/* As long as anybody wants it. */
	ASSERT_EQ(0, kick_live(other));
	close(self->dev);
	EXPECT_EQ(0, user_exit(self->vcpu->fd, 0));
	close(other);
	EXPECT_EQ(-EINVAL, user_exit(self->vcpu->fd, 0));
	self->dev = kfs_open();
}

TEST_F(kick_abi, refused_live)
{
	struct kfs_live req = { .size = sizeof(req), .flags = 1 };

	EXPECT_EQ(-1, ioctl(self->dev, KFS_LIVE_VCPU_IOCTL, &req));
	EXPECT_EQ(EINVAL, errno);
	req.flags = 0;
	req.reserved[1] = 1;
	EXPECT_EQ(-1, ioctl(self->dev, KFS_LIVE_VCPU_IOCTL, &req));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-EINVAL, user_exit(self->vcpu->fd, 0));
}

/* Every fd but the kick fd is closed, kvm_run unmapped, then it is kicked. */
TEST_F(kick_abi, keeps_what_it_needs)
{
	int vendor = module_refs(gvm_is_intel ? "kvm_intel" : "kvm_amd");
	int fd = kick_create(self->dev, self->vcpu->fd, 0);
	int all = kick_create(self->dev, self->vm.vm_fd, KFS_KICK_VM);

	ASSERT_LE(0, fd);
	ASSERT_LE(0, all);
	gvm_destroy(&self->vm);
	close(self->dev);
	EXPECT_EQ(8, kick_write(fd, 1));
	EXPECT_EQ(0, kick_fd(all));
	EXPECT_EQ(1, kick_read(fd));
	EXPECT_LT(0, module_refs("kvm_fastsys"));
	EXPECT_LT(0, module_refs(gvm_is_intel ? "kvm_intel" : "kvm_amd"));
	close(fd);
	close(all);
	EXPECT_TRUE(wait_module_refs("kvm_fastsys", 0));
	EXPECT_TRUE(wait_module_refs(gvm_is_intel ? "kvm_intel" : "kvm_amd", 0));
	EXPECT_LT(0, vendor);
	self->dev = -1;
}

/* The VM's own process is gone; the fd went by SCM_RIGHTS before. */
TEST_F(kick_abi, outlives_the_process)
{
	char ctl[CMSG_SPACE(sizeof(int))] = "", byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = ctl, .msg_controllen = sizeof(ctl),
	};
	struct cmsghdr *cmsg;
	int pair[2], fd;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid = fork();
	if (!pid) {
		struct gvm_vcpu *vcpu;
		struct gvm vm;

		if (gvm_create(&vm, NULL) || gvm_vcpu_create(&vm, &vcpu))
			_exit(1);
		fd = kick_create(self->dev, vcpu->fd, 0);
		if (fd < 0)
			_exit(2);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
		_exit(sendmsg(pair[1], &msg, 0) == 1 ? 0 : 3);
	}
	ASSERT_EQ(0, wait_child(pid, SECONDS(10)));
	ASSERT_EQ(1, recvmsg(pair[0], &msg, 0));
	cmsg = CMSG_FIRSTHDR(&msg);
	ASSERT_NE(NULL, cmsg);
	memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	EXPECT_EQ(8, kick_write(fd, 1));
	EXPECT_EQ(1, kick_read(fd));
	close(fd);
	close(pair[0]);
	close(pair[1]);
}

TEST_HARNESS_MAIN
