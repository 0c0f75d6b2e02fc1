// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Ends in every order: descriptors closed, by whom and when; processes forked,
 * killed and leaving with descriptors elsewhere. Every attachment ends, and
 * references to our module and to KVM's go back to what they were.
 */
#include <sys/socket.h>

#include "kfstest.h"
#include "kselftest_harness.h"

#define MODULE	"kvm_fastsys"
#define VENDOR	(gvm_is_intel ? "kvm_intel" : "kvm_amd")

FIXTURE(lifetime) {
	struct tvm t;
	int refs;		/* of the module, without us */
	int vendor_refs;
};

static void forget(struct tvm *t)
{
	memset(t, 0, sizeof(*t));
	t->dev = t->ctl = t->vm.vm_fd = t->vm.kvm_fd = -1;
}

FIXTURE_SETUP(lifetime)
{
	struct tvm probe;

	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&probe, 0, TVM_UNATTACHED));
	tvm_destroy(&probe);	/* so that the vendor is known */
	/* The end of an earlier test's VM may still be under way. */
	if (!wait_module_refs(MODULE, 0))
		self->refs = module_refs(MODULE);
	ASSERT_LE(0, self->refs);
	wait_module_refs(VENDOR, 0);
	self->vendor_refs = module_refs(VENDOR);
	ASSERT_EQ(0, tvm_create(&self->t, 0, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
}

FIXTURE_TEARDOWN(lifetime)
{
	tvm_destroy(&self->t);
	EXPECT_TRUE(wait_module_refs(MODULE, self->refs))
		TH_LOG("%d references are left", module_refs(MODULE));
	EXPECT_TRUE(wait_module_refs(VENDOR, self->vendor_refs))
		TH_LOG("%d references to KVM are left", module_refs(VENDOR));
}

/* ---- Every order ----------------------------------------------------------- */
enum part { CTL, VM, VCPU, MAP, DEV, PARTS };

static const char part_name[PARTS][8] = { "ctl", "vm", "vcpu", "map", "dev" };

static void let_go(struct tvm *t, enum part part)
{
	switch (part) {
	case CTL:
		close(t->ctl);
		t->ctl = -1;
		break;
	case VM:
		close(t->vm.vm_fd);
		t->vm.vm_fd = -1;
		break;
	case VCPU:
		close(t->vcpu->fd);
		t->vcpu->fd = -1;
		break;
	case MAP:
		munmap(t->vcpu->run, t->vcpu->run_size);
		t->vcpu->run = NULL;
		break;
	default:
		close(t->dev);
		t->dev = -1;
	}
}

TEST_F_TIMEOUT(lifetime, every_order, 120)
{
	unsigned int n, i, j;
	int refs = self->refs;
	struct tvm keeper;

	tvm_destroy(&self->t);
	ASSERT_TRUE(wait_module_refs(MODULE, refs));
	/* Keeps the hook live: this is about VMs, and installing takes time. */
	ASSERT_EQ(0, tvm_create(&keeper, 0, 0));
	self->refs = module_refs(MODULE);
	for (n = 0; n < 120; n++) {
		enum part left[PARTS] = { CTL, VM, VCPU, MAP, DEV };
		unsigned int k = n, len = PARTS;
		char order[64] = "";

		ASSERT_EQ(0, tvm_create(&self->t, 0, 0))
			TH_LOG("%s", gvm_strerror(&self->t.vm));
		EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
		for (i = 0; i < PARTS; i++) {
			struct tvm *t = &self->t;
			unsigned int pick = k % len;
			enum part p = left[pick];

			k /= len--;
			for (j = pick; j < len; j++)
				left[j] = left[j + 1];
			strcat(strcat(order, part_name[p]), " ");
			let_go(t, p);
			if (t->vcpu->fd < 0 || !t->vcpu->run)
				continue;
			EXPECT_EQ(t->ctl < 0 ? -KFS_ENOSYS : getppid(),
				  tvm_call0(t, SYS_getppid))
				TH_LOG("after %s: %s", order,
				       gvm_strerror(&t->vm));
		}
		tvm_destroy(&self->t);
		ASSERT_TRUE(wait_module_refs(MODULE, self->refs))
			TH_LOG("%d references are left after %s",
			       module_refs(MODULE), order);
	}
	self->refs = refs;
	tvm_destroy(&keeper);
	forget(&self->t);
}

/* ---- By another thread during a call -------------------------------------------- */
static void *run_once(void *arg)
{
	struct tvm *t = arg;

	return (void *)(intptr_t)gvm_run(t->vcpu);
}

static int join(pthread_t thread, intptr_t *ret)
{
	struct timespec ts;
	void *value = NULL;
	int err;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 10;
	err = pthread_timedjoin_np(thread, &value, &ts);
	*ret = (intptr_t)value;
	return -err;
}

TEST_F(lifetime, closed_during_a_call)
{
	enum part part;

	for (part = CTL; part < PARTS; part++) {
		struct tvm *t = &self->t;
		struct kfs_vm_stats st;
		pthread_t thread;
		intptr_t ret;
		int64_t got;
		char c = 0;
		int p[2];

		if (part == MAP)
			continue;	/* the running thread itself reads it */
		if (part != CTL) {
			ASSERT_EQ(0, tvm_create(t, 0, 0))
				TH_LOG("%s", gvm_strerror(&t->vm));
		}
		ASSERT_EQ(0, pipe(p));
		ASSERT_EQ(0, tvm_prepare(t, SYS_read,
			(uint64_t[6]){ p[0], U(&c), 1 }));
		ASSERT_EQ(0, pthread_create(&thread, NULL, run_once, t));
		ASSERT_TRUE(wait_in_call(t->ctl, 1));
		let_go(t, part);
		if (part == CTL) {
			/* Detached: the call ends, the guest is told. */
			ASSERT_EQ(0, join(thread, &ret));
			EXPECT_EQ(-EINTR, ret);
			ASSERT_EQ(0, tvm_run(t, &got))
				TH_LOG("%s", gvm_strerror(&t->vm));
			EXPECT_EQ(-KFS_ENOSYS, got);
		} else {
			ASSERT_EQ(0, kfs_stats(t->ctl, &st));
			EXPECT_EQ(1, st.in_call);
			ASSERT_EQ(1, write(p[1], "z", 1));
			ASSERT_EQ(0, join(thread, &ret));
			EXPECT_EQ(0, ret);
			EXPECT_EQ(GVM_DONE, gvm_event(t->vcpu, NULL));
			EXPECT_EQ(1, t->list->call[0].ret);
			EXPECT_EQ('z', c);
		}
		close(p[0]);
		close(p[1]);
		tvm_destroy(t);
		ASSERT_TRUE(wait_module_refs(MODULE, self->refs))
			TH_LOG("%d references are left after %s",
			       module_refs(MODULE), part_name[part]);
	}
	forget(&self->t);
}

/* ---- By the guest itself, in a VMM of one thread ----------------------------------- */
static unsigned long inode_of(int fd)
{
	char path[64], text[128];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, text, sizeof(text) - 1);
	if (n < 0)
		return 0;
	text[n] = 0;
	while (n--)
		text[n] ^= text[n + 1] * 31;	/* tells the kinds apart */
	return 1 + (unsigned char)text[0];
}

