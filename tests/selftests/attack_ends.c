// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Ends and openings chosen to hurt: four vCPUs in the middle of calls when
 * their VM, process or memory map goes; vCPUs that never come to be while the
 * VM is kicked; attaching without pause; 32-bit ioctls with odd pointers.
 */
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "kicktest.h"
#include "kselftest_harness.h"

KEEP_TEXT_STILL();

#define VCPUS	4
#define EXEC_ENV "KFS_ATTACK_EXECED"

/* What a child that execs this program again does. */
static __attribute__((constructor)) void after_exec(void)
{
	if (getenv(EXEC_ENV))
		_exit(42);
}

/* ---- Four vCPUs that never stop calling ----------------------------------- */
struct hammer {
	struct gvm_vcpu *vcpu;
	pthread_t thread;
	/* Guest-visible: */
	int pipe[2];
	uint64_t turns;
	struct timespec ts;
	struct pollfd pfd;
	char buf[256];
} __attribute__((aligned(128)));

static struct hammer hammers[VCPUS];
static struct tvm t;
static bool stop;

static int64_t call(uint64_t nr, uint64_t a, uint64_t b, uint64_t c)
{
	return gvm_hypercall(KFS_HC_SYSCALL, nr, a, b, c, 0, 0, 0);
}

static uint32_t guest_hammer(struct hammer *h)
{
	for (;;) {
		call(SYS_getpid, 0, 0, 0);
		call(SYS_write, h->pipe[1], (uintptr_t)h->buf, 200);
		call(SYS_read, h->pipe[0], (uintptr_t)h->buf, 200);
		call(SYS_nanosleep, (uintptr_t)&h->ts, 0, 0);
		call(SYS_poll, (uintptr_t)&h->pfd, 1, 1);
		call(SYS_openat, -100, (uintptr_t)h->buf, 0);
		call(SYS_madvise, (uintptr_t)h, 0, 4);
		(*(volatile uint64_t *)&h->turns)++;
	}
	return 0;
}

static void *hammer_main(void *arg)
{
	struct hammer *h = arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		int err = gvm_run(h->vcpu);

		if (err && err != -EINTR)
			break;
		h->vcpu->run->immediate_exit = 0;
	}
	return NULL;
}

static bool all_turn(void *arg)
{
	for (int i = 0; i < VCPUS; i++)
		if (*(volatile uint64_t *)&hammers[i].turns < 3)
			return false;
	return true;
}

static bool start_hammers(uint32_t flags)
{
	if (tvm_create(&t, flags, 0))
		return false;
	for (int i = 0; i < VCPUS; i++) {
		struct hammer *h = &hammers[i];

		h->ts.tv_nsec = 10000;
		if (pipe2(h->pipe, O_NONBLOCK))
			return false;
		h->pfd = (struct pollfd){ h->pipe[0], POLLIN };
		h->vcpu = t.vcpu;
		if (i && gvm_vcpu_create(&t.vm, &h->vcpu))
			return false;
		if (gvm_set_entry(h->vcpu, guest_hammer, h, GVM_RING0))
			return false;
	}
	for (int i = 0; i < VCPUS; i++)
		if (pthread_create(&hammers[i].thread, NULL, hammer_main,
				   &hammers[i]))
			return false;
	return wait_for(all_turn, NULL, SECONDS(20));
}

enum end { CLOSE_CTL, CLOSE_ALL, EXIT, EXEC, KILL, FORK, ENDS };

static void *exec_main(void *arg)
{
	setenv(EXEC_ENV, "1", 1);
	execl("/proc/self/exe", "again", NULL);
	_exit(3);
}

static void end_it(enum end how)
{
	pthread_t thread;
	int i;

	switch (how) {
	case EXIT:
		_exit(42);
	case EXEC:
		pthread_create(&thread, NULL, exec_main, NULL);
		pthread_join(thread, NULL);
		_exit(4);
	case KILL:
		kill(getpid(), SIGKILL);
		_exit(5);
	case FORK:
		/* The child holds every descriptor until the process is gone. */
		i = getpid();
		if (!fork()) {
			struct kfs_vm_stats st;

			while (getppid() == i)
				sched_yield();
			_exit(kfs_stats(t.ctl, &st));
		}
		_exit(42);
	case CLOSE_ALL:
		close(t.vm.vm_fd);
		close(t.dev);
		for (i = 0; i < VCPUS; i++)
			close(hammers[i].vcpu->fd);
		close(t.ctl);
		break;
	default:
		close(t.ctl);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < VCPUS; i++) {
		/* Unattached, the guest spins in KVM: out of there. */
		hammers[i].vcpu->run->immediate_exit = 1;
		pthread_kill(hammers[i].thread, SIGUSR1);
		pthread_join(hammers[i].thread, NULL);
	}
	_exit(42);
}

