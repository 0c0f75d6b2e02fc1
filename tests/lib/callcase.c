// SPDX-License-Identifier: MIT OR LGPL-2.1
#include "callcase.h"

int case_make_file(void)
{
	unsigned char buf[FILE_SIZE];
	int fd = open(CASE_FILE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	unsigned int i;
	ssize_t n;

	if (fd < 0)
		return -errno;
	for (i = 0; i < FILE_SIZE; i++)
		buf[i] = i * 7 + i / 251;
	n = write(fd, buf, sizeof(buf));
	close(fd);
	return n == FILE_SIZE ? 0 : -EIO;
}

int case_open_file(struct case_ctx *c, int flags)
{
	c->fd[0] = open(CASE_FILE, flags | O_CLOEXEC);
	return c->fd[0] < 0 ? -errno : 0;
}

static int prepare(struct case_ctx *c, const struct call_case *cc,
		   uint64_t *args)
{
	unsigned int i;
	int err;

	memset(c, 0, sizeof(*c));
	for (i = 0; i < 4; i++)
		c->fd[i] = -1;
	for (i = 0; i < CASE_BUF; i++)
		c->in[i] = i * 13 + 5;
	memset(c->out, 0xaa, sizeof(c->out));
	memset(args, 0, 6 * sizeof(*args));
	err = case_make_file();
	return err ? err : cc->prepare(c, args);
}

static int finish(struct case_ctx *c, const struct call_case *cc, int64_t ret)
{
	int err = cc->check ? cc->check(c, ret) : 0;
	unsigned int i;

	for (i = 0; i < 4; i++)
		if (c->fd[i] >= 0)
			close(c->fd[i]);
	return err;
}

const char *case_differs_by(struct case_way *way, const struct call_case *cc,
			    int64_t *ret)
{
	/*
	 * One context for both, so that addresses are equal too; static, the
	 * copies are large for a stack.
	 */
	static struct case_ctx c, first;
	static char why[200];
	uint64_t args[6];
	int64_t got;
	int err;

	err = prepare(&c, cc, args);
	if (err)
		goto unprepared;
	*ret = native(cc->nr, args[0], args[1], args[2], args[3], args[4],
		      args[5]);
	err = finish(&c, cc, *ret);
	if (err) {
		snprintf(why, sizeof(why), "native effect is wrong: %s",
			 strerror(-err));
		return why;
	}
	first = c;

	err = prepare(&c, cc, args);
	if (err)
		goto unprepared;
	way->error = NULL;
	got = way->call(way, cc->nr, args);
	err = finish(&c, cc, got);
	if (err && !way->error) {
		snprintf(why, sizeof(why), "effect is wrong: %s",
			 strerror(-err));
		return why;
	}

	if (way->error)
		return way->error;
	if (got != *ret)
		snprintf(why, sizeof(why), "result %lld, natively %lld",
			 (long long)got, (long long)*ret);
	else if (memcmp(c.out, first.out, sizeof(c.out)))
		return "the output buffer differs";
	else if (memcmp(c.in, first.in, sizeof(c.in)))
		return "the input buffer was changed";
	else if (memcmp(c.word, first.word, sizeof(c.word)) ||
		 memcmp(c.when, first.when, sizeof(c.when)))
		return "small outputs differ";
	else if (memcmp(c.after, first.after, sizeof(c.after)))
		return "the effect differs";
	else
		return NULL;
	return why;

unprepared:
	snprintf(why, sizeof(why), "preparation: %s", strerror(-err));
	return why;
}

struct fast_way {
	struct case_way way;
	struct tvm *t;
};

static int64_t fast_call(struct case_way *way, long nr, const uint64_t args[6])
{
	static char why[200];
	struct tvm *t = ((struct fast_way *)way)->t;
	struct kfs_vm_stats before, after;
	int64_t got;

	if (kfs_stats(t->ctl, &before)) {
		way->error = "KFS_VM_STATS";
		return 0;
	}
	got = tvm_call(t, nr, args[0], args[1], args[2], args[3], args[4],
		       args[5]);
	if (got == INT64_MIN) {
		way->error = gvm_strerror(&t->vm);
	} else if (kfs_stats(t->ctl, &after)) {
		way->error = "KFS_VM_STATS";
	} else if (after.ran != before.ran + 1 || t->deferred) {
		snprintf(why, sizeof(why),
			 "not run in KVM_RUN (ran +%lld, declined +%lld)",
			 (long long)(after.ran - before.ran),
			 (long long)(declined_sum(&after) -
				     declined_sum(&before)));
		way->error = why;
	}
	return got;
}

const char *case_differs(struct tvm *t, const struct call_case *cc,
			 int64_t *ret)
{
	struct fast_way fast = { .way.call = fast_call, .t = t };

	return case_differs_by(&fast.way, cc, ret);
}
