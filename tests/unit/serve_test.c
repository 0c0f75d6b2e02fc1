// SPDX-License-Identifier: MIT OR LGPL-2.1
/* Calls by doorbell and guest addresses: what a VMM's own loop leans on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <kfs.h>

#include "kselftest_harness.h"

static char memory[0x4000];

static const struct kfs_region table[] = {
	{ .guest = 0x10000, .size = 0x1000, .host = memory },
	{ .guest = 0x11000, .size = 0x1000, .host = memory + 0x1000 },
	{ .guest = 0x12000, .size = 0x1000, .host = memory + 0x3000 },
	{ .guest = 0x20000, .size = 0x1000, .host = memory + 0x2000,
	  .flags = KFS_REGION_READONLY },
	{ .guest = 0xfffffffffffff000ULL, .size = 0x1000, .host = memory },
};

#define N_REGIONS (sizeof(table) / sizeof(table[0]))

TEST(translate_by_table)
{
	static const struct {
		__u64 guest, len;
		unsigned int access;
		int ret;
		long offset;
	} rows[] = {
		{ 0x10000, 1, KFS_WRITE, 0, 0 },
		{ 0x10000, 0x1000, KFS_WRITE, 0, 0 },
		{ 0x10fff, 1, KFS_READ, 0, 0xfff },
		{ 0x10fff, 0, KFS_READ, 0, 0xfff },
		/* two that adjoin on both sides */
		{ 0x10800, 0x1000, KFS_WRITE, 0, 0x800 },
		{ 0x10000, 0x2000, KFS_READ, 0, 0 },
		/* the third adjoins in the guest only */
		{ 0x10000, 0x2001, KFS_READ, -EFAULT, 0 },
		{ 0x11fff, 2, KFS_READ, -EFAULT, 0 },
		{ 0x12000, 0x1000, KFS_READ, 0, 0x3000 },
		{ 0x12000, 0x1001, KFS_READ, -EFAULT, 0 },
		{ 0x0ffff, 1, KFS_READ, -EFAULT, 0 },
		{ 0x0ffff, 2, KFS_READ, -EFAULT, 0 },
		{ 0x13000, 0, KFS_READ, -EFAULT, 0 },
		{ 0, 1, KFS_READ, -EFAULT, 0 },
		{ 0x20000, 0x1000, KFS_READ, 0, 0x2000 },
		{ 0x20000, 1, KFS_WRITE, -EFAULT, 0 },
		/* the end of the address space */
		{ 0xfffffffffffff000ULL, 0x1000, KFS_READ, 0, 0 },
		{ 0xffffffffffffffffULL, 1, KFS_READ, 0, 0xfff },
		{ 0xffffffffffffffffULL, 2, KFS_READ, -EFAULT, 0 },
		{ 0xfffffffffffff000ULL, 0x1001, KFS_READ, -EFAULT, 0 },
		{ 0x10000, ~0ULL, KFS_READ, -EFAULT, 0 },
		{ 0x10000, 0xffffffffffff0001ULL, KFS_READ, -EFAULT, 0 },
		{ 0x10000, 1, 2, -EINVAL, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *host = memory + 1;
		int ret = kfs_translate(table, N_REGIONS, rows[i].guest,
					rows[i].len, rows[i].access, &host);

		EXPECT_EQ(rows[i].ret, ret)
			TH_LOG("row %zu", i);
		if (rows[i].ret) {
			EXPECT_EQ(NULL, host)
				TH_LOG("row %zu", i);
		} else {
			EXPECT_EQ(memory + rows[i].offset, (char *)host)
				TH_LOG("row %zu", i);
		}
	}
}

TEST(translate_identity)
{
	void *host;

	EXPECT_EQ(0, kfs_translate(NULL, 0, 0x1234, 10, KFS_WRITE, &host));
	EXPECT_EQ((void *)0x1234, host);
	EXPECT_EQ(0, kfs_translate(NULL, 0, ~0ULL, 1, KFS_READ, &host));
	EXPECT_EQ(-EFAULT, kfs_translate(NULL, 0, ~0ULL, 2, KFS_READ, &host));
	EXPECT_EQ(NULL, host);
	EXPECT_EQ(-EFAULT, kfs_translate(table, 0, 0x10000, 1, KFS_READ,
					 &host));
}