TEST(ended_under_four_vcpus)
{
	static const char *const names[] = {
		"control fd closed", "every fd closed", "exit_group", "exec",
		"SIGKILL", "exit beside a fork",
	};
	int refs;

	REQUIRE_MODULE();
	refs = module_refs("kvm_fastsys");
	for (int how = 0; how < ENDS; how++) {
		pid_t pid = fork();
		int status;

		ASSERT_LE(0, pid);
		if (!pid) {
			catch_signal(SIGUSR1);
			if (!start_hammers(how % 2 ? KFS_EINTR : 0))
				_exit(1);
			end_it(how);
		}
		status = wait_child(pid, SECONDS(30));
		EXPECT_TRUE(how == KILL ? WIFSIGNALED(status) :
			    WIFEXITED(status) && WEXITSTATUS(status) == 42)
			TH_LOG("%s: status %#x", names[how], status);
		EXPECT_TRUE(wait_module_refs("kvm_fastsys", refs))
			TH_LOG("%s: status %#x", names[how], status);
	}
}

/* ---- vCPUs that never come to be ------------------------------------------ */
static void *kick_main(void *arg)
{
	int kick = *(int *)arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		kick_fd(kick);
		sched_yield();
	}
	return NULL;
}

/*
 * A vCPU whose descriptor finds no room is gone again before anybody had it:
 * kicks of its VM, and statistics of those kicks, never meet it.
 */
TEST(kicks_meet_no_unborn_vcpu)
{
	struct kfs_kick_info before, after;
	struct kfs_kick_stats st;
	struct rlimit was, full;
	pthread_t thread;
	int kvm, vm, dev, kick, i;

	REQUIRE_MODULE();
	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	vm = ioctl(kvm, KVM_CREATE_VM, 0UL);
	dev = kfs_open();
	kick = kick_create(dev, vm, KFS_KICK_VM);
	ASSERT_LE(0, kick);
	ASSERT_EQ(0, kick_info(dev, &before));
	getrlimit(RLIMIT_NOFILE, &was);
	full = was;
	full.rlim_cur = kick + 1;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &full));
	stop = false;
	ASSERT_EQ(0, pthread_create(&thread, NULL, kick_main, &kick));
	for (i = 0; i < 200; i++) {
		EXPECT_EQ(-1, ioctl(vm, KVM_CREATE_VCPU, (unsigned long)i));
		EXPECT_EQ(EMFILE, errno);
		ASSERT_EQ(0, kick_stats(kick, 0, &st));
		EXPECT_EQ(0, st.vcpus);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	setrlimit(RLIMIT_NOFILE, &was);
	ASSERT_EQ(0, kick_info(dev, &after));
	EXPECT_EQ(before.requested, after.requested);
	close(kick);
	close(dev);
	close(vm);
	close(kvm);
}

/* ---- 32-bit ioctls --------------------------------------------------------- */
static int ioctl32(int fd, uint32_t cmd, uint32_t arg)
{
	int ret;

	__asm__ volatile("int $0x80" : "=a" (ret)
			 : "a" (54), "b" (fd), "c" (cmd), "d" (arg)
			 : "memory", "r8", "r9", "r10", "r11");
	return ret;
}

