// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * What a kick costs. On one CPU with counting clocks: instructions, on the
 * kicker's side and on the vCPU's, and what KVM_RUN costs beside it. On two:
 * time from the kick to the vCPU's thread back in user space.
 *
 *	kick --set absent|loaded|latency [--kicks N]
 *
 * One JSON object on stdout; tests/bench/kick/report judges.
 */
#include <argp.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "kickbench.h"

#define PASSES 5
#define EXITS 20000

static struct { const char *set; unsigned int kicks; } opt = { "loaded", 2000 };
static const char *comma = "";

static void figure(const char *name, const double *v, int n)
{
	printf("%s\n  \"%s\": [", comma, name);
	for (int i = 0; i < n; i++)
		printf("%s%.2f", i ? ", " : "", v[i]);
	printf("]");
	comma = ",";
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void set_policy(int policy)
{
	struct sched_param p = { .sched_priority = policy ? 10 : 0 };

	if (sched_setscheduler(0, policy, &p))
		die("SCHED_FIFO (as root?)");
}

/* ---- KVM_RUN to a port exit and back --------------------------------------- */
static void port_exits(struct bench *b, const char *name)
{
	double v[PASSES];

	for (int pass = 0; pass < PASSES; pass++) {
		uint64_t start;

		b->g->exits = EXITS;
		if (gvm_set_entry(b->vcpu, guest_exits, b->g, GVM_RING0))
			die("entry");
		/* The first exit pays for the entry; not counted. */
		ioctl(b->vcpu->fd, KVM_RUN, 0UL);
		start = clock_ns();
		for (int i = 1; i < EXITS; i++)
			if (ioctl(b->vcpu->fd, KVM_RUN, 0UL))
				die("KVM_RUN");
		v[pass] = (double)(clock_ns() - start) / (EXITS - 1);
	}
	figure(name, v, PASSES);
}

/* The source document's loop: a signal mask of KVM's, switched on each run. */
static void set_kvm_mask(struct bench *b, bool on)
{
	struct {
		struct kvm_signal_mask head;
		uint64_t set;
	} __attribute__((packed)) m = { { .len = 8 }, 0 };

	if (ioctl(b->vcpu->fd, KVM_SET_SIGNAL_MASK, on ? &m : NULL))
		die("KVM_SET_SIGNAL_MASK");
}

/* ---- Kicks, one CPU ---------------------------------------------------------- */
/*
 * The kicker has the higher priority and a timer wakes it while the guest
 * spins. `before`, `after`: around its call. Then it waits for the timer and
 * the vCPU's thread goes on: `back` is when it is about to enter KVM_RUN again.
 */
static void one_kick(struct bench *b, enum kick_way way, int timer, uint64_t *kicker,
		     uint64_t *vcpu)
{
	struct itimerspec soon = { .it_value.tv_nsec = 40000 };
	struct itimerspec later = { .it_value.tv_nsec = 80000 };
	uint32_t taken = __atomic_load_n(&b->taken, __ATOMIC_SEQ_CST);
	uint64_t before, after, expired;

	timerfd_settime(timer, 0, &soon, NULL);
	if (read(timer, &expired, 8) != 8)
		die("timer");
	timerfd_settime(timer, 0, &later, NULL);
	before = clock_ns();
	bench_kick(b, way);
	after = clock_ns();
	if (read(timer, &expired, 8) != 8)
		die("timer");
	if (__atomic_load_n(&b->taken, __ATOMIC_SEQ_CST) != taken + 1) {
		fprintf(stderr, "kick: one kick by %s was taken %u times\n",
			way_names[way], b->taken - taken);
		exit(1);
	}
	*kicker = after - before;
	*vcpu = b->back - after;
}

/* Notes when it was given the CPU back: a gap in its readings. */
static void *spinner(void *arg)
{
	struct bench *b = arg;
	uint64_t last = clock_ns();

	while (!__atomic_load_n(&b->stop, __ATOMIC_RELAXED)) {
		uint64_t now = clock_ns();

		if (now - last > 2000)
			b->back = now;
		last = now;
	}
	return NULL;
}

/*
 * What a figure of the vCPU's side contains beside the kick: the kicker's wait
 * and the switch to a thread that goes on in user space.
 */
static double bare_switch(int timer)
{
	struct itimerspec soon = { .it_value.tv_nsec = 40000 };
	static struct bench s;
	uint64_t sum = 0, after, expired;
	const int n = 500;

	if (pthread_create(&s.thread, NULL, spinner, &s))
		die("spinner");
	set_policy(SCHED_FIFO);
	for (int i = -1; i < n; i++) {
		timerfd_settime(timer, 0, &soon, NULL);
		after = clock_ns();
		if (read(timer, &expired, 8) != 8)
			die("timer");
		if (i >= 0)
			sum += s.back - after;
	}
	__atomic_store_n(&s.stop, true, __ATOMIC_RELAXED);
	set_policy(SCHED_OTHER);
	pthread_join(s.thread, NULL);
	return (double)sum / n;
}

/* All of a way's kicks, each pass a mean. */
static void kicks(struct bench *b, enum kick_way way, int timer, double base)
{
	double kicker[PASSES], vcpu[PASSES];
	char name[64];

	for (int pass = 0; pass < PASSES; pass++) {
		uint64_t k, v, ksum = 0, vsum = 0;

		for (unsigned int i = 0; i < opt.kicks / PASSES; i++) {
			one_kick(b, way, timer, &k, &v);
			ksum += k;
			vsum += v;
		}
		kicker[pass] = (double)ksum / (opt.kicks / PASSES);
		vcpu[pass] = (double)vsum / (opt.kicks / PASSES) - base;
	}
	snprintf(name, sizeof(name), "kicker_%s", way_names[way]);
	figure(name, kicker, PASSES);
	snprintf(name, sizeof(name), "vcpu_%s", way_names[way]);
	figure(name, vcpu, PASSES);
}

static void start_vcpu(struct bench *b)
{
	if (gvm_set_entry(b->vcpu, guest_spin, b->g, GVM_RING0) ||
	    pthread_create(&b->thread, NULL, bench_vcpu, b))
		die("vCPU");
	while (!__atomic_load_n(&b->tid, __ATOMIC_SEQ_CST) ||
	       !__atomic_load_n(&b->g->turns, __ATOMIC_SEQ_CST))
		sched_yield();
}

static void open_kick(struct bench *b)
{
	int ret;

	b->kick = kfs_kick_open_vm(b->dev, b->vm.vm_fd);
	if (b->kick >= 0) {
		/* That was the probe; the fd measured is the vCPU's. */
		struct kfs_kicker k;

		close(b->kick);
		ret = kfs_kick_open(&k, b->dev, b->vcpu->fd, b->vcpu->run, 0);
		b->kick = ret < 0 ? ret : k.fd;
	}
	ret = kfs_live_vcpu_ioctl(b->dev);
	if (b->kick < 0 || ret) {
		fprintf(stderr, "kick: not to be had here (%s): kvm-fastsys status\n",
			strerror(b->kick < 0 ? -b->kick : -ret));
		exit(1);
	}
	b->has[BY_FD] = b->has[BY_IOCTL] = true;
}

static void counting(struct bench *b)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	double base = bare_switch(timer);

	figure("bare_switch", &base, 1);
	port_exits(b, "userexit_loaded");
	open_kick(b);
	port_exits(b, "userexit_vcpu_ioctl_live");
	set_kvm_mask(b, true);
	port_exits(b, "exit_sigmask");
	set_kvm_mask(b, false);
	port_exits(b, "exit_no_sigmask");

	start_vcpu(b);
	set_policy(SCHED_FIFO);
	for (enum kick_way way = 0; way < WAYS; way++)
		if (b->has[way])
			kicks(b, way, timer, base);
	close(timer);
}

