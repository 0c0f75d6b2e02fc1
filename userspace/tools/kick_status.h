/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* The kick's section of `kvm-fastsys status`. */
#ifndef KFS_TOOL_KICK_STATUS_H
#define KFS_TOOL_KICK_STATUS_H

#include <kfs.h>

struct json_object;

struct kick_status {
	struct kfs_kick_info info;
	struct kfs_kick_stats *fds;
	unsigned int count;
};

/* 0 or -errno. */
int kick_status_read(int dev, struct kick_status *kick);
void kick_status_text(const struct kick_status *kick);
struct json_object *kick_status_json(const struct kick_status *kick);
void kick_status_free(struct kick_status *kick);

#endif
