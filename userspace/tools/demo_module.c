// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "demo.h"

#define MODULE "kvm_fastsys"

int module_unload(void)
{
	return syscall(SYS_delete_module, MODULE, O_NONBLOCK) ? -errno : 0;
}

int module_wait_unused(void)
{
	time_t end = time(NULL) + 10;

	while (time(NULL) < end) {
		FILE *f = fopen("/sys/module/" MODULE "/refcnt", "re");
		int users = -1;

		if (!f)
			return -errno;
		if (fscanf(f, "%d", &users) != 1)
			users = -1;
		fclose(f);
		if (!users)
			return 0;
	}
	return -ETIMEDOUT;
}

static int load_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = syscall(SYS_finit_module, fd, "", 0) ? -errno : 0;
	close(fd);
	return ret;
}

static int modprobe(void)
{
	int status, pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid) {
		execlp("modprobe", "modprobe", MODULE, (char *)NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -ENOENT;
}

int module_load(const char *path)
{
	char self[PATH_MAX], beside[PATH_MAX + 32];
	ssize_t len;

	if (path)
		return load_file(path);
	len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (len > 0) {
		self[len] = '\0';
		snprintf(beside, sizeof(beside), "%s/" MODULE ".ko",
			 dirname(self));
		if (!access(beside, R_OK))
			return load_file(beside);
	}
	return modprobe();
}
