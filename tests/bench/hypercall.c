// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * What one call costs, by every way there is. Prints one JSON object: for each
 * figure the time of one call, pass by pass, in nanoseconds of this machine's
 * clock, which in the counting mode are instructions.
 *
 * --set absent is what a stock kernel does, --set loaded needs the module.
 */
#include <argp.h>
#include <asm/unistd_64.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <gvm.h>
#include <kfs.h>

#include "bench.h"
#include "clock.h"

#define MAX_PASSES 16
#define BLOCK 4096

/* A hypercall that nobody serves: neither KVM nor we. */
#define NULL_NUMBER 0x7777

static unsigned long calls = 10000, passes = 4;
static bool counting, first = true;
static char block[BLOCK];
static int block_fd;

static void fail(const char *fmt, ...)
	__attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "hypercall: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

static long native(uint64_t nr, const uint64_t *a)
{
	register uint64_t r10 __asm__("r10") = a[3];
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "0"(nr), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10)
			 : "rcx", "r11", "memory");
	return ret;
}

/* The exits of loop_doorbell() and loop_regs(), until the guest is done. */
static void vmm_loop(struct gvm_vcpu *vcpu)
{
	for (;;) {
		struct kvm_run *run = vcpu->run;
		struct kvm_regs regs;
		int ret = gvm_run(vcpu);

		if (ret)
			fail("KVM_RUN: %s", strerror(-ret));
		if (run->exit_reason == KVM_EXIT_IO &&
		    run->io.port == PORT_REGS) {
			uint64_t args[4];

			if (ioctl(vcpu->fd, KVM_GET_REGS, &regs))
				fail("KVM_GET_REGS");
			args[0] = regs.rdi;
			args[1] = regs.rsi;
			args[2] = regs.rdx;
			args[3] = regs.r10;
			regs.rax = (uint64_t)native(regs.rax, args);
			if (ioctl(vcpu->fd, KVM_SET_REGS, &regs))
				fail("KVM_SET_REGS");
			continue;
		}
		switch (gvm_event(vcpu, NULL)) {
		case GVM_DOORBELL:
			bench_mailbox.ret = native(bench_mailbox.nr,
						   bench_mailbox.args);
			continue;
		case GVM_DONE:
			return;
		default:
			fail("%s", gvm_describe(vcpu));
		}
	}
}

static void print(const char *name, const uint64_t *ns)
{
	printf("%s\n    \"%s\": [", first ? "" : ",", name);
	for (unsigned long i = 0; i < passes; i++)
		printf("%s%.2f", i ? ", " : "", (double)ns[i] / (double)calls);
	printf("]");
	fflush(stdout);
	first = false;
}

static void measure_at(const char *name, struct gvm_vcpu *vcpu,
		       int (*fn)(struct loop *), struct loop l, uint64_t base)
{
	/* Not on the stack: the guest sees the image only. */
	static struct loop shared;
	uint64_t ns[MAX_PASSES];

	for (unsigned long i = 0; i < passes; i++) {
		shared = l;
		shared.n = calls;
		if (gvm_set_entry(vcpu, (void *)((uint64_t)fn + base), &shared,
				  GVM_RING0))
			fail("%s", gvm_strerror(vcpu->vm));
		ns[i] = clock_ns();
		vmm_loop(vcpu);
		ns[i] = clock_ns() - ns[i];
		if (shared.wrong)
			fail("%s: %lu of %lu calls gave a wrong result", name,
			     (unsigned long)shared.wrong, calls);
	}
	print(name, ns);
}

/* Guest code where guest kernels live: in the upper half. */
static void measure(const char *name, struct gvm_vcpu *vcpu,
		    int (*fn)(struct loop *), struct loop l)
{
	measure_at(name, vcpu, fn, l, GVM_UPPER_HALF);
}

static void measure_native(const char *name, struct loop l)
{
	uint64_t ns[MAX_PASSES];

	for (unsigned long i = 0; i < passes; i++) {
		unsigned long wrong = 0;

		ns[i] = clock_ns();
		for (unsigned long n = calls; n; n--)
			wrong += native(l.nr, l.args) != l.expect;
		ns[i] = clock_ns() - ns[i];
		if (wrong)
			fail("%s: a wrong result", name);
	}
	print(name, ns);
}

static struct loop null_call(void)
{
	return (struct loop) { .rax = NULL_NUMBER, .expect = -KFS_ENOSYS };
}

static struct loop getppid_call(void)
{
	return (struct loop) {
		.rax = KFS_HC_SYSCALL, .nr = __NR_getppid, .expect = getppid(),
	};
}

