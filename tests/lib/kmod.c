// SPDX-License-Identifier: MIT OR LGPL-2.1
#include "kfstest.h"
#include "kmod.h"

int kmod_unload(void)
{
	return syscall(SYS_delete_module, "kvm_fastsys", O_NONBLOCK) ? -errno : 0;
}

static bool device_is_there(void *unused)
{
	return !access(KFS_DEVICE_PATH, F_OK);
}

int kmod_load(const char *params)
{
	const char *path = getenv("KFS_MODULE");
	int fd = open(path ? path : "/kfs/kvm_fastsys.ko", O_RDONLY | O_CLOEXEC);
	int err;

	if (fd < 0)
		return -errno;
	err = syscall(SYS_finit_module, fd, params, 0) ? -errno : 0;
	close(fd);
	if (err)
		return err;
	/* The node is made by devtmpfs, soon after. */
	return wait_for(device_is_there, NULL, SECONDS(10)) ? 0 : -ENOENT;
}

int put_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	/* A list of functions is taken one a write. */
	while (*text) {
		ssize_t n = write(fd, text, strlen(text));
		int err = errno;

		if (n <= 0) {
			close(fd);
			return n ? -err : -EIO;
		}
		text += n;
	}
	close(fd);
	return 0;
}

int set_ftrace(const char *value)
{
	return put_text("/proc/sys/kernel/ftrace_enabled", value);
}

struct kfs_hook_info hook_named(int dev, const char *name)
{
	struct kfs_hook_info info = { .size = sizeof(info) };

	while (!ioctl(dev, KFS_HOOK_INFO, &info)) {
		if (!strcmp(info.name, name))
			return info;
		info = (struct kfs_hook_info){
			.size = sizeof(info), .index = info.index + 1,
		};
	}
	return (struct kfs_hook_info){ };
}

int kmsg_open(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		lseek(fd, 0, SEEK_END);
	return fd < 0 ? -errno : fd;
}

int kmsg_ours(int fd, char *line, size_t size)
{
	static const char prefix[] = "kvm_fastsys: ";
	char record[1024];
	int found = 0;
	ssize_t n;

	*line = '\0';
	while ((n = read(fd, record, sizeof(record) - 1)) > 0) {
		char *text;

		record[n] = '\0';
		text = strchr(record, ';');
		if (!text || strncmp(text + 1, prefix, strlen(prefix)))
			continue;
		/* The kernel's own words about an unsigned module. */
		if (strstr(text, "taint"))
			continue;
		text += strlen(prefix) + 1;
		text[strcspn(text, "\n")] = '\0';
		snprintf(line, size, "%s", text);
		found++;
	}
	return found;
}
