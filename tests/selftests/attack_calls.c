// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Calls chosen to hurt: registers, instruction, page tables and kvm_run pulled
 * away from under KVM by the very call that runs, signals that calls raise,
 * files that are KVM's or the process itself. A VM may end any way it likes;
 * its process goes on, and answers equal the native ones.
 */
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "kicktest.h"
#include "kselftest_harness.h"

KEEP_TEXT_STILL();

#define PAGE 4096UL

FIXTURE(attack) {
	struct tvm t;
	int kick;
	int refs;
};

FIXTURE_SETUP(attack)
{
	REQUIRE_MODULE();
	self->refs = module_refs("kvm_fastsys");
	ASSERT_EQ(0, tvm_create(&self->t, 0, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	self->kick = kick_create(self->t.dev, self->t.vcpu->fd,
				 KFS_KICK_NONBLOCK);
	ASSERT_LE(0, self->kick);
}

FIXTURE_TEARDOWN(attack)
{
	tvm_destroy(&self->t);
	close(self->kick);
	EXPECT_TRUE(wait_module_refs("kvm_fastsys", self->refs));
}

/* Until the guest ends one way or the other; a bound on those that do not. */
static enum gvm_event run_bounded(struct tvm *t, int *err)
{
	int i;

	for (i = 0; i < 100; i++) {
		*err = gvm_run(t->vcpu);
		if (!*err)
			return gvm_event(t->vcpu, NULL);
		if (*err != -EINTR)
			break;
		t->vcpu->run->immediate_exit = 0;
	}
	return GVM_OTHER;
}

/* A fresh VM answers as ever. */
static bool still_works(struct tvm *t)
{
	tvm_destroy(t);
	return !tvm_create(t, 0, 0) && tvm_call0(t, SYS_getpid) == getpid();
}

/* ---- Registers ------------------------------------------------------------ */
struct stackless {
	uint64_t rsp;
	uint64_t nr;
	uint64_t a0;
	int64_t ret;
};

static uint32_t guest_stackless(struct stackless *s)
{
	int64_t ret;

	/* R12 to R15 keep what the stack cannot. */
	__asm__ volatile("movq %%rsp, %%r12\n\t"
			 "movq %[rsp], %%rsp\n\t"
			 "testl %[intel], %[intel]\n\t"
			 "jne 1f\n\t"
			 "vmmcall\n\t"
			 "jmp 2f\n"
			 "1: vmcall\n"
			 "2: movq %%r12, %%rsp"
			 : "=a" (ret)
			 : "a" ((uint64_t)KFS_HC_SYSCALL), "b" (s->nr),
			   "D" (s->a0), "S" (0ULL), "d" (0ULL),
			   [rsp] "r" (s->rsp), [intel] "r" (gvm_is_intel)
			 : "r12", "memory", "cc");
	s->ret = ret;
	return 0x600d;
}

TEST_F(attack, stack_pointer_is_garbage)
{
	static const uint64_t rsps[] = {
		0, 1, 0x800000000000, 0xffff800000000000, 0xffffffff81000000,
		~0ULL, 0x7fffffffffffffff,
	};
	static struct stackless s;
	static struct timespec ts = { 0, 1000000 };
	struct tvm *t = &self->t;
	int err;

	for (unsigned int i = 0; i < ARRAY_SIZE(rsps); i++) {
		s = (struct stackless){ rsps[i], SYS_getpid };
		ASSERT_EQ(0, gvm_set_entry(t->vcpu, guest_stackless, &s,
					   GVM_RING0));
		EXPECT_EQ(GVM_DONE, run_bounded(t, &err));
		EXPECT_EQ(getpid(), s.ret) TH_LOG("rsp %#llx",
						  (unsigned long long)rsps[i]);
		/* And one whose place is kept by it. */
		s = (struct stackless){ rsps[i], SYS_nanosleep, U(&ts) };
		ASSERT_EQ(0, gvm_set_entry(t->vcpu, guest_stackless, &s,
					   GVM_RING0));
		kick_fd(self->kick);
		EXPECT_EQ(GVM_DONE, run_bounded(t, &err));
		EXPECT_EQ(0, s.ret);
	}
}

/* ---- What KVM needs after the call ---------------------------------------- */
/* Guest code in a page of the arena: the call, then DONE with its result. */
static char *code_page(struct tvm *t, unsigned int *call_at)
{
	static const unsigned char amd[] = { 0x0f, 0x01, 0xd9 };
	static const unsigned char intel[] = { 0x0f, 0x01, 0xc1 };
	/* mov $port, %edx; out %eax, %dx; jmp to the out */
	static const unsigned char done[] = {
		0xba, GVM_PORT_DONE & 0xff, GVM_PORT_DONE >> 8, 0, 0, 0xef,
		0xeb, 0xfd,
	};
	char *page = gvm_alloc(&t->vm, PAGE, PAGE);

	if (!page)
		return NULL;
	*call_at = 64;
	memset(page, 0x90, PAGE);
	memcpy(page + *call_at, gvm_is_intel ? intel : amd, 3);
	memcpy(page + *call_at + 3, done, sizeof(done));
	return page;
}

static int enter_code(struct tvm *t, char *page, long nr, uint64_t a0,
		      uint64_t a1, uint64_t a2)
{
	struct kvm_regs regs;
	int err = gvm_set_entry(t->vcpu, page, NULL, GVM_RING0);

	if (err || ioctl(t->vcpu->fd, KVM_GET_REGS, &regs))
		return err ? err : -errno;
	regs.rax = KFS_HC_SYSCALL;
	regs.rbx = nr;
	regs.rdi = a0;
	regs.rsi = a1;
	regs.rdx = a2;
	return ioctl(t->vcpu->fd, KVM_SET_REGS, &regs) ? -errno : 0;
}

TEST_F(attack, call_overwrites_its_instruction)
{
	static const unsigned char fills[] = { 0x00, 0xcc, 0x90, 0xf4, 0x0f };
	struct tvm *t = &self->t;
	unsigned int i, at;
	int p[2], err;

	for (i = 0; i < sizeof(fills); i++) {
		unsigned char bytes[3];
		struct kfs_vm_stats st;
		char *page = code_page(t, &at);

		ASSERT_NE(NULL, page);
		ASSERT_EQ(0, pipe(p));
		memset(bytes, fills[i], sizeof(bytes));
		ASSERT_EQ(3, write(p[1], bytes, 3));
		ASSERT_EQ(0, enter_code(t, page, SYS_read, p[0], U(page + at),
					3));
		run_bounded(t, &err);
		ASSERT_EQ(0, kfs_stats(t->ctl, &st));
		EXPECT_EQ(1, st.ran);
		EXPECT_EQ(0, memcmp(page + at, bytes, 3));
		close(p[0]);
		close(p[1]);
		ASSERT_TRUE(still_works(t));
		tvm_destroy(t);
		ASSERT_EQ(0, tvm_create(t, 0, 0));
	}
}

TEST_F(attack, memory_taken_away_by_the_call)
{
	struct tvm *t = &self->t;
	int err;

	for (int i = 0; i < 4; i++) {
		struct { void *at; uint64_t len; } what[] = {
			{ t->vm.pml4, 6 * PAGE },
			{ t->vm.arena, t->vm.arena_size },
			{ t->vcpu->run, t->vcpu->run_size },
			{ t->vcpu->stack, GVM_STACK_SIZE },
		};
		uint64_t args[6] = { U(what[i].at), what[i].len,
				     MADV_DONTNEED };

		ASSERT_EQ(0, tvm_prepare(t, SYS_madvise, args));
		run_bounded(t, &err);
		EXPECT_TRUE(still_works(t)) TH_LOG("case %d", i);
	}
	/* The same pages read over, as a file would put them there. */
	for (int i = 0; i < 2; i++) {
		int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
		uint64_t args[6] = {
			zero, i ? U(t->vm.gdt) : U(t->vm.pml4), PAGE,
		};

		ASSERT_EQ(0, tvm_prepare(t, SYS_read, args));
		run_bounded(t, &err);
		close(zero);
		EXPECT_TRUE(still_works(t));
	}
}

/* kvm_run in pieces and whole, and the registers it offers to change. */
TEST_F(attack, kvm_run_written_by_the_call)
{
	static const unsigned char fills[] = { 0xff, 1, 0x5a, 7 };
	struct tvm *t = &self->t;
	int fd = open("/tmp/kfs-attack-run", O_RDWR | O_CREAT | O_TRUNC, 0600);
	unsigned char bytes[PAGE];
	int err;

	ASSERT_LE(0, fd);
	for (unsigned int round = 0; round < sizeof(fills); round++) {
		memset(bytes, fills[round], sizeof(bytes));
		/* As a set of registers to take it is a valid one. */
		if (fills[round] == 7)
			for (unsigned int i = 0; i < PAGE; i += 8)
				memset(bytes + i + 1, 0, 7);
		ASSERT_EQ(sizeof(bytes), pwrite(fd, bytes, sizeof(bytes), 0));
		for (unsigned int at = 0; at < 320; at += 8) {
			uint64_t args[6] = { fd, U(t->vcpu->run) + at, 8 };

			ASSERT_EQ(0, tvm_prepare(t, SYS_pread64, args));
			run_bounded(t, &err);
			memset(t->vcpu->run, 0, PAGE);
		}
		ASSERT_EQ(0, tvm_prepare(t, SYS_pread64, (uint64_t[6]){
				fd, U(t->vcpu->run), PAGE }));
		run_bounded(t, &err);
		run_bounded(t, &err);
		close(self->kick);
		EXPECT_TRUE(still_works(t)) TH_LOG("round %u", round);
		self->kick = kick_create(t->dev, t->vcpu->fd, 0);
	}
	/* The call kicks itself by the byte alone, and is answered all the same. */
	memset(bytes, 1, 1);
	ASSERT_EQ(1, pwrite(fd, bytes, 1, 0));
	ASSERT_EQ(0, tvm_prepare(t, SYS_pread64, (uint64_t[6]){
			fd, U(&t->vcpu->run->immediate_exit), 1 }));
	EXPECT_EQ(-EINTR, gvm_run(t->vcpu));
	EXPECT_EQ(1, t->vcpu->run->immediate_exit);
	t->vcpu->run->immediate_exit = 0;
	EXPECT_EQ(GVM_DONE, run_bounded(t, &err));
	EXPECT_EQ(1, t->list->call[0].ret);
	close(fd);
	unlink("/tmp/kfs-attack-run");
}

/* ---- Buffers, signals, sleeps --------------------------------------------- */
TEST_F(attack, answers_equal_native_ones)
{
	struct tvm *t = &self->t;
	char *hole = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
	int ep[3], p[2], raw, seq;
	struct epoll_event ev = { .events = EPOLLIN };
	struct iovec vec[2];
	struct pollfd pfd[6];

	ASSERT_NE(MAP_FAILED, (void *)hole);
	ASSERT_EQ(0, mprotect(hole + PAGE, PAGE, PROT_NONE));
	ASSERT_EQ(0, munmap(hole + 2 * PAGE, PAGE));
	for (int i = 0; i < 3; i++)
		ep[i] = epoll_create1(EPOLL_CLOEXEC);
	ASSERT_EQ(0, pipe2(p, O_NONBLOCK));
	raw = socket(AF_INET, SOCK_RAW, 255);
	seq = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	vec[0] = (struct iovec){ hole + PAGE - 8, 16 };
	vec[1] = (struct iovec){ (void *)-8L, ~0UL >> 1 };
	ASSERT_EQ(0, epoll_ctl(ep[1], EPOLL_CTL_ADD, ep[0], &ev));
	ASSERT_EQ(0, epoll_ctl(ep[2], EPOLL_CTL_ADD, ep[1], &ev));
	ASSERT_EQ(0, epoll_ctl(ep[0], EPOLL_CTL_ADD, self->kick, &ev));
	pfd[0] = (struct pollfd){ t->vcpu->fd, POLLIN };
	pfd[1] = (struct pollfd){ t->vm.vm_fd, POLLIN };
	pfd[2] = (struct pollfd){ t->ctl, POLLIN };
	pfd[3] = (struct pollfd){ t->dev, POLLIN };
	pfd[4] = (struct pollfd){ self->kick, POLLIN | POLLOUT };
	pfd[5] = (struct pollfd){ ep[2], POLLIN };
	{
		const uint64_t cases[][7] = {
			{ SYS_write, null, U(hole + PAGE), 8 },
			{ SYS_write, p[1], U(hole + PAGE), 8 },
			{ SYS_write, p[1], U(hole + 2 * PAGE), 8 },
			{ SYS_write, p[1], 0xffff888000000000, 8 },
			{ SYS_write, p[1], 0x8000000000000000, 8 },
			{ SYS_read, zero, U(hole + PAGE - 8), 64 },
			{ SYS_readv, zero, U(vec), 1 },
			{ SYS_readv, zero, U(vec), 2 },
			{ SYS_readv, zero, U(vec), ~0ULL },
			{ SYS_readv, zero, U(hole + PAGE - 8), 1 },
			{ SYS_read, t->vcpu->fd, U(hole), 8 },
			{ SYS_read, t->ctl, U(hole), 8 },
			{ SYS_write, t->ctl, U(hole), 8 },
			{ SYS_write, t->dev, U(hole), 8 },
			{ SYS_write, t->vm.vm_fd, U(hole), 8 },
			{ SYS_lseek, t->vcpu->fd, 7, SEEK_SET },
			{ SYS_lseek, t->ctl, -7ULL, SEEK_END },
			{ SYS_ftruncate, t->ctl, 0 },
			{ SYS_fallocate, t->vcpu->fd, 0, 0, 1 },
			{ SYS_sendfile, t->ctl, zero, 0, 8 },
			{ SYS_sendfile, self->kick, zero, 0, 8 },
			{ SYS_sendfile, null, t->vcpu->fd, 0, 8 },
			{ SYS_copy_file_range, t->ctl, 0, t->ctl, 0, 8 },
			{ SYS_read, self->kick, U(hole), 8 },
			{ SYS_read, self->kick, U(hole + PAGE), 8 },
			{ SYS_read, self->kick, U(hole), 7 },
			{ SYS_write, self->kick, U(hole + PAGE), 8 },
			{ SYS_write, self->kick, U(hole), 8 },
			{ SYS_poll, U(pfd), 6, 0 },
			{ SYS_epoll_ctl, ep[0], EPOLL_CTL_ADD, ep[2], U(&ev) },
			{ SYS_epoll_ctl, ep[0], EPOLL_CTL_ADD, ep[0], U(&ev) },
			{ SYS_epoll_ctl, ep[0], EPOLL_CTL_ADD, t->vcpu->fd,
			  U(&ev) },
			{ SYS_epoll_ctl, ep[0], EPOLL_CTL_ADD, t->ctl, U(&ev) },
			{ SYS_epoll_wait, ep[2], U(hole), 1, 0 },
			{ SYS_futex, U(t->vcpu->run), FUTEX_WAIT, 77777 },
			{ SYS_futex, U(t->vcpu->run), FUTEX_WAKE, 1 },
			{ SYS_futex, U(t->vcpu->run), FUTEX_WAKE_OP, 1, 1,
			  U(t->vcpu->run), 0 },
			{ SYS_futex, U(hole + PAGE), FUTEX_WAIT, 0 },
			{ SYS_futex, U(hole) + 1, FUTEX_WAIT, 0 },
			{ SYS_lseek, mem, -1000, SEEK_SET },
			{ SYS_pread64, mem, U(hole), 8, U(hole + PAGE) },
			{ SYS_pread64, mem, U(hole), 8, 1ULL << 62 },
			{ SYS_pwrite64, mem, U(hole), 8, ~0xfffULL },
			{ SYS_sendto, raw, U(hole), 8, 0, U(hole + PAGE), 16 },
			{ SYS_sendto, seq, U(hole), 8, 0, U(hole), ~0ULL },
			{ SYS_recvfrom, seq, U(hole), 8, MSG_DONTWAIT, 8, 8 },
			{ SYS_accept4, seq, U(hole), U(hole), ~0ULL },
			{ SYS_connect, seq, U(hole), 128 },
			{ SYS_bind, raw, U(hole + PAGE - 2), 16 },
			{ SYS_madvise, U(t->vcpu->run), PAGE, MADV_PAGEOUT },
			{ SYS_madvise, U(t->vcpu->run), PAGE, MADV_FREE },
			{ SYS_madvise, U(hole) + 1, PAGE, MADV_DONTNEED },
			{ SYS_getrandom, U(hole + PAGE), 8, 0 },
			{ SYS_nanosleep, U(hole + PAGE), 0 },
			{ SYS_clock_nanosleep, -6ULL, 0, U(hole), 0 },
			{ SYS_clock_gettime, ~0ULL, U(hole) },
		};

		for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
			const uint64_t *c = cases[i];
			int64_t want = native(c[0], c[1], c[2], c[3], c[4],
					      c[5], c[6]);

			EXPECT_EQ(want, tvm_call(t, c[0], c[1], c[2], c[3],
						 c[4], c[5], c[6]))
				TH_LOG("case %u, call %llu", i,
				       (unsigned long long)c[0]);
		}
	}
	/* A result that looks like a restart is none, natively neither. */
	for (int code = -516; code <= -512; code++) {
		int64_t ret = tvm_call(t, SYS_lseek, mem, code, SEEK_SET, 0, 0,
				       0);

		EXPECT_TRUE(ret == -EINTR || ret == code)
			TH_LOG("%d: %lld", code, (long long)ret);
		ASSERT_EQ(0, tvm_prepare(t, SYS_lseek, (uint64_t[6]){
				mem, code, SEEK_SET }));
		kick_fd(self->kick);
		EXPECT_EQ(-EINTR, gvm_run(t->vcpu));
		t->vcpu->run->immediate_exit = 0;
		EXPECT_EQ(0, tvm_run(t, NULL));
	}
	close(raw);
	close(seq);
}

static int signals;

static void on_signal(int sig)
{
	signals++;
}

TEST_F(attack, signals_that_calls_raise)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct rlimit small = { 16, RLIM_INFINITY }, was;
	struct tvm *t = &self->t;
	char bytes[64] = "";
	int p[2], fd;

	sigaction(SIGPIPE, &sa, NULL);
	sigaction(SIGXFSZ, &sa, NULL);
	ASSERT_EQ(0, pipe(p));
	close(p[0]);
	EXPECT_EQ(-EPIPE, tvm_call(t, SYS_write, p[1], U(bytes), 8, 0, 0, 0));
	EXPECT_EQ(1, signals);
	close(p[1]);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, p));
	close(p[0]);
	EXPECT_EQ(-EPIPE, tvm_call(t, SYS_sendto, p[1], U(bytes), 8, 0, 0, 0));
	EXPECT_EQ(2, signals);
	close(p[1]);

	fd = open("/tmp/kfs-attack-size", O_RDWR | O_CREAT | O_TRUNC, 0600);
	ASSERT_LE(0, fd);
	getrlimit(RLIMIT_FSIZE, &was);
	ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &small));
	EXPECT_EQ(16, tvm_call(t, SYS_write, fd, U(bytes), 64, 0, 0, 0));
	EXPECT_EQ(2, signals);
	EXPECT_EQ(-EFBIG, tvm_call(t, SYS_write, fd, U(bytes), 64, 0, 0, 0));
	EXPECT_EQ(-EFBIG, tvm_call(t, SYS_ftruncate, fd, 17, 0, 0, 0, 0));
	setrlimit(RLIMIT_FSIZE, &was);
	EXPECT_EQ(4, signals);
	close(fd);
	unlink("/tmp/kfs-attack-size");
}

