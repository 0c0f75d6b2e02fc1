// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The program's memory: two windows of the launcher, reserved whole, in which
 * every mapping is made by MAP_FIXED. A free piece is a reservation again,
 * never a hole that a mapping of the launcher could fall into. KVM follows by
 * its mmu notifier.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "run.h"

#define BELOW_STACK (RUN_HIGH_END - (1UL << 30))
#define PLACE_FLAGS (MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT | \
		     MAP_GROWSDOWN)

/* What is in use, sorted, neighbours merged. */
static struct range {
	uint64_t start, end;
} *ranges;
static size_t count, room;

static uint64_t brk_start, brk_now, brk_limit;

static uint64_t page_up(uint64_t x)
{
	return (x + RUN_PAGE - 1) & ~(RUN_PAGE - 1);
}

static int reserve(uint64_t at, uint64_t size, int how)
{
	void *p = mmap((void *)at, size, PROT_NONE, MAP_PRIVATE |
		       MAP_ANONYMOUS | MAP_NORESERVE | how, -1, 0);

	return p == (void *)at ? 0 : -1;
}

void run_mem_init(const struct run *r)
{
	if (reserve(RUN_LOW, RUN_LOW_END - RUN_LOW, MAP_FIXED_NOREPLACE))
		run_die(r, "no room for a program below 2 GiB: %s\nNext: sysctl vm.mmap_min_addr (65536 or less), ulimit -v (unlimited)",
			strerror(errno));
	if (reserve(RUN_HIGH, RUN_HIGH_SIZE, MAP_FIXED_NOREPLACE))
		run_die(r, "no room for the program's memory: %s\nNext: ulimit -v (unlimited)",
			strerror(errno));
}

bool run_mem_inside(uint64_t at, uint64_t size)
{
	uint64_t end = at + size;

	if (end < at)
		return false;
	return (at >= RUN_LOW && end <= RUN_LOW_END) ||
	       (at >= RUN_HIGH && end <= RUN_HIGH_END);
}

