// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * One guest, three ways: its calls run inside KVM_RUN, are left to the VMM, or
 * come by the doorbell. The guest does not know which; the tables of calls
 * give what they give natively and the policy answers the same each way.
 *
 * The VMM here uses the library, as a VMM would; raw ioctls are for the rest.
 */
#include <sys/prctl.h>

#include <kfs.h>
#include <kfs_guest.h>

#include "callcase.h"
#include "kselftest_harness.h"

enum way { FAST, DEFERRED, DOORBELL, WAYS };

static const char *const way_names[] = { "fast", "deferred", "doorbell" };

/* Both sides see it. */
struct work {
	struct kfs_guest guest;
	struct kfs_mailbox mailbox[KFS_MAILBOXES];
	uint32_t ready;
	uint32_t present;
	uint64_t nr;
	uint64_t args[6];
	int64_t ret;
};

/* The guest, all of it. */
static uint32_t guest_main(struct work *w)
{
	if (!w->ready) {
		kfs_guest_init(&w->guest, w->mailbox, 5, KFS_DOORBELL_PORT);
		w->present = w->guest.leaf;
		w->ready = 1;
	}
	w->ret = kfs_guest_syscall(&w->guest, w->nr, w->args[0], w->args[1],
				   w->args[2], w->args[3], w->args[4],
				   w->args[5]);
	return 0x600d;
}

struct vmm {
	struct case_way way;
	enum way by;
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	struct work *work;
	struct kfs_policy *policy;
	int dev, ctl;
	unsigned int deferred, rung;
};

/*
 * A watched thread's calls are the VMM's to make. This observer lets every
 * call through and changes nothing but that.
 */
static char dispatch_selector;

static int watch(bool on)
{
	return prctl(PR_SET_SYSCALL_USER_DISPATCH,
		     on ? PR_SYS_DISPATCH_ON : PR_SYS_DISPATCH_OFF, 0UL, 0UL,
		     on ? &dispatch_selector : NULL) ? -errno : 0;
}

static int attach(struct vmm *v)
{
	const struct sock_filter *filter;
	int len = kfs_policy_filter(v->policy, &filter);
	int err;

	if (len < 0)
		return len;
	v->dev = kfs_open();
	if (v->dev < 0)
		return v->dev;
	v->ctl = kfs_attach(v->dev, v->vm.vm_fd, KFS_MODE_IDENTITY,
			    KFS_DEFER_EXIT);
	if (v->ctl < 0)
		return v->ctl;
	err = kfs_policy(v->ctl, filter, len);
	return err ? err : kfs_enable(v->ctl);
}

static int set_leaf(struct vmm *v)
{
	struct {
		struct kvm_cpuid2 table;
		struct kvm_cpuid_entry2 entry;
	} cpuid = { };
	int err = kfs_cpuid_add(&cpuid.table, 1);

	return err ? err : gvm_vcpu_set_cpuid(v->vcpu, &cpuid.entry, 1);
}

static int vmm_create(struct vmm *v, enum way by, bool leaf)
{
	int err = gvm_create(&v->vm, NULL);

	v->by = by;
	if (err)
		return err;
	err = gvm_vcpu_create(&v->vm, &v->vcpu);
	if (err)
		return err;
	v->work = gvm_alloc(&v->vm, sizeof(*v->work), 4096);
	if (!v->work)
		return -ENOMEM;
	if (leaf)
		err = set_leaf(v);
	if (!err && by != DOORBELL)
		err = attach(v);
	return err;
}

static void vmm_destroy(struct vmm *v)
{
	gvm_destroy(&v->vm);
	if (v->ctl >= 0)
		close(v->ctl);
	if (v->dev >= 0)
		close(v->dev);
	kfs_policy_free(v->policy);
}

/* A VMM's own loop, with what the library asks it to add. */
static int run(struct vmm *v)
{
	for (;;) {
		int err = gvm_run(v->vcpu);

		if (err == -EINTR)
			continue;
		if (err)
			return err;
		if (kfs_deferred(v->vcpu->run, v->policy)) {
			v->deferred++;
			continue;
		}
		err = kfs_doorbell(v->vcpu->run, KFS_DOORBELL_PORT,
				   v->work->mailbox, KFS_MAILBOXES, v->policy);
		if (err < 0)
			return err;
		if (err) {
			v->rung++;
			continue;
		}
		if (gvm_event(v->vcpu, NULL) == GVM_DONE)
			return 0;
		gvm_describe(v->vcpu);
		return -EPROTO;
	}
}

