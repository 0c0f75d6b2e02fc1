// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Kicks from everywhere and at bad times: none lost, none for those who were
 * not kicked.
 */
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "kicktest.h"
#include "kselftest_harness.h"
#include "uring.h"

KEEP_TEXT_STILL()

FIXTURE(kick_races) {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	struct kguest *g;
	struct krun run;
	int dev, fd;
};

static int make_vm(FIXTURE_DATA(kick_races) *self)
{
	struct gvm_opts opts = { .irqchip = true };
	int err = gvm_create(&self->vm, &opts);

	if (!err)
		err = gvm_vcpu_create(&self->vm, &self->vcpu);
	if (err)
		return err;
	self->g = gvm_alloc(&self->vm, sizeof(*self->g), 64);
	self->fd = kick_create(self->dev, self->vcpu->fd, 0);
	return self->fd < 0 ? self->fd : 0;
}

FIXTURE_SETUP(kick_races)
{
	REQUIRE_MODULE();
	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
	ASSERT_EQ(0, make_vm(self)) TH_LOG("%s", gvm_strerror(&self->vm));
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_spin, self->g, GVM_RING0));
}

FIXTURE_TEARDOWN(kick_races)
{
	gvm_destroy(&self->vm);
	close(self->fd);
	close(self->dev);
}

#define ASSERT_ANSWERED(k, event)					\
	ASSERT_TRUE(krun_answered(k, event)) TH_LOG("%s", krun_describe(k))

/* N kicks, one at a time, are N exits; another vCPU sees none of them. */
TEST_F(kick_races, no_spurious_exit)
{
	struct kvm_mp_state mp = { KVM_MP_STATE_RUNNABLE };
	struct krun other = { 0 };
	struct gvm_vcpu *second;
	struct kguest *g2;
	const int n = 5000;
	int i, other_fd;

	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &second));
	g2 = gvm_alloc(&self->vm, sizeof(*g2), 64);
	ASSERT_EQ(0, gvm_set_entry(second, guest_exits, g2, GVM_RING0));
	/* Not the first vCPU, so it would wait for SIPI. */
	ASSERT_EQ(0, ioctl(second->fd, KVM_SET_MP_STATE, &mp));
	other_fd = kick_create(self->dev, second->fd, 0);
	ASSERT_LE(0, other_fd);
	ASSERT_EQ(0, krun_start(&self->run, self->vcpu));
	ASSERT_EQ(0, krun_start(&other, second));
	for (i = 0; i < n; i++) {
		uint32_t event = krun_post(&self->run);

		ASSERT_LE(0, kick_fd(self->fd));
		ASSERT_ANSWERED(&self->run, event);
	}
	EXPECT_EQ(n, self->run.kicked);
	/* The bound of the contract. */
	EXPECT_GE(n / 1000, self->run.stray);
	EXPECT_EQ(0, other.kicked);
	EXPECT_EQ(0, other.stray);
	EXPECT_TRUE(wait_u32(&g2->turns, g2->turns + 10));
	EXPECT_EQ(0, krun_stop(&other, other_fd));
	EXPECT_EQ(0, krun_stop(&self->run, self->fd));
	close(other_fd);
}

/* Kicked while the thread is made, while it ends, and by the next one. */
TEST_F(kick_races, threads_come_and_go)
{
	int i;

	for (i = 0; i < 200; i++) {
		struct krun k = { 0 };
		uint32_t event;

		if (i % 2)
			kick_fd(self->fd);
		ASSERT_EQ(0, krun_start(&k, self->vcpu));
		event = krun_post(&k);
		ASSERT_LE(0, kick_fd(self->fd));
		ASSERT_ANSWERED(&k, event);
		ASSERT_EQ(0, krun_stop(&k, self->fd));
		/* Every thread but the first finds one that nobody took. */
		kick_fd(self->fd);
		EXPECT_EQ(1, self->vcpu->run->immediate_exit);
	}
}

struct kicker {
	struct krun *run;
	int fd, n;
	bool stop, once;
	int lost;
	uint64_t kicks;
};

