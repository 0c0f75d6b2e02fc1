// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A hypercall of ours changes RAX and RIP and nothing else: every other
 * general register, RFLAGS and the vector registers come back as they were,
 * whatever became of the call.
 */
#include "kfstest.h"
#include "kselftest_harness.h"

/* Order of the stores in guest_all_registers(). */
enum {
	RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13,
	R14, R15, RFLAGS, N_REGS,
};

static const char *const reg_name[N_REGS] = {
	"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9",
	"r10", "r11", "r12", "r13", "r14", "r15", "rflags",
};

struct reg_file {
	uint64_t in[N_REGS];	/* RSP is not taken from here but noted */
	uint64_t out[N_REGS];
	uint64_t xmm_in[32];
	uint64_t xmm_out[32];
	uint64_t intel;
	uint64_t save_rsp;
} __attribute__((aligned(64)));

/* Static: the code below has no register left for a pointer. */
struct reg_file regs;

#define AT(field, i)	"regs+%c[" field "]+8*" #i
#define LOAD(name, i)	"mov " AT("in", i) ", %%" name "\n\t"
#define STORE(name, i)	"mov %%" name ", " AT("out", i) "\n\t"
#define XLOAD(i, at)	"movdqu regs+%c[xin]+" #at ", %%xmm" #i "\n\t"
#define XSTORE(i, at)	"movdqu %%xmm" #i ", regs+%c[xout]+" #at "\n\t"
#define XALL(F)		F(0, 0) F(1, 16) F(2, 32) F(3, 48) F(4, 64) F(5, 80) \
			F(6, 96) F(7, 112) F(8, 128) F(9, 144) F(10, 160) \
			F(11, 176) F(12, 192) F(13, 208) F(14, 224) F(15, 240)

static uint32_t guest_all_registers(void *unused)
{
	__asm__ volatile(
		"push %%rbx\n\tpush %%rbp\n\tpush %%r12\n\tpush %%r13\n\t"
		"push %%r14\n\tpush %%r15\n\tpushfq\n\t"
		XALL(XLOAD)
		"mov %%rsp, regs+%c[rsp]\n\t"
		"mov %%rsp, " AT("in", 7) "\n\t"
		"cmpq $0, regs+%c[intel]\n\t"
		"pushq " AT("in", 16) "\n\t"
		"jne 1f\n\t"
		LOAD("rax", 0) LOAD("rbx", 1) LOAD("rcx", 2) LOAD("rdx", 3)
		LOAD("rsi", 4) LOAD("rdi", 5) LOAD("rbp", 6) LOAD("r8", 8)
		LOAD("r9", 9) LOAD("r10", 10) LOAD("r11", 11) LOAD("r12", 12)
		LOAD("r13", 13) LOAD("r14", 14) LOAD("r15", 15)
		"popfq\n\t"
		"vmmcall\n\t"
		"jmp 2f\n"
		"1:\n\t"
		LOAD("rax", 0) LOAD("rbx", 1) LOAD("rcx", 2) LOAD("rdx", 3)
		LOAD("rsi", 4) LOAD("rdi", 5) LOAD("rbp", 6) LOAD("r8", 8)
		LOAD("r9", 9) LOAD("r10", 10) LOAD("r11", 11) LOAD("r12", 12)
		LOAD("r13", 13) LOAD("r14", 14) LOAD("r15", 15)
		"popfq\n\t"
		"vmcall\n"
		"2:\n\t"
		STORE("rax", 0) STORE("rbx", 1) STORE("rcx", 2) STORE("rdx", 3)
		STORE("rsi", 4) STORE("rdi", 5) STORE("rbp", 6) STORE("rsp", 7)
		STORE("r8", 8) STORE("r9", 9) STORE("r10", 10) STORE("r11", 11)
		STORE("r12", 12) STORE("r13", 13) STORE("r14", 14)
		STORE("r15", 15)
		"mov regs+%c[rsp], %%rsp\n\t"
		"pushfq\n\t"
		"popq " AT("out", 16) "\n\t"
		XALL(XSTORE)
		"popfq\n\tpop %%r15\n\tpop %%r14\n\tpop %%r13\n\tpop %%r12\n\t"
		"pop %%rbp\n\tpop %%rbx\n\t"
		: : [in] "i" (offsetof(struct reg_file, in)),
		    [out] "i" (offsetof(struct reg_file, out)),
		    [xin] "i" (offsetof(struct reg_file, xmm_in)),
		    [xout] "i" (offsetof(struct reg_file, xmm_out)),
		    [intel] "i" (offsetof(struct reg_file, intel)),
		    [rsp] "i" (offsetof(struct reg_file, save_rsp))
		: "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
		  "memory", "cc");
	return 0x600d;
}

/* CF PF AF ZF SF DF OF; IOPL stays 3 for the port at the end. */
#define FLAGS_SOME	(2 | 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x400 | 0x800 | \
			 0x3000)
#define FLAGS_NONE	(2 | 0x3000)

FIXTURE(registers) {
	struct tvm t;
	int fd;
};

FIXTURE_SETUP(registers)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, 0, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	self->fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(registers)
{
	tvm_destroy(&self->t);
	close(self->fd);
}

