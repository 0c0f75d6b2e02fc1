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
	/* In the build directory; installed, whatever the prefix was. */
	static const char *const beside[] = {
		"", "../libexec/kvm_fastsys/",
	};
	char self[PATH_MAX], path[2 * PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *dir;

	(void)argc;
	if (len < 0) {
		perror("kvm-fastsys: /proc/self/exe");
		return EXIT_FAILED;
	}
	self[len] = '\0';
	dir = dirname(self);
	argv[0] = path;
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s" PROGRAM, dir, beside[i]);
		execv(path, argv);
	}
	complain("kvm-fastsys: %s: %s\nNext: make install, or run it from the build directory",
		 argv[0], strerror(errno));
	return EXIT_FAILED;
}