static void *kick_and_wait(void *arg)
{
	struct kicker *k = arg;
	int i;

	for (i = 0; i < k->n; i++) {
		uint32_t event = krun_post(k->run);

		if (kick_write(k->fd, 1) != 8)
			k->lost++;
		if (!krun_answered(k->run, event)) {
			k->lost++;
			break;
		}
	}
	return NULL;
}

static void *kick_on(void *arg)
{
	struct kicker *k = arg;

	while (!__atomic_load_n(&k->stop, __ATOMIC_SEQ_CST)) {
		if (kick_write(k->fd, 1) != 8)
			k->lost++;
		__atomic_add_fetch(&k->kicks, 1, __ATOMIC_SEQ_CST);
		sched_yield();
	}
	return NULL;
}

static void kick_on_stop(struct kicker *k, pthread_t thread)
{
	__atomic_store_n(&k->stop, true, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
}

TEST_F(kick_races, vcpu_moves_between_threads)
{
	struct kicker k = { .fd = self->fd };
	pthread_t thread;
	int i;

	ASSERT_EQ(0, pthread_create(&thread, NULL, kick_on, &k));
	for (i = 0; i < 50; i++) {
		struct krun run = { 0 };
		uint32_t event;

		ASSERT_EQ(0, krun_start(&run, self->vcpu));
		event = krun_post(&run);
		ASSERT_LE(0, kick_fd(self->fd));
		ASSERT_ANSWERED(&run, event);
		ASSERT_EQ(0, krun_stop(&run, self->fd));
	}
	kick_on_stop(&k, thread);
	EXPECT_EQ(0, k.lost);
}

TEST_F(kick_races, sixty_four_kickers)
{
	struct kicker k[64];
	pthread_t thread[64];
	int i;

	ASSERT_EQ(0, krun_start(&self->run, self->vcpu));
	for (i = 0; i < 64; i++) {
		k[i] = (struct kicker){
			.run = &self->run, .fd = self->fd, .n = 50,
		};
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, kick_and_wait,
					    &k[i]));
	}
	for (i = 0; i < 64; i++) {
		pthread_join(thread[i], NULL);
		EXPECT_EQ(0, k[i].lost)
			TH_LOG("kicker %d: %s", i, krun_describe(&self->run));
	}
	EXPECT_EQ(64 * 50, kick_read(self->fd));
	EXPECT_GE(64 * 50, self->run.kicked);
	EXPECT_EQ(0, krun_stop(&self->run, self->fd));
}

static int kicked_elsewhere(int fd, int n)
{
	while (n--)
		if (kick_write(fd, 1) != 8)
			return 1;
	return 0;
}

TEST_F(kick_races, from_another_process)
{
	uint32_t event;
	pid_t pid;

	ASSERT_EQ(0, krun_start(&self->run, self->vcpu));
	event = krun_post(&self->run);
	pid = fork();
	if (!pid)
		_exit(kicked_elsewhere(self->fd, 1000));
	ASSERT_EQ(0, wait_child(pid, SECONDS(10)));
	ASSERT_ANSWERED(&self->run, event);
	EXPECT_EQ(1000, kick_read(self->fd));
	EXPECT_EQ(0, krun_stop(&self->run, self->fd));
}

static int handler_fd;

static void kicking_handler(int sig)
{
	int saved = errno;

	(void)sig;
	kick_write(handler_fd, 1);
	errno = saved;
}

/* In another thread's handler, then in the vCPU thread's own. */
TEST_F(kick_races, from_a_signal_handler)
{
	struct sigaction sa = { .sa_handler = kicking_handler };
	uint32_t event;

	handler_fd = self->fd;
	sigaction(SIGUSR1, &sa, NULL);
	ASSERT_EQ(0, krun_start(&self->run, self->vcpu));
	ASSERT_TRUE(wait_u32(&self->g->turns, 1000));
	event = krun_post(&self->run);
	raise(SIGUSR1);
	ASSERT_ANSWERED(&self->run, event);
	event = krun_post(&self->run);
	pthread_kill(self->run.thread, SIGUSR1);
	ASSERT_ANSWERED(&self->run, event);
	EXPECT_EQ(0, krun_stop(&self->run, self->fd));
}

