// SPDX-License-Identifier: MIT OR LGPL-2.1
/* Guest code: compiled for ring 0 of the test VM. */
#include <pthread.h>

#include "kickbench.h"

int guest_spin(struct guest *g)
{
	for (;;)
		(*(volatile uint32_t *)&g->turns)++;
}

/* Leaves by a port `exits` times. */
int guest_exits(struct guest *g)
{
	uint32_t n = g->exits;

	while (n--)
		gvm_doorbell(n);
	return 0;
}