/* The first range that ends above `at`. */
static size_t find(uint64_t at)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (ranges[mid].end <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool is_free(uint64_t start, uint64_t end)
{
	size_t i = find(start);

	return i == count || ranges[i].start >= end;
}

static void make_room(void)
{
	if (count + 1 < room)
		return;
	room = room ? 2 * room : 64;
	ranges = realloc(ranges, room * sizeof(*ranges));
	if (!ranges)
		abort();
}

static void drop(size_t from, size_t n)
{
	memmove(ranges + from, ranges + from + n,
		(count - from - n) * sizeof(*ranges));
	count -= n;
}

void run_mem_take(uint64_t start, uint64_t end)
{
	size_t i, last;

	make_room();
	/* Also the neighbours that only touch. */
	i = find(start - 1);
	for (last = i; last < count && ranges[last].start <= end; last++) {
		if (ranges[last].start < start)
			start = ranges[last].start;
		if (ranges[last].end > end)
			end = ranges[last].end;
	}
	if (last == i) {
		memmove(ranges + i + 1, ranges + i,
			(count - i) * sizeof(*ranges));
		count++;
	} else {
		drop(i, last - i - 1);
	}
	ranges[i] = (struct range) { start, end };
}

static void give(uint64_t start, uint64_t end)
{
	size_t i;

	make_room();
	for (i = find(start); i < count && ranges[i].start < end;) {
		struct range *r = &ranges[i];

		if (r->start < start && r->end > end) {
			memmove(r + 1, r, (count - i) * sizeof(*r));
			count++;
			r[0].end = start;
			r[1].start = end;
			return;
		}
		if (r->end > end) {
			r->start = end;
			return;
		}
		if (r->start < start) {
			r->end = start;
			i++;
		} else {
			drop(i, 1);
		}
	}
}

/* Top down, as Linux does; 0: no room. */
static uint64_t find_room(uint64_t size, uint64_t low, uint64_t high)
{
	size_t i = find(high - 1);

	/* A range that reaches over the top leaves nothing above itself. */
	if (i < count && ranges[i].start < high)
		high = ranges[i].start;
	while (high >= low + size) {
		if (!i || ranges[i - 1].end <= high - size)
			return high - size;
		high = ranges[--i].start;
	}
	return 0;
}

void run_mem_set_brk(uint64_t start, uint64_t limit)
{
	brk_start = brk_now = page_up(start);
	brk_limit = limit;
	run_mem_take(brk_start, brk_limit);
}

long run_brk(uint64_t to)
{
	uint64_t old = page_up(brk_now), new = page_up(to);

	if (to < brk_start || to > brk_limit)
		return (long)brk_now;
	if (new > old &&
	    mmap((void *)old, new - old, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		reserve(old, new - old, MAP_FIXED);
		return (long)brk_now;
	}
	if (new < old)
		reserve(new, old - new, MAP_FIXED);
	brk_now = to;
	return (long)to;
}

long run_mmap(uint64_t at, uint64_t size, int prot, int flags, int fd,
	      uint64_t offset)
{
	bool fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
	bool was_free;
	void *p;

	size = page_up(size);
	if (!size)
		return -EINVAL;
	if (size > RUN_HIGH_SIZE)
		return -ENOMEM;
	if (fixed) {
		if (at % RUN_PAGE)
			return -EINVAL;
		if (!run_mem_inside(at, size))
			return -ENOMEM;
		if (flags & MAP_FIXED_NOREPLACE && !is_free(at, at + size))
			return -EEXIST;
	} else {
		at = page_up(at);
		if (flags & MAP_32BIT)
			at = find_room(size, RUN_LOW_END / 2, RUN_LOW_END);
		else if (!at || !run_mem_inside(at, size) ||
			 !is_free(at, at + size))
			at = find_room(size, RUN_HIGH, BELOW_STACK);
		if (!at)
			return -ENOMEM;
	}
	was_free = is_free(at, at + size);
	p = mmap((void *)at, size, prot, (flags & ~PLACE_FLAGS) | MAP_FIXED,
		 fd, (off_t)offset);
	if (p == MAP_FAILED) {
		int err = errno;

		if (was_free)
			reserve(at, size, MAP_FIXED);
		return -err;
	}
	run_mem_take(at, at + size);
	return (long)at;
}

long run_munmap(uint64_t at, uint64_t size)
{
	size = page_up(size);
	if (at % RUN_PAGE || !size || !run_mem_inside(at, size))
		return -EINVAL;
	if (reserve(at, size, MAP_FIXED))
		return -errno;
	/* The heap's place stays the heap's. */
	if (at >= brk_limit || at + size <= brk_start)
		give(at, at + size);
	return 0;
}

long run_mprotect(uint64_t at, uint64_t size, int prot)
{
	if (!run_mem_inside(at, page_up(size)) && size)
		return -ENOMEM;
	return mprotect((void *)at, size, prot) ? -errno : 0;
}

static long move(uint64_t at, uint64_t old_size, uint64_t new_size,
		 uint64_t to)
{
	void *p = mremap((void *)at, old_size, new_size,
			 MREMAP_MAYMOVE | MREMAP_FIXED, (void *)to);

	if (p == MAP_FAILED) {
		int err = errno;

		reserve(to, new_size, MAP_FIXED);
		return -err;
	}
	reserve(at, old_size, MAP_FIXED);
	give(at, at + old_size);
	run_mem_take(to, to + new_size);
	return (long)to;
}

long run_mremap(uint64_t at, uint64_t old_size, uint64_t new_size, int flags,
		uint64_t to)
{
	uint64_t more;
	int err;

	old_size = page_up(old_size);
	new_size = page_up(new_size);
	/* An old size of 0 copies a shared mapping: nobody here needs it. */
	if (at % RUN_PAGE || !new_size || !old_size ||
	    flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED))
		return -EINVAL;
	if (!run_mem_inside(at, old_size))
		return -EFAULT;
	if (new_size > RUN_HIGH_SIZE)
		return -ENOMEM;
	if (flags & MREMAP_FIXED) {
		if (!(flags & MREMAP_MAYMOVE) || to % RUN_PAGE ||
		    !run_mem_inside(to, new_size) ||
		    (to < at + old_size && at < to + new_size))
			return -EINVAL;
		return move(at, old_size, new_size, to);
	}
	if (new_size <= old_size) {
		if (new_size < old_size)
			run_munmap(at + new_size, old_size - new_size);
		return (long)at;
	}
	more = new_size - old_size;
	if (run_mem_inside(at, new_size) &&
	    is_free(at + old_size, at + new_size)) {
		/* Only a hole lets a mapping grow in place. */
		munmap((void *)(at + old_size), more);
		if (mremap((void *)at, old_size, new_size, 0) != MAP_FAILED) {
			run_mem_take(at, at + new_size);
			return (long)at;
		}
		err = errno;
		reserve(at + old_size, more, MAP_FIXED);
		if (!(flags & MREMAP_MAYMOVE))
			return -err;
	}
	if (!(flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	to = find_room(new_size, RUN_HIGH, BELOW_STACK);
	return to ? move(at, old_size, new_size, to) : -ENOMEM;
}
