// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A program for `kvm-fastsys run`: each word on its command line is one thing
 * to try. What it prints is the same natively, where both can do it.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB (1UL << 20)

static void result(const char *what, long ret)
{
	printf("%s: %s\n", what, ret < 0 ? strerrorname_np(errno) : "done");
}

static void fill(unsigned char *p, size_t from, size_t to)
{
	for (size_t i = from; i < to; i += 997)
		p[i] = (unsigned char)(i * 7 + 1);
}

static int wrong(const unsigned char *p, size_t size)
{
	int bad = 0;

	for (size_t i = 0; i < size; i += 997)
		bad += p[i] != (unsigned char)(i * 7 + 1);
	return bad;
}

/* Growing, moving and giving back, with the contents looked at each time. */
static void memory(void)
{
	size_t size = MB;
	unsigned char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *q, *brk;

	if (p == MAP_FAILED) {
		result("mmap", -1);
		return;
	}
	fill(p, 0, size);
	/* In the way of growing in place. */
	for (int i = 0; i < 4; i++) {
		q = mremap(p, size, 2 * size, MREMAP_MAYMOVE);
		if (q == MAP_FAILED) {
			result("mremap", -1);
			return;
		}
		printf("mremap %zu MB: %d wrong", 2 * size / MB, wrong(q, size));
		size *= 2;
		fill(q, 0, size);
		printf(", %d wrong\n", wrong(q, size));
		p = q;
	}
	p = mremap(p, size, MB, 0);
	printf("shrunk: %d wrong\n", wrong(p, MB));
	printf("mprotect: %d\n", mprotect(p, MB, PROT_READ));
	printf("read-only: %d wrong\n", wrong(p, MB));
	printf("munmap: %d\n", munmap(p, MB));

	brk = sbrk(0);
	q = sbrk(3 * MB);
	printf("sbrk: %d\n", q == brk);
	fill(q, 0, 3 * MB);
	printf("heap: %d wrong\n", wrong(q, 3 * MB));
	sbrk(-(intptr_t)(2 * MB));
	sbrk(2 * MB);
	printf("heap given back is zero: %d\n", q[2 * MB] == 0);

	for (int i = 0; i < 500; i++) {
		size = 4096UL * (1 + (unsigned int)(i * 7919) % 300);
		q = malloc(size);
		memset(q, i, size);
		if (i % 3)
			free(q);
	}
	printf("malloc: done\n");
}

static void file_mapping(void)
{
	int fd = open("/bin/busybox", O_RDONLY);
	struct stat st;
	unsigned long sum = 0;
	unsigned char *p;

	if (fd < 0 || fstat(fd, &st)) {
		result("open", -1);
		return;
	}
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE,
		 fd, 0);
	for (off_t i = 0; i < st.st_size; i++)
		sum = sum * 31 + p[i];
	p[0] ^= 1;
	printf("file of %ld bytes: %#lx\n", (long)st.st_size, sum);
	munmap(p, (size_t)st.st_size);
	close(fd);
}

static void *thread(void *arg)
{
	return arg;
}

static void handler(int sig)
{
	(void)sig;
}

static void try(const char *what, char **argv)
{
	volatile double x = 2;
	pthread_t id;

	if (!strcmp(what, "memory")) {
		memory();
	} else if (!strcmp(what, "file")) {
		file_mapping();
	} else if (!strcmp(what, "float")) {
		printf("%.17g %.17g %a\n", sqrt(x), 1 / x / 3, x * 1e-300);
	} else if (!strcmp(what, "aux")) {
		printf("page %lu clock %lu secure %lu phdr %d random %d exec %s\n",
		       getauxval(AT_PAGESZ), getauxval(AT_CLKTCK),
		       getauxval(AT_SECURE), !!getauxval(AT_PHDR),
		       !!getauxval(AT_RANDOM),
		       (char *)getauxval(AT_EXECFN));
		printf("uid %d gid %d name %s HOME %s\n", getuid(), getgid(),
		       argv[0], getenv("HOME"));
	} else if (!strcmp(what, "fd")) {
		printf("first free descriptor: %d\n", open("/", O_RDONLY));
	} else if (!strcmp(what, "wait")) {
		printf("read: %zd\n", read(0, &id, 1));
	} else if (!strcmp(what, "mkdir")) {
		result(what, mkdir("/tmp/run-probe", 0700));
	} else if (!strcmp(what, "getppid")) {
		printf("getppid: %d\n", getppid() > 0);
	} else if (!strcmp(what, "fork")) {
		result(what, fork());
	} else if (!strcmp(what, "thread")) {
		errno = pthread_create(&id, NULL, thread, NULL);
		result(what, errno ? -1 : 0);
	} else if (!strcmp(what, "alarm")) {
		errno = 0;
		alarm(1);
		result(what, errno ? -1 : 0);
	} else if (!strcmp(what, "handler")) {
		signal(SIGUSR1, handler);
		result(what, raise(SIGUSR1));
	} else if (!strcmp(what, "ignored")) {
		signal(SIGUSR1, SIG_IGN);
		result(what, raise(SIGUSR1));
	} else if (!strcmp(what, "abort")) {
		abort();
	} else if (!strcmp(what, "null")) {
		*(volatile int *)NULL = 1;
	} else if (!strcmp(what, "hole")) {
		*(volatile int *)0x10000100000UL = 1;
	} else if (!strcmp(what, "text")) {
		*(volatile char *)(uintptr_t)try = 1;
	} else if (!strcmp(what, "divide")) {
		__asm__ volatile("divl %0" : : "r"(0) : "eax", "edx");
	} else if (!strcmp(what, "ring0")) {
		__asm__ volatile("hlt");
	} else if (!strcmp(what, "stack")) {
		memset(__builtin_alloca(6 * MB), 1, 6 * MB);
		printf("stack: done\n");
	} else {
		printf("%s?\n", what);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		try(argv[i], argv);
		fflush(stdout);
	}
	return argc > 1 ? 7 : 2;
}
