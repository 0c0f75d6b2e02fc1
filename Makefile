# SPDX-License-Identifier: MIT OR LGPL-2.1
#
# kvm_fastsys: everything starts here; `make help` lists it. Kbuild reads
# Kbuild, not this file.

TOP := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
VERSION := $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' $(TOP)/dkms.conf)

O ?= $(TOP)/build
override O := $(abspath $(O))
export O
USER_O := $(O)/user
MACHINE := $(TOP)/tests/machine

PREFIX ?= /usr/local
DESTDIR ?=
MODE ?= plain
COUNT ?= 5
V ?=
HOST ?=
export V HOST

# A computer that can build for the kernel it runs does so by default; what
# runs in the emulated machine defaults to Debian 12's kernel.
ifeq ($(origin KERNEL),undefined)
RUNNING := $(wildcard /lib/modules/$(shell uname -r)/build/Makefile)
BUILD_KERNEL := $(if $(RUNNING),host,6.1)
NO_HEADERS := $(if $(RUNNING),,1)
KERNEL := 6.1
else
BUILD_KERNEL := $(KERNEL)
endif
ifeq ($(HOST),1)
KERNEL := host
endif
export KERNEL

RUN = $(MACHINE)/run --kernel $(KERNEL)
# What the compilers are told is shown with V=1 only.
SUB = $(MAKE) --no-print-directory $(if $(V),,-s)

# User space is built once for every kernel; checks of two kernels side by side
# take turns at it. So does the unit suite, which builds as well.
ONE = @flock $(O)/.user.lock

all: ## module, library, tool (module for KERNEL, else the running kernel)
ifdef NO_HEADERS
	@echo "make: no headers for the running kernel, so the module is" \
		"Debian 12's ($(BUILD_KERNEL)):"; \
	echo "      apt-get install linux-headers-$$(uname -r)" \
		"makes it this kernel's"
endif
	@$(SUB) module KERNEL=$(BUILD_KERNEL)
	@$(SUB) user

setup: ## install the Debian packages needed, fetch kernels and build roots
	@$(MACHINE)/setup $(filter-out host,$(KERNEL))

module: setup ## build/KERNEL/kvm_fastsys.ko
	@$(MACHINE)/build-module $(KERNEL)

user: setup ## the library, the tool and the examples in build/user
	$(ONE) $(SUB) -C userspace O=$(USER_O)

programs: user ## the programs that run in the machine
	$(ONE) $(SUB) -C tests/selftests O=$(USER_O) KSRC_HARNESS=$(O)/harness
	$(ONE) $(SUB) -C tests/bench O=$(USER_O)
	$(ONE) $(SUB) -C tests/run O=$(USER_O)
	$(ONE) $(SUB) -C tests/bench/kick O=$(USER_O)

languages: user ## the examples in Rust and Go (installs Debian's compilers)
	@$(MACHINE)/setup --check $(filter-out host,$(KERNEL))
	$(ONE) $(SUB) -C userspace/examples O=$(USER_O) languages

demo: module user ## boot the machine and watch a guest make system calls
	@$(MACHINE)/demo

check: module programs languages ## every test; last line: N passed, N failed, N skipped
	@$(MACHINE)/check

bench: module programs ## instructions per call, to build/bench/
	@rc=0; \
	$(TOP)/tests/bench/run $(KERNEL) || rc=1; \
	$(TOP)/tests/bench/udp-run $(KERNEL) || rc=1; \
	$(TOP)/tests/bench/vsock --kernel $(KERNEL) || rc=1; \
	$(TOP)/tests/bench/vsock --kernel $(KERNEL) --where guest \
		--smap with || rc=1; \
	$(TOP)/tests/bench/kick/run $(KERNEL) || rc=1; \
	exit $$rc

stress: module programs ## races: the parallel tests COUNT times (5)
	@$(MACHINE)/check --suite selftests --modes parallel,single \
		--repeat $(COUNT)
	@KFS_VSOCK_MB=10240 KFS_VSOCK_CYCLES=200 KFS_VSOCK_SOCKETS=10000 \
	KFS_VSOCK_CHURN=10000 KFS_TIMEOUT_SCALE=60 \
		$(MACHINE)/check --suite selftests --modes plain \
		--only vsock_exact,vsock_ends,vsock_options,vsock_unload
	@$(RUN) --mode parallel --timeout 1800 --name kick-million \
		--env KFS_KICKS=1000000 -- kick_stress

shell: module programs ## a shell in the machine, module loaded
	@$(RUN) --mode $(MODE) --shell

style: setup ## checkpatch, sparse, headers, warnings, shellcheck and more
	@$(TOP)/tests/style/run

install: ## to DESTDIR, PREFIX: tool, library, header, udev rule, dkms source
	@$(SUB) -C userspace O=$(USER_O) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) \
		install
	@$(MACHINE)/install-system install "$(DESTDIR)" "$(PREFIX)" \
		"$(VERSION)"

uninstall: ## removes what install put there
	@$(MACHINE)/install-system uninstall "$(DESTDIR)" "$(PREFIX)" \
		"$(VERSION)"

clean: ## everything built; downloads and build roots stay (distclean: too)
	rm -rf --one-file-system $(O)/user $(O)/host $(O)/run $(O)/bench \
		$(O)/image $(O)/style $(O)/log $(O)/lang $(O)/dkms \
		$(wildcard $(O)/[0-9]*)

distclean: clean
	rm -rf --one-file-system $(O)

help: ## this list
	@echo "kvm_fastsys $(VERSION): targets"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' $(TOP)/Makefile | \
		awk -F'|' '{ printf "%-13s%s\n", $$1, $$2 }'
	@echo "variables"
	@echo "  KERNEL=K   $(shell awk '!/^\#/ && NF { printf "%s ", $$1 }' \
		$(MACHINE)/releases.txt)(Debian's), host, or a version with headers"
	@echo "  HOST=1     run tests on this computer's own KVM, as root"
	@echo "  COUNT=N    how often make stress repeats (5)"
	@echo "  MODE=M     plain, counting, parallel, single (make shell)"
	@echo "  V=1        show compilers' and tests' whole output"
	@echo "  O=DIR      where everything is built (build)"
	@echo "  PREFIX=P   where make install puts it (/usr/local)"
	@echo "  DESTDIR=D  ... below this directory, for packages"

.PHONY: all setup module user programs languages demo check bench stress shell style \
	install uninstall clean distclean help