static struct loop pread_call(void)
{
	return (struct loop) {
		.rax = KFS_HC_SYSCALL, .nr = __NR_pread64,
		.args = { (uint64_t)block_fd, (uint64_t)block, BLOCK, 0 },
		.expect = BLOCK,
	};
}

static void create(struct gvm *vm, struct gvm_vcpu **vcpu)
{
	if (gvm_create(vm, NULL) || gvm_vcpu_create(vm, vcpu))
		fail("%s", gvm_strerror(vm));
}

static int attach(int dev, struct gvm *vm)
{
	struct kfs_policy *policy = kfs_policy_new(EPERM);
	int control, ret;

	if (!policy || kfs_policy_allow(policy, "getppid pread64"))
		fail("no policy");
	control = kfs_attach(dev, vm->vm_fd, KFS_MODE_IDENTITY, 0);
	if (control < 0)
		fail("%s", kfs_strerror(control, KFS_WHAT_ATTACH));
	ret = kfs_set_policy(control, policy);
	if (!ret)
		ret = kfs_enable(control);
	if (ret)
		fail("%s", kfs_strerror(ret, KFS_WHAT_ENABLE));
	kfs_policy_free(policy);
	return control;
}

static void stock(struct gvm_vcpu *vcpu)
{
	measure("null_unloaded", vcpu, loop_hypercall, null_call());
	measure("doorbell_getppid", vcpu, loop_doorbell, getppid_call());
	measure("regs_exit_getppid", vcpu, loop_regs, getppid_call());
	measure_native("native_getppid", getppid_call());
	measure("doorbell_pread_4k", vcpu, loop_doorbell, pread_call());
	measure("regs_exit_pread_4k", vcpu, loop_regs, pread_call());
	measure_native("native_pread_4k", pread_call());
}

static void loaded(struct gvm *vm, struct gvm_vcpu *vcpu)
{
	struct gvm_vcpu *other_vcpu;
	static struct gvm other;
	int dev = kfs_open();
	int control;

	if (dev < 0)
		fail("%s", kfs_strerror(dev, KFS_WHAT_OPEN));
	measure("null_unused", vcpu, loop_hypercall, null_call());

	create(&other, &other_vcpu);
	control = attach(dev, &other);
	measure("null_other", vcpu, loop_hypercall, null_call());

	/* Only now this VM, and it alone. */
	close(control);
	gvm_destroy(&other);
	control = attach(dev, vm);
	measure("fast_getppid", vcpu, loop_hypercall, getppid_call());
	/* Below 4 GiB the module has to ask whether the code is 64-bit. */
	measure_at("fast_getppid_low", vcpu, loop_hypercall, getppid_call(), 0);
	measure("fast_pread_4k", vcpu, loop_hypercall, pread_call());
	close(control);
	close(dev);
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	const char **set = state->input;

	switch (key) {
	case 's':
		*set = arg;
		return 0;
	case 'n':
		calls = strtoul(arg, NULL, 10);
		return 0;
	case 'p':
		passes = strtoul(arg, NULL, 10);
		if (passes < 2 || passes > MAX_PASSES)
			argp_error(state, "2 to %d passes", MAX_PASSES);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "set", 's', "absent|loaded", 0, "which figures", 0 },
		{ "calls", 'n', "N", 0, "calls in one pass (10000)", 0 },
		{ "passes", 'p', "N", 0, "passes (4); the first is warm-up", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_opt,
		.doc = "Measures what one host system call costs a guest.",
	};
	const char *set = NULL;
	struct utsname uts;
	struct gvm_vcpu *vcpu;
	static struct gvm vm;

	if (argp_parse(&argp, argc, argv, 0, NULL, &set))
		return 1;
	if (!set || (strcmp(set, "absent") && strcmp(set, "loaded")))
		fail("--set absent or --set loaded?");

	block_fd = open("/tmp/kfs-bench", O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (block_fd < 0 || write(block_fd, block, BLOCK) != BLOCK)
		fail("/tmp/kfs-bench: no file of 4 KiB");
	unlink("/tmp/kfs-bench");
	create(&vm, &vcpu);
	counting = clock_counts();
	uname(&uts);
	printf("{\n  \"set\": \"%s\",\n  \"kernel\": \"%s\",\n"
	       "  \"vendor\": \"%s\",\n  \"counting\": %s,\n  \"calls\": %lu,\n"
	       "  \"figures\": {", set, uts.release,
	       gvm_is_intel ? "VMX" : "SVM", counting ? "true" : "false", calls);
	if (!strcmp(set, "absent"))
		stock(vcpu);
	else
		loaded(&vm, vcpu);
	printf("\n  }\n}\n");
	return 0;
}