TEST_F(lifetime, closed_by_the_guest_is_declined)
{
	struct tvm *t = &self->t;
	int p[2], dups[5], fds[10], i;

	ASSERT_EQ(0, pipe(p));
	fds[0] = t->ctl;
	fds[1] = t->vm.vm_fd;
	fds[2] = t->vcpu->fd;
	fds[3] = t->vm.kvm_fd;
	fds[4] = t->dev;
	for (i = 0; i < 5; i++) {
		dups[i] = dup(fds[i]);
		ASSERT_LE(0, dups[i]);
		fds[5 + i] = dups[i];
	}
	for (i = 0; i < 10; i++) {
		const struct {
			const char *name;
			long nr;
			uint64_t a[3];
		} tries[] = {
			{ "close", SYS_close, { fds[i] } },
			{ "dup2", SYS_dup2, { p[0], fds[i] } },
			{ "dup3", SYS_dup3, { p[0], fds[i], O_CLOEXEC } },
			{ "close, high bits", SYS_close,
			  { fds[i] | 0x700000000ULL } },
			{ "dup2, high bits", SYS_dup2,
			  { p[0], fds[i] | 0x700000000ULL } },
		};
		unsigned long was = inode_of(fds[i]);
		unsigned int j;

		for (j = 0; j < sizeof(tries) / sizeof(tries[0]); j++) {
			struct kfs_vm_stats before, after;
			char why[128] = "";

			ASSERT_EQ(0, kfs_stats(t->ctl, &before));
			EXPECT_EQ(-KFS_ENOSYS,
				  tvm_call(t, tries[j].nr, tries[j].a[0],
					   tries[j].a[1], tries[j].a[2], 0, 0,
					   0))
				TH_LOG("%s of fd %d", tries[j].name, i);
			ASSERT_EQ(0, kfs_stats(t->ctl, &after));
			EXPECT_TRUE(declined_only(&before, &after,
						  KFS_REASON_ARGUMENT, 1, why,
						  sizeof(why)))
				TH_LOG("%s of fd %d: %s", tries[j].name, i,
				       why);
			EXPECT_EQ(was, inode_of(fds[i]));
		}
	}
	EXPECT_EQ(-KFS_ENOSYS, tvm_call(t, SYS_close_range, 3, ~0U, 0, 0, 0,
					0));
	EXPECT_EQ(-KFS_ENOSYS, tvm_call(t, SYS_close_range, p[0], p[1], 0, 0,
					0, 0));
	/* All still there; a plain file goes as it should. */
	EXPECT_EQ(0, tvm_call(t, SYS_close, p[0], 0, 0, 0, 0, 0));
	EXPECT_EQ(-1, fcntl(p[0], F_GETFD));
	for (i = 0; i < 5; i++)
		close(dups[i]);
	EXPECT_EQ(getppid(), tvm_call0(t, SYS_getppid));
}

