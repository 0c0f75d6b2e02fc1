// SPDX-License-Identifier: MIT OR LGPL-2.1
/* What kvm_fastsys_vsock says about itself, as text and JSON. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <json-c/json.h>

#include "tool.h"
#include "vsock.h"

#define PARAMETERS VSOCK_MODULE_DIR "/parameters/"

/* Calls fn for each line "name value" of the counters. */
static bool each_counter(void (*fn)(void *arg, const char *name,
				    const char *value), void *arg)
{
	FILE *f = fopen(PARAMETERS "stats", "re");
	char line[128], name[64], value[64];

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %63s", name, value) == 2)
			fn(arg, name, value);
	fclose(f);
	return true;
}

struct wanted {
	const char *name;
	long long value;
};

static void find_counter(void *arg, const char *name, const char *value)
{
	struct wanted *wanted = arg;

	if (!strcmp(name, wanted->name))
		wanted->value = strtoll(value, NULL, 10);
}

long long vsock_counter(const char *name)
{
	struct wanted wanted = { name, -1 };

	each_counter(find_counter, &wanted);
	return wanted.value;
}

int vsock_set_mode(const char *mode)
{
	int fd = open(PARAMETERS "mode", O_WRONLY | O_CLOEXEC);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, mode, strlen(mode)) < 0)
		err = -errno;
	close(fd);
	return err;
}

bool vsock_get_mode(char *buf, size_t len)
{
	return first_line(PARAMETERS "mode", buf, len);
}

/* Zeroes say little; what is not a counter is always said. */
static void print_counter(void *arg, const char *name, const char *value)
{
	(void)arg;
	if (strcmp(value, "0"))
		printf("  %-22s %s\n", name, value);
}

void vsock_status_text(void)
{
	if (access(PARAMETERS "stats", R_OK))
		return;
	printf("vsock (kvm_fastsys_vsock)\n");
	each_counter(print_counter, NULL);
}

static void add_counter(void *arg, const char *name, const char *value)
{
	char *end;
	long long n = strtoll(value, &end, 10);

	json_object_object_add(arg, name, *end ? json_object_new_string(value) :
			       json_object_new_int64(n));
}

struct json_object *vsock_status_json(void)
{
	struct json_object *obj;

	if (access(PARAMETERS "stats", R_OK))
		return NULL;
	obj = json_object_new_object();
	each_counter(add_counter, obj);
	return obj;
}
