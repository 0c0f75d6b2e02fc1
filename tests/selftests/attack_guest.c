// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A guest that asks for anything: random hypercalls, numbers and arguments
 * from a seed (KFS_SEED), while other threads kick, signal and read statistics.
 * It runs in a child, whose descriptors it may close. Every hypercall is
 * counted once, the child lives, nothing stays behind; the kernel's log is the
 * runner's to judge.
 */
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "kicktest.h"
#include "kselftest_harness.h"

KEEP_TEXT_STILL();

#define BATCHES		400
#define FIRST_FD	64	/* of the guest's descriptors */
#define GUEST_FDS	24
#define SCRATCH		(16 * 4096UL)
#define PATH_STEP	64

/* What the child tells its parent. */
struct report {
	uint64_t calls;
	uint64_t batches;
	uint64_t ran, denied, refused, deferred, interrupted, left;
	uint64_t kicked;
	/* Where it was when it stopped answering. */
	uint32_t done;
	struct tcall call[64];
	char why[320];
};

static struct report *report;
static struct tvm t;
static int kick;
static bool stop;
static char *scratch, *paths, *locked;
static uint64_t seed;

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dULL;
}

static uint64_t pick(const uint64_t *from, size_t n)
{
	return from[rnd() % n];
}

/* Only the first ones may be made or removed. */
static const char *const names[] = {
	"/tmp/kfs-attack/a", "/tmp/kfs-attack/b", "/tmp/kfs-attack/fifo",
	"/tmp/kfs-attack/none/c", "/tmp/kfs-attack", "", "/", "/dev/null",
	"/dev/zero", "/dev/urandom", "/dev/kvm", KFS_DEVICE_PATH,
	"/proc/self/maps", "/proc/self/fd", "/proc/self/task",
	"/proc/self/stat", "/proc/self/fd/3", "/proc/self/fd/4",
	"/dev/shm", "/proc/self/syscall",
};
#define OWN_NAMES 4

static uint64_t a_path(unsigned long nr)
{
	bool changes = nr == SYS_unlinkat || nr == SYS_renameat2 ||
		       nr == SYS_mkdirat;

	return U(paths + PATH_STEP * (rnd() % (changes ? OWN_NAMES :
					       ARRAY_SIZE(names))));
}

static uint64_t a_pointer(void)
{
	static const uint64_t bad[] = {
		0, 1, 8, 0xfff, 0x7ffffffff000, 0x7fffffffffff, 0x800000000000,
		0xffff800000000000, 0xffffffff81000000, ~0ULL, ~0xfffULL,
		0xffffffffff600000, 0x4000,
	};

	switch (rnd() % 8) {
	case 0:
		return pick(bad, ARRAY_SIZE(bad));
	case 1:
		return U(locked) + rnd() % 4096;
	case 2:
		return U(scratch + SCRATCH) - rnd() % 32;
	default:
		return U(scratch) + (rnd() % SCRATCH & ~7UL);
	}
}

static uint64_t a_fd(void)
{
	switch (rnd() % 8) {
	case 0:
		return rnd() % 20;	/* KVM's, ours, standard ones */
	case 1:
		return kick;
	case 2:
		return (uint64_t)-(rnd() % 120);
	case 3:
		return rnd() % 4 ? 0xffffffff00000000 | t.vcpu->fd : t.ctl;
	default:
		return FIRST_FD + rnd() % (GUEST_FDS + 8);
	}
}

static uint64_t a_number(void)
{
	static const uint64_t odd[] = {
		0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, ~0ULL,
		1ULL << 63, INT64_MAX, -512, -516, -1000, 0x40000000,
	};

	switch (rnd() % 4) {
	case 0:
		return pick(odd, ARRAY_SIZE(odd));
	case 1:
		/* Not where the image and the guest's page tables are. */
		return rnd() % 2 ? 1ULL << rnd() % 22 : 1ULL << (31 + rnd() % 33);
	default:
		return rnd() % 64;
	}
}

static uint64_t an_nr(void)
{
	static const uint64_t odd[] = {
		512, 511, 1023, 0x40000000, 0x40000001, 0x40000027, 0x7fffffff,
		0x80000000, 0xffffffff, 0x100000000, 0x100000027, ~0ULL,
		1ULL << 63, -512, -1000,
	};

	return rnd() % 16 ? rnd() % 512 : pick(odd, ARRAY_SIZE(odd));
}