/* Deferred, it is the VMM that closes: outside KVM_RUN, where it may. */
TEST_F(lifetime, closed_for_the_guest_by_the_vmm)
{
	static const enum part parts[] = { CTL, VM };
	unsigned int i;

	for (i = 0; i < 2; i++) {
		struct tvm *t = &self->t;
		int fd;

		tvm_destroy(t);
		ASSERT_EQ(0, tvm_create(t, KFS_DEFER_EXIT, 0));
		t->serve = true;
		fd = parts[i] == CTL ? t->ctl : t->vm.vm_fd;
		EXPECT_EQ(0, tvm_call(t, SYS_close, fd, 0, 0, 0, 0, 0));
		EXPECT_EQ(1, t->deferred);
		EXPECT_EQ(-1, fcntl(fd, F_GETFD));
		*(parts[i] == CTL ? &t->ctl : &t->vm.vm_fd) = -1;
		EXPECT_EQ(parts[i] == CTL ? -KFS_ENOSYS : getppid(),
			  tvm_call0(t, SYS_getppid));
	}
}

/* ---- Processes -------------------------------------------------------------------- */
/* What every foreign process sees of a control fd. */
static int judge_foreign(int ctl, uint32_t state)
{
	struct kfs_vm_stats st;

	if (kfs_enable(ctl) != -EIO)
		return 10;
	if (kfs_policy_ret(ctl, SECCOMP_RET_ALLOW) != -EIO)
		return 11;
	if (kfs_stats(ctl, &st))
		return 12;
	return st.state == state ? 0 : 13;
}

static bool is_dying(void *arg)
{
	struct kfs_vm_stats st;

	return !kfs_stats(*(int *)arg, &st) && st.state == KFS_VM_DYING;
}

