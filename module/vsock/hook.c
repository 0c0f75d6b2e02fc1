// SPDX-License-Identifier: GPL-2.0
/* kvm_fastsys_vsock.ko stands alone: its own copy of the shared installer. */
#include "../hook.c"
