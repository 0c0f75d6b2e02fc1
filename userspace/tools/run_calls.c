// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Calls that end in the launcher. Three kinds: those that it serves by itself
 * because they are about the program's own memory and thread, which are not
 * the host's to give (no policy is asked); those it makes on the host like the
 * module would, after the policy; and those a program here cannot have.
 */
#include <asm/ldt.h>
#include <asm/prctl.h>
#include <asm/termbits.h>
#include <asm/unistd_64.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <kfs.h>

#include "bpf.h"
#include "run.h"

#define CALLS 512

/* Calls of the first kind. mmap of a file asks the policy all the same. */
static const uint16_t own[] = {
	__NR_brk, __NR_mmap, __NR_munmap, __NR_mprotect, __NR_mremap,
	__NR_arch_prctl, __NR_set_tid_address, __NR_set_robust_list,
	__NR_rseq, __NR_exit, __NR_exit_group, __NR_rt_sigaction,
	__NR_rt_sigprocmask, __NR_sigaltstack,
};

/* What the module runs, and what it leaves to a VMM but is as harmless. */
static const bool host[CALLS] = {
#define X(name) \
	[__NR_##name] = true
#define KFS_CALL(name, check, flags, why) X(name),
#include "syscalls.tbl"
#undef KFS_CALL
	X(open), X(creat), X(stat), X(lstat), X(access), X(readlink),
	X(mkdir), X(rmdir), X(unlink), X(rename), X(renameat), X(link),
	X(linkat), X(symlink), X(symlinkat), X(mknod), X(mknodat), X(chmod),
	X(fchmod), X(fchmodat), X(chown), X(fchown), X(lchown), X(fchownat),
	X(utime), X(utimes), X(futimesat), X(utimensat), X(truncate),
	X(umask), X(chdir), X(fchdir), X(statfs), X(fstatfs), X(getdents),
	X(faccessat2), X(openat2), X(preadv2), X(pwritev2), X(splice),
	X(tee), X(sync), X(syncfs), X(sync_file_range), X(readahead),
	X(flock), X(getxattr), X(lgetxattr), X(fgetxattr), X(listxattr),
	X(llistxattr), X(flistxattr), X(setxattr), X(lsetxattr),
	X(fsetxattr), X(removexattr), X(lremovexattr), X(fremovexattr),
	X(inotify_init1), X(inotify_add_watch), X(inotify_rm_watch),
	X(pipe), X(eventfd), X(epoll_create), X(select), X(pselect6),
	X(epoll_pwait2), X(accept), X(sendmsg), X(recvmsg), X(sendmmsg),
	X(recvmmsg), X(getsockopt), X(setsockopt), X(time), X(gettimeofday),
	X(times), X(getrusage), X(getrlimit), X(setrlimit), X(prlimit64),
	X(sysinfo), X(getcpu), X(getpgrp), X(getpgid), X(getsid),
	X(setpgid), X(setsid), X(getresuid), X(getresgid), X(getgroups),
	X(getpriority), X(setpriority), X(sched_getaffinity),
	X(sched_setaffinity), X(sched_getscheduler), X(sched_getparam),
	X(wait4), X(waitid), X(msync), X(mincore), X(kill), X(tkill),
	X(tgkill), X(clock_settime), X(settimeofday), X(sethostname),
	X(syslog),
#undef X
};

/* Terminals and sizes; anything else would be a device's own business. */
static const unsigned int ioctls[] = {
	TCGETS, TCSETS, TCSETSW, TCSETSF, TCSBRK, TCXONC, TCFLSH, TIOCGWINSZ,
	TIOCSWINSZ, TIOCGPGRP, TIOCSPGRP, TIOCGSID, TIOCOUTQ, FIONREAD,
	FIONBIO, FIOCLEX, FIONCLEX,
};

/* Signals for which the program asked for a handler: it never runs. */
static uint64_t handlers[65][4];

static long host_call(uint64_t nr, const uint64_t *a)
{
	register uint64_t r10 __asm__("r10") = a[3];
	register uint64_t r8 __asm__("r8") = a[4];
	register uint64_t r9 __asm__("r9") = a[5];
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "0"(nr), "D"(a[0]), "S"(a[1]), "d"(a[2]),
			   "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

static const char *why_not(uint64_t nr)
{
	switch (nr) {
	case __NR_clone:
	case __NR_clone3:
	case __NR_fork:
	case __NR_vfork:
		return "programs here have one thread and start no others";
	case __NR_execve:
	case __NR_execveat:
		return "programs here start no others";
	case __NR_alarm:
	case __NR_setitimer:
	case __NR_timer_create:
	case __NR_pause:
	case __NR_rt_sigsuspend:
	case __NR_rt_sigtimedwait:
	case __NR_signalfd:
	case __NR_signalfd4:
	case __NR_kill:
	case __NR_tkill:
	case __NR_tgkill:
		return "programs here get no signals";
	}
	return "not among the calls that programs here have";
}

static long refuse(struct run *r, uint64_t nr)
{
	const char *name = nr < CALLS ? kfs_syscall_name((unsigned int)nr) :
					NULL;

	if (nr < CALLS && r->refused[nr])
		return -ENOSYS;
	if (nr < CALLS)
		r->refused[nr] = true;
	if (name)
		run_say(r, "%s refused (ENOSYS): %s", name, why_not(nr));
	else
		run_say(r, "system call %lu refused (ENOSYS): %s",
			(unsigned long)nr, why_not(nr));
	return -ENOSYS;
}

/* 0: go on. Otherwise the program's result. */
static long judge(struct run *r, uint64_t nr, const uint64_t *args)
{
	struct seccomp_data sd = {
		.nr = (int)nr, .arch = AUDIT_ARCH_X86_64,
		.args = { args[0], args[1], args[2], args[3], args[4],
			  args[5] },
	};
	uint32_t ret;

	if (!r->filter)
		return 0;
	ret = bpf_judge(r->filter, r->filter_len, &sd);
	switch (ret & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ALLOW:
	case SECCOMP_RET_LOG:
		return 0;
	case SECCOMP_RET_ERRNO:
		return -(long)(ret & SECCOMP_RET_DATA);
	case SECCOMP_RET_TRACE:
	case SECCOMP_RET_USER_NOTIF:
		return -ENOSYS;
	}
	run_say(r, "the policy ends it for %s",
		nr < CALLS && kfs_syscall_name((unsigned int)nr) ?
		kfs_syscall_name((unsigned int)nr) : "an unknown call");
	run_kill(SIGSYS);
}

/* struct sigaction as the kernel has it: handler, flags, restorer, mask. */
static long sigaction_call(const uint64_t *args)
{
	const uint64_t *new = (const uint64_t *)args[1];
	uint64_t *old = (uint64_t *)args[2];
	uint64_t before[4];

	if (!args[0] || args[0] > 64 || args[3] != 8 ||
	    (new && (args[0] == SIGKILL || args[0] == SIGSTOP)))
		return -EINVAL;
	/* Pointers of the program may be wrong: the kernel looks at them. */
	if ((new && !run_mem_inside(args[1], 32)) ||
	    (old && !run_mem_inside(args[2], 32)))
		return -EFAULT;
	memcpy(before, handlers[args[0]], sizeof(before));
	if (new) {
		uint64_t plain[4] = { new[0] == 1 ? 1 : 0 };

		memcpy(handlers[args[0]], new, sizeof(before));
		host_call(__NR_rt_sigaction,
			  (uint64_t[6]) { args[0], (uintptr_t)plain, 0, 8 });
	}
	if (old)
		memcpy(old, before, sizeof(before));
	return 0;
}

/* As the program inherits them: what was ignored stays ignored. */
void run_calls_init(void)
{
	for (uint64_t sig = 1; sig <= 64; sig++)
		host_call(__NR_rt_sigaction,
			  (uint64_t[6]) { sig, 0, (uintptr_t)handlers[sig], 8 });
}

static long own_call(struct run *r, uint64_t nr, const uint64_t *a)
{
	long ret;

	switch (nr) {
	case __NR_brk:
		return run_brk(a[0]);
	case __NR_mmap:
		if (!(a[3] & MAP_ANONYMOUS)) {
			if (run_is_hidden(r, a[4]))
				return -EBADF;
			ret = judge(r, nr, a);
			if (ret)
				return ret;
		}
		return run_mmap(a[0], a[1], (int)a[2], (int)a[3], (int)a[4],
				a[5]);
	case __NR_munmap:
		return run_munmap(a[0], a[1]);
	case __NR_mprotect:
		return run_mprotect(a[0], a[1], (int)a[2]);
	case __NR_mremap:
		return run_mremap(a[0], a[1], a[2], (int)a[3], a[4]);
	case __NR_arch_prctl:
		if (a[0] == ARCH_SET_FS) {
			run_set_fs(r, a[1]);
			return 0;
		}
		if (a[0] == ARCH_GET_FS && run_mem_inside(a[1], 8)) {
			*(uint64_t *)a[1] = run_get_fs(r);
			return 0;
		}
		return -EINVAL;
	case __NR_set_tid_address:
		return host_call(__NR_gettid, a);
	case __NR_set_robust_list:
		return 0;
	case __NR_rt_sigaction:
		return sigaction_call(a);
	case __NR_rt_sigprocmask:
		return host_call(nr, a);
	case __NR_sigaltstack:
		return 0;
	case __NR_exit:
	case __NR_exit_group:
		_exit((int)a[0]);
	}
	return -ENOSYS;		/* rseq: there is no harm in saying so */
}

static long ioctl_call(struct run *r, const uint64_t *a)
{
	for (size_t i = 0; i < sizeof(ioctls) / sizeof(ioctls[0]); i++)
		if ((unsigned int)a[1] == ioctls[i])
			return host_call(__NR_ioctl, a);
	if (!r->refused[__NR_ioctl])
		run_say(r, "ioctl %#lx refused (ENOTTY): only terminals' are made",
			(unsigned long)a[1]);
	r->refused[__NR_ioctl] = true;
	return -ENOTTY;
}

/* Signals to itself that would have run a handler. */
static bool signals_itself(uint64_t nr, const uint64_t *a)
{
	uint64_t sig = nr == __NR_tgkill ? a[2] : a[1];
	long self = getpid();

	if (sig > 64 || handlers[sig][0] <= 1)
		return false;
	return (long)a[0] == self || (nr == __NR_kill && (int)a[0] <= 0);
}

/* The first argument is a descriptor, for these; ours are nobody's. */
static bool is_hidden(const struct run *r, uint64_t nr, const uint64_t *a)
{
	switch (nr) {
	case __NR_dup2:
	case __NR_dup3:
		return run_is_hidden(r, a[0]) || run_is_hidden(r, a[1]);
	case __NR_close:
	case __NR_dup:
	case __NR_fcntl:
	case __NR_ioctl:
	case __NR_read:
	case __NR_write:
		return run_is_hidden(r, a[0]);
	}
	return false;
}

static long prctl_call(struct run *r, const uint64_t *a)
{
	switch ((int)a[0]) {
	case PR_SET_NAME:
	case PR_GET_NAME:
	case PR_GET_DUMPABLE:
	case PR_SET_PDEATHSIG:
	case PR_GET_NO_NEW_PRIVS:
	case PR_SET_NO_NEW_PRIVS:
	case PR_CAPBSET_READ:
		return host_call(__NR_prctl, a);
	}
	(void)r;
	return -EINVAL;
}

long run_call(struct run *r, uint64_t nr, const uint64_t args[6])
{
	long ret;

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (nr == own[i])
			return own_call(r, nr, args);
	ret = judge(r, nr, args);
	if (ret)
		return ret;
	if (is_hidden(r, nr, args))
		return -EBADF;
	switch (nr) {
	case __NR_ioctl:
		return ioctl_call(r, args);
	case __NR_prctl:
		return prctl_call(r, args);
	case __NR_kill:
	case __NR_tkill:
	case __NR_tgkill:
		if (signals_itself(nr, args))
			return refuse(r, nr);
		break;
	}
	if (nr >= CALLS || !host[nr])
		return refuse(r, nr);
	return host_call(nr, args);
}

unsigned int run_policy(const struct run *r, struct sock_filter **out)
{
	static struct sock_filter allow =
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	const unsigned int n = sizeof(own) / sizeof(own[0]);
	const struct sock_filter *rest = r->filter ? r->filter : &allow;
	unsigned int len = r->filter ? r->filter_len : 1;
	struct sock_filter *f = calloc(n + 2 + len, sizeof(*f)), *p = f;

	if (!f)
		run_die(r, "no memory");
	*p++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			offsetof(struct seccomp_data, nr));
	for (unsigned int i = 0; i < n; i++)
		*p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
				own[i], (__u8)(n - i - 1), (__u8)(i + 1 == n));
	/* Jumps of the list land here, all other calls behind it. */
	*p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
			SECCOMP_RET_TRAP);
	memcpy(p, rest, len * sizeof(*f));
	*out = f;
	return n + 2 + len;
}