static int guest_call(struct vmm *v, long nr, const uint64_t args[6],
		      int64_t *ret)
{
	int err;

	v->work->nr = nr;
	memcpy(v->work->args, args, sizeof(v->work->args));
	err = gvm_set_entry(v->vcpu, guest_main, v->work, GVM_RING0);
	if (err)
		return err;
	if (v->by == DEFERRED)
		err = watch(true);
	if (!err)
		err = run(v);
	if (v->by == DEFERRED && watch(false))
		return -EPROTO;
	*ret = v->work->ret;
	return err;
}

/* For the tables: the call, and that it went the way it was meant to. */
static int64_t table_call(struct case_way *way, long nr, const uint64_t args[6])
{
	struct vmm *v = (struct vmm *)way;
	unsigned int deferred = v->deferred, rung = v->rung;
	struct kfs_vm_stats before = { }, after = { };
	static char why[100];
	int64_t ret = 0;
	int err;

	if (v->ctl >= 0)
		kfs_stats(v->ctl, &before);
	err = guest_call(v, nr, args, &ret);
	if (v->ctl >= 0)
		kfs_stats(v->ctl, &after);
	if (err)
		way->error = gvm_strerror(&v->vm);
	else if (after.ran - before.ran != (v->by == FAST) ||
		 v->deferred - deferred != (v->by == DEFERRED) ||
		 v->rung - rung != (v->by == DOORBELL)) {
		snprintf(why, sizeof(why),
			 "another way: ran +%llu, deferred +%u, doorbell +%u",
			 (unsigned long long)(after.ran - before.ran),
			 v->deferred - deferred, v->rung - rung);
		way->error = why;
	}
	return ret;
}

FIXTURE(threeways) {
	struct vmm vmm[WAYS];
};

FIXTURE_SETUP(threeways)
{
	REQUIRE_MODULE();
	for (int by = FAST; by < WAYS; by++) {
		struct vmm *v = &self->vmm[by];

		memset(v, 0, sizeof(*v));
		v->way.call = table_call;
		v->dev = v->ctl = -1;
		v->policy = kfs_policy_new(EPERM);
		ASSERT_NE(NULL, v->policy);
	}
}

FIXTURE_TEARDOWN(threeways)
{
	for (int by = FAST; by < WAYS; by++)
		vmm_destroy(&self->vmm[by]);
	unlink(CASE_FILE);
}

/* Allows what the tables call, by name. */
static int allow(struct kfs_policy *policy, const struct call_case *cases,
		 unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		const char *name = kfs_syscall_name(cases[i].nr);
		int err = name ? kfs_policy_allow(policy, name) : -ENOENT;

		if (err)
			return err;
	}
	return 0;
}

static void tables(struct __test_metadata *_metadata, struct vmm *v)
{
	static const struct {
		const struct call_case *cases;
		const unsigned int *n;
	} all[] = {
		{ cases_file, &n_cases_file }, { cases_sync, &n_cases_sync },
	};

	for (unsigned int i = 0; i < 2; i++)
		ASSERT_EQ(0, allow(v->policy, all[i].cases, *all[i].n));
	ASSERT_EQ(0, vmm_create(v, v->by, true))
		TH_LOG("%s", gvm_strerror(&v->vm));
	for (unsigned int i = 0; i < 2; i++) {
		for (unsigned int j = 0; j < *all[i].n; j++) {
			const struct call_case *cc = &all[i].cases[j];
			int64_t ret;
			const char *why = case_differs_by(&v->way, cc, &ret);

			EXPECT_EQ(NULL, why)
				TH_LOG("%s by %s: %s", cc->name,
				       way_names[v->by], why);
		}
	}
	EXPECT_EQ(1, v->work->present);
}

TEST_F(threeways, tables_fast)
{
	self->vmm[FAST].by = FAST;
	tables(_metadata, &self->vmm[FAST]);
}

TEST_F(threeways, tables_deferred)
{
	self->vmm[DEFERRED].by = DEFERRED;
	tables(_metadata, &self->vmm[DEFERRED]);
}

TEST_F(threeways, tables_doorbell)
{
	self->vmm[DOORBELL].by = DOORBELL;
	tables(_metadata, &self->vmm[DOORBELL]);
}

/* sched_get_priority_max(SCHED_FIFO): no row in the module's table. */
#define UNLISTED SYS_sched_get_priority_max

/*
 * What the policy says, each way. Numbers above 32 bits are no system calls
 * to anybody; the kernel does not even look at the rest of such a one.
 */
