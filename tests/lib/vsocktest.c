// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/vm_sockets.h>
#include <linux/kvm_fastsys_vsock.h>

#include "vsocktest.h"

#define PARAMETERS "/sys/module/kvm_fastsys_vsock/parameters/"

static int run_quietly(const char *command)
{
	int status = system(command);

	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int vsock_load(const char *options)
{
	const char *dir = getenv("KFS_DIR");
	char path[256];
	int fd, err = 0;

	snprintf(path, sizeof(path), "%s/kvm_fastsys_vsock.ko",
		 dir ? dir : "/kfs");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (syscall(SYS_finit_module, fd, options, 0))
		err = -errno;
	close(fd);
	return err;
}

int vsock_unload(void)
{
	return syscall(SYS_delete_module, "kvm_fastsys_vsock", O_NONBLOCK) ?
	       -errno : 0;
}

const char *vsock_setup(void)
{
	static char why[128];
	int err;

	if (geteuid())
		return "needs root to load modules";
	run_quietly("modprobe -q vsock_loopback");
	if (!access("/sys/module/kvm_fastsys_vsock", F_OK))
		return NULL;
	err = vsock_load("");
	if (!err)
		return NULL;
	snprintf(why, sizeof(why), "cannot load kvm_fastsys_vsock.ko: %s",
		 strerror(-err));
	return why;
}

int vsock_set(const char *name, const char *value)
{
	char path[128];
	int fd, err = 0;

	snprintf(path, sizeof(path), PARAMETERS "%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* A write of nothing would not reach the module. */
	if (write(fd, *value ? value : "\n", *value ? strlen(value) : 1) < 0)
		err = -errno;
	close(fd);
	return err;
}

long long vsock_stat(const char *name)
{
	char line[128], key[64];
	long long value, found = -1;
	FILE *f = fopen(PARAMETERS "stats", "re");

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %lld", key, &value) == 2 &&
		    !strcmp(key, name))
			found = value;
	fclose(f);
	return found;
}

int vsock_pair_type(int fds[2], int type)
{
	struct sockaddr_vm addr = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_LOCAL,
		.svm_port = VMADDR_PORT_ANY,
	};
	socklen_t len = sizeof(addr);
	int listener, err;

	fds[0] = -1;
	fds[1] = -1;
	listener = socket(AF_VSOCK, type | SOCK_CLOEXEC, 0);
	if (listener < 0 ||
	    bind(listener, (struct sockaddr *)&addr, sizeof(addr)) ||
	    getsockname(listener, (struct sockaddr *)&addr, &len) ||
	    listen(listener, 1))
		goto fail;
	addr.svm_cid = VMADDR_CID_LOCAL;
	fds[0] = socket(AF_VSOCK, type | SOCK_CLOEXEC, 0);
	if (fds[0] < 0 ||
	    connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)))
		goto fail;
	fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fds[1] < 0)
		goto fail;
	close(listener);
	return 0;
fail:
	err = -errno;
	if (listener >= 0)
		close(listener);
	if (fds[0] >= 0)
		close(fds[0]);
	return err;
}

int vsock_pair(int fds[2])
{
	return vsock_pair_type(fds, SOCK_STREAM);
}

int vsock_nodelay(int fd, int on)
{
	return setsockopt(fd, AF_VSOCK, SO_KFS_VSOCK_NODELAY, &on,
			  sizeof(on)) ? -errno : 0;
}

int write_all(int fd, const void *buf, size_t len, int flags)
{
	const char *p = buf;

	while (len) {
		ssize_t n = send(fd, p, len, flags | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= n;
	}
	return 0;
}

ssize_t read_all(int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = recv(fd, (char *)buf + done, len - done, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (!n)
			break;
		done += n;
	}
	return done;
}

uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* One word of the stream; a multiply so that neighbours share nothing. */
static uint64_t pattern_word(uint64_t index, uint64_t seed)
{
	uint64_t x = (index + 1) * 0x9e3779b97f4a7c15ULL ^ seed;

	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9ULL;
}

void pattern(uint8_t *buf, size_t len, uint64_t at, uint64_t seed)
{
	size_t done = 0;

	while (done < len) {
		uint64_t word = pattern_word((at + done) / 8, seed);
		size_t off = (at + done) % 8;
		size_t n = 8 - off < len - done ? 8 - off : len - done;

		memcpy(buf + done, (uint8_t *)&word + off, n);
		done += n;
	}
}

size_t pattern_check(const uint8_t *buf, size_t len, uint64_t at,
		     uint64_t seed)
{
	size_t done = 0;

	while (done < len) {
		uint64_t word = pattern_word((at + done) / 8, seed);
		size_t off = (at + done) % 8;
		size_t n = 8 - off < len - done ? 8 - off : len - done;

		if (memcmp(buf + done, (uint8_t *)&word + off, n)) {
			while (buf[done] == ((uint8_t *)&word)[off])
				done++, off++;
			return done;
		}
		done += n;
	}
	return len;
}