static uint64_t a_rax(void)
{
	static const uint64_t near[] = {
		KFS_HC_PROBE, KFS_HC_PROBE, KFS_HC_BATCH, KFS_HC_BASE - 1,
		KFS_HC_BASE + 3, KFS_HC_SYSCALL | 1ULL << 32,
		KFS_HC_SYSCALL | 1ULL << 63, ~0ULL, 5, 9, 11,
	};

	return rnd() % 8 ? KFS_HC_SYSCALL : pick(near, ARRAY_SIZE(near));
}

/* More often than chance what the call wants; never what ends this process. */
static void one_call(struct tcall *c)
{
	static const uint64_t usual[] = {
		SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64,
		SYS_poll, SYS_ppoll, SYS_futex, SYS_nanosleep, SYS_epoll_wait,
		SYS_epoll_ctl, SYS_close, SYS_dup2, SYS_dup3, SYS_fcntl,
		SYS_openat, SYS_sendfile, SYS_copy_file_range, SYS_sendto,
		SYS_recvfrom, SYS_accept4, SYS_connect, SYS_madvise,
		SYS_getpid, SYS_clock_nanosleep, SYS_socketpair, SYS_pipe2,
	};
	unsigned int i;

	memset(c, 0, sizeof(*c));
	c->rax = a_rax();
	c->nr = rnd() % 3 ? pick(usual, ARRAY_SIZE(usual)) : an_nr();
	for (i = 0; i < 6; i++)
		switch (rnd() % 4) {
		case 0:
			c->args[i] = a_number();
			break;
		case 1:
			c->args[i] = a_fd();
			break;
		default:
			c->args[i] = a_pointer();
		}
	if (rnd() % 4)
		c->args[0] = a_fd();
	switch ((uint32_t)c->nr) {
	case SYS_openat:
	case SYS_newfstatat:
	case SYS_statx:
	case SYS_faccessat:
	case SYS_readlinkat:
	case SYS_mkdirat:
	case SYS_unlinkat:
	case SYS_renameat2:
		c->args[1] = a_path(c->nr);
		if (c->nr == SYS_renameat2)
			c->args[3] = a_path(c->nr);
		break;
	case SYS_madvise:
		/* Over its own memory only, whatever its length. */
		c->args[0] = rnd() % 2 ? U(scratch) : U(locked);
		c->args[1] = rnd() % 2 ? 4096 : ~0xfffULL;
		c->args[2] = rnd() % 2 ? MADV_DONTNEED : rnd() % 120;
		break;
	case SYS_sendfile:
		c->args[1] = a_fd();
		c->args[3] = rnd() % 100000;
		break;
	case SYS_copy_file_range:
		c->args[2] = a_fd();
		c->args[4] = rnd() % 100000;
		break;
	case SYS_futex:
	case SYS_nanosleep:
	case SYS_poll:
		c->args[0] = a_pointer();
		if (c->nr != SYS_nanosleep)
			c->args[1] = rnd() % 16;
		break;
	}
}

/* Vectors, times and pollfds in good order, here and there. */
static void fill_scratch(void)
{
	uint64_t *words = (uint64_t *)scratch;
	unsigned int i;

	for (i = 0; i < SCRATCH / 8; i += 2) {
		bool vector = rnd() % 2;

		words[i] = vector ? a_pointer() : rnd() % 2;
		words[i + 1] = vector ? rnd() % 4096 : rnd() % 3000000;
	}
}

static void put(int fd, unsigned int at)
{
	if (fd < 0)
		return;
	dup2(fd, FIRST_FD + at);
	if (fd < FIRST_FD || fd >= FIRST_FD + GUEST_FDS)
		close(fd);
}

