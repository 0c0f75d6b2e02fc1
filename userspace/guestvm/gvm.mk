# SPDX-License-Identifier: MIT OR LGPL-2.1
# How programs with gvm guests are compiled and linked; see gvm.h.
GVM_DIR := $(dir $(lastword $(MAKEFILE_LIST)))
GVM_CFLAGS := -mgeneral-regs-only -mno-red-zone -fno-stack-protector \
	      -fcf-protection=none -fno-pie -I$(GVM_DIR)
GVM_LDFLAGS := -static -no-pie