TEST(odd_pointers_from_32_bits)
{
	static const uint32_t cmds[] = {
		KFS_GET_INFO, KFS_HOOK_INFO, KFS_ATTACH_VM, KFS_CREATE_KICK,
		KFS_KICK_INFO, KFS_KICK_STATS, KFS_LIVE_VCPU_IOCTL, KFS_KICK,
		KFS_USER_EXIT, KFS_SET_POLICY, KFS_ENABLE, KFS_VM_STATS,
		0xbb7f, 0xffffffff, 0,
	};
	char *low;
	uint32_t ptrs[12];
	int fds[5], kick;

	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&t, 0, 0));
	low = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE |
		   MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)low);
	ASSERT_EQ(0, mprotect(low + 4096, 4096, PROT_NONE));
	ASSERT_EQ(0, mprotect(low + 8192, 4096, PROT_READ));
	kick = kick_create(t.dev, t.vcpu->fd, 0);
	ASSERT_LE(0, kick);
	ptrs[0] = 1;
	ptrs[1] = 0xffffffff;
	ptrs[2] = 0xfffffffc;
	ptrs[3] = 0xc0000000;
	ptrs[4] = 0x80000000;
	ptrs[5] = U(low + 4096);
	ptrs[6] = U(low + 4096 - 4);
	ptrs[7] = U(low + 4096 - 2);
	ptrs[8] = U(low + 4096 - 24);
	ptrs[9] = U(low + 8192);
	ptrs[10] = U(low + 8192 - 1);
	ptrs[11] = U(low) + 1;
	fds[0] = t.dev;
	fds[1] = t.ctl;
	fds[2] = kick;
	fds[3] = t.vcpu->fd;
	fds[4] = t.vm.vm_fd;
	for (int f = 0; f < 5; f++)
		for (unsigned int c = 0; c < ARRAY_SIZE(cmds); c++)
			for (unsigned int p = 0; p < 12; p++) {
				int ret;

				memset(low, p & 1 ? 0x1 : 0xff, 4096);
				ret = ioctl32(fds[f], cmds[c], ptrs[p]);
				EXPECT_GT(0, ret)
					TH_LOG("fd %d cmd %#x ptr %#x", f,
					       cmds[c], ptrs[p]);
			}
	/* Read-only memory takes no answer, and nothing has changed. */
	EXPECT_EQ(getpid(), tvm_call0(&t, SYS_getpid));
	close(kick);
	tvm_destroy(&t);
}

/* ---- Attaching without pause ----------------------------------------------- */
static void *attach_main(void *arg)
{
	int *fds = arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		int ctl = kfs_attach(fds[0], fds[1], KFS_MODE_IDENTITY, 0);

		if (ctl < 0)
			continue;
		kfs_policy_ret(ctl, SECCOMP_RET_ALLOW);
		kfs_enable(ctl);
		close(ctl);
	}
	return NULL;
}

/* Another thread closes by number whatever appears. */
static void *close_main(void *arg)
{
	int *fds = arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		close(fds[2]);
		sched_yield();
	}
	return NULL;
}

TEST(attached_and_closed_by_others)
{
	pthread_t threads[3];
	int refs, fds[3];
	uint64_t made;

	REQUIRE_MODULE();
	refs = module_refs("kvm_fastsys");
	ASSERT_EQ(0, tvm_create(&t, 0, TVM_UNATTACHED));
	fds[0] = kfs_open();
	fds[1] = t.vm.vm_fd;
	fds[2] = dup(0);		/* the next number there is */
	ASSERT_LE(0, fds[2]);
	close(fds[2]);
	stop = false;
	ASSERT_EQ(0, pthread_create(&threads[0], NULL, attach_main, fds));
	ASSERT_EQ(0, pthread_create(&threads[1], NULL, attach_main, fds));
	ASSERT_EQ(0, pthread_create(&threads[2], NULL, close_main, fds));
	made = 0;
	for (uint64_t end = now_ns() + SECONDS(5);
	     made < 2000 && now_ns() < end; made++) {
		int64_t ret = tvm_call0(&t, SYS_getpid);

		EXPECT_TRUE(ret == getpid() || ret == -KFS_ENOSYS)
			TH_LOG("%lld", (long long)ret);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	close(fds[0]);
	tvm_destroy(&t);
	EXPECT_TRUE(wait_module_refs("kvm_fastsys", refs));
}

/* ---- Last references given back inside a call ------------------------------ */
static int send_fds(int sock, const int *fds, unsigned int n)
{
	char control[CMSG_SPACE(4 * sizeof(int))] = "";
	struct iovec iov = { "x", 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = CMSG_SPACE(n * sizeof(int)),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -errno;
}

/*
 * The only copies of the control fd, of a kick fd and of the device that keeps
 * KFS_USER_EXIT live wait in a socket: the guest's own call lets them go, by
 * closing it or by reading past them.
 */
TEST(last_references_go_in_a_call)
{
	char c;

	REQUIRE_MODULE();
	for (int by_read = 0; by_read < 2; by_read++) {
		int refs = module_refs("kvm_fastsys");
		int sock[2], fds[4];

		ASSERT_EQ(0, tvm_create(&t, 0, 0));
		ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sock));
		fds[0] = t.ctl;
		fds[1] = kick_create(t.dev, t.vcpu->fd, 0);
		fds[2] = kick_create(t.dev, t.vm.vm_fd, KFS_KICK_VM);
		fds[3] = kfs_open();
		ASSERT_EQ(0, kick_live(fds[3]));
		ASSERT_EQ(0, send_fds(sock[0], fds, 4));
		for (int i = 0; i < 4; i++)
			close(fds[i]);
		t.ctl = -1;
		EXPECT_EQ(getpid(), tvm_call0(&t, SYS_getpid));
		EXPECT_EQ(by_read, tvm_call(&t, by_read ? SYS_recvfrom :
					    SYS_close, sock[1], U(&c), 1, 0, 0,
					    0));
		EXPECT_EQ(-KFS_ENOSYS, tvm_call0(&t, SYS_getpid));
		close(sock[0]);
		if (by_read)
			close(sock[1]);
		tvm_destroy(&t);
		EXPECT_TRUE(wait_module_refs("kvm_fastsys", refs));
	}
}

