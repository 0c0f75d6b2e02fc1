// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Puts a static program into the windows as the kernel's execve would, and
 * builds what it finds on its stack. No vDSO (its clock pages are the
 * kernel's) and no AT_HWCAP2: the VM's CPU has what its CPUID says.
 */
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

#define PIE_BASE (RUN_HIGH + (1UL << 30))
#define STACK_SIZE (8UL << 20)
#define STACK_TOP (RUN_HIGH_END - (1UL << 20))
#define HEAP_SIZE (2UL << 30)
#define MAX_PHDRS 64

/* What to do about a file that is no program for here. */
#define NEXT_STATIC "\nNext: link it with -static, or take a static one (busybox-static)"
#define NEXT_LOOK "\nNext: readelf -hl "

struct image {
	Elf64_Ehdr eh;
	Elf64_Phdr ph[MAX_PHDRS];
	uint64_t base;		/* added to every address: 0 for ET_EXEC */
	uint64_t phdrs;		/* where the program sees them */
	uint64_t end;
};

static uint64_t page_down(uint64_t x)
{
	return x & ~(RUN_PAGE - 1);
}

static uint64_t page_up(uint64_t x)
{
	return page_down(x + RUN_PAGE - 1);
}

static void read_headers(const struct run *r, const char *path, int fd,
			 struct image *im)
{
	Elf64_Ehdr *eh = &im->eh;
	ssize_t size;

	size = pread(fd, eh, sizeof(*eh), 0);
	if (size < 0)
		run_die(r, "%s\nNext: ls -l %s", strerror(errno), path);
	if (size != sizeof(*eh) ||
	    memcmp(eh->e_ident, ELFMAG, SELFMAG))
		run_die(r, "not an ELF program\nNext: run its interpreter, as in `kvm-fastsys run busybox sh FILE'");
	if (eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_machine != EM_X86_64)
		run_die(r, "not for x86-64\nNext: file %s; build it for x86-64",
			path);
	if (eh->e_type != ET_EXEC && eh->e_type != ET_DYN)
		run_die(r, "not a program" NEXT_LOOK "%s", path);
	if (!eh->e_phnum || eh->e_phnum > MAX_PHDRS ||
	    eh->e_phentsize != sizeof(im->ph[0]))
		run_die(r, "odd program headers (%u)" NEXT_LOOK "%s",
			eh->e_phnum, path);
	size = eh->e_phnum * (ssize_t)sizeof(im->ph[0]);
	if (pread(fd, im->ph, (size_t)size, (off_t)eh->e_phoff) != size)
		run_die(r, "program headers cut off" NEXT_LOOK "%s", path);
}

static void load_segment(const struct run *r, int fd, struct image *im,
			 const Elf64_Phdr *ph)
{
	uint64_t at = im->base + ph->p_vaddr, start = page_down(at);
	uint64_t file_end = at + ph->p_filesz, end = at + ph->p_memsz;
	int prot = (ph->p_flags & PF_R ? PROT_READ : 0) |
		   (ph->p_flags & PF_W ? PROT_WRITE : 0) |
		   (ph->p_flags & PF_X ? PROT_EXEC : 0);
	long ret = 0;

	if (ph->p_filesz > ph->p_memsz ||
	    (ph->p_offset - ph->p_vaddr) % RUN_PAGE ||
	    !run_mem_inside(start, page_up(end) - start))
		run_die(r, "a segment at %#lx that cannot be loaded; programs go to %#lx-%#lx or are static-pie\nNext: link it with -static-pie",
			(unsigned long)ph->p_vaddr, RUN_LOW, RUN_LOW_END);
	if (ph->p_filesz)
		ret = run_mmap(start, file_end - start, prot,
			       MAP_PRIVATE | MAP_FIXED, fd,
			       page_down(ph->p_offset));
	if (ret >= 0 && page_up(end) > page_up(file_end))
		ret = run_mmap(page_up(file_end),
			       page_up(end) - page_up(file_end), prot,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (ret < 0)
		run_die(r, "segment at %#lx: %s\nNext: ulimit -v unlimited; free -m",
			(unsigned long)at, strerror((int)-ret));
	/* The rest of the file's last page is not the program's. */
	if (end > file_end && prot & PROT_WRITE && file_end % RUN_PAGE)
		memset((void *)file_end, 0, page_up(file_end) - file_end);
	if (end > im->end)
		im->end = end;
	if (ph->p_offset <= im->eh.e_phoff &&
	    im->eh.e_phoff < ph->p_offset + ph->p_filesz)
		im->phdrs = at + im->eh.e_phoff - ph->p_offset;
}

/* Strings go to the top; returns where the copy lies. */
static uint64_t push(uint64_t *sp, const void *what, size_t size)
{
	*sp -= size;
	memcpy((void *)*sp, what, size);
	return *sp;
}

static size_t length(char **v)
{
	size_t n = 0;

	while (v[n])
		n++;
	return n;
}

static uint64_t build_stack(const struct run *r, const struct image *im,
			    const char *path, char **argv, char **envp)
{
	size_t argc = length(argv), envc = length(envp), n = 0, bytes = 0;
	unsigned int eax, ebx, ecx, edx = 0;
	uint64_t sp = STACK_TOP, *frame, name, random, platform;
	uint8_t seed[16];

	for (size_t i = 0; i < argc; i++)
		bytes += strlen(argv[i]) + 9;
	for (size_t i = 0; i < envc; i++)
		bytes += strlen(envp[i]) + 9;
	if (bytes > STACK_SIZE / 4)
		run_die(r, "arguments and environment of %zu bytes are too long\nNext: env -i kvm-fastsys run %s, or fewer arguments",
			bytes, path);
	if (run_mmap(STACK_TOP - STACK_SIZE, STACK_SIZE,
		     PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS |
		     MAP_NORESERVE | MAP_FIXED, -1, 0) < 0)
		run_die(r, "no stack: %s\nNext: ulimit -v unlimited; free -m",
			strerror(errno));

	frame = calloc(argc + envc + 64, sizeof(*frame));
	if (!frame || getrandom(seed, sizeof(seed), 0) != sizeof(seed))
		run_die(r, "no memory\nNext: ulimit -v unlimited; free -m");
	__get_cpuid(1, &eax, &ebx, &ecx, &edx);
	name = push(&sp, path, strlen(path) + 1);
	platform = push(&sp, "x86_64", 7);
	frame[n++] = argc;
	for (size_t i = 0; i < argc; i++)
		frame[n++] = push(&sp, argv[i], strlen(argv[i]) + 1);
	frame[n++] = 0;
	for (size_t i = 0; i < envc; i++)
		frame[n++] = push(&sp, envp[i], strlen(envp[i]) + 1);
	frame[n++] = 0;
	sp &= ~15UL;
	random = push(&sp, seed, sizeof(seed));

	const uint64_t aux[] = {
		AT_PHDR, im->phdrs,
		AT_PHENT, sizeof(Elf64_Phdr),
		AT_PHNUM, im->eh.e_phnum,
		AT_PAGESZ, RUN_PAGE,
		AT_BASE, 0,
		AT_FLAGS, 0,
		AT_ENTRY, im->base + im->eh.e_entry,
		AT_UID, getuid(), AT_EUID, geteuid(),
		AT_GID, getgid(), AT_EGID, getegid(),
		AT_SECURE, 0,
		AT_HWCAP, edx, AT_HWCAP2, 0,
		AT_CLKTCK, getauxval(AT_CLKTCK),
		AT_PLATFORM, platform,
		AT_RANDOM, random,
		AT_EXECFN, name,
		AT_NULL, 0,
	};

	memcpy(frame + n, aux, sizeof(aux));
	n += sizeof(aux) / sizeof(aux[0]);
	/* RSP is a multiple of 16 at the entry point. */
	sp = (sp - n * sizeof(*frame)) & ~15UL;
	memcpy((void *)sp, frame, n * sizeof(*frame));
	free(frame);
	return sp;
}

/* The path is said once: mostly it is the name. */
static void __attribute__((noreturn))
cannot_open(const struct run *r, const char *path, int err)
{
	bool same = !strcmp(path, r->name);

	run_die(r, "%s%s%s\nNext: ls -l %s", same ? "" : path,
		same ? "" : ": ", strerror(err), path);
}

void run_load(struct run *r, const char *path, char **argv, char **envp)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct image im = { 0 };

	if (fd < 0)
		cannot_open(r, path, errno);
	read_headers(r, path, fd, &im);
	for (int i = 0; i < im.eh.e_phnum; i++)
		if (im.ph[i].p_type == PT_INTERP)
			run_die(r, "a dynamically linked program" NEXT_STATIC);
	im.base = im.eh.e_type == ET_DYN ? PIE_BASE : 0;
	for (int i = 0; i < im.eh.e_phnum; i++)
		if (im.ph[i].p_type == PT_LOAD && im.ph[i].p_memsz)
			load_segment(r, fd, &im, &im.ph[i]);
	close(fd);
	if (!im.end)
		run_die(r, "nothing to load in it" NEXT_LOOK "%s", path);

	r->brk_start = page_up(im.end);
	if (r->brk_start < RUN_LOW_END)
		run_mem_set_brk(r->brk_start,
				r->brk_start < RUN_LOW_END / 2 ?
				RUN_LOW_END / 2 : RUN_LOW_END);
	else
		run_mem_set_brk(r->brk_start, r->brk_start + HEAP_SIZE);
	r->entry = im.base + im.eh.e_entry;
	r->stack = build_stack(r, &im, path, argv, envp);
}
