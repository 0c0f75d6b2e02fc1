// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * A VMM whose guest's memory lies elsewhere than the guest thinks: calls come
 * by the doorbell, the VMM copies them, translates their buffers by its table
 * of memory slots and makes them under its policy.
 */
#include <kfs.h>
#include <kfs_guest.h>

#include "kfstest.h"
#include "kselftest_harness.h"

/* Far from gvm's image and arena, below the 4 GB its page tables map. */
#define RAM		0x60000000UL
#define MORE		(RAM + SLOT)	/* adjoins in the guest only */
#define ROM		0x70000000UL
#define SLOT		0x4000UL

struct work {
	struct kfs_guest guest;
	struct kfs_mailbox mailbox[KFS_MAILBOXES];
	uint64_t nr;
	uint64_t args[6];
	uint64_t poke;		/* the guest writes its text there first */
	int64_t ret;
};

static const char text[] = "written at the guest's address";

static uint32_t guest_main(struct work *w)
{
	volatile char *to = (volatile char *)w->poke;
	unsigned int i;

	kfs_guest_init(&w->guest, w->mailbox, 0, KFS_DOORBELL_PORT);
	for (i = 0; to && i < sizeof(text); i++)
		to[i] = text[i];
	w->ret = kfs_guest_syscall(&w->guest, w->nr, w->args[0], w->args[1],
				   w->args[2], w->args[3], w->args[4],
				   w->args[5]);
	return 0x600d;
}

FIXTURE(own_layout) {
	struct gvm vm;
	struct gvm_vcpu *vcpu;
	struct work *work;
	struct kfs_policy *policy;
	struct kfs_region region[3];
	int pipe[2];
};

