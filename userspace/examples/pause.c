// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A VMM that pauses and resumes all its vCPUs, three times, and shows that
 * their guests stood still. With kvm_fastsys no signal is involved; without it
 * (or with an argument: pause signal) the library sends one. What makes a loop
 * that uses signals today use the kick is marked with numbers:
 *
 *  1  a kicker for each vCPU, and one for all
 *  2  the thread says that it is the one (nothing to do with the module)
 *  3  EINTR: was it a kick? Then look at what is asked for
 *  4  instead of pthread_kill() to each vCPU's thread
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kfs.h>

#define VCPUS 2
#define SIZE 0x10000UL

static struct vcpu {
	int fd;
	struct kvm_run *run;
	pthread_t thread;
} vcpus[VCPUS];

static struct kfs_kicker kickers[VCPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int paused, ended, standing;

/* Real mode, at address 0: each vCPU counts in a word of its own, for ever. */
static const unsigned char code[] = { 0xff, 0x05, 0xeb, 0xfc }; /* incw (%di) */
static char *memory;

static unsigned int counter(int i)
{
	return *(volatile unsigned short *)(memory + 0x1000 + 64 * i);
}

static int may_run(void)
{
	pthread_mutex_lock(&lock);
	while (paused && !ended) {
		standing++;
		pthread_cond_broadcast(&changed);
		pthread_cond_wait(&changed, &lock);
		standing--;
	}
	pthread_mutex_unlock(&lock);
	return !ended;
}

static void *vcpu_thread(void *arg)
{
	struct vcpu *v = arg;

	kfs_kick_enter(&kickers[v - vcpus]);		/* 2 */
	while (may_run()) {
		if (!ioctl(v->fd, KVM_RUN, 0))
			errx(1, "exit reason %u", v->run->exit_reason);
		if (errno != EINTR)
			err(1, "KVM_RUN");
		kfs_kicked(v->run);			/* 3 */
	}
	kfs_kick_leave(&kickers[v - vcpus]);
	return NULL;
}

static void ask(int pause, int end, int all)
{
	pthread_mutex_lock(&lock);
	paused = pause;
	ended = end;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	if (pause || end) {
		int ret = kfs_kick_all(all, kickers, VCPUS);	/* 4 */

		if (ret < 0)
			errx(1, "kick: %s", kfs_strerror(ret, KFS_WHAT_KICK));
	}
}

static void wait_until(int stand)
{
	unsigned int seen[VCPUS];

	pthread_mutex_lock(&lock);
	while (stand && standing < VCPUS)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < VCPUS; i++)
		seen[i] = counter(i);
	if (stand) {
		/* Long enough for a running guest to be noticed. */
		usleep(20000);
		for (int i = 0; i < VCPUS; i++)
			if (counter(i) != seen[i])
				errx(1, "vCPU %d runs while paused", i);
	} else {
		for (int i = 0; i < VCPUS; i++)
			while (counter(i) == seen[i])
				sched_yield();
	}
	printf("%s: all %d vCPUs %s.\n", stand ? "Paused" : "Resumed", VCPUS,
	       stand ? "stand still" : "count");
}

static int make_vm(int kvm)
{
	struct kvm_userspace_memory_region slot = { .memory_size = SIZE };
	int vm = ioctl(kvm, KVM_CREATE_VM, 0);

	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (vm < 0 || memory == MAP_FAILED)
		err(1, "KVM");
	memcpy(memory, code, sizeof(code));
	slot.userspace_addr = (__u64)(unsigned long)memory;
	if (ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot))
		err(1, "KVM_SET_USER_MEMORY_REGION");
	return vm;
}

static void make_vcpu(struct vcpu *v, int kvm, int vm, int i)
{
	struct kvm_regs regs = { .rflags = 2, .rdi = 0x1000 + 64 * i };
	size_t size = (size_t)ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	struct kvm_sregs s;

	v->fd = ioctl(vm, KVM_CREATE_VCPU, i);
	v->run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
	if (v->fd < 0 || v->run == MAP_FAILED || ioctl(v->fd, KVM_GET_SREGS, &s))
		err(1, "vCPU %d", i);
	s.cs.base = 0;
	s.cs.selector = 0;
	if (ioctl(v->fd, KVM_SET_SREGS, &s) || ioctl(v->fd, KVM_SET_REGS, &regs))
		err(1, "vCPU %d", i);
}

int main(int argc, char **argv)
{
	int dev = argc > 1 ? -ENODEV : kfs_open();
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int vm = make_vm(kvm);
	int all, by_module = 0;

	(void)argv;
	for (int i = 0; i < VCPUS; i++) {
		make_vcpu(&vcpus[i], kvm, vm, i);
		by_module = kfs_kick_open(&kickers[i], dev, vcpus[i].fd,
					  vcpus[i].run, SIGUSR1);	/* 1 */
		if (by_module < 0)
			errx(1, "kick: %s",
			     kfs_strerror(by_module, KFS_WHAT_KICK));
	}
	all = kfs_kick_open_vm(dev, vm);			/* 1 */
	printf("Kicks by %s.\n", by_module ? "the module" : "signal");

	ask(1, 0, all);
	for (int i = 0; i < VCPUS; i++)
		if (pthread_create(&vcpus[i].thread, NULL, vcpu_thread,
				   &vcpus[i]))
			errx(1, "no thread");
	for (int round = 0; round < 3; round++) {
		ask(0, 0, all);
		wait_until(0);
		ask(1, 0, all);
		wait_until(1);
	}
	ask(0, 1, all);
	for (int i = 0; i < VCPUS; i++)
		pthread_join(vcpus[i].thread, NULL);
	return 0;
}
