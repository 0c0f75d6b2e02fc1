// SPDX-License-Identifier: MIT OR LGPL-2.1
/* See kfstest.h: host ABI and waiting. */
#include <poll.h>
#include <sched.h>
#include <time.h>

#include "kfstest.h"

static int result(int ret)
{
	return ret < 0 ? -errno : ret;
}

int kfs_open(void)
{
	return result(open(KFS_DEVICE_PATH, O_RDWR | O_CLOEXEC));
}

int kfs_info(int dev, struct kfs_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return result(ioctl(dev, KFS_GET_INFO, info));
}

int kfs_attach(int dev, int vm_fd, uint32_t mode, uint32_t flags)
{
	struct kfs_attach_vm req = {
		.size = sizeof(req), .flags = flags, .vm_fd = vm_fd,
		.mode = mode,
	};

	return result(ioctl(dev, KFS_ATTACH_VM, &req));
}

int kfs_policy(int ctl, const struct sock_filter *filter, uint32_t count)
{
	struct kfs_set_policy req = {
		.size = sizeof(req), .count = count, .filter = U(filter),
	};

	return result(ioctl(ctl, KFS_SET_POLICY, &req));
}

int kfs_policy_ret(int ctl, uint32_t seccomp_ret)
{
	struct sock_filter filter = BPF_STMT(BPF_RET | BPF_K, seccomp_ret);

	return kfs_policy(ctl, &filter, 1);
}

int kfs_enable(int ctl)
{
	struct kfs_enable req = { .size = sizeof(req) };

	return result(ioctl(ctl, KFS_ENABLE, &req));
}

int kfs_stats(int fd, struct kfs_vm_stats *st)
{
	memset(st, 0, sizeof(*st));
	st->size = sizeof(*st);
	return result(ioctl(fd, KFS_VM_STATS, st));
}

uint64_t declined_sum(const struct kfs_vm_stats *st)
{
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < 32; i++)
		sum += st->declined[i];
	return sum;
}

bool declined_only(const struct kfs_vm_stats *before,
		   const struct kfs_vm_stats *after, unsigned int reason,
		   uint64_t n, char *why, size_t size)
{
	unsigned int i;

	for (i = 0; i < 32; i++) {
		uint64_t got = after->declined[i] - before->declined[i];
		uint64_t want = i == reason ? n : 0;

		if (got != want) {
			snprintf(why, size,
				 "declined[%u] moved by %lld, not %llu", i,
				 (long long)got, (unsigned long long)want);
			return false;
		}
	}
	if (after->ran != before->ran || after->denied != before->denied) {
		snprintf(why, size, "ran moved by %lld, denied by %lld",
			 (long long)(after->ran - before->ran),
			 (long long)(after->denied - before->denied));
		return false;
	}
	/* What KVM itself answers (the reasons up to CPL) is in neither. */
	if (reason > KFS_REASON_CPL &&
	    after->deferred + after->refused !=
	    before->deferred + before->refused + n) {
		snprintf(why, size, "deferred + refused moved by %lld, not %llu",
			 (long long)(after->deferred + after->refused -
				     before->deferred - before->refused),
			 (unsigned long long)n);
		return false;
	}
	return true;
}

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

bool wait_for(bool (*done)(void *), void *arg, uint64_t ns)
{
	uint64_t end = now_ns() + ns;

	while (!done(arg)) {
		if (now_ns() > end)
			return false;
		sched_yield();
	}
	return true;
}

struct in_call {
	int ctl;
	unsigned int n;
};

static bool is_in_call(void *arg)
{
	struct in_call *c = arg;
	struct kfs_vm_stats st;

	return !kfs_stats(c->ctl, &st) && st.in_call == c->n;
}

bool wait_in_call(int ctl, unsigned int n)
{
	struct in_call c = { ctl, n };

	return wait_for(is_in_call, &c, SECONDS(10));
}

int module_refs(const char *name)
{
	char path[128];
	int refs = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/module/%s/refcnt", name);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &refs) != 1)
		refs = -1;
	fclose(f);
	return refs;
}

struct refs {
	const char *name;
	int n;
};

static bool refs_are(void *arg)
{
	struct refs *r = arg;

	return module_refs(r->name) == r->n;
}

bool wait_module_refs(const char *name, int n)
{
	struct refs r = { name, n };

	return wait_for(refs_are, &r, SECONDS(10));
}

int64_t native(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
	       uint64_t a4, uint64_t a5)
{
	register uint64_t r10 __asm__("r10") = a3;
	register uint64_t r8 __asm__("r8") = a4;
	register uint64_t r9 __asm__("r9") = a5;
	int64_t ret;

	/* Not syscall(): that would fold results into errno. */
	__asm__ volatile("syscall" : "=a" (ret)
			 : "a" (nr), "D" (a0), "S" (a1), "d" (a2), "r" (r10),
			   "r" (r8), "r" (r9) : "rcx", "r11", "memory");
	return ret;
}

int wait_child(pid_t pid, uint64_t ns)
{
	int pidfd = syscall(SYS_pidfd_open, pid, 0);
	struct pollfd pfd = { .fd = pidfd, .events = POLLIN };
	uint64_t end = now_ns() + ns;
	int status = 0;
	int ready;

	do {
		uint64_t now = now_ns();

		ready = poll(&pfd, 1, now < end ? (end - now) / 1000000 : 0);
	} while (ready < 0 && errno == EINTR);
	close(pidfd);
	if (ready <= 0)
		kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		return -ECHILD;
	return ready > 0 ? status : -ETIMEDOUT;
}

static void nothing(int sig)
{
	(void)sig;
}

void catch_signal(int sig)
{
	struct sigaction sa = { .sa_handler = nothing };

	sigaction(sig, &sa, NULL);
}

const char *why_not_here(void)
{
	static char why[160];
	int fd;

	if (access("/dev/kvm", F_OK))
		return "no /dev/kvm: load kvm_amd or kvm_intel first";
	fd = kfs_open();
	if (fd >= 0) {
		close(fd);
		return NULL;
	}
	snprintf(why, sizeof(why), "%s: %s: load kvm_fastsys first",
		 KFS_DEVICE_PATH, strerror(-fd));
	return why;
}