/* ---- Time, two CPUs ------------------------------------------------------------ */
static void pin(pthread_t thread, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (pthread_setaffinity_np(thread, sizeof(set), &set))
		die("two CPUs are needed: the parallel machine");
}

/* Kicks in turn by each way, of a guest that is seen to run. */
static void latency(struct bench *b)
{
	enum kick_way way;

	open_kick(b);
	for (way = 0; way < WAYS; way++) {
		b->samples[way] = calloc(opt.kicks, sizeof(uint64_t));
		if (!b->samples[way])
			die("memory");
	}
	start_vcpu(b);
	pin(b->thread, 0);
	pin(pthread_self(), 1);
	for (unsigned int i = 0; i < opt.kicks; i++)
		for (way = 0; way < WAYS; way++) {
			uint32_t taken = b->taken, turns;
			uint64_t start;

			if (!b->has[way])
				continue;
			turns = __atomic_load_n(&b->g->turns, __ATOMIC_SEQ_CST);
			while (__atomic_load_n(&b->g->turns, __ATOMIC_SEQ_CST) -
			       turns < 200)
				;
			start = clock_ns();
			bench_kick(b, way);
			while (__atomic_load_n(&b->taken, __ATOMIC_SEQ_CST) ==
			       taken)
				;
			b->samples[way][i] = b->back - start;
		}
	for (way = 0; way < WAYS; way++) {
		char name[64];
		double v;

		if (!b->has[way])
			continue;
		qsort(b->samples[way], opt.kicks, sizeof(uint64_t), by_value);
		v = (double)b->samples[way][opt.kicks / 2];
		snprintf(name, sizeof(name), "p50_%s", way_names[way]);
		figure(name, &v, 1);
		v = (double)b->samples[way][opt.kicks / 10];
		snprintf(name, sizeof(name), "p10_%s", way_names[way]);
		figure(name, &v, 1);
		v = (double)b->samples[way][opt.kicks * 99UL / 100];
		snprintf(name, sizeof(name), "p99_%s", way_names[way]);
		figure(name, &v, 1);
	}
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 's':
		opt.set = arg;
		return 0;
	case 'k':
		opt.kicks = (unsigned int)strtoul(arg, NULL, 0);
		if (opt.kicks < PASSES)
			argp_error(state, "at least %d kicks", PASSES);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "set", 's', "SET", 0, "absent, loaded or latency", 0 },
		{ "kicks", 'k', "N", 0, "kicks by each way", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options, .parser = parse_opt,
		.doc = "Measures kicks; JSON on stdout.",
	};
	static struct bench b;
	struct utsname u;

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	uname(&u);
	if (bench_open(&b, strcmp(opt.set, "absent")))
		return 1;
	printf("{\"kernel\": \"%s\", \"set\": \"%s\", \"vendor\": \"%s\", \"kicks\": %u, \"figures\": {",
	       u.release, opt.set, gvm_is_intel ? "VMX" : "SVM", opt.kicks);
	if (!strcmp(opt.set, "absent"))
		port_exits(&b, "userexit_unloaded");
	else if (!strcmp(opt.set, "loaded"))
		counting(&b);
	else
		latency(&b);
	printf("\n}}\n");
	/* The vCPU's thread goes with the process. */
	return 0;
}
