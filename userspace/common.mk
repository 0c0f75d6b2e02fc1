# SPDX-License-Identifier: MIT OR LGPL-2.1
# What lib, tools and examples have in common.
USERSPACE := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
TOP := $(patsubst %/,%,$(dir $(USERSPACE)))
O ?= $(TOP)/build/user
override O := $(abspath $(O))

# One version for everything: the package's.
VERSION := $(or $(shell sed -n 's/^PACKAGE_VERSION="\{0,1\}\([0-9.]*\).*/\1/p' \
	$(TOP)/dkms.conf 2>/dev/null),0.1.0)

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
LIBEXECDIR ?= $(PREFIX)/libexec/kvm_fastsys
# Not the distribution's linux/: a directory of ours that the .pc file names.
INCLUDEDIR ?= $(PREFIX)/include/kvm_fastsys
MANDIR ?= $(PREFIX)/share/man
COMPDIR ?= $(PREFIX)/share/bash-completion/completions
INSTALL ?= install

CFLAGS ?= -O2 -g
WARN := -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow \
	-Wvla -Werror
KFS_CPPFLAGS := -D_GNU_SOURCE -I$(TOP)/include/uapi -I$(USERSPACE)/lib
UAPI := $(TOP)/include/uapi/linux/kvm_fastsys.h
UAPI_VSOCK := $(TOP)/include/uapi/linux/kvm_fastsys_vsock.h
KFS_HEADERS := $(UAPI) $(UAPI_VSOCK) $(USERSPACE)/lib/kfs.h $(USERSPACE)/lib/kfs_guest.h \
	$(USERSPACE)/lib/kfs_doorbell.h $(USERSPACE)/lib/kfs_kick.h
