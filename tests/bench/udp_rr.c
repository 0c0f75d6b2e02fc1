// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * UDP request/response over ::1 with one byte each way, as netperf's UDP_RR.
 *
 *	udp_rr serve			prints its port, echoes in the background
 *	udp_rr block|epoll PORT N P	P passes of N transactions each
 *
 * The client prints nanoseconds per transaction, a line per pass. Static, so
 * that it runs natively and under `kvm-fastsys run` alike.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static unsigned long long now(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_MONOTONIC, &ts))
		err(1, "clock_gettime");
	return (unsigned long long)ts.tv_sec * 1000000000ULL +
	       (unsigned long long)ts.tv_nsec;
}

static int udp_socket(void)
{
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		err(1, "socket");
	return fd;
}

static int serve(void)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6,
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t len = sizeof(at);
	int fd = udp_socket(), null;
	char byte;

	if (bind(fd, (struct sockaddr *)&at, len) ||
	    getsockname(fd, (struct sockaddr *)&at, &len))
		err(1, "bind");
	printf("%u\n", ntohs(at.sin6_port));
	fflush(stdout);
	/* Whoever reads the port waits for the end of this output. */
	switch (fork()) {
	case -1:
		err(1, "fork");
	case 0:
		break;
	default:
		return 0;
	}
	null = open("/dev/null", O_RDWR);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(null, STDERR_FILENO);
	for (;;) {
		struct sockaddr_in6 from;

		len = sizeof(from);
		if (recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&from,
			     &len) == 1)
			sendto(fd, &byte, 1, 0, (struct sockaddr *)&from, len);
	}
}

static void transaction(int fd, int ep)
{
	struct epoll_event event;
	char byte = 'x';

	if (send(fd, &byte, 1, 0) != 1)
		err(1, "send");
	/* A datagram that does not come is a test that does not end. */
	if (ep >= 0 && epoll_wait(ep, &event, 1, -1) != 1)
		err(1, "epoll_wait");
	if (recv(fd, &byte, 1, ep >= 0 ? MSG_DONTWAIT : 0) != 1)
		err(1, "recv");
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6,
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct epoll_event event = { .events = EPOLLIN };
	unsigned long n, passes;
	int fd, ep = -1;

	if (argc == 2 && !strcmp(argv[1], "serve"))
		return serve();
	if (argc != 5 || (strcmp(argv[1], "block") && strcmp(argv[1], "epoll")))
		errx(2, "usage: udp_rr serve | block|epoll PORT N PASSES");
	fd = udp_socket();
	to.sin6_port = htons((unsigned short)atoi(argv[2]));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "connect");
	if (!strcmp(argv[1], "epoll")) {
		ep = epoll_create1(EPOLL_CLOEXEC);
		if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event))
			err(1, "epoll");
	}
	n = strtoul(argv[3], NULL, 10);
	passes = strtoul(argv[4], NULL, 10);
	for (unsigned long p = 0; p < passes; p++) {
		unsigned long long start = now();

		for (unsigned long i = 0; i < n; i++)
			transaction(fd, ep);
		printf("%.2f\n", (double)(now() - start) / (double)n);
	}
	return 0;
}
