// SPDX-License-Identifier: GPL-2.0
/* Its own copy of the shared symbol finder. */
#include "../symbols.c"
