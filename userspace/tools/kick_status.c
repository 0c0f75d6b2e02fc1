// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kick_status.h"
#include "tool.h"

#define SHOWN_FDS 10

/* A kick fd that goes away in between is simply not in the list any more. */
int kick_status_read(int dev, struct kick_status *kick)
{
	unsigned int room = 0;
	__u64 id = 0;
	int ret = kfs_kick_info(dev, &kick->info);

	/* An older module: nothing to show. */
	if (ret)
		kick->info.size = 0;
	if (ret == -ENOTTY)
		return 0;
	while (!ret) {
		if (kick->count == room) {
			void *more;

			room = room ? 2 * room : 16;
			more = realloc(kick->fds, room * sizeof(*kick->fds));
			if (!more)
				return -ENOMEM;
			kick->fds = more;
		}
		ret = kfs_kick_stats(dev, id, &kick->fds[kick->count]);
		if (!ret)
			id = kick->fds[kick->count++].id + 1;
	}
	return ret == -ENOENT ? 0 : ret;
}

void kick_status_free(struct kick_status *kick)
{
	free(kick->fds);
	memset(kick, 0, sizeof(*kick));
}

static const char *mechanism(const struct kick_status *kick)
{
	return kick->info.mechanism == KFS_KICK_BY_NOTIFY ?
		"TIF_NOTIFY_SIGNAL, proved at load" : "none, use signals";
}

static unsigned int unacknowledged(const struct kick_status *kick)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < kick->count; i++)
		n += kick->fds[i].unacknowledged > 0;
	return n;
}

void kick_status_text(const struct kick_status *kick)
{
	const struct kfs_kick_info *info = &kick->info;
	unsigned int late = unacknowledged(kick), shown = 0;

	if (!info->size)
		return;
	printf("kick by %s%s%s, %u fds of %s per user\n",
	       colour(info->mechanism == KFS_KICK_BY_NOTIFY ? PLAIN : BAD),
	       mechanism(kick), colour(PLAIN), info->fds,
	       grouped(info->max_fds));
	if (info->reason[0])
		wrapped(stdout, "  ", 2, info->reason);
	printf("  requested %s, coalesced %s, in KVM_RUN %s,\n",
	       grouped(info->requested), grouped(info->coalesced),
	       grouped(info->interrupted));
	printf("  by vCPU ioctl %s, kick fds unacknowledged now %u\n",
	       grouped(info->user_exits), late);
	for (unsigned int i = 0; i < kick->count && shown < SHOWN_FDS; i++) {
		const struct kfs_kick_stats *s = &kick->fds[i];

		if (!s->unacknowledged)
			continue;
		shown++;
		printf("    pid %u (%.16s) ", s->pid, s->comm);
		if (s->vcpu == ~0U)
			printf("%u of %u vCPUs", s->unacknowledged, s->vcpus);
		else
			printf("vCPU %u", s->vcpu);
		printf(" since %s ms\n", grouped(s->age_ms));
	}
	if (late > shown)
		printf("    and %u more: kvm-fastsys status --json\n",
		       late - shown);
}

static void add(struct json_object *o, const char *key, __u64 value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

/* An array out of the ABI: not to be read past its end. */
#define add_text(o, key, field)						\
	json_object_object_add(o, key, json_object_new_string_len(field, \
			(int)strnlen(field, sizeof(field))))

struct json_object *kick_status_json(const struct kick_status *kick)
{
	const struct kfs_kick_info *info = &kick->info;
	struct json_object *o, *fds;

	if (!info->size)
		return NULL;
	o = json_object_new_object();
	fds = json_object_new_array();
	json_object_object_add(o, "mechanism", json_object_new_string(
		info->mechanism == KFS_KICK_BY_NOTIFY ? "notify" : "none"));
	add(o, "error", info->error);
	add_text(o, "reason", info->reason);
	add(o, "max_fds", info->max_fds);
	add(o, "requested", info->requested);
	add(o, "coalesced", info->coalesced);
	add(o, "interrupted", info->interrupted);
	add(o, "user_exits", info->user_exits);
	add(o, "unacknowledged", unacknowledged(kick));
	for (unsigned int i = 0; i < kick->count; i++) {
		const struct kfs_kick_stats *s = &kick->fds[i];
		struct json_object *r = json_object_new_object();

		add(r, "id", s->id);
		add(r, "pid", s->pid);
		add(r, "uid", s->uid);
		add_text(r, "comm", s->comm);
		if (s->vcpu != ~0U)
			add(r, "vcpu", s->vcpu);
		add(r, "vcpus", s->vcpus);
		add(r, "requested", s->requested);
		add(r, "coalesced", s->coalesced);
		add(r, "interrupted", s->interrupted);
		add(r, "unread", s->unread);
		add(r, "unacknowledged", s->unacknowledged);
		add(r, "age_ms", s->age_ms);
		json_object_array_add(fds, r);
	}
	json_object_object_add(o, "fds", fds);
	return o;
}
