// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <errno.h>

#include "internal.h"

KFS_PUBLIC int kfs_cpuid_add(struct kvm_cpuid2 *cpuid, unsigned int room)
{
	struct kvm_cpuid_entry2 *entry = NULL;

	for (unsigned int i = 0; i < cpuid->nent; i++)
		if (cpuid->entries[i].function == KFS_CPUID_LEAF)
			entry = &cpuid->entries[i];
	if (!entry) {
		if (cpuid->nent >= room)
			return -ENOSPC;
		entry = &cpuid->entries[cpuid->nent++];
	}
	*entry = (struct kvm_cpuid_entry2) {
		.function = KFS_CPUID_LEAF,
		.eax = KFS_ABI_VERSION,
		.ebx = KFS_CPUID_EBX,
		.ecx = KFS_CPUID_ECX,
		.edx = KFS_CPUID_EDX,
	};
	return 0;
}