static void fill(uint64_t flags)
{
	unsigned int i;

	memset(&regs, 0, sizeof(regs));
	for (i = 0; i < N_REGS; i++)
		regs.in[i] = 0x1111111111111111ULL * (i + 1) ^ 0xfedcba98ULL;
	for (i = 0; i < 32; i++)
		regs.xmm_in[i] = 0x0123456789abcdefULL * (i + 3);
	regs.in[RFLAGS] = flags;
	regs.intel = gvm_is_intel;
}

#define RUN_AND_COMPARE(want) do {					\
	unsigned int i_;						\
	ASSERT_EQ(0, gvm_set_entry(self->t.vcpu, guest_all_registers, NULL, \
				   GVM_RING0));				\
	ASSERT_EQ(0, tvm_run(&self->t, NULL))				\
		TH_LOG("%s", gvm_strerror(&self->t.vm));		\
	EXPECT_EQ((int64_t)(want), (int64_t)regs.out[RAX]);		\
	for (i_ = RAX + 1; i_ < N_REGS; i_++) {				\
		EXPECT_EQ(regs.in[i_], regs.out[i_])			\
			TH_LOG("%s changed", reg_name[i_]);		\
	}								\
	EXPECT_EQ(0, memcmp(regs.xmm_in, regs.xmm_out,			\
			    sizeof(regs.xmm_in)))			\
		TH_LOG("vector registers changed");			\
} while (0)

TEST_F(registers, call_without_arguments)
{
	fill(FLAGS_SOME);
	regs.in[RAX] = KFS_HC_SYSCALL;
	regs.in[RBX] = SYS_getppid;
	RUN_AND_COMPARE(getppid());
}

TEST_F(registers, call_with_arguments)
{
	static unsigned char buf[4096], want[4096];

	fill(FLAGS_NONE);
	regs.in[RAX] = KFS_HC_SYSCALL;
	regs.in[RBX] = SYS_pread64;
	regs.in[RDI] = self->fd;
	regs.in[RSI] = U(buf);
	regs.in[RDX] = sizeof(buf);
	regs.in[R10] = 123;
	RUN_AND_COMPARE(sizeof(buf));
	ASSERT_EQ(sizeof(want), pread(self->fd, want, sizeof(want), 123));
	EXPECT_EQ(0, memcmp(buf, want, sizeof(buf)));
}

/* The host uses vector registers of its own for some of these. */
TEST_F(registers, call_with_vector_work)
{
	static unsigned char buf[4096];

	fill(FLAGS_SOME);
	regs.in[RAX] = KFS_HC_SYSCALL;
	regs.in[RBX] = SYS_getrandom;
	regs.in[RDI] = U(buf);
	regs.in[RSI] = sizeof(buf);
	regs.in[RDX] = 0;
	RUN_AND_COMPARE(sizeof(buf));
}

TEST_F(registers, failing_call)
{
	fill(FLAGS_SOME);
	regs.in[RAX] = KFS_HC_SYSCALL;
	regs.in[RBX] = SYS_read;
	regs.in[RDI] = 999;
	RUN_AND_COMPARE(-EBADF);
}

TEST_F(registers, declined_call)
{
	fill(FLAGS_SOME);
	regs.in[RAX] = KFS_HC_SYSCALL;
	regs.in[RBX] = SYS_fork;
	RUN_AND_COMPARE(-KFS_ENOSYS);
}

TEST_F(registers, probe)
{
	fill(FLAGS_SOME);
	regs.in[RAX] = KFS_HC_PROBE;
	RUN_AND_COMPARE(KFS_ABI_VERSION | KFS_PROBE_F_SYSCALL |
			KFS_PROBE_F_IDENTITY);
}

TEST_F(registers, unknown_hypercalls_stay_kvms)
{
	const uint64_t nr[] = {
		KFS_HC_BATCH, KFS_HC_BASE + 3, KFS_HC_BASE + 0xff,
		KFS_HC_BASE - 1, 0x1234,
		/* ours in the low half only: not ours */
		(1ULL << 32) | KFS_HC_SYSCALL, (1ULL << 63) | KFS_HC_PROBE,
	};
	struct kfs_vm_stats st;
	unsigned int i;

	for (i = 0; i < sizeof(nr) / sizeof(nr[0]); i++) {
		fill(FLAGS_SOME);
		regs.in[RAX] = nr[i];
		regs.in[RBX] = SYS_getppid;
		RUN_AND_COMPARE(-KFS_ENOSYS);
	}
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(0, st.ran);
	EXPECT_EQ(0, st.probes);
}

FIXTURE(registers_deferred) {
	struct tvm t;
};

FIXTURE_SETUP(registers_deferred)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, KFS_DEFER_EXIT, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	self->t.serve = true;
}

FIXTURE_TEARDOWN(registers_deferred)
{
	tvm_destroy(&self->t);
}

TEST_F(registers_deferred, served_by_the_vmm)
{
	fill(FLAGS_SOME);
	regs.in[RAX] = KFS_HC_SYSCALL;
	regs.in[RBX] = SYS_getsid;	/* in no table of runnable calls */
	regs.in[RDI] = 0;
	RUN_AND_COMPARE(getsid(0));
	EXPECT_EQ(1, self->t.deferred);
}

TEST_HARNESS_MAIN
