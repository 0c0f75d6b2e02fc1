/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* An io_uring whose polls complete as task work of the vCPU's thread. */
#ifndef KFS_TEST_URING_H
#define KFS_TEST_URING_H

#include <linux/io_uring.h>

#include "kicktest.h"

#define URING_POLLS	64

struct uring {
	int fd;
	int event[URING_POLLS];
	uint32_t *cq_tail;
};

/* In the vCPU's thread, so that the completions are its task work. */
static int uring_setup(struct krun *k)
{
	struct io_uring_params p = { 0 };
	struct uring *u = k->data;
	struct io_uring_sqe *sqe;
	uint32_t *array, *tail;
	char *sq, *cq;
	int i;

	u->fd = syscall(SYS_io_uring_setup, URING_POLLS, &p);
	if (u->fd < 0)
		return -errno;
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4,
		  PROT_READ | PROT_WRITE, MAP_SHARED, u->fd,
		  IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
		  PROT_READ | PROT_WRITE, MAP_SHARED, u->fd,
		  IORING_OFF_CQ_RING);
	sqe = mmap(NULL, p.sq_entries * sizeof(*sqe), PROT_READ | PROT_WRITE,
		   MAP_SHARED, u->fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || sqe == MAP_FAILED)
		return -ENOMEM;
	array = (uint32_t *)(sq + p.sq_off.array);
	tail = (uint32_t *)(sq + p.sq_off.tail);
	u->cq_tail = (uint32_t *)(cq + p.cq_off.tail);
	for (i = 0; i < URING_POLLS; i++) {
		memset(&sqe[i], 0, sizeof(*sqe));
		sqe[i].opcode = IORING_OP_POLL_ADD;
		sqe[i].fd = u->event[i];
		sqe[i].poll32_events = POLLIN;
		array[i] = i;
	}
	__atomic_store_n(tail, URING_POLLS, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, u->fd, URING_POLLS, 0, 0, NULL, 0) !=
	    URING_POLLS)
		return -EIO;
	return 0;
}

#endif
