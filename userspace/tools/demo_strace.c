// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * The real strace, put on this very thread, the one that runs the vCPU.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "demo.h"

/*
 * strace says "attached" only after it has stopped the thread once by
 * PTRACE_INTERRUPT. The thread that reads this line has therefore gone through
 * that stop, and every system call behind it is seen: nothing to wait for.
 */
static int read_attached(int fd)
{
	char line[256] = "";
	size_t len = 0;

	while (len + 1 < sizeof(line)) {
		ssize_t n = read(fd, line + len, sizeof(line) - 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
		line[len] = '\0';
		if (strstr(line, "attached\n"))
			return 0;
	}
	fprintf(stderr, "%s", line);
	return -EPERM;
}

int strace_attach(struct strace *s, const char *dir, const char *calls)
{
	char expr[64], tid[16];
	int err[2], ret;

	snprintf(s->log, sizeof(s->log), "%s/strace", dir);
	snprintf(expr, sizeof(expr), "trace=%s", calls);
	snprintf(tid, sizeof(tid), "%d", (int)syscall(SYS_gettid));
	if (pipe(err))
		return -errno;
	fflush(NULL);
	s->pid = fork();
	if (s->pid < 0)
		return -errno;
	if (!s->pid) {
		dup2(err[1], STDERR_FILENO);
		close(err[0]);
		close(err[1]);
		execlp("strace", "strace", "-e", expr, "-e", "signal=none",
		       "-o", s->log, "-p", tid, (char *)NULL);
		_exit(127);
	}
	/* Where only parents may trace (Yama), the child is let in by name. */
	prctl(PR_SET_PTRACER, (unsigned long)s->pid, 0, 0, 0);
	close(err[1]);
	ret = read_attached(err[0]);
	close(err[0]);
	if (ret) {
		int status;

		waitpid(s->pid, &status, 0);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
			ret = -ENOENT;
	}
	return ret;
}

int strace_detach(struct strace *s)
{
	/* It is gone only after it has let go of us. */
	if (kill(s->pid, SIGINT) || waitpid(s->pid, NULL, 0) < 0)
		return -errno;
	return 0;
}

int strace_show(const struct strace *s, const char *indent)
{
	char line[256];
	FILE *f = fopen(s->log, "re");
	int lines = 0;

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		/* Its own notes, such as that it detached, begin so. */
		if (!strncmp(line, "strace:", 7))
			continue;
		printf("%s%s", indent, line);
		lines++;
	}
	fclose(f);
	return lines;
}
