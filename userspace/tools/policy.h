/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* Policy files: profiles in JSON, and programs compiled from them. */
#ifndef KFS_POLICY_H
#define KFS_POLICY_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

/* What a profile leaves open, decided by whoever compiles it. */
struct policy_host {
	const char *const *caps;	/* capabilities held, NULL-terminated */
	const char *kernel;		/* "6.1"; NULL: the running one */
};

/* What a profile said that the program does not show. */
struct policy_notes {
	char unknown[1024];	/* names this libseccomp does not know */
	unsigned int unknown_count;
	char left_out[1024];	/* rules whose includes or excludes fail */
	unsigned int left_out_count;
	char arches[256];	/* architectures other than x86-64 */
};

/*
 * All three print what is wrong (file, place, reason, what next) and then
 * return -1. The program is malloc()ed.
 */
int policy_load(const char *file, struct sock_filter **filter,
		unsigned int *len);
int policy_load_for(const char *file, const struct policy_host *host,
		    struct sock_filter **filter, unsigned int *len,
		    struct policy_notes *notes);
/* By its major and minor number; -1 for what is no version. */
int policy_kernel_at_least(const struct policy_host *host, const char *least);
/* policy_oci.c: text is NUL-terminated */
int policy_from_json(const char *file, const char *text,
		     const struct policy_host *host,
		     struct sock_filter **filter, unsigned int *len,
		     struct policy_notes *notes);

#endif /* KFS_POLICY_H */