/* The child of a VMM that ended holds nothing but a dead control fd. */
TEST_F(lifetime, fork_then_parent_ends)
{
	int report[2], go[2], how, status;
	unsigned char code = 99;
	pid_t vmm;

	ASSERT_EQ(0, pipe(report));
	ASSERT_EQ(0, pipe(go));
	for (how = 0; how < 2; how++) {
		vmm = fork();
		ASSERT_LE(0, vmm);
		if (!vmm) {
			struct tvm t;

			if (tvm_create(&t, 0, 0) ||
			    tvm_call0(&t, SYS_getpid) != getpid())
				_exit(1);
			if (!fork()) {
				int r = judge_foreign(t.ctl, KFS_VM_ENABLED);

				code = r ? r : 0;
				if (write(report[1], &code, 1) != 1)
					_exit(1);
				if (!wait_for(is_dying, &t.ctl, SECONDS(10)))
					r = 20;
				else
					r = judge_foreign(t.ctl, KFS_VM_DYING);
				code = r;
				if (write(report[1], &code, 1) != 1)
					_exit(1);
				_exit(0);
			}
			_exit(read(go[0], &code, 1) != 1);
		}
		ASSERT_EQ(1, read(report[0], &code, 1));
		EXPECT_EQ(0, code);
		if (how) {
			ASSERT_EQ(0, kill(vmm, SIGKILL));
		} else {
			ASSERT_EQ(1, write(go[1], &code, 1));
		}
		status = wait_child(vmm, SECONDS(10));
		EXPECT_TRUE(how ? WIFSIGNALED(status) : status == 0);
		ASSERT_EQ(1, read(report[0], &code, 1));
		EXPECT_EQ(0, code) TH_LOG("way %d", how);
	}
	/* Ours was not touched. */
	EXPECT_EQ(getppid(), tvm_call0(&self->t, SYS_getppid));
}

static int send_fds(int socket, const int *fds, unsigned int n)
{
	char space[CMSG_SPACE(4 * sizeof(int))] = { 0 };
	struct iovec iov = { "f", 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space,
		.msg_controllen = CMSG_SPACE(n * sizeof(int)),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	return sendmsg(socket, &msg, 0) == 1 ? 0 : -errno;
}

static int receive_fds(int socket, int *fds, unsigned int n)
{
	char space[CMSG_SPACE(4 * sizeof(int))], byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = space,
		.msg_controllen = sizeof(space),
	};
	struct cmsghdr *c;

	if (recvmsg(socket, &msg, 0) != 1)
		return -errno;
	c = CMSG_FIRSTHDR(&msg);
	if (!c || c->cmsg_len != CMSG_LEN(n * sizeof(int)))
		return -EPROTO;
	memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	return 0;
}

/* Handed to a process that was there before: as useless as by fork. */
static int receiver(int socket)
{
	int fds[3], r;
	char c = 'k';

	if (receive_fds(socket, fds, 3))
		return 1;
	r = judge_foreign(fds[0], KFS_VM_ENABLED);
	if (r)
		return r;
	if (kfs_attach(fds[2], fds[1], KFS_MODE_IDENTITY, 0) != -EIO)
		return 2;
	/* The sender closes its own now and ends nothing by that ... */
	if (send(socket, &c, 1, 0) != 1 || recv(socket, &c, 1, 0) != 1)
		return 3;
	r = judge_foreign(fds[0], KFS_VM_ENABLED);
	if (r)
		return r;
	/* ... and here, with the last one, it does end. */
	close(fds[0]);
	if (send(socket, &c, 1, 0) != 1 || recv(socket, &c, 1, 0) != 1)
		return 4;
	return 0;
}