/* ---- Files that are the process, or KVM ----------------------------------- */
TEST_F(attack, opens_what_it_runs_on)
{
	static const char *const files[] = {
		"/dev/kvm", KFS_DEVICE_PATH, "/proc/self/mem",
		"/proc/self/syscall", "/proc/self/stack", "/proc/self/wchan",
		"/proc/self/status", "/proc/self/maps", "/proc/self/smaps",
		"/proc/self/pagemap", "/proc/self/fdinfo/3", "/proc/kallsyms",
		"/proc/modules", "/proc/self/sched", "/proc/self/auxv",
		"/sys/kernel/debug/kvm/mmu_pte_write",
		"/sys/kernel/debug/kvm/hypercalls",
		"/sys/module/kvm_fastsys/refcnt",
		"/sys/module/kvm_fastsys/parameters/identity",
		"/sys/kernel/tracing/enabled_functions",
		"/proc/sys/kernel/ftrace_enabled",
	};
	static char buf[65536];
	struct tvm *t = &self->t;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%ld/syscall",
		 syscall(SYS_gettid));
	for (unsigned int i = 0; i <= ARRAY_SIZE(files); i++) {
		const char *name = i < ARRAY_SIZE(files) ? files[i] : path;
		int64_t fd = tvm_call(t, SYS_openat, AT_FDCWD, U(name),
				      O_RDONLY, 0, 0, 0);

		if (fd < 0) {
			EXPECT_EQ(native(SYS_openat, AT_FDCWD, U(name),
					 O_RDONLY, 0, 0, 0), fd)
				TH_LOG("%s", name);
			continue;
		}
		EXPECT_LE(-4095, tvm_call(t, SYS_read, fd, U(buf),
					  sizeof(buf), 0, 0, 0));
		EXPECT_LE(-4095, tvm_call(t, SYS_pread64, fd, U(buf), 16, 1,
					  0, 0));
		close(fd);
	}
	/* Its own parameters are nobody's to change while it runs. */
	for (unsigned int i = 0; i < 2; i++) {
		const char *name = i ?
			"/sys/module/kvm_fastsys/parameters/identity" :
			"/sys/module/kvm_fastsys/parameters/max_vms";
		int64_t fd = tvm_call(t, SYS_openat, AT_FDCWD, U(name),
				      O_WRONLY, 0, 0, 0);

		if (fd >= 0) {
			EXPECT_GT(0, tvm_call(t, SYS_write, fd, U("1"), 1, 0,
					      0, 0));
			close(fd);
		}
	}
}

