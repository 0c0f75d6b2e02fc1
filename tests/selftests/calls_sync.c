// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * Identity, time, waiting and socket calls by a guest: equal to native ones
 * (see cases_sync.c).
 */
#include <time.h>
#include <linux/futex.h>

#include "callcase.h"
#include "kselftest_harness.h"

FIXTURE(calls_sync) {
	struct tvm t;
};

FIXTURE_SETUP(calls_sync)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, 0, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
}

FIXTURE_TEARDOWN(calls_sync)
{
	tvm_destroy(&self->t);
	unlink(CASE_FILE);
}

TEST_F(calls_sync, equal_native)
{
	unsigned int i, errors = 0;

	for (i = 0; i < n_cases_sync; i++) {
		int64_t ret = 0;
		const char *why = case_differs(&self->t, &cases_sync[i], &ret);

		EXPECT_EQ(NULL, why)
			TH_LOG("%s: %s", cases_sync[i].name, why);
		errors += ret < 0;
	}
	EXPECT_LT(8, errors);
	EXPECT_LT(15, n_cases_sync - errors);
}

struct waiter {
	uint32_t *word;
	int64_t ret;
	int started;
};

static void *wait_on_futex(void *arg)
{
	struct waiter *w = arg;
	const struct timespec limit = { .tv_sec = 20 };

	__atomic_store_n(&w->started, 1, __ATOMIC_RELEASE);
	w->ret = native(SYS_futex, U(w->word), FUTEX_WAIT, 1, U(&limit), 0, 0);
	return NULL;
}

/* The guest wakes a thread of the VMM. */
TEST_F(calls_sync, futex_wakes_a_host_thread)
{
	static uint32_t word = 1;
	struct waiter w = { .word = &word };
	uint64_t end = now_ns() + SECONDS(15);
	int64_t woken = 0;
	pthread_t thread;

	ASSERT_EQ(0, pthread_create(&thread, NULL, wait_on_futex, &w));
	while (!woken && now_ns() < end)
		woken = tvm_call(&self->t, SYS_futex, U(&word), FUTEX_WAKE, 1,
				 0, 0, 0);
	pthread_join(thread, NULL);
	EXPECT_EQ(1, woken);
	EXPECT_EQ(0, w.ret);
}

/* Many calls in one KVM_RUN, each with its own result. */
TEST_F(calls_sync, many_in_one_run)
{
	struct tlist *list = self->t.list;
	struct kfs_vm_stats st;
	unsigned int i;

	ASSERT_EQ(0, tvm_prepare(&self->t, SYS_getppid, NULL));
	list->count = 64;
	for (i = 0; i < 64; i++) {
		list->call[i] = (struct tcall){ .nr = SYS_lseek };
		list->call[i].args[0] = 500 + i;
		if (i % 2)
			list->call[i].nr = SYS_getpid;
	}
	ASSERT_EQ(0, tvm_run(&self->t, NULL))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
	for (i = 0; i < 64; i++) {
		EXPECT_EQ(i % 2 ? getpid() : -EBADF, list->call[i].ret);
	}
	ASSERT_EQ(0, kfs_stats(self->t.ctl, &st));
	EXPECT_EQ(64, st.ran);
	EXPECT_EQ(0, declined_sum(&st));
	EXPECT_EQ(1, st.vcpus);
}

TEST_HARNESS_MAIN