/* ---- Threads that must not notice ---------------------------------------- */
struct bystander {
	pid_t tid;
	bool stop;
	int fd;
	int result;		/* epoll_wait's, or -errno */
	int waits;
};

static void wait_quietly(struct bystander *b)
{
	int ep = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev;
	int n;

	b->waits = 0;
	__atomic_store_n(&b->tid, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	do {
		n = epoll_wait(ep, &ev, 1, 20);
		b->result = n < 0 ? -errno : n;
		b->waits++;
	} while (!n && !__atomic_load_n(&b->stop, __ATOMIC_SEQ_CST));
	close(ep);
}

static void *bystander(void *arg)
{
	wait_quietly(arg);
	return NULL;
}

struct ran_before {
	struct gvm_vcpu *vcpu;
	struct bystander b;
};

/* Runs the vCPU once, so that KVM knows this thread for its, then waits. */
static void *ran_before(void *arg)
{
	struct ran_before *r = arg;

	gvm_run(r->vcpu);
	wait_quietly(&r->b);
	return NULL;
}

static void *get_regs(void *arg)
{
	struct kicker *k = arg;
	struct kvm_regs regs;

	while (!__atomic_load_n(&k->stop, __ATOMIC_SEQ_CST)) {
		if (ioctl(k->fd, KVM_GET_REGS, &regs))
			k->lost++;
		__atomic_add_fetch(&k->kicks, 1, __ATOMIC_SEQ_CST);
		sched_yield();
	}
	return NULL;
}

static bool kicked_often(void *arg)
{
	struct kicker *k = arg;

	return __atomic_load_n(&k->kicks, __ATOMIC_SEQ_CST) >= 2000;
}

/*
 * The vCPU's thread waits in epoll_wait, which the mechanism would interrupt,
 * while another holds the vCPU's mutex now and then and a third kicks.
 */
TEST_F(kick_races, others_hold_the_vcpu)
{
	struct ran_before r = { .vcpu = self->vcpu };
	struct kicker regs = { .fd = self->vcpu->fd };
	struct kicker k = { .fd = self->fd };
	pthread_t vmm, getter, kicker;

	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_exits, self->g, GVM_RING0));
	ASSERT_EQ(0, pthread_create(&vmm, NULL, ran_before, &r));
	ASSERT_TRUE(wait_u32((uint32_t *)&r.b.tid, 1));
	ASSERT_TRUE(wait_asleep_in(r.b.tid, SYS_epoll_wait));
	ASSERT_EQ(0, pthread_create(&getter, NULL, get_regs, &regs));
	ASSERT_EQ(0, pthread_create(&kicker, NULL, kick_on, &k));
	EXPECT_TRUE(wait_for(kicked_often, &k, SECONDS(20)));
	EXPECT_TRUE(wait_for(kicked_often, &regs, SECONDS(20)));
	__atomic_store_n(&r.b.stop, true, __ATOMIC_SEQ_CST);
	pthread_join(vmm, NULL);
	kick_on_stop(&k, kicker);
	kick_on_stop(&regs, getter);
	EXPECT_EQ(0, r.b.result) TH_LOG("woken after %d waits", r.b.waits);
	EXPECT_EQ(0, k.lost);
	EXPECT_EQ(0, regs.lost);
	EXPECT_EQ(1, self->vcpu->run->immediate_exit);
}

struct slow_regs {
	int vcpu_fd;
	pid_t tid;
	struct kvm_regs *regs;	/* in a page that is not there yet */
	int result;
};