/* Text of the very page that runs, written through /proc/self/mem. */
TEST_F(attack, own_text_by_way_of_proc_mem)
{
	struct tvm *t = &self->t;
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	unsigned char same[64];

	ASSERT_LE(0, mem);
	memcpy(same, (void *)guest_calls, sizeof(same));
	EXPECT_EQ(sizeof(same), tvm_call(t, SYS_pwrite64, mem, U(same),
					 sizeof(same), U(guest_calls), 0, 0));
	EXPECT_EQ(getpid(), tvm_call0(t, SYS_getpid));
	close(mem);
}

/* No byte of a row that a call of ours did not put there. */
TEST_F(attack, statistics_tell_nothing_else)
{
	struct kfs_call_stats calls[256];
	struct kfs_vm_stats st = {
		.size = sizeof(st), .calls = U(calls), .calls_len = 256,
	};

	memset(calls, 0xa5, sizeof(calls));
	for (int i = 0; i < 512; i++) {
		if (i == SYS_close || i == SYS_dup2 || i == SYS_dup3)
			continue;
		tvm_call(&self->t, i, -1, ~0ULL, ~0ULL, -1, 1, ~0ULL);
	}
	ASSERT_EQ(0, ioctl(self->t.ctl, KFS_VM_STATS, &st));
	EXPECT_LT(20, st.calls_len);
	for (unsigned int i = 0; i < st.calls_len; i++)
		EXPECT_EQ(0, calls[i].pad);
	for (unsigned int i = st.calls_len; i < 256; i++)
		EXPECT_EQ(0xa5a5a5a5a5a5a5a5, calls[i].ran);
}

TEST_HARNESS_MAIN
