// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A kick in each state a vCPU can be in, and that a kick is to the guest what
 * a signal is: mp_state, registers and I/O in flight. Each test runs three
 * times: by kick fd, by the VM's kick fd, by ioctl on the vCPU's own fd.
 */
#include <sys/resource.h>

#include "kicktest.h"
#include "kselftest_harness.h"

KEEP_TEXT_STILL()

enum kick_way { BY_FD, BY_VM_FD, BY_IOCTL };

FIXTURE(kick_states) {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	struct kguest *g;
	int dev, fd;
	pthread_t thread;
	pid_t tid;
	int result;		/* of the thread's one KVM_RUN */
};

FIXTURE_VARIANT(kick_states) {
	enum kick_way way;
};

FIXTURE_VARIANT_ADD(kick_states, kick_fd) { .way = BY_FD };
FIXTURE_VARIANT_ADD(kick_states, vm_kick_fd) { .way = BY_VM_FD };
FIXTURE_VARIANT_ADD(kick_states, vcpu_ioctl) { .way = BY_IOCTL };

FIXTURE_SETUP(kick_states)
{
	REQUIRE_MODULE();
	self->dev = kfs_open();
	ASSERT_LE(0, self->dev);
	self->fd = -1;
	if (variant->way == BY_IOCTL)
		ASSERT_EQ(0, kick_live(self->dev));
}

FIXTURE_TEARDOWN(kick_states)
{
	gvm_destroy(&self->vm);
	close(self->fd);
	close(self->dev);
}

static int make_vm(FIXTURE_DATA(kick_states) *self,
		   const FIXTURE_VARIANT(kick_states) *variant, bool irqchip)
{
	struct gvm_opts opts = { .irqchip = irqchip };
	int err = gvm_create(&self->vm, &opts);

	if (!err)
		err = gvm_vcpu_create(&self->vm, &self->vcpu);
	if (err)
		return err;
	self->g = gvm_alloc(&self->vm, sizeof(*self->g), 64);
	if (!self->g)
		return -ENOMEM;
	if (variant->way == BY_VM_FD)
		self->fd = kick_create(self->dev, self->vm.vm_fd, KFS_KICK_VM);
	else
		self->fd = kick_create(self->dev, self->vcpu->fd, 0);
	return self->fd < 0 ? self->fd : 0;
}

/* How many running vCPUs it met, or -errno. */
static int kick(FIXTURE_DATA(kick_states) *self,
		const FIXTURE_VARIANT(kick_states) *variant)
{
	if (variant->way == BY_IOCTL)
		return user_exit(self->vcpu->fd, 0);
	return kick_fd(self->fd);
}

static void *run_once(void *arg)
{
	FIXTURE_DATA(kick_states) *self = arg;

	__atomic_store_n(&self->tid, (pid_t)syscall(SYS_gettid),
			 __ATOMIC_SEQ_CST);
	self->result = gvm_run(self->vcpu);
	return NULL;
}

static void run_in_thread(FIXTURE_DATA(kick_states) *self)
{
	self->tid = 0;
	self->result = 1;
	pthread_create(&self->thread, NULL, run_once, self);
}

static int wait_tid(FIXTURE_DATA(kick_states) *self)
{
	return wait_u32((uint32_t *)&self->tid, 1) ? self->tid : -1;
}

/* The thread's KVM_RUN ended with EINTR and immediate_exit set; clears it. */
#define EXPECT_KICKED() do {						\
	EXPECT_EQ(0, join_soon(self->thread));				\
	EXPECT_EQ(-EINTR, self->result);				\
	EXPECT_EQ(1, self->vcpu->run->immediate_exit);			\
	self->vcpu->run->immediate_exit = 0;				\
} while (0)

static int join_soon(pthread_t thread)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec++;
	return pthread_timedjoin_np(thread, NULL, &ts);
}

struct state {
	struct kvm_regs regs;
	struct kvm_sregs sregs;
	struct kvm_mp_state mp;
	struct kvm_vcpu_events events;
};