/* Whatever the guest made of its descriptors, here they are again. */
static void make_fds(void)
{
	unsigned int i = 0;
	int two[2];

	/* Nothing of the test's is above: ours were opened first. */
	syscall(SYS_close_range, FIRST_FD, ~0U, 0);
	pipe2(two, O_NONBLOCK);
	put(two[0], i++);
	put(two[1], i++);
	pipe2(two, 0);
	put(two[0], i++);
	put(two[1], i++);
	socketpair(AF_UNIX, SOCK_STREAM, 0, two);
	put(two[0], i++);
	put(two[1], i++);
	socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, two);
	put(two[0], i++);
	put(two[1], i++);
	put(eventfd(1, 0), i++);
	put(timerfd_create(CLOCK_MONOTONIC, 0), i++);
	put(epoll_create1(0), i++);
	put(memfd_create("a", MFD_ALLOW_SEALING), i++);
	put(open("/tmp/kfs-attack/a", O_RDWR | O_CREAT, 0600), i++);
	put(open("/tmp/kfs-attack", O_RDONLY), i++);
	put(open("/dev/null", O_RDWR), i++);
	put(open("/dev/zero", O_RDWR), i++);
	put(open("/dev/urandom", O_RDONLY), i++);
	put(open("/proc/self/maps", O_RDONLY), i++);
	put(socket(AF_INET, SOCK_STREAM, 0), i++);
	put(socket(AF_INET, SOCK_DGRAM, 0), i++);
	put(socket(AF_NETLINK, SOCK_RAW, 0), i++);
	put(open("/tmp/kfs-attack/a", O_PATH), i++);
	put(open("/dev/kvm", O_RDWR), i++);
	put(open(KFS_DEVICE_PATH, O_RDWR), i++);
}

static bool make_memory(void)
{
	unsigned int i;
	char *p = mmap(NULL, SCRATCH + 8192 + 3 * 4096, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* A hole before and after each, so that no call reaches further. */
	scratch = p + 4096;
	locked = p;
	paths = p + SCRATCH + 8192;
	if (p == MAP_FAILED ||
	    mprotect(scratch, SCRATCH, PROT_READ | PROT_WRITE) ||
	    mprotect(paths, 4096, PROT_READ | PROT_WRITE))
		return false;
	for (i = 0; i < ARRAY_SIZE(names); i++)
		strcpy(paths + PATH_STEP * i, names[i]);
	mprotect(paths, 4096, PROT_READ);
	mkdir("/tmp/kfs-attack", 0700);
	mkfifo("/tmp/kfs-attack/fifo", 0600);
	return true;
}

/* The pace at which the others disturb; a whole scheduler turn, or none. */
static void pace(void)
{
	struct timespec ts = { 0, 500000 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

static void *kicker(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		kick_fd(kick);
		report->done = *(volatile uint32_t *)&t.list->done;
		pace();
	}
	return NULL;
}

static void *signaller(void *arg)
{
	pthread_t *to = arg;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		pthread_kill(*to, SIGUSR1);
		pace();
		pace();
	}
	return NULL;
}

static void *reader(void *arg)
{
	struct kfs_call_stats calls[128];

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct kfs_vm_stats st = {
			.size = sizeof(st), .calls = U(calls), .calls_len = 128,
		};
		struct kfs_kick_stats ks;

		ioctl(t.ctl, KFS_VM_STATS, &st);
		st.id = 0;
		ioctl(t.dev, KFS_VM_STATS, &st);
		kick_stats(t.dev, 0, &ks);
		pace();
	}
	return NULL;
}

static bool say(const char *what, uint64_t a, uint64_t b)
{
	snprintf(report->why, sizeof(report->why), "%s: %llu, %llu", what,
		 (unsigned long long)a, (unsigned long long)b);
	return false;
}

static bool one_batch(void)
{
	struct tlist *list = t.list;
	int err;

	list->count = ARRAY_SIZE(list->call);
	list->done = 0;
	for (uint32_t i = 0; i < list->count; i++) {
		one_call(&list->call[i]);
		report->calls += list->call[i].rax == KFS_HC_SYSCALL;
	}
	memcpy(report->call, list->call, sizeof(report->call));
	fill_scratch();
	err = gvm_set_entry(t.vcpu, guest_calls, list, GVM_RING0);
	if (err)
		return say("set entry", -err, report->batches);
	for (;;) {
		err = gvm_run(t.vcpu);
		if (!err)
			break;
		if (err != -EINTR)
			return say("KVM_RUN", -err, list->done);
		if (t.vcpu->run->immediate_exit) {
			t.vcpu->run->immediate_exit = 0;
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			report->kicked++;
		}
	}
	if (gvm_event(t.vcpu, NULL) != GVM_DONE) {
		const struct tcall *c = &list->call[list->done];

		snprintf(report->why, sizeof(report->why),
			 "%.80s; batch %u call %u: %#llx %#llx (%#llx %#llx %#llx %#llx)",
			 gvm_describe(t.vcpu), (unsigned int)report->batches,
			 list->done, (unsigned long long)c->rax,
			 (unsigned long long)c->nr,
			 (unsigned long long)c->args[0],
			 (unsigned long long)c->args[1],
			 (unsigned long long)c->args[2],
			 (unsigned long long)c->args[3]);
		return false;
	}
	report->batches++;
	return true;
}

