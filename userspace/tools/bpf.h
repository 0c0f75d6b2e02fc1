/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* Classic BPF over struct seccomp_data: what a policy file is made of. */
#ifndef KFS_BPF_H
#define KFS_BPF_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>

/*
 * NULL, or why the kernel would not take it; *at is the instruction. What
 * passes ends when it runs: jumps go forward only.
 */
const char *bpf_check(const struct sock_filter *f, unsigned int len,
		      unsigned int *at);

/* SECCOMP_RET_*; the program must have passed bpf_check(). */
uint32_t bpf_judge(const struct sock_filter *f, unsigned int len,
		   const struct seccomp_data *sd);

/*
 * As the module derives it: does the verdict on this number need nothing but
 * number and architecture? Then it is in *ret.
 */
int bpf_by_number(const struct sock_filter *f, unsigned int len, uint32_t nr,
		  uint32_t *ret);
int bpf_always_allows(const struct sock_filter *f, unsigned int len,
		      uint32_t nr);

void bpf_print(FILE *out, const struct sock_filter *f, unsigned int len);

/* "allow", "errno EPERM (1)", ...: a return value in words. */
const char *bpf_action(uint32_t ret, char *buf, size_t size);

/* The number of "EPERM" or "1"; -1 for anything else. */
int bpf_errno(const char *text);

#endif /* KFS_BPF_H */
