/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/*
 * The doorbell: how a guest's call reaches its VMM where the module does not
 * serve it. Both sides include this; it needs nothing but types.
 *
 * The VMM gives the guest one page of mailboxes, one for each vCPU, and tells
 * it where the page is by whatever means it has. The guest fills in its row
 * and writes the row's number, 32 bits wide, to the port. KVM_RUN ends with
 * KVM_EXIT_IO, the VMM makes the call under its policy, leaves the result in
 * the row and enters again.
 */
#ifndef KFS_DOORBELL_H
#define KFS_DOORBELL_H

#include <linux/types.h>

struct kfs_mailbox {
	__u64 nr;
	__u64 args[6];
	__s64 ret;
};

/* In a page of 4096 bytes. */
#define KFS_MAILBOXES		64

/* Where nothing of a PC lives; a VMM and its guest may agree on another. */
#define KFS_DOORBELL_PORT	0x4b46

#endif /* KFS_DOORBELL_H */