/* Byte by byte, the way nobody would do it. */
static int naive(const struct kfs_region *r, unsigned int n, unsigned int guest,
		 unsigned int len, unsigned int access, char **host)
{
	char *expected = NULL;

	for (unsigned int at = guest; at < guest + (len ? len : 1); at++) {
		char *here = NULL;

		for (unsigned int i = 0; i < n && !here; i++)
			if (at >= r[i].guest && at < r[i].guest + r[i].size) {
				if (access == KFS_WRITE && r[i].flags)
					return -EFAULT;
				here = (char *)r[i].host + (at - r[i].guest);
			}
		if (!here || (expected && here != expected))
			return -EFAULT;
		if (at == guest)
			*host = here;
		expected = here + 1;
	}
	return 0;
}

TEST(translate_like_the_naive_way)
{
	unsigned int good = 0;

	srand(1);
	for (int round = 0; round < 20000; round++) {
		struct kfs_region r[4];
		unsigned int guest = rand() % 48, len = rand() % 24;
		unsigned int access = rand() % 2, at = rand() % 8;
		char *want = NULL;
		void *got;
		int ret;

		/* in order, often adjoining, now and then jumping */
		for (int i = 0; i < 4; i++) {
			r[i] = (struct kfs_region) {
				.guest = at, .size = 1 + rand() % 12,
				.host = memory + at + (rand() % 8 ? 0 : 100),
				.flags = rand() % 6 ? 0 : KFS_REGION_READONLY,
			};
			at += r[i].size + (rand() % 4 ? 0 : 1);
		}
		ret = naive(r, 4, guest, len, access, &want);
		ASSERT_EQ(ret, kfs_translate(r, 4, guest, len, access, &got))
			TH_LOG("round %d", round);
		if (ret)
			continue;
		ASSERT_EQ(want, (char *)got);
		good++;
	}
	EXPECT_LT(1000, good);
}

/* A kvm_run as after an OUT, made by hand: no KVM here. */
struct exit {
	struct kvm_run run;
	__u32 data[2];
};

static void ring(struct exit *e, __u32 index)
{
	memset(e, 0, sizeof(*e));
	e->run.exit_reason = KVM_EXIT_IO;
	e->run.io.direction = KVM_EXIT_IO_OUT;
	e->run.io.size = 4;
	e->run.io.count = 1;
	e->run.io.port = KFS_DOORBELL_PORT;
	e->run.io.data_offset = offsetof(struct exit, data);
	e->data[0] = index;
}

FIXTURE(doorbell) {
	struct kfs_policy *policy;
	struct kfs_mailbox page[4];
	struct exit exit;
};

FIXTURE_SETUP(doorbell)
{
	self->policy = kfs_policy_new(EPERM);
	ASSERT_NE(NULL, self->policy);
	ASSERT_EQ(0, kfs_policy_allow(self->policy, "getppid, lseek"));
	ASSERT_EQ(0, kfs_policy_refuse(self->policy, EACCES, "getuid"));
	memset(self->page, 0, sizeof(self->page));
}

FIXTURE_TEARDOWN(doorbell)
{
	kfs_policy_free(self->policy);
}

static int answer(FIXTURE_DATA(doorbell) *self)
{
	return kfs_doorbell(&self->exit.run, KFS_DOORBELL_PORT, self->page, 4,
			    self->policy);
}

TEST_F(doorbell, same_answers_as_the_policy)
{
	static const __u64 numbers[] = {
		SYS_getppid, SYS_getuid, SYS_getpid, 1000, 1ULL << 32,
		(1ULL << 32) | SYS_getppid, ~0ULL,
	};
	static const __u64 none[6];

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		ring(&self->exit, 3);
		self->page[3] = (struct kfs_mailbox) { .nr = numbers[i] };
		EXPECT_EQ(1, answer(self));
		EXPECT_EQ(kfs_policy_call(self->policy, numbers[i], none),
			  self->page[3].ret);
	}
}

TEST_F(doorbell, arguments_arrive_and_rows_stay_apart)
{
	ring(&self->exit, 1);
	self->page[1] = (struct kfs_mailbox) { .nr = SYS_lseek, { 777 } };
	self->page[2].ret = 5;
	EXPECT_EQ(1, answer(self));
	EXPECT_EQ(-EBADF, self->page[1].ret);
	EXPECT_EQ(5, self->page[2].ret);
	EXPECT_EQ(0, self->page[0].ret);
}