/* ---- The kernel changed from inside a call ---------------------------------- */
static int64_t guest_write(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);
	int64_t ret;

	if (fd < 0)
		return -errno;
	ret = tvm_call(&t, SYS_write, fd, U(text), strlen(text), 0, 0, 0);
	close(fd);
	return ret < 0 ? ret : 0;
}

static int host_write(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC | O_TRUNC);
	int ret = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	close(fd);
	return ret;
}

#define TRACING "/sys/kernel/tracing/"

/*
 * A guest whose VMM is root's traces the very function that its call came
 * through, watches its own thread, moves it to where it is, takes its page
 * bits away and asks for ftrace's end.
 */
TEST(kernel_changed_by_the_call)
{
	struct kfs_vm_stats before, after;

	REQUIRE_MODULE();
	if (access(TRACING "current_tracer", W_OK))
		SKIP(return, "no %s: mount tracefs as root", TRACING);
	if (online_cpus() > 1)
		SKIP(return, "patches kernel text: one emulated CPU only");
	ASSERT_EQ(0, tvm_create(&t, 0, 0));
	EXPECT_EQ(0, guest_write("/proc/self/clear_refs", "1"));
	EXPECT_EQ(0, guest_write("/proc/self/clear_refs", "4"));
	EXPECT_EQ(-EBUSY, guest_write("/proc/sys/kernel/ftrace_enabled", "0"));
	EXPECT_EQ(0, guest_write(TRACING "set_ftrace_filter",
				 "kvm_emulate_hypercall"));
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(0, guest_write(TRACING "current_tracer", "function"));
		EXPECT_EQ(getpid(), tvm_call0(&t, SYS_getpid));
		EXPECT_EQ(0, guest_write(TRACING "current_tracer", "nop"));
		EXPECT_EQ(getpid(), tvm_call0(&t, SYS_getpid));
	}
	host_write(TRACING "set_ftrace_filter", "");
	/* From the next call on somebody watches: the VMM has to lift it. */
	EXPECT_EQ(0, guest_write(TRACING "events/raw_syscalls/enable", "1"));
	ASSERT_EQ(0, kfs_stats(t.ctl, &before));
	EXPECT_EQ(-KFS_ENOSYS, guest_write(TRACING "events/raw_syscalls/enable",
					   "0"));
	ASSERT_EQ(0, kfs_stats(t.ctl, &after));
	EXPECT_EQ(before.declined[KFS_REASON_OBSERVER] + 1,
		  after.declined[KFS_REASON_OBSERVER]);
	EXPECT_EQ(0, host_write(TRACING "events/raw_syscalls/enable", "0"));
	EXPECT_EQ(getpid(), tvm_call0(&t, SYS_getpid));
	tvm_destroy(&t);
}

TEST_HARNESS_MAIN
