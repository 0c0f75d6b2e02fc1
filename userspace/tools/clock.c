// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <time.h>

#include "clock.h"

uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/*
 * Two loops of equal length, of instructions that differ much on any real
 * processor, take their number in nanoseconds only where those are counted.
 */
bool clock_counts(void)
{
	enum { LOOPS = 100000, BODY = 10 };
	const uint64_t instructions = (uint64_t)LOOPS * BODY;
	uint64_t t[3], n;

	t[0] = clock_ns();
	n = LOOPS;
	__asm__ volatile("1: .rept 8; nop; .endr; dec %0; jnz 1b"
			 : "+r"(n) : : "cc");
	t[1] = clock_ns();
	n = LOOPS;
	__asm__ volatile("1: .rept 8; imul %%rax, %%rax; .endr; dec %0; jnz 1b"
			 : "+r"(n) : : "rax", "cc");
	t[2] = clock_ns();
	for (int i = 0; i < 2; i++) {
		uint64_t took = t[i + 1] - t[i];

		if (took < instructions || took > instructions * 105 / 100)
			return false;
	}
	return true;
}
