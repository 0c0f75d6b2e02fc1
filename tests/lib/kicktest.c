// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <linux/futex.h>
#include <sched.h>
#include <time.h>

#include "kicktest.h"

static int result(int ret)
{
	return ret < 0 ? -errno : ret;
}

int kick_create(int dev, int fd, uint32_t flags)
{
	struct kfs_create_kick req = {
		.size = sizeof(req), .flags = flags, .fd = fd,
	};

	return result(ioctl(dev, KFS_CREATE_KICK, &req));
}

int kick_live(int dev)
{
	struct kfs_live req = { .size = sizeof(req) };

	return result(ioctl(dev, KFS_LIVE_VCPU_IOCTL, &req));
}

int kick_info(int dev, struct kfs_kick_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return result(ioctl(dev, KFS_KICK_INFO, info));
}

int kick_stats(int fd, uint64_t id, struct kfs_kick_stats *st)
{
	memset(st, 0, sizeof(*st));
	st->size = sizeof(*st);
	st->id = id;
	return result(ioctl(fd, KFS_KICK_STATS, st));
}

int kick_fd(int fd)
{
	return result(ioctl(fd, KFS_KICK, 0UL));
}

int kick_write(int fd, uint64_t n)
{
	return result(write(fd, &n, sizeof(n)));
}

int64_t kick_read(int fd)
{
	uint64_t n;
	ssize_t got = read(fd, &n, sizeof(n));

	return got < 0 ? -errno : (int64_t)n;
}

int user_exit(int vcpu_fd, unsigned long flags)
{
	return result(ioctl(vcpu_fd, KFS_USER_EXIT, flags));
}

static void futex(uint32_t *word, int op, uint32_t val, uint64_t ns)
{
	struct timespec ts = { ns / 1000000000, ns % 1000000000 };

	syscall(SYS_futex, word, op, val, op == FUTEX_WAIT ? &ts : NULL, NULL,
		0);
}

#define STORE(p, v)	__atomic_store_n(p, v, __ATOMIC_SEQ_CST)
#define LOAD(p)		__atomic_load_n(p, __ATOMIC_SEQ_CST)

void word_set(uint32_t *word, uint32_t value)
{
	STORE(word, value);
	futex(word, FUTEX_WAKE, INT32_MAX, 0);
}

/*
 * A second, in slices: a machine that its host does not run for a while finds
 * one slice used up when it goes on, and not the kick lost.
 */
bool word_reached(uint32_t *word, uint32_t value)
{
	int spins = online_cpus() > 1 ? 20000 : 0;
	int slices = 100;
	uint32_t seen;

	while ((int32_t)((seen = LOAD(word)) - value) < 0) {
		if (spins-- > 0) {
			__builtin_ia32_pause();
			continue;
		}
		if (!slices--)
			return false;
		futex(word, FUTEX_WAIT, seen, SECONDS(1) / 100);
	}
	return true;
}

static void acknowledge(struct krun *k)
{
	STORE(&k->vcpu->run->immediate_exit, 0);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	k->kicked++;
	if (k->wake_halted) {
		struct kvm_mp_state mp = { KVM_MP_STATE_RUNNABLE };

		ioctl(k->vcpu->fd, KVM_SET_MP_STATE, &mp);
	}
	word_set(&k->seen, LOAD(&k->posted));
	if (k->acked)
		k->acked(k);
}

static void *krun_loop(void *arg)
{
	struct krun *k = arg;

	STORE(&k->tid, (pid_t)syscall(SYS_gettid));
	if (k->setup)
		k->error = k->setup(k);
	while (!k->error && !LOAD(&k->stop)) {
		int err;

		STORE(&k->phase, PH_ENTER);
		err = gvm_run(k->vcpu);
		STORE(&k->phase, PH_BACK);
		if (!err) {
			k->exits++;
		} else if (err != -EINTR) {
			k->error = err;
			break;
		} else if (LOAD(&k->vcpu->run->immediate_exit)) {
			acknowledge(k);
		} else {
			k->stray++;
		}
		STORE(&k->phase, PH_USER);
	}
	STORE(&k->phase, PH_ENDED);
	word_set(&k->seen, LOAD(&k->posted));
	return NULL;
}

int krun_start(struct krun *k, struct gvm_vcpu *vcpu)
{
	k->vcpu = vcpu;
	return -pthread_create(&k->thread, NULL, krun_loop, k);
}

uint32_t krun_post(struct krun *k)
{
	return __atomic_add_fetch(&k->posted, 1, __ATOMIC_SEQ_CST);
}

bool krun_answered(struct krun *k, uint32_t event)
{
	return word_reached(&k->seen, event);
}

