// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * kvm-fastsys demo: one small VMM with its own loop, one guest, everything the
 * module does and refuses to do, and what each call cost.
 *
 * The output is the same in every run, so that it can be compared: ids and
 * times do not appear. Costs do, and are instructions where the clock counts
 * those (the emulated machine in its counting mode).
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gvm.h>
#include <kfs.h>

#include "clock.h"
#include "demo.h"
#include "tool.h"

#define WRITES 1000
#define PIECES 32
#define TRACED 3
#define ALLOWED "openat close read write"

static const char line16[] = "sixteen letters\n";

static struct gvm vm;
static struct gvm_vcpu *vcpu;
static struct kfs_policy *policy;
static int dev = -1, control = -1;
static char dir[] = "/tmp/kfs-demo.XXXXXX";
static bool all_well = true;

/* What happened during one step, and what it cost. */
struct tally {
	__u64 ran, deferred, denied, interrupted;
	__u64 doorbells;
	__u64 ns;
};

static __u64 doorbells;

static void fail(const char *fmt, ...)
	__attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	fflush(stdout);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	wrapped(stderr, "kvm-fastsys demo: ", 2, text);
	exit(EXIT_FAILED);
}

static void expect(bool right, const char *what)
{
	if (right)
		return;
	printf("    NOT AS IT SHOULD BE: %s\n", what);
	all_well = false;
}

static void counters(struct tally *t)
{
	struct kfs_vm_stats s = { 0 };

	if (control >= 0 && kfs_vm_stats(control, 0, &s, NULL, 0))
		fail("the control fd does not give its counters");
	*t = (struct tally) {
		.ran = s.ran,
		.deferred = s.deferred,
		.denied = s.denied,
		.interrupted = s.interrupted,
		.doorbells = doorbells,
		.ns = clock_ns(),
	};
}

static void on_signal(int sig)
{
	(void)sig;	/* interrupting is all it is for */
}

/*
 * The VMM's loop. `interrupted` is called when KVM_RUN returned EINTR; then it
 * is entered again, as any VMM does.
 */
static int run_guest(int (*fn)(struct guest_work *), struct guest_work *w,
		     struct tally *t, void (*interrupted)(void))
{
	/* Of this program the guest sees the image, not the stack. */
	static struct guest_work shared;
	struct tally before, after;
	__u32 value = 0;
	int ret;

	shared = *w;
	if (gvm_set_entry(vcpu, (void *)fn, &shared, GVM_RING0))
		fail("%s", gvm_strerror(&vm));
	fflush(stdout);
	counters(&before);
	for (;;) {
		ret = gvm_run(vcpu);
		if (ret == -EINTR) {
			if (interrupted)
				interrupted();
			continue;
		}
		if (ret)
			fail("KVM_RUN: %s", strerror(-ret));
		if (kfs_deferred(vcpu->run, policy))
			continue;
		switch (gvm_event(vcpu, &value)) {
		case GVM_DOORBELL:
			doorbells++;
			guest_mailbox.ret = kfs_policy_call(policy,
					guest_mailbox.nr, guest_mailbox.args);
			continue;
		case GVM_DONE:
			break;
		default:
			fail("%s", gvm_describe(vcpu));
		}
		break;
	}
	counters(&after);
	*w = shared;
	*t = (struct tally) {
		.ran = after.ran - before.ran,
		.deferred = after.deferred - before.deferred,
		.denied = after.denied - before.denied,
		.interrupted = after.interrupted - before.interrupted,
		.doorbells = after.doorbells - before.doorbells,
		.ns = after.ns - before.ns,
	};
	return (int)value;
}

/* The table at the end: one row a step that made calls. */
static struct row {
	__u64 calls;
	const char *what, *where;
	__u64 each;		/* 0: not measured */
} rows[16];

static unsigned int row_count;

static void row(__u64 calls, const char *what, const char *where, __u64 ns)
{
	rows[row_count++] = (struct row) {
		.calls = calls,
		.what = what,
		.where = where,
		.each = calls ? ns / calls : 0,
	};
}

static void title(const char *text)
{
	static int n;

	printf("\n%2d  %s\n", ++n, text);
}

static void say_where(const struct tally *t)
{
	printf("    in KVM_RUN %llu, deferred %llu\n",
	       (unsigned long long)t->ran, (unsigned long long)t->deferred);
}

