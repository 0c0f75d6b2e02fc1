// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/io_uring.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "kickbench.h"

const char *const way_names[WAYS] = {
	[BY_FD] = "kick_fd", [BY_IOCTL] = "vcpu_ioctl", [BY_SIGNAL] = "signal",
	[BY_URING] = "io_uring",
};

static struct kvm_run *signalled_run;

uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* As QEMU and Firecracker do it: covers a signal just before KVM_RUN. */
static void handler(int sig)
{
	(void)sig;
	signalled_run->immediate_exit = 1;
}

int bench_open(struct bench *b, bool module)
{
	struct sigaction sa = { .sa_handler = handler };
	int ret = gvm_create(&b->vm, NULL);

	if (!ret)
		ret = gvm_vcpu_create(&b->vm, &b->vcpu);
	if (ret) {
		fprintf(stderr, "kick: %s\n", gvm_strerror(&b->vm));
		return ret;
	}
	b->g = gvm_alloc(&b->vm, sizeof(*b->g), 64);
	b->dev = b->kick = b->uring = -1;
	b->event = eventfd(0, EFD_CLOEXEC);
	signalled_run = b->vcpu->run;
	sigaction(SIGUSR1, &sa, NULL);
	b->has[BY_SIGNAL] = true;
	if (!module)
		return 0;
	b->dev = kfs_open();
	if (b->dev < 0) {
		fprintf(stderr, "kick: %s\n", kfs_strerror(b->dev, KFS_WHAT_OPEN));
		return b->dev;
	}
	return 0;
}

void bench_kick(struct bench *b, enum kick_way way)
{
	uint64_t one = 1;
	long ret;

	switch (way) {
	case BY_FD:
		ret = write(b->kick, &one, sizeof(one));
		break;
	case BY_IOCTL:
		ret = ioctl(b->vcpu->fd, KFS_USER_EXIT, 0UL);
		break;
	case BY_SIGNAL:
		ret = syscall(SYS_tgkill, getpid(), b->tid, SIGUSR1);
		break;
	default:
		ret = write(b->event, &one, sizeof(one));
	}
	if (ret < 0) {
		perror(way_names[way]);
		_exit(1);
	}
}

/* ---- io_uring: one poll on the eventfd, armed for every event ------------- */
struct ring {
	uint32_t *head, *tail, mask;
	struct io_uring_cqe *cqes;
};

static int ring_open(struct bench *b, struct ring *r)
{
	struct io_uring_params p = { 0 };
	struct io_uring_sqe *sqe;
	char *sq, *cq;
	int fd = (int)syscall(SYS_io_uring_setup, 4, &p);

	if (fd < 0)
		return -1;
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4,
		  PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(*r->cqes),
		  PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_CQ_RING);
	sqe = mmap(NULL, p.sq_entries * sizeof(*sqe), PROT_READ | PROT_WRITE,
		   MAP_SHARED, fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || sqe == MAP_FAILED)
		return -1;
	r->head = (uint32_t *)(cq + p.cq_off.head);
	r->tail = (uint32_t *)(cq + p.cq_off.tail);
	r->mask = *(uint32_t *)(cq + p.cq_off.ring_mask);
	r->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_POLL_ADD;
	sqe->fd = b->event;
	sqe->poll32_events = POLLIN;
	sqe->len = IORING_POLL_ADD_MULTI;
	*(uint32_t *)(sq + p.sq_off.array) = 0;
	__atomic_store_n((uint32_t *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, fd, 1, 0, 0, NULL, 0) != 1)
		return -1;
	b->uring = fd;
	return 0;
}

static bool ring_take(struct ring *r)
{
	uint32_t tail = __atomic_load_n(r->tail, __ATOMIC_ACQUIRE);

	if (*r->head == tail)
		return false;
	__atomic_store_n(r->head, tail, __ATOMIC_RELEASE);
	return true;
}

void *bench_vcpu(void *arg)
{
	struct bench *b = arg;
	struct ring ring;
	bool has_ring = !ring_open(b, &ring);

	b->has[BY_URING] = has_ring;
	__atomic_store_n(&b->tid, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&b->stop, __ATOMIC_SEQ_CST)) {
		uint64_t now;

		if (!ioctl(b->vcpu->fd, KVM_RUN, 0UL) || errno != EINTR) {
			fprintf(stderr, "kick: %s\n", gvm_describe(b->vcpu));
			_exit(1);
		}
		if (!kfs_kicked(b->vcpu->run) &&
		    !(has_ring && ring_take(&ring)))
			continue;
		now = clock_ns();
		b->back = now;
		__atomic_add_fetch(&b->taken, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}