TEST_F(doorbell, wrong_rings)
{
	struct kfs_mailbox before[4];

	memset(self->page, 0x5a, sizeof(self->page));
	memcpy(before, self->page, sizeof(before));
	ring(&self->exit, 4);
	EXPECT_EQ(-EINVAL, answer(self));
	ring(&self->exit, ~0U);
	EXPECT_EQ(-EINVAL, answer(self));
	ring(&self->exit, 0);
	self->exit.run.io.size = 2;
	EXPECT_EQ(-EINVAL, answer(self));
	ring(&self->exit, 0);
	self->exit.run.io.count = 2;
	EXPECT_EQ(-EINVAL, answer(self));
	ring(&self->exit, 0);
	self->exit.run.io.port++;
	EXPECT_EQ(0, answer(self));
	ring(&self->exit, 0);
	self->exit.run.io.direction = KVM_EXIT_IO_IN;
	EXPECT_EQ(0, answer(self));
	ring(&self->exit, 0);
	self->exit.run.exit_reason = KVM_EXIT_MMIO;
	EXPECT_EQ(0, answer(self));
	EXPECT_EQ(0, memcmp(before, self->page, sizeof(before)));
}

TEST_F(doorbell, decoded_is_a_copy)
{
	struct kfs_call call;

	ring(&self->exit, 2);
	self->page[2] = (struct kfs_mailbox) { .nr = SYS_getppid,
					       .args = { 1, 2, 3, 4, 5, 6 } };
	ASSERT_EQ(1, kfs_doorbell_call(&self->exit.run, KFS_DOORBELL_PORT,
				       self->page, 4, &call));
	self->page[2].nr = SYS_getpid;
	memset(self->page[2].args, 0, sizeof(self->page[2].args));
	EXPECT_EQ(SYS_getppid, call.nr);
	for (int i = 0; i < 6; i++)
		EXPECT_EQ(i + 1, call.args[i]);
	EXPECT_EQ(&self->page[2].ret, call.ret);
	EXPECT_EQ(0, self->page[2].ret);
	EXPECT_EQ(-EINVAL, kfs_doorbell_call(&self->exit.run,
					     KFS_DOORBELL_PORT, self->page, 2,
					     &call));
}

TEST(deferred_decoded_is_a_copy)
{
	struct kvm_run run = { .exit_reason = KVM_EXIT_HYPERCALL };
	struct kfs_call call;

	run.hypercall.nr = 12;	/* KVM_HC_MAP_GPA_RANGE */
	EXPECT_EQ(0, kfs_deferred_call(&run, &call));
	run.hypercall.nr = KFS_EXIT_NR(SYS_lseek);
	run.hypercall.args[5] = 6;
	ASSERT_EQ(1, kfs_deferred_call(&run, &call));
	run.hypercall.args[5] = 7;
	EXPECT_EQ(SYS_lseek, call.nr);
	EXPECT_EQ(6, call.args[5]);
	*call.ret = -EBADF;
	EXPECT_EQ((__u64)-EBADF, run.hypercall.ret);
	run.exit_reason = KVM_EXIT_IO;
	EXPECT_EQ(0, kfs_deferred_call(&run, &call));
}

TEST(mailboxes_fill_a_page)
{
	EXPECT_EQ(64, sizeof(struct kfs_mailbox));
	EXPECT_EQ(4096, KFS_MAILBOXES * sizeof(struct kfs_mailbox));
}

TEST(errors_have_advice)
{
	EXPECT_NE(NULL, strstr(kfs_strerror(-EFAULT, KFS_WHAT_TRANSLATE),
			       "guest's buffer"));
	EXPECT_NE(NULL, strstr(kfs_strerror(-EINVAL, KFS_WHAT_DOORBELL),
			       "mailbox"));
	EXPECT_NE(NULL, strstr(kfs_strerror(ENOENT, KFS_WHAT_POLICY),
			       "no rule has changed"));
	EXPECT_STREQ(strerror(ENFILE), kfs_strerror(-ENFILE, KFS_WHAT_POLICY));
}

TEST_HARNESS_MAIN