static void attach(void)
{
	int ret;

	dev = kfs_open();
	if (dev < 0)
		fail("%s", kfs_strerror(dev, KFS_WHAT_OPEN));
	control = kfs_attach(dev, vm.vm_fd, KFS_MODE_IDENTITY, KFS_DEFER_EXIT);
	if (control < 0)
		fail("%s", kfs_strerror(control, KFS_WHAT_ATTACH));
	ret = kfs_set_policy(control, policy);
	if (ret)
		fail("%s", kfs_strerror(ret, KFS_WHAT_SET_POLICY));
	ret = kfs_enable(control);
	if (ret)
		fail("%s", kfs_strerror(ret, KFS_WHAT_ENABLE));
}

static void detach(void)
{
	close(control);
	close(dev);
	control = dev = -1;
}

static void set_up(void)
{
	struct {
		struct kvm_cpuid2 table;
		struct kvm_cpuid_entry2 leaf;
	} cpuid = { 0 };
	struct sigaction sa = { .sa_handler = on_signal };

	policy = kfs_policy_new(EPERM);
	if (!policy || kfs_policy_allow(policy, ALLOWED))
		fail("no policy");
	if (gvm_create(&vm, NULL) || gvm_vcpu_create(&vm, &vcpu))
		fail("%s", gvm_strerror(&vm));
	kfs_cpuid_add(&cpuid.table, 1);
	if (gvm_vcpu_set_cpuid(vcpu, &cpuid.leaf, 1))
		fail("%s", gvm_strerror(&vm));
	if (!mkdtemp(dir))
		fail("%s: %s", dir, strerror(errno));
	/* No SA_RESTART: the signal is to be seen. */
	sigaction(SIGUSR1, &sa, NULL);
}

