// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * fake_host.so, to be preloaded: the tool on a computer that is made up.
 *
 *  FAKE_RELEASE  what uname() calls the kernel
 *  FAKE_ROOT     directory that stands for /sys, /proc, /boot and /dev/kvm*
 *  FAKE_LIVE     the module's hook is live
 *  FAKE_VMS      "TOTAL OWN": VMs on the host, and those this user may see
 *  FAKE_VSOCK    "up": vsock ports are UNIX sockets, of that process's tree;
 *                "down": nobody answers, connect() lasts its whole timeout
 *  FAKE_NAME     sets the ports of one test apart from another's
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <linux/kvm_fastsys.h>
#include <linux/vm_sockets.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static const char *moved(const char *path, char *buf, size_t len)
{
	static const char *const trees[] = {
		"/sys/", "/proc/", "/boot/", "/dev/kvm",
	};
	const char *root = getenv("FAKE_ROOT");

	for (size_t i = 0; root && i < sizeof(trees) / sizeof(trees[0]); i++)
		if (!strncmp(path, trees[i], strlen(trees[i]))) {
			snprintf(buf, len, "%s%s", root, path);
			return buf;
		}
	return path;
}

int uname(struct utsname *uts)
{
	int ret = REAL(uname)(uts);

	if (getenv("FAKE_RELEASE"))
		snprintf(uts->release, sizeof(uts->release), "%s",
			 getenv("FAKE_RELEASE"));
	return ret;
}

FILE *fopen(const char *path, const char *mode)
{
	char buf[512];

	return REAL(fopen)(moved(path, buf, sizeof(buf)), mode);
}

int access(const char *path, int mode)
{
	char buf[512];

	return REAL(access)(moved(path, buf, sizeof(buf)), mode);
}

int open(const char *path, int flags, ...)
{
	char buf[512];
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	/* A parameter is set as a whole. */
	if (!strncmp(path, "/sys/", 5) && flags & O_WRONLY)
		flags |= O_TRUNC;
	return REAL(open)(moved(path, buf, sizeof(buf)), flags, mode);
}

static int fail(int err)
{
	errno = err;
	return -1;
}

static int device(unsigned long cmd, void *arg)
{
	unsigned int vms = 0, own = 0;
	const char *list = getenv("FAKE_VMS");

	if (list)
		sscanf(list, "%u %u", &vms, &own);
	if (cmd == KFS_GET_INFO) {
		struct kfs_info *info = arg;

		*info = (struct kfs_info) {
			.size = sizeof(*info), .vms = vms,
			.abi_version = KFS_ABI_VERSION, .hooks = 1,
			.module_version = "fake",
		};
		return 0;
	}
	if (cmd == KFS_HOOK_INFO) {
		struct kfs_hook_info *hook = arg;

		if (hook->index)
			return fail(ENOENT);
		strcpy(hook->name, "hypercall");
		strcpy(hook->target, "kvm:kvm_emulate_hypercall");
		hook->state = getenv("FAKE_LIVE") ? KFS_HOOK_LIVE :
						    KFS_HOOK_OFF;
		return 0;
	}
	if (cmd == KFS_VM_STATS) {
		struct kfs_vm_stats *stats = arg;

		if (stats->id >= own)
			return fail(ENOENT);
		stats->calls_len = 0;
		return 0;
	}
	return fail(ENOTTY);
}

int ioctl(int fd, unsigned long cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (_IOC_TYPE(cmd) == KFSIO)
		return device(cmd, arg);
	return REAL(ioctl)(fd, cmd, arg);
}

/*
 * ---- vsock --------------------------------------------------------------
 */
static struct timeval patience;

static const char *vsock(void)
{
	return getenv("FAKE_VSOCK");
}

static socklen_t port_name(struct sockaddr_un *un, unsigned int port)
{
	*un = (struct sockaddr_un) { .sun_family = AF_UNIX };
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
		snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
			 "kfs-unit-%s-%u", getenv("FAKE_NAME"), port));
}

int socket(int family, int type, int protocol)
{
	return REAL(socket)(vsock() && family == AF_VSOCK ? AF_UNIX : family,
			    type, protocol);
}

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_un un;
	unsigned int port = ((const struct sockaddr_vm *)addr)->svm_port;

	if (!vsock() || addr->sa_family != AF_VSOCK)
		return REAL(bind)(fd, addr, len);
	if (port == VMADDR_PORT_ANY)
		port = 100000 + (unsigned int)getpid();
	len = port_name(&un, port);
	return REAL(bind)(fd, (struct sockaddr *)&un, len);
}

int getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_un un;
	socklen_t size = sizeof(un);
	const char *dash;

	if (!vsock() || addr->sa_family != AF_VSOCK)
		return REAL(getsockname)(fd, addr, len);
	memset(&un, 0, sizeof(un));
	if (REAL(getsockname)(fd, (struct sockaddr *)&un, &size))
		return -1;
	dash = strrchr(un.sun_path + 1, '-');
	((struct sockaddr_vm *)addr)->svm_port =
		dash ? (unsigned int)atoi(dash + 1) : 0;
	return 0;
}

int connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_un un;

	if (!vsock() || addr->sa_family != AF_VSOCK)
		return REAL(connect)(fd, addr, len);
	if (strcmp(vsock(), "up")) {
		sleep((unsigned int)patience.tv_sec);
		return fail(ETIMEDOUT);
	}
	len = port_name(&un, ((const struct sockaddr_vm *)addr)->svm_port);
	return REAL(connect)(fd, (struct sockaddr *)&un, len);
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t len)
{
	if (!vsock() || level != AF_VSOCK)
		return REAL(setsockopt)(fd, level, option, value, len);
	if (option == SO_VM_SOCKETS_CONNECT_TIMEOUT)
		memcpy(&patience, value, sizeof(patience));
	return 0;
}
