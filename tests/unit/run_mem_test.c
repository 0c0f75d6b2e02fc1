// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The memory calls of kvm-fastsys run against a model: random mappings are
 * made, grown, moved, cut and given back; none may lie over another, outside
 * the windows or lose its contents. Runs without KVM. TAP.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "run.h"

#define SLOTS 200
#define STEPS 20000

/* Every page of a mapping starts with the mapping's tag and its own number. */
static struct piece {
	uint64_t at, pages, tag, first;
} pieces[SLOTS];
static int tests, bad;

void run_die(const struct run *r, const char *fmt, ...)
{
	va_list ap;

	(void)r;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\nBail out!\n");
	exit(1);
}

static void ok(bool good, const char *what)
{
	printf("%sok %d - %s\n", good ? "" : "not ", ++tests, what);
	bad |= !good;
}

static void stamp(const struct piece *p, uint64_t from)
{
	for (uint64_t i = from; i < p->pages; i++) {
		uint64_t *page = (uint64_t *)(p->at + i * RUN_PAGE);

		page[0] = p->tag;
		page[1] = p->first + i;
	}
}

static bool intact(const struct piece *p)
{
	for (uint64_t i = 0; i < p->pages; i++) {
		const uint64_t *page = (uint64_t *)(p->at + i * RUN_PAGE);

		if (page[0] != p->tag || page[1] != p->first + i)
			return false;
	}
	return true;
}

static bool apart(void)
{
	for (int i = 0; i < SLOTS; i++)
		for (int j = 0; j < i; j++)
			if (pieces[i].pages && pieces[j].pages &&
			    pieces[i].at < pieces[j].at +
					   pieces[j].pages * RUN_PAGE &&
			    pieces[j].at < pieces[i].at +
					   pieces[i].pages * RUN_PAGE)
				return false;
	return true;
}

static bool make(struct piece *p)
{
	static uint64_t tag;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	long at;

	p->pages = 1 + (uint64_t)(rand() % 40);
	if (rand() % 4 == 0)
		flags |= MAP_32BIT;
	at = run_mmap(0, p->pages * RUN_PAGE - (uint64_t)(rand() % 100),
		      PROT_READ | PROT_WRITE, flags, -1, 0);
	if (at < 0 || !run_mem_inside((uint64_t)at, p->pages * RUN_PAGE) ||
	    (flags & MAP_32BIT && at >= (long)RUN_LOW_END))
		return false;
	p->at = (uint64_t)at;
	p->tag = ++tag;
	p->first = 0;
	stamp(p, 0);
	return true;
}

static bool resize(struct piece *p)
{
	uint64_t pages = 1 + (uint64_t)(rand() % 60), old = p->pages;
	int flags = rand() % 3 ? MREMAP_MAYMOVE : 0;
	long at = run_mremap(p->at, old * RUN_PAGE, pages * RUN_PAGE, flags,
			     0);

	/* Without leave to move there may be no room behind it. */
	if (at == -ENOMEM && !flags && pages > old)
		return intact(p);
	if (at < 0 || (!flags && at != (long)p->at))
		return false;
	p->at = (uint64_t)at;
	p->pages = pages;
	if (pages > old)
		stamp(p, old);
	return intact(p);
}

/* A hole anywhere: what is left are two pieces, or one, or none. */
static bool cut(struct piece *p, struct piece *rest)
{
	uint64_t from = (uint64_t)rand() % p->pages;
	uint64_t n = 1 + (uint64_t)rand() % (p->pages - from);

	if (run_munmap(p->at + from * RUN_PAGE, n * RUN_PAGE))
		return false;
	*rest = (struct piece) {
		.at = p->at + (from + n) * RUN_PAGE,
		.pages = p->pages - from - n,
		.tag = p->tag, .first = p->first + from + n,
	};
	p->pages = from;
	return intact(p) && intact(rest);
}

static bool step(void)
{
	struct piece *p = &pieces[rand() % SLOTS], *q = &pieces[rand() % SLOTS];

	if (!p->pages)
		return make(p);
	if (!intact(p))
		return false;
	if (rand() % 2)
		return resize(p);
	if (!q->pages && rand() % 2)
		return cut(p, q);
	if (run_munmap(p->at, p->pages * RUN_PAGE))
		return false;
	p->pages = 0;
	return true;
}

static bool random_steps(void)
{
	for (int i = 0; i < STEPS; i++) {
		if (!step()) {
			printf("# step %d\n", i);
			return false;
		}
		if (i % 1000 == 0 && !apart())
			return false;
	}
	for (int i = 0; i < SLOTS; i++)
		if (!intact(&pieces[i]))
			return false;
	return apart();
}

static bool heap(void)
{
	uint64_t start = 0x500000, at;
	volatile char *p;

	run_mem_set_brk(start, start + (16UL << 20));
	if (run_brk(0) != (long)start || run_brk(start - 1) != (long)start ||
	    run_brk(start + (17UL << 20)) != (long)start)
		return false;
	at = start + 123456;
	if (run_brk(at) != (long)at)
		return false;
	p = (char *)(at - 1);
	*p = 7;
	/* Nobody else gets the heap's place. */
	for (int i = 0; i < 50; i++) {
		long other = run_mmap(0, 1UL << 20, PROT_READ, MAP_PRIVATE |
				      MAP_ANONYMOUS | MAP_32BIT, -1, 0);

		if (other > 0 && other < (long)(start + (16UL << 20)))
			return false;
	}
	run_brk(start);
	run_brk(at);
	return *p == 0;
}

static bool refusals(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	uint64_t outside = (uint64_t)(uintptr_t)&tests & ~(RUN_PAGE - 1);
	long at = run_mmap(0, RUN_PAGE, PROT_READ, flags, -1, 0);

	return at > 0 &&
	       run_mmap(0, 0, PROT_READ, flags, -1, 0) == -EINVAL &&
	       run_mmap(outside, RUN_PAGE, PROT_READ, flags | MAP_FIXED, -1,
			0) == -ENOMEM &&
	       run_mmap((uint64_t)at, RUN_PAGE, PROT_READ,
			flags | MAP_FIXED_NOREPLACE, -1, 0) == -EEXIST &&
	       run_mmap(0, RUN_PAGE, PROT_READ, MAP_PRIVATE, -1, 0) == -EBADF &&
	       run_mmap(0, 1UL << 40, PROT_READ, flags, -1, 0) == -ENOMEM &&
	       run_munmap(outside, RUN_PAGE) == -EINVAL &&
	       run_munmap((uint64_t)at + 1, RUN_PAGE) == -EINVAL &&
	       run_mprotect(outside, RUN_PAGE, PROT_NONE) == -ENOMEM &&
	       run_mremap(outside, RUN_PAGE, RUN_PAGE, MREMAP_MAYMOVE, 0) ==
	       -EFAULT &&
	       run_mremap((uint64_t)at, RUN_PAGE, RUN_PAGE, 64, 0) == -EINVAL;
}

int main(void)
{
	run_mem_init(NULL);
	ok(heap(), "the heap grows, shrinks, comes back empty, stays alone");
	for (unsigned int seed = 1; seed <= 3; seed++) {
		srand(seed);
		ok(random_steps(), "20,000 random steps lose and mix nothing");
	}
	ok(refusals(), "nothing outside the windows, nothing malformed");
	printf("1..%d\n", tests);
	return bad;
}