static void *get_regs_slowly(void *arg)
{
	struct slow_regs *s = arg;

	__atomic_store_n(&s->tid, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	s->result = ioctl(s->vcpu_fd, KVM_GET_REGS, s->regs) ? -errno : 0;
	return NULL;
}

/* The same with the mutex held all the time, by a thread in a page fault. */
TEST_F(kick_races, another_holds_the_vcpu_long)
{
	struct ran_before r = { .vcpu = self->vcpu };
	struct slow_regs s = { .vcpu_fd = self->vcpu->fd };
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero = { 0 };
	pthread_t vmm, getter;
	int uffd, i;

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		SKIP(return, "no userfaultfd here: %s", strerror(errno));
	s.regs = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, s.regs);
	reg.range = (struct uffdio_range){ U(s.regs), 4096 };
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_REGISTER, &reg));

	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_exits, self->g, GVM_RING0));
	ASSERT_EQ(0, pthread_create(&vmm, NULL, ran_before, &r));
	ASSERT_TRUE(wait_u32((uint32_t *)&r.b.tid, 1));
	ASSERT_TRUE(wait_asleep_in(r.b.tid, SYS_epoll_wait));
	ASSERT_EQ(0, pthread_create(&getter, NULL, get_regs_slowly, &s));
	ASSERT_TRUE(wait_u32((uint32_t *)&s.tid, 1));
	ASSERT_TRUE(wait_asleep_in(s.tid, SYS_ioctl));
	for (i = 0; i < 100; i++) {
		EXPECT_EQ(0, kick_fd(self->fd));
	}
	EXPECT_EQ(1, s.result + (task_state(s.tid) == 'S'));
	zero.range = reg.range;
	ASSERT_EQ(0, ioctl(uffd, UFFDIO_ZEROPAGE, &zero));
	pthread_join(getter, NULL);
	EXPECT_EQ(0, s.result);
	__atomic_store_n(&r.b.stop, true, __ATOMIC_SEQ_CST);
	pthread_join(vmm, NULL);
	EXPECT_EQ(0, r.b.result) TH_LOG("woken after %d waits", r.b.waits);
	close(uffd);
}

/* The thread that ran the vCPU is gone and another has its number. */
TEST_F(kick_races, thread_id_reused)
{
	struct bystander b = { 0 };
	struct krun k = { 0 };
	pthread_t thread;
	pid_t old;
	int tries, i;

	ASSERT_EQ(0, krun_start(&k, self->vcpu));
	ASSERT_TRUE(wait_u32((uint32_t *)&k.tid, 1));
	old = k.tid;
	ASSERT_EQ(0, krun_stop(&k, self->fd));
	for (tries = 0; tries < 100; tries++) {
		FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "we");

		if (!f || fprintf(f, "%d", old - 1) < 0 || fclose(f))
			SKIP(return, "cannot set ns_last_pid: not root, or no CONFIG_CHECKPOINT_RESTORE");
		b = (struct bystander){ 0 };
		ASSERT_EQ(0, pthread_create(&thread, NULL, bystander, &b));
		ASSERT_TRUE(wait_u32((uint32_t *)&b.tid, 1));
		if (b.tid == old)
			break;
		__atomic_store_n(&b.stop, true, __ATOMIC_SEQ_CST);
		pthread_join(thread, NULL);
	}
	ASSERT_EQ(old, b.tid);
	ASSERT_TRUE(wait_asleep_in(b.tid, SYS_epoll_wait));
	for (i = 0; i < 1000; i++)
		EXPECT_EQ(0, kick_fd(self->fd));
	__atomic_store_n(&b.stop, true, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	EXPECT_EQ(0, b.result);
}