static int get_state(struct gvm_vcpu *vcpu, struct state *s)
{
	memset(s, 0, sizeof(*s));
	return ioctl(vcpu->fd, KVM_GET_REGS, &s->regs) ||
	       ioctl(vcpu->fd, KVM_GET_SREGS, &s->sregs) ||
	       ioctl(vcpu->fd, KVM_GET_MP_STATE, &s->mp) ||
	       ioctl(vcpu->fd, KVM_GET_VCPU_EVENTS, &s->events);
}

/* Two instructions, no register changes: all but RIP is comparable. */
static void guest_two(void)
{
	__asm__ volatile("1: lock; addl $1, (%%rdi)\n\tjmp 1b" : : : "memory");
}

TEST_F(kick_states, spinning)
{
	struct state kicked, signalled;

	ASSERT_EQ(0, make_vm(self, variant, false));
	catch_signal(SIGUSR1);
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_two, self->g, GVM_RING0));
	run_in_thread(self);
	ASSERT_TRUE(wait_u32(&self->g->turns, 1000));
	EXPECT_EQ(1, kick(self, variant));
	EXPECT_KICKED();
	ASSERT_EQ(0, get_state(self->vcpu, &kicked));

	run_in_thread(self);
	ASSERT_TRUE(wait_u32(&self->g->turns, self->g->turns + 1000));
	pthread_kill(self->thread, SIGUSR1);
	EXPECT_EQ(0, join_soon(self->thread));
	EXPECT_EQ(-EINTR, self->result);
	EXPECT_EQ(0, self->vcpu->run->immediate_exit);
	ASSERT_EQ(0, get_state(self->vcpu, &signalled));
	kicked.regs.rip = signalled.regs.rip;
	kicked.regs.rflags = signalled.regs.rflags;
	EXPECT_EQ(0, memcmp(&kicked, &signalled, sizeof(kicked)));
}

TEST_F(kick_states, halted_in_kernel_irqchip)
{
	struct state before, kicked, signalled;

	ASSERT_EQ(0, make_vm(self, variant, true));
	catch_signal(SIGUSR1);
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_halt, self->g, GVM_RING0));
	run_in_thread(self);
	ASSERT_LT(0, wait_tid(self));
	ASSERT_TRUE(wait_u32(&self->g->halts, 1));
	ASSERT_TRUE(wait_asleep_in(self->tid, SYS_ioctl));
	pthread_kill(self->thread, SIGUSR1);
	EXPECT_EQ(0, join_soon(self->thread));
	ASSERT_EQ(0, get_state(self->vcpu, &signalled));

	run_in_thread(self);
	ASSERT_LT(0, wait_tid(self));
	ASSERT_TRUE(wait_asleep_in(self->tid, SYS_ioctl));
	EXPECT_EQ(1, kick(self, variant));
	EXPECT_KICKED();
	ASSERT_EQ(0, get_state(self->vcpu, &kicked));
	EXPECT_EQ(KVM_MP_STATE_HALTED, kicked.mp.mp_state);
	EXPECT_EQ(0, memcmp(&kicked, &signalled, sizeof(kicked)));

	/* Still halted: a kick is no interrupt to the guest. */
	before = kicked;
	run_in_thread(self);
	ASSERT_LT(0, wait_tid(self));
	ASSERT_TRUE(wait_asleep_in(self->tid, SYS_ioctl));
	EXPECT_EQ(1, self->g->halts);
	EXPECT_EQ(1, kick(self, variant));
	EXPECT_KICKED();
	ASSERT_EQ(0, get_state(self->vcpu, &kicked));
	EXPECT_EQ(0, memcmp(&kicked, &before, sizeof(kicked)));
}