static void totals(void)
{
	struct kfs_vm_stats st;
	unsigned int i;

	if (kfs_stats(t.ctl, &st)) {
		say("statistics", errno, 0);
		return;
	}
	report->ran = st.ran;
	report->denied = st.denied;
	report->refused = st.refused;
	report->deferred = st.deferred;
	report->interrupted = st.interrupted;
	for (i = KFS_REASON_NOT_ENABLED; i <= KFS_REASON_CPL; i++)
		report->left += st.declined[i];
}

static void fuzz(void)
{
	struct rlimit fsize = { 1 << 20, 1 << 20 };
	uint64_t end = now_ns() + SECONDS(40);
	pthread_t threads[3], me = pthread_self();
	int null = open("/dev/null", O_RDWR);
	unsigned int i;

	/* What the guest writes there is not the test's to say. */
	for (i = 0; i < 3; i++)
		dup2(null, i);
	catch_signal(SIGUSR1);
	catch_signal(SIGPIPE);
	catch_signal(SIGXFSZ);
	setrlimit(RLIMIT_FSIZE, &fsize);
	/* Interrupted calls end, so each is counted under one heading. */
	if (tvm_create(&t, KFS_EINTR, 0) || !make_memory()) {
		say(t.vm.error, 0, 0);
		return;
	}
	kick = kick_create(t.dev, t.vcpu->fd, 0);
	make_fds();
	pthread_create(&threads[0], NULL, kicker, NULL);
	pthread_create(&threads[1], NULL, signaller, &me);
	pthread_create(&threads[2], NULL, reader, NULL);
	for (i = 0; i < BATCHES && now_ns() < end; i++) {
		if (!one_batch())
			break;
		make_fds();
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	totals();
}

FIXTURE(attack_guest) {
	int refs;
};

FIXTURE_SETUP(attack_guest)
{
	REQUIRE_MODULE();
	self->refs = module_refs("kvm_fastsys");
}

FIXTURE_TEARDOWN(attack_guest)
{
	EXPECT_TRUE(wait_module_refs("kvm_fastsys", self->refs));
}

TEST_F_TIMEOUT(attack_guest, random_hypercalls, 100)
{
	const char *given = getenv("KFS_SEED");
	int status;
	pid_t pid;

	seed = given ? strtoull(given, NULL, 0) : 0x6b66730001;
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)report);
	TH_LOG("seed %#llx", (unsigned long long)seed);
	pid = fork();
	if (!pid) {
		fuzz();
		_exit(0);
	}
	status = wait_child(pid, SECONDS(90));
	TH_LOG("%llu batches, %llu calls: %llu ran, %llu refused, %llu interrupted; %llu kicks",
	       (unsigned long long)report->batches,
	       (unsigned long long)report->calls,
	       (unsigned long long)report->ran,
	       (unsigned long long)report->refused,
	       (unsigned long long)report->interrupted,
	       (unsigned long long)report->kicked);
	EXPECT_EQ(0, status) {
		const struct tcall *c = &report->call[report->done % 64];

		TH_LOG("batch %llu, call %u: %#llx (%#llx %#llx %#llx %#llx)",
		       (unsigned long long)report->batches, report->done,
		       (unsigned long long)c->nr,
		       (unsigned long long)c->args[0],
		       (unsigned long long)c->args[1],
		       (unsigned long long)c->args[2],
		       (unsigned long long)c->args[3]);
	}
	EXPECT_STREQ("", report->why);
	EXPECT_LT(0, report->batches);
	EXPECT_EQ(report->calls, report->ran + report->denied +
		  report->refused + report->deferred + report->interrupted +
		  report->left);
	EXPECT_EQ(0, report->left);
	EXPECT_EQ(0, report->deferred);
}

TEST_HARNESS_MAIN
