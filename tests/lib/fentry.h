/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* Another direct user of a module's function: a BPF program at its entry. */
#ifndef FENTRY_H
#define FENTRY_H

/* A descriptor that holds it there; -errno, and a line in *why. */
int fentry_attach(const char *module, const char *function, const char **why);

#endif