/* ---- Ends ------------------------------------------------------------------ */
/* The VMM is killed in the middle; its kick fd lives on here. */
TEST_F(kick_races, vmm_is_killed)
{
	int i;

	for (i = 0; i < 20; i++) {
		uint32_t *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		struct kicker k = { .fd = self->fd };
		pthread_t thread;
		pid_t pid;

		ASSERT_NE(MAP_FAILED, ready);
		gvm_destroy(&self->vm);
		close(self->fd);
		/* Made by the child, used by the parent: a pidfd fetches it. */
		pid = fork();
		if (!pid) {
			int fd;

			if (make_vm(self) || gvm_set_entry(self->vcpu,
					guest_exits, self->g, GVM_RING0) ||
			    krun_start(&self->run, self->vcpu))
				_exit(1);
			fd = self->fd;
			__atomic_store_n(ready, fd + 1, __ATOMIC_SEQ_CST);
			pause();
			_exit(2);
		}
		ASSERT_TRUE(wait_u32(ready, 1));
		self->fd = syscall(SYS_pidfd_getfd,
				   syscall(SYS_pidfd_open, pid, 0),
				   *ready - 1, 0);
		ASSERT_LE(0, self->fd);
		k.fd = self->fd;
		ASSERT_EQ(0, pthread_create(&thread, NULL, kick_on, &k));
		while (__atomic_load_n(&k.kicks, __ATOMIC_SEQ_CST) < 10 * i)
			sched_yield();
		kill(pid, SIGKILL);
		EXPECT_EQ(SIGKILL, wait_child(pid, SECONDS(10)));
		kick_on_stop(&k, thread);
		EXPECT_EQ(0, k.lost);
		munmap(ready, 4096);
	}
	ASSERT_EQ(0, close(self->fd));
	ASSERT_EQ(0, make_vm(self));
}

/* VMs end under their kickers, fd by fd. */
TEST_F(kick_races, vm_is_torn_down)
{
	int i;

	for (i = 0; i < 30; i++) {
		struct kicker k = { .fd = self->fd };
		struct krun run = { 0 };
		pthread_t thread;

		ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_spin, self->g,
					   GVM_RING0));
		ASSERT_EQ(0, krun_start(&run, self->vcpu));
		ASSERT_EQ(0, pthread_create(&thread, NULL, kick_on, &k));
		ASSERT_EQ(0, krun_stop(&run, self->fd));
		gvm_destroy(&self->vm);
		while (__atomic_load_n(&k.kicks, __ATOMIC_SEQ_CST) < 100)
			sched_yield();
		kick_on_stop(&k, thread);
		EXPECT_EQ(0, k.lost);
		close(self->fd);
		ASSERT_EQ(0, make_vm(self));
	}
}

/* ---- io_uring --------------------------------------------------------------- */

/*
 * io_uring uses the same flag for its own work on this thread. Its completions
 * end KVM_RUN with immediate_exit clear; kicks between them all arrive.
 */
TEST_F(kick_races, thread_has_io_uring_work)
{
	struct uring u;
	uint64_t one = 1;
	int i;

	for (i = 0; i < URING_POLLS; i++) {
		u.event[i] = eventfd(0, EFD_CLOEXEC);
		ASSERT_LE(0, u.event[i]);
	}
	self->run.setup = uring_setup;
	self->run.data = &u;
	ASSERT_EQ(0, krun_start(&self->run, self->vcpu));
	ASSERT_TRUE(wait_u32(&self->g->turns, 1000) || self->run.error)
		TH_LOG("%s", krun_describe(&self->run));
	if (self->run.error == -ENOSYS || self->run.error == -EPERM)
		SKIP(return, "io_uring is switched off on this kernel");
	ASSERT_EQ(0, self->run.error);
	for (i = 0; i < URING_POLLS; i++) {
		uint32_t event = krun_post(&self->run);

		if (i % 2) {
			ASSERT_EQ(8, write(u.event[i], &one, 8));
			ASSERT_LE(0, kick_fd(self->fd));
		} else {
			ASSERT_LE(0, kick_fd(self->fd));
			ASSERT_EQ(8, write(u.event[i], &one, 8));
		}
		ASSERT_ANSWERED(&self->run, event);
	}
	EXPECT_TRUE(wait_u32(u.cq_tail, URING_POLLS));
	EXPECT_EQ(URING_POLLS, self->run.kicked);
	EXPECT_GE(URING_POLLS, self->run.stray);
	EXPECT_EQ(0, krun_stop(&self->run, self->fd));
}

TEST_HARNESS_MAIN