/* The halt is the VMM's business here; the kick is there for its KVM_RUN. */
TEST_F(kick_states, halted_user_space_irqchip)
{
	struct state before, kicked;

	ASSERT_EQ(0, make_vm(self, variant, false));
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_halt, self->g, GVM_RING0));
	ASSERT_EQ(0, gvm_run(self->vcpu));
	ASSERT_EQ(KVM_EXIT_HLT, self->vcpu->run->exit_reason);
	ASSERT_EQ(0, get_state(self->vcpu, &before));
	EXPECT_EQ(0, kick(self, variant));
	EXPECT_EQ(-EINTR, gvm_run(self->vcpu));
	EXPECT_EQ(-EINTR, gvm_run(self->vcpu));
	EXPECT_EQ(1, self->vcpu->run->immediate_exit);
	ASSERT_EQ(0, get_state(self->vcpu, &kicked));
	EXPECT_EQ(0, memcmp(&kicked, &before, sizeof(kicked)));
	self->vcpu->run->immediate_exit = 0;
	ASSERT_EQ(0, gvm_run(self->vcpu));
	EXPECT_EQ(2, self->g->halts);
}

TEST_F(kick_states, waits_for_sipi)
{
	struct kvm_mp_state mp = { 0 };

	ASSERT_EQ(0, make_vm(self, variant, true));
	/* The second vCPU starts like an application processor. */
	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &self->vcpu));
	if (variant->way == BY_FD) {
		close(self->fd);
		self->fd = kick_create(self->dev, self->vcpu->fd, 0);
		ASSERT_LE(0, self->fd);
	}
	ASSERT_EQ(0, ioctl(self->vcpu->fd, KVM_GET_MP_STATE, &mp));
	ASSERT_EQ(KVM_MP_STATE_UNINITIALIZED, mp.mp_state);
	run_in_thread(self);
	ASSERT_LT(0, wait_tid(self));
	ASSERT_TRUE(wait_asleep_in(self->tid, SYS_ioctl));
	EXPECT_EQ(1, kick(self, variant));
	EXPECT_KICKED();
	ASSERT_EQ(0, ioctl(self->vcpu->fd, KVM_GET_MP_STATE, &mp));
	EXPECT_EQ(KVM_MP_STATE_UNINITIALIZED, mp.mp_state);
}

TEST_F(kick_states, port_input_is_completed)
{
	struct kvm_regs regs;
	uint32_t value = 0x12345678;
	uint64_t rip;

	ASSERT_EQ(0, make_vm(self, variant, false));
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_in, self->g, GVM_RING0));
	ASSERT_EQ(0, gvm_run(self->vcpu));
	ASSERT_EQ(KVM_EXIT_IO, self->vcpu->run->exit_reason);
	ASSERT_EQ(KPORT_IN, self->vcpu->run->io.port);
	ASSERT_EQ(0, ioctl(self->vcpu->fd, KVM_GET_REGS, &regs));
	rip = regs.rip;
	EXPECT_EQ(0, kick(self, variant));
	memcpy((char *)self->vcpu->run + self->vcpu->run->io.data_offset,
	       &value, sizeof(value));
	EXPECT_EQ(-EINTR, gvm_run(self->vcpu));
	ASSERT_EQ(0, ioctl(self->vcpu->fd, KVM_GET_REGS, &regs));
	EXPECT_EQ(value, regs.rax);
	EXPECT_LE(rip, regs.rip);
	EXPECT_EQ(0, self->g->turns);

	self->vcpu->run->immediate_exit = 0;
	run_in_thread(self);
	ASSERT_TRUE(wait_u32(&self->g->turns, 1000));
	EXPECT_EQ(1, kick(self, variant));
	EXPECT_KICKED();
	EXPECT_EQ(value, self->g->value);
}

TEST_F(kick_states, memory_input_is_completed)
{
	uint32_t value = 0x9abcdef0;

	ASSERT_EQ(0, make_vm(self, variant, false));
	self->g->mmio = 0xd0000000;
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_mmio, self->g, GVM_RING0));
	ASSERT_EQ(0, gvm_run(self->vcpu));
	ASSERT_EQ(KVM_EXIT_MMIO, self->vcpu->run->exit_reason);
	EXPECT_EQ(0, kick(self, variant));
	memcpy(self->vcpu->run->mmio.data, &value, sizeof(value));
	EXPECT_EQ(-EINTR, gvm_run(self->vcpu));
	self->vcpu->run->immediate_exit = 0;
	/* What is left in the page is not looked at again. */
	memset(self->vcpu->run->mmio.data, 0, sizeof(value));
	run_in_thread(self);
	ASSERT_TRUE(wait_u32(&self->g->turns, 1000));
	EXPECT_EQ(1, kick(self, variant));
	EXPECT_KICKED();
	EXPECT_EQ(value, self->g->value);
}