static void clean_up(void)
{
	static const char *const names[] = { "copy", "lines", "strace" };
	char path[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

static void step_hello(void)
{
	static const char text[] = "    guest: hello from ring 0\n";
	struct guest_work look = { 0 };
	struct guest_work w = {
		.fd = STDOUT_FILENO, .buf = text, .len = sizeof(text) - 1,
		.count = 1,
	};
	struct tally t;

	title("A guest in ring 0 says hello: its write(2) is a hypercall");
	run_guest(guest_look, &look, &t, NULL);
	expect(look.count, "the guest does not find the CPUID leaf");
	expect(!run_guest(guest_write, &w, &t, NULL), "write failed");
	say_where(&t);
	expect(t.ran == 1 && !t.deferred, "one call in KVM_RUN");
	row(1, "write: hello", "in KVM_RUN", 0);
}

static bool same_file(const char *a, const char *b)
{
	int fa = open(a, O_RDONLY | O_CLOEXEC);
	int fb = open(b, O_RDONLY | O_CLOEXEC);
	bool same = fa >= 0 && fb >= 0;

	while (same) {
		static char x[65536], y[65536];
		ssize_t n = read(fa, x, sizeof(x));
		ssize_t m = read(fb, y, sizeof(y));

		same = n == m && n >= 0 && !memcmp(x, y, (size_t)n);
		if (n <= 0)
			break;
	}
	close(fa);
	close(fb);
	return same;
}

/*
 * In a fixed number of pieces, whatever the file's size, so that the counts
 * are the same everywhere.
 */
static void step_copy(const char *file)
{
	struct guest_work w = { .from = file };
	struct stat st;
	struct tally t;
	char text[80], path[64];

	if (stat(file, &st))
		fail("%s: %s", file, strerror(errno));
	w.len = ((size_t)st.st_size + PIECES - 1) / PIECES;
	snprintf(path, sizeof(path), "%s/copy", dir);
	w.to = path;
	w.into = mmap(NULL, w.len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w.into == MAP_FAILED)
		fail("%s", strerror(errno));

	snprintf(text, sizeof(text), "The guest copies %.40s", file);
	title(text);
	expect(!run_guest(guest_copy, &w, &t, NULL), "copying failed");
	printf("    %u reads, %u writes; the copy is %s\n", w.reads, w.writes,
	       same_file(file, path) ? "identical" : "NOT identical");
	say_where(&t);
	/* two opened, two closed, one read that found the end */
	expect(t.ran == w.reads + w.writes + 5 && !t.deferred,
	       "all of it in KVM_RUN");
	expect(same_file(file, path), "the copy differs");
	munmap(w.into, w.len);
	/* 69 calls on fresh pages: no figure that comes out the same twice. */
	row(t.ran, "copy of a file", "in KVM_RUN", 0);
}

static struct guest_work lines(int fd, unsigned int count)
{
	return (struct guest_work) {
		.fd = fd, .buf = line16, .len = sizeof(line16) - 1,
		.count = count,
	};
}

static void step_writes(int fd)
{
	struct guest_work w = lines(fd, WRITES);
	struct tally t;

	title("The guest writes 1000 lines");
	expect(!run_guest(guest_write, &w, &t, NULL), "write failed");
	say_where(&t);
	expect(t.ran == WRITES && !t.deferred, "all of them in KVM_RUN");
	row(WRITES, "write: 1000 lines", "in KVM_RUN", t.ns);
}

static void step_strace(int fd)
{
	struct guest_work w = lines(fd, TRACED);
	struct strace s;
	struct tally t, after;
	int ret;

	title("strace attaches to the vCPU's thread; the guest writes 3 lines");
	fflush(stdout);
	ret = strace_attach(&s, dir, "write");
	if (ret == -ENOENT)
		fail("strace is not installed: apt-get install strace");
	if (ret)
		fail("strace could not attach: %s", strerror(-ret));
	ret = run_guest(guest_write, &w, &t, NULL);
	if (strace_detach(&s))
		fail("strace does not detach: %s", strerror(errno));
	expect(!ret, "write failed");
	expect(strace_show(&s, "    strace: ") == TRACED,
	       "strace saw other calls");
	say_where(&t);
	expect(!t.ran && t.deferred == TRACED, "all of them deferred");
	row(TRACED, "write, strace watching", "by the VMM, deferred", 0);

	title("strace detaches; the guest writes 3 lines");
	w = lines(fd, TRACED);
	expect(!run_guest(guest_write, &w, &after, NULL), "write failed");
	say_where(&after);
	expect(after.ran == TRACED && !after.deferred, "fast again");
	row(TRACED, "write, strace gone", "in KVM_RUN", 0);
}

static void step_forbidden(void)
{
	char path[64];
	struct guest_work w = { .to = path };
	struct tally t;
	int ret;

	snprintf(path, sizeof(path), "%s/copy", dir);
	title("The guest removes its copy; its policy is: " ALLOWED);
	ret = run_guest(guest_remove, &w, &t, NULL);
	printf("    unlinkat: %s; the file is %s\n",
	       ret == -EPERM ? "EPERM" : strerror(-ret),
	       access(path, F_OK) ? "GONE" : "still there");
	printf("    in KVM_RUN %llu, deferred %llu, denied %llu\n",
	       (unsigned long long)t.ran, (unsigned long long)t.deferred,
	       (unsigned long long)t.denied);
	expect(ret == -EPERM && !access(path, F_OK), "refused");
	expect(!t.ran && !t.deferred && t.denied == 1, "denied once");
	row(1, "unlinkat, forbidden", "nowhere: refused", 0);
}

static int pipe_fds[2];

static void *signaller(void *arg)
{
	struct kfs_vm_stats s;

	/* Not before the guest is inside its read. */
	do
		sched_yield();
	while (!kfs_vm_stats(control, 0, &s, NULL, 0) && !s.in_call);
	pthread_kill(*(pthread_t *)arg, SIGUSR1);
	return NULL;
}

static unsigned int eintrs;

static void data_comes(void)
{
	printf("    KVM_RUN: EINTR. The VMM puts 4 bytes into the pipe and enters again\n");
	fflush(stdout);
	if (!eintrs++ && write(pipe_fds[1], "data", 4) != 4)
		fail("pipe: %s", strerror(errno));
}

static void step_blocked(void)
{
	char *buf = gvm_alloc(&vm, 16, 16);
	struct guest_work w = { .into = buf, .len = 16 };
	pthread_t thread, self = pthread_self();
	struct tally t;
	int ret;

	title("The guest reads an empty pipe and blocks; a signal arrives");
	if (!buf || pipe(pipe_fds))
		fail("no pipe");
	w.fd = pipe_fds[0];
	if (pthread_create(&thread, NULL, signaller, &self))
		fail("no thread");
	ret = run_guest(guest_read, &w, &t, data_comes);
	pthread_join(thread, NULL);
	printf("    guest: read %u bytes: %.*s\n", w.count, (int)w.count, buf);
	printf("    in KVM_RUN %llu, deferred %llu, interrupted %llu\n",
	       (unsigned long long)t.ran, (unsigned long long)t.deferred,
	       (unsigned long long)t.interrupted);
	expect(!ret && w.count == 4 && !memcmp(buf, "data", 4) && eintrs == 1,
	       "4 bytes after one interruption");
	expect(t.ran == 1 && !t.deferred && t.interrupted == 1,
	       "one call, interrupted once");
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	row(1, "read, interrupted once", "in KVM_RUN", 0);
}

static void step_unload(int fd, const char *module)
{
	struct guest_work w = lines(fd, WRITES);
	struct tally t;
	int ret;

	title("Somebody unloads the module while the VM is attached");
	ret = module_unload();
	printf("    rmmod: %s\n", ret ? strerror(-ret) : "UNLOADED");
	expect(ret == -EAGAIN || ret == -EWOULDBLOCK || ret == -EBUSY,
	       "refused");

	title("The VM detaches, the module is unloaded; the same guest goes on");
	detach();
	ret = module_wait_unused();
	if (!ret)
		ret = module_unload();
	printf("    rmmod: %s\n", ret ? strerror(-ret) : "done");
	if (ret)
		fail("something else holds the module: kvm-fastsys status");
	expect(!run_guest(guest_write, &w, &t, NULL), "write failed");
	printf("    in KVM_RUN %llu, by doorbell %llu\n",
	       (unsigned long long)t.ran, (unsigned long long)t.doorbells);
	expect(t.doorbells == WRITES, "all of them by doorbell");
	row(WRITES, "write, no module", "by the VMM, doorbell", t.ns);

	title("The module is loaded, the VM attached again");
	ret = module_load(module);
	if (ret)
		fail("loading the module: %s. Next: modprobe kvm_fastsys",
		     strerror(-ret));
	attach();
	w = lines(fd, WRITES);
	expect(!run_guest(guest_write, &w, &t, NULL), "write failed");
	say_where(&t);
	expect(t.ran == WRITES && !t.deferred && !t.doorbells, "fast again");
	row(WRITES, "write, module again", "in KVM_RUN", t.ns);
}

static void natively(int fd)
{
	__u64 start = clock_ns();

	for (int i = 0; i < WRITES; i++)
		if (syscall(SYS_write, fd, line16, sizeof(line16) - 1) < 0)
			fail("write: %s", strerror(errno));
	row(WRITES, "write, no VM at all", "by a process", clock_ns() - start);
}

static void show_table(void)
{
	bool counting = clock_counts();

	printf("\n%6s  %-24s %-22s %17s\n", "calls", "what", "where they ran",
	       counting ? "instructions each" : "ns each");
	for (unsigned int i = 0; i < row_count; i++) {
		const struct row *r = &rows[i];

		printf("%6s  %-24s %-22s %17s\n", grouped(r->calls), r->what,
		       r->where, r->each ? grouped(r->each) : "-");
	}
	if (!counting)
		printf("\nThis clock tells time. Instructions are counted in the emulated machine:\nmake demo\n");
}

struct choice {
	const char *module, *file;
	bool keep;
};

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct choice *c = state->input;

	switch (key) {
	case 'm':
		c->module = arg;
		return 0;
	case 'f':
		c->file = arg;
		return 0;
	case 'k':
		c->keep = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "demo takes no arguments");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "module", 'm', "FILE", 0, "the module, to load it again", 0 },
		{ "file", 'f', "FILE", 0, "what the guest copies, /bin/sh if not given", 0 },
		{ "keep-module", 'k', NULL, 0, "leave out the steps that unload it", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_opt,
		.doc = "Shows on a guest of one page what kvm_fastsys does. As root, for it unloads\n"
		       "and loads the module; nothing else may use it meanwhile.\v"
		       "Exit status: 0 all went as it should, 1 it did not, 3 no module.",
	};
	struct choice choice = { .file = "/bin/sh" };
	char path[64];
	int fd;

	argp_err_exit_status = EXIT_USAGE;
	if (argp_parse(&argp, argc, argv, 0, NULL, &choice))
		return EXIT_FAILED;
	if (access(MODULE_DIR, F_OK)) {
		wrapped(stderr, "kvm-fastsys demo: ", 2,
			kfs_strerror(-ENOENT, KFS_WHAT_OPEN));
		return EXIT_NO_MODULE;
	}

	set_up();
	atexit(clean_up);
	attach();
	snprintf(path, sizeof(path), "%s/lines", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	/* The same number everywhere, since strace shows it. */
	if (fd < 0 || dup3(fd, 20, O_CLOEXEC) < 0)
		fail("%s: %s", path, strerror(errno));
	close(fd);
	fd = 20;

	printf("kvm_fastsys: host system calls from a KVM guest, inside KVM_RUN\n");
	step_hello();
	step_copy(choice.file);
	step_writes(fd);
	step_strace(fd);
	step_forbidden();
	step_blocked();
	if (!choice.keep)
		step_unload(fd, choice.module);
	natively(fd);
	show_table();

	if (!all_well)
		printf("\nNot everything was as it should be: see above.\n");
	return all_well ? EXIT_OK : EXIT_FAILED;
}