/* One memory slot at a guest address that is not the host's. */
static int add_slot(struct gvm *vm, struct kfs_region *region, uint64_t guest,
		    bool readonly)
{
	struct kvm_userspace_memory_region slot = {
		.slot = vm->next_slot,
		.flags = readonly ? KVM_MEM_READONLY : 0,
		.guest_phys_addr = guest,
		.memory_size = SLOT,
	};
	/* With a page between: two that adjoin in the guest do not here. */
	char *host = mmap(NULL, SLOT + 0x1000, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (host == MAP_FAILED)
		return -errno;
	slot.userspace_addr = U(host);
	if (ioctl(vm->vm_fd, KVM_SET_USER_MEMORY_REGION, &slot))
		return -errno;
	vm->next_slot++;
	*region = (struct kfs_region){
		.guest = guest, .size = SLOT, .host = host,
		.flags = readonly ? KFS_REGION_READONLY : 0,
	};
	return 0;
}

FIXTURE_SETUP(own_layout)
{
	int err = gvm_create(&self->vm, NULL);

	if (err == -ENOENT)
		SKIP(return, "%s", gvm_strerror(&self->vm));
	ASSERT_EQ(0, err) TH_LOG("%s", gvm_strerror(&self->vm));
	ASSERT_EQ(0, gvm_vcpu_create(&self->vm, &self->vcpu));
	self->work = gvm_alloc(&self->vm, sizeof(*self->work), 4096);
	ASSERT_NE(NULL, self->work);
	ASSERT_EQ(0, add_slot(&self->vm, &self->region[0], RAM, false));
	ASSERT_EQ(0, add_slot(&self->vm, &self->region[1], MORE, false));
	ASSERT_EQ(0, add_slot(&self->vm, &self->region[2], ROM, true));
	self->policy = kfs_policy_new(EPERM);
	ASSERT_NE(NULL, self->policy);
	ASSERT_EQ(0, kfs_policy_allow(self->policy, "read write getppid"));
	ASSERT_EQ(0, pipe(self->pipe));
}

FIXTURE_TEARDOWN(own_layout)
{
	gvm_destroy(&self->vm);
	kfs_policy_free(self->policy);
	close(self->pipe[0]);
	close(self->pipe[1]);
}

/* What this VMM knows of calls: which argument is a buffer, and for what. */
static int translate(struct kfs_call *call, const struct kfs_region *regions)
{
	unsigned int access = call->nr == SYS_read ? KFS_WRITE : KFS_READ;
	void *host;
	int err;

	if (call->nr != SYS_read && call->nr != SYS_write)
		return 0;
	err = kfs_translate(regions, 3, call->args[1], call->args[2], access,
			    &host);
	call->args[1] = U(host);
	return err;
}

static int64_t guest_call(FIXTURE_DATA(own_layout) *self, uint64_t nr,
			  uint64_t a0, uint64_t a1, uint64_t a2, uint64_t poke)
{
	struct work *w = self->work;
	struct kfs_call call;

	w->nr = nr;
	w->args[0] = a0;
	w->args[1] = a1;
	w->args[2] = a2;
	w->poke = poke;
	if (gvm_set_entry(self->vcpu, guest_main, w, GVM_RING0))
		return INT64_MIN;
	for (;;) {
		int err = gvm_run(self->vcpu);

		if (err == -EINTR)
			continue;
		if (err)
			return INT64_MIN;
		if (kfs_doorbell_call(self->vcpu->run, KFS_DOORBELL_PORT,
				      w->mailbox, KFS_MAILBOXES, &call) == 1) {
			err = translate(&call, self->region);
			*call.ret = err ? err : kfs_policy_call(self->policy,
						call.nr, call.args);
			continue;
		}
		if (gvm_event(self->vcpu, NULL) == GVM_DONE)
			return w->ret;
		gvm_describe(self->vcpu);
		return INT64_MIN;
	}
}

TEST_F(own_layout, write_from_guest_memory)
{
	char got[sizeof(text)] = "";

	ASSERT_EQ(sizeof(text), guest_call(self, SYS_write, self->pipe[1],
					   RAM + 0x123, sizeof(text),
					   RAM + 0x123))
		TH_LOG("%s", gvm_strerror(&self->vm));
	ASSERT_EQ(sizeof(text), read(self->pipe[0], got, sizeof(got)));
	EXPECT_STREQ(text, got);
}

TEST_F(own_layout, read_into_guest_memory)
{
	ASSERT_EQ(5, write(self->pipe[1], "12345", 5));
	ASSERT_EQ(5, guest_call(self, SYS_read, self->pipe[0],
				RAM + SLOT - 5, 5, 0));
	EXPECT_EQ(0, memcmp((char *)self->region[0].host + SLOT - 5, "12345",
			    5));
}

TEST_F(own_layout, buffers_outside)
{
	const uint64_t fd = self->pipe[1];

	EXPECT_EQ(-EFAULT, guest_call(self, SYS_write, fd, RAM - 1, 2, 0));
	EXPECT_EQ(-EFAULT, guest_call(self, SYS_write, fd, MORE + SLOT - 1, 2,
				      0));
	/* One buffer for the guest, two places here: the VMM would split it. */
	EXPECT_EQ(-EFAULT, guest_call(self, SYS_write, fd, MORE - 1, 2, 0));
	EXPECT_EQ(-EFAULT, guest_call(self, SYS_write, fd, RAM, ~0ULL, 0));
	/* The host's own address of that memory is none of the guest's. */
	EXPECT_EQ(-EFAULT, guest_call(self, SYS_write, fd,
				      U(self->region[0].host), 1, 0));
}

TEST_F(own_layout, memory_the_guest_may_not_write)
{
	memcpy(self->region[2].host, text, sizeof(text));
	EXPECT_EQ(sizeof(text), guest_call(self, SYS_write, self->pipe[1], ROM,
					   sizeof(text), 0));
	EXPECT_EQ(-EFAULT, guest_call(self, SYS_read, self->pipe[0], ROM, 4,
				      0));
	EXPECT_EQ(0, memcmp(self->region[2].host, text, sizeof(text)));
}

TEST_F(own_layout, the_policy_is_the_same)
{
	EXPECT_EQ(getppid(), guest_call(self, SYS_getppid, 0, 0, 0, 0));
	EXPECT_EQ(-EPERM, guest_call(self, SYS_getpid, 0, 0, 0, 0));
}

TEST_HARNESS_MAIN