int krun_stop(struct krun *k, int kick)
{
	uint32_t event;

	STORE(&k->stop, true);
	event = krun_post(k);
	kick_write(kick, 1);
	if (!krun_answered(k, event))
		return -ETIMEDOUT;
	pthread_join(k->thread, NULL);
	return k->error;
}

const char *krun_describe(struct krun *k)
{
	static const char *const names[] = {
		"not started", "in user space", "entering or in KVM_RUN",
		"back from KVM_RUN", "ended",
	};
	static char text[256];
	enum kphase phase = LOAD(&k->phase);
	char state = task_state(k->tid);

	snprintf(text, sizeof(text),
		 "thread %s (state %c), posted %u seen %u, immediate_exit %u, kicked %llu stray %llu exits %llu error %d",
		 names[phase], state, LOAD(&k->posted),
		 LOAD(&k->seen), k->vcpu->run->immediate_exit,
		 (unsigned long long)k->kicked, (unsigned long long)k->stray,
		 (unsigned long long)k->exits, k->error);
	return text;
}

char task_state(pid_t tid)
{
	char path[64], text[256], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	p = strrchr(text, ')');
	return p ? p[2] : 0;
}

struct asleep {
	pid_t tid;
	long nr;
};

static bool is_asleep_in(void *arg)
{
	struct asleep *a = arg;
	char path[64], text[64] = "";
	int fd;

	if (task_state(a->tid) != 'S')
		return false;
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", a->tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	return text[0] >= '0' && text[0] <= '9' && atol(text) == a->nr;
}

bool wait_asleep_in(pid_t tid, long nr)
{
	struct asleep a = { tid, nr };

	return wait_for(is_asleep_in, &a, SECONDS(10));
}

struct word {
	uint32_t *word;
	uint32_t at_least;
};

static bool word_is(void *arg)
{
	struct word *w = arg;

	return LOAD(w->word) >= w->at_least;
}

bool wait_u32(uint32_t *word, uint32_t at_least)
{
	struct word w = { word, at_least };

	return wait_for(word_is, &w, SECONDS(10));
}

int online_cpus(void)
{
	static int n;

	if (!n)
		n = sysconf(_SC_NPROCESSORS_ONLN);
	return n;
}

void keep_text_still(void)
{
	int dev = kfs_open();

	if (dev < 0 || online_cpus() < 2)
		return;
	/* What this descriptor holds ends with the process. */
	if (kick_live(dev))
		fprintf(stderr, "# cannot keep text still: %s\n",
			strerror(errno));
}

uint64_t handlers_run;

static void count_handler(int sig)
{
	(void)sig;
	__atomic_add_fetch(&handlers_run, 1, __ATOMIC_RELAXED);
}

void catch_all_signals(void)
{
	struct sigaction sa = { .sa_handler = count_handler };
	int sig;

	for (sig = 1; sig <= SIGRTMAX; sig++) {
		/* Faults stay deadly, or they would repeat for ever; the
		 * harness ends a test by SIGALRM.
		 */
		if (sig == SIGSEGV || sig == SIGBUS || sig == SIGILL ||
		    sig == SIGFPE || sig == SIGALRM)
			continue;
		sigaction(sig, &sa, NULL);
	}
}

/* ---- Guests --------------------------------------------------------------- */
uint32_t guest_spin(struct kguest *g)
{
	for (;;)
		(*(volatile uint32_t *)&g->turns)++;
}

uint32_t guest_halt(struct kguest *g)
{
	for (;;) {
		(*(volatile uint32_t *)&g->halts)++;
		__asm__ volatile("hlt" : : : "memory");
		(*(volatile uint32_t *)&g->turns)++;
	}
}

uint32_t guest_mixed(struct kguest *g)
{
	uint32_t i, n = 0;

	for (;;) {
		for (i = 0; i < g->spin; i++)
			(*(volatile uint32_t *)&g->turns)++;
		gvm_doorbell(n);
		if (g->halts == ~0U || ++n % 4)
			continue;
		(*(volatile uint32_t *)&g->halts)++;
		__asm__ volatile("hlt" : : : "memory");
	}
}

uint32_t guest_exits(struct kguest *g)
{
	for (;;) {
		(*(volatile uint32_t *)&g->turns)++;
		gvm_doorbell(g->turns);
	}
}

uint32_t guest_in(struct kguest *g)
{
	uint32_t value;

	__asm__ volatile("inl %1, %0" : "=a" (value) : "d" ((uint16_t)KPORT_IN));
	*(volatile uint32_t *)&g->value = value;
	for (;;)
		(*(volatile uint32_t *)&g->turns)++;
}

uint32_t guest_mmio(struct kguest *g)
{
	*(volatile uint32_t *)&g->value = *(volatile uint32_t *)g->mmio;
	for (;;)
		(*(volatile uint32_t *)&g->turns)++;
}