/* Kicks add up to one until the clear, and a kick after it is one more. */
TEST_F(kick_states, many_are_one)
{
	int i;

	ASSERT_EQ(0, make_vm(self, variant, false));
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_exits, self->g, GVM_RING0));
	for (i = 0; i < 100; i++)
		EXPECT_EQ(0, kick(self, variant));
	EXPECT_EQ(-EINTR, gvm_run(self->vcpu));
	EXPECT_EQ(1, self->vcpu->run->immediate_exit);
	self->vcpu->run->immediate_exit = 0;
	for (i = 0; i < 100; i++)
		ASSERT_EQ(0, gvm_run(self->vcpu));
	EXPECT_EQ(0, kick(self, variant));
	EXPECT_EQ(-EINTR, gvm_run(self->vcpu));
	self->vcpu->run->immediate_exit = 0;
	for (i = 0; i < 100; i++)
		ASSERT_EQ(0, gvm_run(self->vcpu));
	if (variant->way != BY_IOCTL)
		EXPECT_EQ(101, kick_read(self->fd));
}

static uint64_t proc_mask(const char *name)
{
	char line[128];
	FILE *f = fopen("/proc/thread-self/status", "re");
	uint64_t mask = ~0ULL;
	size_t n = strlen(name);

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, n))
			mask = strtoull(line + n, NULL, 16);
	if (f)
		fclose(f);
	return mask;
}

struct masks {
	uint64_t blocked, pending, shared;
};

static void get_masks(struct masks *m)
{
	m->blocked = proc_mask("SigBlk:");
	m->pending = proc_mask("SigPnd:");
	m->shared = proc_mask("ShdPnd:");
}

struct sig_run {
	FIXTURE_DATA(kick_states) *self;
	int how;		/* of sigprocmask, for all signals */
	bool kvm_mask;
	struct masks before, after;
};

static void *run_with_signals(void *arg)
{
	struct sig_run *r = arg;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(r->how, &all, NULL);
	if (r->kvm_mask) {
		struct {
			struct kvm_signal_mask head;
			uint64_t set;
		} __attribute__((packed)) m = { { .len = 8 }, ~0ULL };

		if (ioctl(r->self->vcpu->fd, KVM_SET_SIGNAL_MASK, &m))
			return NULL;
	}
	get_masks(&r->before);
	run_once(r->self);
	get_masks(&r->after);
	return NULL;
}

/*
 * With every signal blocked, with a handler on every signal, and with all of
 * them blocked by KVM_SET_SIGNAL_MASK.
 */
TEST_F(kick_states, signals_are_the_vmms)
{
	int i;

	ASSERT_EQ(0, make_vm(self, variant, false));
	catch_all_signals();
	for (i = 0; i < 3; i++) {
		struct sig_run r = {
			.self = self, .how = i == 1 ? SIG_UNBLOCK : SIG_BLOCK,
			.kvm_mask = i == 2,
		};
		uint32_t from = self->g->turns;

		ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_spin, self->g,
					   GVM_RING0));
		ASSERT_EQ(0, pthread_create(&self->thread, NULL,
					    run_with_signals, &r));
		ASSERT_TRUE(wait_u32(&self->g->turns, from + 1000));
		EXPECT_EQ(1, kick(self, variant));
		EXPECT_KICKED();
		EXPECT_EQ(0, memcmp(&r.before, &r.after, sizeof(r.before)))
			TH_LOG("masks changed, round %d", i);
		EXPECT_EQ(0, r.after.pending);
		EXPECT_EQ(0, r.after.shared);
	}
	EXPECT_EQ(0, handlers_run);
}

