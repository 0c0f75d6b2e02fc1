// SPDX-License-Identifier: GPL-2.0
/* Its own copy of the shared trampoline compat code. */
#include "../compat/ftrace.c"
