/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Socket option of kvm_fastsys_vsock.ko on AF_VSOCK stream sockets.
 *
 *	int one = 1;
 *	setsockopt(fd, AF_VSOCK, SO_KFS_VSOCK_NODELAY, &one, sizeof(one));
 *
 * setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, ...) is the same option. Both fail
 * with ENOPROTOOPT, as on a kernel without the module, while coalescing is off
 * or the module is not there: nothing is delayed then, so a program can set it
 * and ignore that error.
 *
 *	1	every write leaves at once (MSG_MORE still holds data back)
 *	0	small writes may be merged on this socket, whatever the module's
 *		default and port list say
 *
 * Not inherited by accepted sockets; forgotten when coalescing is turned off.
 */
#ifndef _UAPI_LINUX_KVM_FASTSYS_VSOCK_H
#define _UAPI_LINUX_KVM_FASTSYS_VSOCK_H

/* Far above mainline's numbers at this level, which count up from 0. */
#define SO_KFS_VSOCK_NODELAY	0x4b465301

#endif