/* A VMM that lets one signal in by KVM's mask still gets it, with no kick. */
TEST_F(kick_states, kvm_signal_mask_keeps_working)
{
	struct {
		struct kvm_signal_mask head;
		uint64_t set;
	} __attribute__((packed)) m = {
		{ .len = 8 }, ~(1ULL << (SIGUSR1 - 1)),
	};
	sigset_t all, pending;

	ASSERT_EQ(0, make_vm(self, variant, false));
	catch_all_signals();
	sigfillset(&all);
	ASSERT_EQ(0, pthread_sigmask(SIG_BLOCK, &all, NULL));
	ASSERT_EQ(0, ioctl(self->vcpu->fd, KVM_SET_SIGNAL_MASK, &m));
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_spin, self->g, GVM_RING0));
	run_in_thread(self);
	ASSERT_TRUE(wait_u32(&self->g->turns, 1000));
	pthread_kill(self->thread, SIGUSR1);
	EXPECT_EQ(0, join_soon(self->thread));
	EXPECT_EQ(-EINTR, self->result);
	EXPECT_EQ(0, self->vcpu->run->immediate_exit);
	run_in_thread(self);
	ASSERT_TRUE(wait_u32(&self->g->turns, self->g->turns + 1000));
	EXPECT_EQ(1, kick(self, variant));
	EXPECT_KICKED();
	EXPECT_EQ(0, sigpending(&pending));
	EXPECT_EQ(0, sigismember(&pending, SIGUSR1));
	EXPECT_EQ(0, handlers_run);
}

/*
 * Blocked in a host call made for the guest: the call ends, KVM_RUN returns,
 * and the next KVM_RUN makes the call again and delivers.
 */
TEST_F(kick_states, in_a_host_call)
{
	struct tvm t;
	char byte = 0;
	int64_t ret = 0;
	int pipes[2];

	ASSERT_EQ(0, pipe(pipes));
	ASSERT_EQ(0, tvm_create(&t, 0, 0)) TH_LOG("%s", gvm_strerror(&t.vm));
	self->vcpu = t.vcpu;
	if (variant->way == BY_VM_FD)
		self->fd = kick_create(self->dev, t.vm.vm_fd, KFS_KICK_VM);
	else
		self->fd = kick_create(self->dev, t.vcpu->fd, 0);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, tvm_prepare(&t, SYS_read, (uint64_t[6]){
		pipes[0], U(&byte), 1 }));
	run_in_thread(self);
	ASSERT_LT(0, wait_tid(self));
	ASSERT_TRUE(wait_in_call(t.ctl, 1));
	ASSERT_TRUE(wait_asleep_in(self->tid, SYS_ioctl));
	EXPECT_EQ(1, kick(self, variant));
	EXPECT_KICKED();
	EXPECT_EQ(0, t.list->done);

	/* A queued kick keeps it from starting at all. */
	EXPECT_EQ(0, kick(self, variant));
	EXPECT_EQ(-EINTR, gvm_run(t.vcpu));
	EXPECT_EQ(0, t.list->done);
	t.vcpu->run->immediate_exit = 0;
	ASSERT_EQ(1, write(pipes[1], "x", 1));
	ASSERT_EQ(0, tvm_run(&t, &ret));
	EXPECT_EQ(1, ret);
	EXPECT_EQ('x', byte);
	tvm_destroy(&t);
}

/* Before the first KVM_RUN ever, and from the very thread that will run. */
TEST_F(kick_states, before_the_first_run)
{
	ASSERT_EQ(0, make_vm(self, variant, true));
	EXPECT_EQ(0, kick(self, variant));
	ASSERT_EQ(0, gvm_set_entry(self->vcpu, guest_exits, self->g, GVM_RING0));
	EXPECT_EQ(-EINTR, gvm_run(self->vcpu));
	EXPECT_EQ(0, self->g->turns);
	self->vcpu->run->immediate_exit = 0;
	EXPECT_EQ(0, gvm_run(self->vcpu));
	EXPECT_EQ(1, self->g->turns);
}

TEST_HARNESS_MAIN
