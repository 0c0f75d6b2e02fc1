/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* The vsock side of kvm-fastsys: status section and benchmark. */
#ifndef KFS_TOOL_VSOCK_H
#define KFS_TOOL_VSOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define VSOCK_MODULE_DIR "/sys/module/kvm_fastsys_vsock"

struct json_object;

/* One counter of kvm_fastsys_vsock, -1 when there is none. */
long long vsock_counter(const char *name);
/* 0 or -errno */
int vsock_set_mode(const char *mode);
bool vsock_get_mode(char *buf, size_t len);

/* Section of `kvm-fastsys status`; nothing when the module is not loaded. */
void vsock_status_text(void);
struct json_object *vsock_status_json(void);

/* ---- kvm-fastsys bench vsock -------------------------------------------- */
enum vsock_column {
	COL_STOCK,		/* module off */
	COL_COALESCE,
	COL_NODELAY,
	COL_TCP,
	COL_TCP_NODELAY,
	COL_COUNT
};

enum vsock_direction {
	DIR_SEND,		/* this side writes */
	DIR_RECEIVE,
	DIR_COUNT
};

#define VSOCK_SIZES	13
#define VSOCK_MAX_REPS	31

struct vsock_cell {
	unsigned int runs;
	double mb_per_s[VSOCK_MAX_REPS];	/* 1 MB = 10^6 bytes */
	double packets_per_mb;
};

struct vsock_table {
	bool used[COL_COUNT];
	struct vsock_cell cell[VSOCK_SIZES][COL_COUNT];
};

extern const unsigned int vsock_sizes[VSOCK_SIZES];
extern const char *const vsock_column_names[COL_COUNT];
extern const char *const vsock_direction_names[DIR_COUNT];

double vsock_median(const struct vsock_cell *cell);
/* "64", "4K" */
const char *vsock_size_name(unsigned int size);
void vsock_print(const struct vsock_table *table, const char *what);
struct json_object *vsock_json(const struct vsock_table *table);
/* 0 or -errno */
int vsock_plot(const char *path, const char *title,
	       const struct vsock_table *table);

#endif