TEST_F(threeways, policy_answers)
{
	const struct {
		const char *what;
		long nr;
		uint64_t arg;
		int64_t want;
	} rows[] = {
		{ "allowed", SYS_getppid, 0, getppid() },
		{ "allowed, fails", SYS_close, 777, -EBADF },
		{ "refused", SYS_getuid, 0, -EACCES },
		{ "refused, highest errno", SYS_getgid, 0, -4095 },
		{ "not named", SYS_getpid, 0, -EPERM },
		{ "not named, not listed", SYS_reboot, 0, -EPERM },
		{ "allowed, not listed", UNLISTED, 1, 99 },
		{ "no such call", 5000, 0, -EPERM },
		{ "x32", 0x40000000 | SYS_getppid, 0, -EPERM },
		{ "32 bits set", 0xffffffff, 0, -EPERM },
		{ "above 32 bits", (1L << 32) | SYS_getppid, 0, -EPERM },
		{ "-1", -1, 0, -EPERM },
	};
	unsigned int denied = 0;

	for (int by = FAST; by < WAYS; by++) {
		struct vmm *v = &self->vmm[by];
		struct kfs_vm_stats st = { };

		ASSERT_EQ(0, kfs_policy_allow(v->policy, "getppid close "
					      "sched_get_priority_max"));
		ASSERT_EQ(0, kfs_policy_refuse(v->policy, EACCES, "getuid"));
		ASSERT_EQ(0, kfs_policy_refuse(v->policy, 4095, "getgid"));
		ASSERT_EQ(0, vmm_create(v, by, true))
			TH_LOG("%s", gvm_strerror(&v->vm));
		for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
			const uint64_t args[6] = { rows[i].arg };
			int64_t ret = 0;

			ASSERT_EQ(0, guest_call(v, rows[i].nr, args, &ret))
				TH_LOG("%s", gvm_strerror(&v->vm));
			EXPECT_EQ(rows[i].want, ret)
				TH_LOG("%s by %s", rows[i].what,
				       way_names[by]);
		}
		if (by == DOORBELL)
			continue;
		ASSERT_EQ(0, kfs_stats(v->ctl, &st));
		/* Those the kernel answered itself: the same, watched or not. */
		if (by == FAST)
			denied = st.denied;
		EXPECT_EQ(denied, st.denied);
		EXPECT_LT(0, st.denied);
	}
}

/* Attach, detach, attach: the guest goes on and does not notice. */
TEST_F(threeways, falls_back_at_any_time)
{
	static const uint64_t none[6];
	struct vmm *v = &self->vmm[FAST];
	int64_t ret;

	ASSERT_EQ(0, kfs_policy_allow(v->policy, "getppid"));
	ASSERT_EQ(0, vmm_create(v, FAST, true))
		TH_LOG("%s", gvm_strerror(&v->vm));
	for (unsigned int round = 1; round <= 3; round++) {
		struct kfs_vm_stats st;

		ASSERT_EQ(0, guest_call(v, SYS_getppid, none, &ret));
		EXPECT_EQ(getppid(), ret);
		EXPECT_EQ(round - 1, v->rung);
		ASSERT_EQ(0, kfs_stats(v->ctl, &st));
		EXPECT_EQ(1, st.ran);

		close(v->ctl);
		close(v->dev);
		v->ctl = v->dev = -1;
		ASSERT_EQ(0, guest_call(v, SYS_getppid, none, &ret));
		EXPECT_EQ(getppid(), ret);
		EXPECT_EQ(round, v->rung);
		ASSERT_EQ(0, attach(v));
	}
	EXPECT_EQ(0, v->deferred);
}

/* Without the leaf the guest never executes the hypercall, served or not. */
TEST_F(threeways, no_leaf_no_hypercall)
{
	static const uint64_t none[6];
	struct vmm *v = &self->vmm[FAST];
	struct kfs_vm_stats st;
	int64_t ret;

	ASSERT_EQ(0, kfs_policy_allow(v->policy, "getppid"));
	ASSERT_EQ(0, vmm_create(v, FAST, false))
		TH_LOG("%s", gvm_strerror(&v->vm));
	ASSERT_EQ(0, guest_call(v, SYS_getppid, none, &ret));
	EXPECT_EQ(getppid(), ret);
	EXPECT_EQ(0, v->work->present);
	EXPECT_EQ(1, v->rung);
	ASSERT_EQ(0, kfs_stats(v->ctl, &st));
	EXPECT_EQ(0, st.ran + st.probes + declined_sum(&st));
}

TEST_HARNESS_MAIN
