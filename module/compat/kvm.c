// SPDX-License-Identifier: GPL-2.0
#include "compat.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)

static bool kfs_slots_log(struct kvm_memslots *slots)
{
	struct kvm_memory_slot *slot;
	int bucket;

	kvm_for_each_memslot(slot, bucket, slots)
		if (slot->flags & KVM_MEM_LOG_DIRTY_PAGES)
			return true;
	return false;
}

bool kfs_compat_scan_logging(struct kvm *kvm, struct kfs_log_cache *cache)
{
	int as;

	for (as = 0; as < KVM_ADDRESS_SPACE_NUM; as++) {
		struct kvm_memslots *slots = __kvm_memslots(kvm, as);

		if (kfs_slots_log(slots))
			return true;
		cache->generation[as] = slots->generation;
	}
	return false;
}

#endif
