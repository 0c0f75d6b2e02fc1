// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <errno.h>
#include <sys/socket.h>

#include "internal.h"

KFS_PUBLIC int kfs_vsock_nodelay(int fd, int on)
{
	int saved = errno;
	int ret = 0;

	if (setsockopt(fd, AF_VSOCK, SO_KFS_VSOCK_NODELAY, &on, sizeof(on)))
		ret = -errno;
	errno = saved;
	return ret;
}
