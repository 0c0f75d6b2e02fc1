// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * kvm-fastsys demo. The demo's guest is part of its program, which therefore
 * has to be static and at a fixed address: a program of its own, beside this
 * one or in libexec.
 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

#define PROGRAM "kvm-fastsys-demo"

int cmd_demo(int argc, char **argv)
{
	char self[PATH_MAX], path[PATH_MAX + sizeof(PROGRAM)];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	(void)argc;
	if (len > 0) {
		self[len] = '\0';
		snprintf(path, sizeof(path), "%s/" PROGRAM, dirname(self));
		argv[0] = path;
		execv(path, argv);
	}
	argv[0] = (char *)LIBEXECDIR "/" PROGRAM;
	execv(argv[0], argv);
	fprintf(stderr, "kvm-fastsys: %s: %s\nNext: make install, or run it from the build directory\n",
		argv[0], strerror(errno));
	return EXIT_FAILED;
}
