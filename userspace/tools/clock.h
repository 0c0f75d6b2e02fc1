/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
#ifndef KFS_CLOCK_H
#define KFS_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds since boot, without anybody's adjustments. */
uint64_t clock_ns(void);

/*
 * True where an instruction takes a nanosecond, whichever it is: the emulated
 * machine in its counting mode. Then clock_ns() counts instructions.
 */
bool clock_counts(void);

#endif /* KFS_CLOCK_H */
