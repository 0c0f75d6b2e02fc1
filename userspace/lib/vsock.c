// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <errno.h>
#include <sys/socket.h>

#include "internal.h"

KFS_PUBLIC int kfs_vsock_nodelay(int fd, int on)
{
	return setsockopt(fd, AF_VSOCK, SO_KFS_VSOCK_NODELAY, &on,
			  sizeof(on)) ? -errno : 0;
}
