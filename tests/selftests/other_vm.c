// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A guest's call ends another VM: the last descriptors of that VM wait in a
 * socket which the guest reads, closes or puts something over. That VM's end
 * loads its vCPUs, and this vCPU must be the loaded one again when the guest
 * goes on: KVM warns (and this machine panics) when it writes guest memory with
 * another vCPU loaded, or none. As the kernel mostly repairs that by chance, by
 * a switch of tasks in between, the function tracer looks as well: no vCPU may
 * be loaded in a thread that ends a VM.
 */
#include <sys/socket.h>

#include "kfstest.h"
#include "kmod.h"
#include "kselftest_harness.h"

#define ROUNDS			100
#define MSR_KVM_WALL_CLOCK_NEW	0x4b564d00u

struct work {
	uint64_t nr;
	uint64_t args[3];
	int64_t ret;
	uint32_t gpa;		/* of 12 bytes that KVM writes */
};

static uint32_t guest_call_then_clock(struct work *w)
{
	w->ret = gvm_hypercall(KFS_HC_SYSCALL, w->nr, w->args[0], w->args[1],
			       w->args[2], 0, 0, 0);
	__asm__ volatile("wrmsr" : : "c" (MSR_KVM_WALL_CLOCK_NEW),
			 "a" (w->gpa), "d" (0) : "memory");
	return 1;
}

FIXTURE(other_vm) {
	struct tvm t;
	struct work *w;
	uint8_t *clock;
	int vendor_refs;
};

FIXTURE_SETUP(other_vm)
{
	REQUIRE_MODULE();
	/* An earlier test's VM may still be ending. */
	ASSERT_TRUE(wait_module_refs("kvm_fastsys", 0));
	ASSERT_EQ(0, tvm_create(&self->t, KFS_BLOCKING, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	self->w = gvm_alloc(&self->t.vm, sizeof(*self->w), 64);
	self->clock = gvm_alloc(&self->t.vm, 4096, 4096);
	ASSERT_GT(1ULL << 32, U(self->clock));
	self->vendor_refs = module_refs(gvm_is_intel ? "kvm_intel" : "kvm_amd");
}

FIXTURE_TEARDOWN(other_vm)
{
	tvm_destroy(&self->t);
}

/* A VM with a vCPU, all of whose descriptors are in the socket: the other end. */
static int socket_with_a_vm(int kvm)
{
	union {
		char buf[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = { };
	struct iovec iov = { "x", 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int pair[2], fds[2], ok;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -1;
	fds[0] = ioctl(kvm, KVM_CREATE_VM, 0UL);
	fds[1] = ioctl(fds[0], KVM_CREATE_VCPU, 0UL);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	ok = fds[1] >= 0 && sendmsg(pair[1], &msg, 0) == 1;
	close(fds[0]);
	close(fds[1]);
	close(pair[1]);
	if (ok)
		return pair[0];
	close(pair[0]);
	return -1;
}

static bool trace_start(void)
{
	return !put_text(TRACING "trace", "") &&
	       !put_text(TRACING "set_ftrace_filter", "kvm_arch_vcpu_load\n"
		    "kvm_arch_vcpu_put\nkvm_arch_destroy_vm\n") &&
	       !put_text(TRACING "current_tracer", "function");
}

/* VMs that this thread has ended, those with a vCPU loaded in *bad. */
static int trace_stop(int *bad)
{
	char line[256], me[32];
	FILE *f;
	bool loaded = false;
	int ended = 0;

	*bad = 0;
	snprintf(me, sizeof(me), "-%d ", gettid());
	put_text(TRACING "tracing_on", "0");
	f = fopen(TRACING "trace", "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (*line == '#' || !strstr(line, me))
			continue;
		if (strstr(line, ": kvm_arch_vcpu_load")) {
			loaded = true;
		} else if (strstr(line, ": kvm_arch_vcpu_put")) {
			loaded = false;
		} else if (strstr(line, ": kvm_arch_destroy_vm")) {
			ended++;
			*bad += loaded;
		}
	}
	if (f)
		fclose(f);
	/* This empties the trace as well. */
	put_text(TRACING "current_tracer", "nop");
	put_text(TRACING "set_ftrace_filter", "");
	put_text(TRACING "tracing_on", "1");
	return ended;
}

static void rounds(struct __test_metadata *_metadata,
		   FIXTURE_DATA(other_vm) *self, long nr)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), i;
	int ended, bad;
	char buf[8];

	ASSERT_TRUE(trace_start());
	for (i = 0; i < ROUNDS; i++) {
		int fd = socket_with_a_vm(self->t.vm.kvm_fd);
		int64_t want = nr == SYS_read ? 1 : nr == SYS_dup2 ? fd : 0;

		ASSERT_LE(0, fd);
		*self->w = (struct work){ .nr = nr,
					  .gpa = (uint32_t)U(self->clock) };
		self->w->args[0] = nr == SYS_dup2 ? null : fd;
		self->w->args[1] = nr == SYS_dup2 ? (uint64_t)fd : U(buf);
		self->w->args[2] = 1;
		memset(self->clock, 0, 12);
		ASSERT_EQ(0, gvm_set_entry(self->t.vcpu, guest_call_then_clock,
					   self->w, GVM_RING0));
		ASSERT_EQ(0, gvm_run_to_done(self->t.vcpu, NULL))
			TH_LOG("%s", gvm_strerror(&self->t.vm));
		ASSERT_EQ(want, self->w->ret);
		/* KVM did write: the version of the clock is never 0. */
		ASSERT_NE(0, *(uint32_t *)self->clock);
		if (nr != SYS_close)
			close(fd);
	}
	close(null);
	ended = trace_stop(&bad);
	EXPECT_EQ(ROUNDS, ended);
	EXPECT_EQ(0, bad);
	/* They are all gone. */
	EXPECT_TRUE(wait_module_refs(gvm_is_intel ? "kvm_intel" : "kvm_amd",
				     self->vendor_refs));
}

TEST_F_TIMEOUT(other_vm, ends_in_read, 60)
{
	rounds(_metadata, self, SYS_read);
}

TEST_F_TIMEOUT(other_vm, ends_in_close, 60)
{
	rounds(_metadata, self, SYS_close);
}

TEST_F_TIMEOUT(other_vm, ends_in_dup2, 60)
{
	rounds(_metadata, self, SYS_dup2);
}

TEST_HARNESS_MAIN