TEST_F(lifetime, passed_to_another_process)
{
	struct tvm *t = &self->t;
	int s[2], fds[3], status;
	pid_t pid;
	char c;

	/* The receiver must not share our fds: made before them. */
	tvm_destroy(t);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		close(s[0]);
		_exit(receiver(s[1]));
	}
	close(s[1]);
	ASSERT_EQ(0, tvm_create(t, 0, 0));
	fds[0] = t->ctl;
	fds[1] = t->vm.vm_fd;
	fds[2] = t->dev;
	ASSERT_EQ(0, send_fds(s[0], fds, 3));
	ASSERT_EQ(1, recv(s[0], &c, 1, 0));
	close(t->ctl);
	t->ctl = -1;
	EXPECT_EQ(getppid(), tvm_call0(t, SYS_getppid));
	ASSERT_EQ(1, send(s[0], &c, 1, 0));
	ASSERT_EQ(1, recv(s[0], &c, 1, 0));
	EXPECT_EQ(-KFS_ENOSYS, tvm_call0(t, SYS_getppid));
	ASSERT_EQ(1, send(s[0], &c, 1, 0));
	status = wait_child(pid, SECONDS(10));
	EXPECT_EQ(0, status) TH_LOG("receiver: %#x", status);
}

static void *run_guest(void *arg)
{
	tvm_run(arg, NULL);
	return NULL;
}

/* exit_group while another thread is inside a guest's call. */
TEST_F(lifetime, process_exits_during_a_call)
{
	int i;

	for (i = 0; i < 5; i++) {
		int status;
		pid_t pid = fork();

		ASSERT_LE(0, pid);
		if (!pid) {
			pthread_t thread;
			struct tvm t;
			int p[2];
			char c;

			if (pipe(p) || tvm_create(&t, 0, 0) ||
			    tvm_prepare(&t, SYS_read,
					(uint64_t[6]){ p[0], U(&c), 1 }) ||
			    pthread_create(&thread, NULL, run_guest, &t) ||
			    !wait_in_call(t.ctl, 1))
				_exit(1);
			_exit(42);
		}
		status = wait_child(pid, SECONDS(10));
		EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42)
			TH_LOG("status %d", status);
	}
}

/* Detached and attached again while the guest keeps calling. */
struct flood {
	int64_t me;
	int stop;
	uint64_t made, refused, wrong;
};

static uint32_t guest_flood(struct flood *f)
{
	while (!*(volatile int *)&f->stop) {
		int64_t ret = gvm_hypercall(KFS_HC_SYSCALL, SYS_getpid, 0, 0,
					    0, 0, 0, 0);

		if (ret == f->me)
			f->made++;
		else if (ret == -KFS_ENOSYS)
			f->refused++;
		else
			f->wrong++;
	}
	return 0x600d;
}

TEST_F(lifetime, reattached_under_load)
{
	struct tvm *t = &self->t;
	static struct flood f;
	pthread_t thread;
	intptr_t ret;
	int i;

	f = (struct flood){ .me = getpid() };
	ASSERT_EQ(0, gvm_set_entry(t->vcpu, guest_flood, &f, GVM_RING0));
	ASSERT_EQ(0, pthread_create(&thread, NULL, run_once, t));
	for (i = 0; i < 50; i++) {
		uint64_t made = f.made, end = now_ns() + SECONDS(5);

		while (*(volatile uint64_t *)&f.made == made &&
		       now_ns() < end)
			sched_yield();
		EXPECT_NE(made, *(volatile uint64_t *)&f.made);
		close(t->ctl);
		t->ctl = kfs_attach(t->dev, t->vm.vm_fd, KFS_MODE_IDENTITY, 0);
		ASSERT_LE(0, t->ctl);
		ASSERT_EQ(0, kfs_policy_ret(t->ctl, SECCOMP_RET_ALLOW));
		ASSERT_EQ(0, kfs_enable(t->ctl));
	}
	*(volatile int *)&f.stop = 1;
	ASSERT_EQ(0, join(thread, &ret));
	/* A detach may end a KVM_RUN; then the loop is left where it was. */
	if (ret == -EINTR) {
		ASSERT_EQ(0, tvm_run(t, NULL));
	} else {
		EXPECT_EQ(0, ret);
	}
	EXPECT_EQ(0, f.wrong);
	EXPECT_LT(0, f.made);
}

TEST_HARNESS_MAIN
