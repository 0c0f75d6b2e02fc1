/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * One system call made twice from the same state, natively and by a guest:
 * results, buffers and descriptors must come out equal.
 */
#ifndef CALLCASE_H
#define CALLCASE_H

#include "kfstest.h"

#define CASE_BUF	4096
#define CASE_FILE	"/tmp/kfs-callcase"
#define FILE_SIZE	10000

/* Made anew, the same way, before each of the two calls. */
struct case_ctx {
	int fd[4];		/* closed after the call unless -1 */
	uint32_t word[4];
	uint64_t when[4];
	unsigned char in[CASE_BUF];
	unsigned char out[CASE_BUF];
	unsigned char after[CASE_BUF];	/* what check() wants compared too */
};

struct call_case {
	const char *name;
	long nr;
	/* Fills args; 0 or -errno of the preparation. */
	int (*prepare)(struct case_ctx *c, uint64_t *args);
	/*
	 * After the call: looks for effects elsewhere, puts them into
	 * c->after, takes out what cannot be equal (times) having judged it,
	 * and undoes what the call did. 0, or -errno when the effect is wrong.
	 */
	int (*check)(struct case_ctx *c, int64_t ret);
};

/* A way for a guest to make a call, and what is to be said of it. */
struct case_way {
	/* Answers the guest's result; an error of the way itself in `error`. */
	int64_t (*call)(struct case_way *way, long nr, const uint64_t args[6]);
	const char *error;
};

/*
 * NULL when the guest's call agrees with the native one and way->error is not
 * set, else what differs. *ret is the native result.
 */
const char *case_differs_by(struct case_way *way, const struct call_case *cc,
			    int64_t *ret);

/* The same for a call that has to run inside KVM_RUN. */
const char *case_differs(struct tvm *t, const struct call_case *cc,
			 int64_t *ret);

extern const struct call_case cases_file[], cases_sync[];
extern const unsigned int n_cases_file, n_cases_sync;

/* The file that cases open: FILE_SIZE bytes of a known pattern. */
int case_make_file(void);
int case_open_file(struct case_ctx *c, int flags);

#endif
