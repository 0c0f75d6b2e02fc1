// SPDX-License-Identifier: MIT OR LGPL-2.1
/* The benchmark's table as text and JSON. */
#include <stdlib.h>
#include <string.h>
#include <json-c/json.h>

#include "vsock.h"

const unsigned int vsock_sizes[VSOCK_SIZES] = {
	64, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10,
	64 << 10, 128 << 10, 256 << 10, 512 << 10,
};

const char *const vsock_column_names[COL_COUNT] = {
	"vsock", "merging", "NODELAY", "TCP", "TCP_NODELAY",
};

const char *const vsock_direction_names[DIR_COUNT] = { "send", "receive" };

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double vsock_median(const struct vsock_cell *cell)
{
	double sorted[VSOCK_MAX_REPS];

	if (!cell->runs)
		return 0;
	memcpy(sorted, cell->mb_per_s, sizeof(sorted));
	qsort(sorted, cell->runs, sizeof(sorted[0]), compare);
	return (sorted[(cell->runs - 1) / 2] + sorted[cell->runs / 2]) / 2;
}

const char *vsock_size_name(unsigned int size)
{
	static char buf[4][16];
	static unsigned int next;
	char *p = buf[next++ % 4];

	if (size < 1024)
		snprintf(p, sizeof(buf[0]), "%u", size);
	else
		snprintf(p, sizeof(buf[0]), "%uK", size / 1024);
	return p;
}

void vsock_print(const struct vsock_table *table, const char *what)
{
	printf("%s: MB/s, packets per MB beside\n%5s", what, "write");
	for (int c = 0; c < COL_COUNT; c++)
		if (table->used[c])
			printf(" %14s", vsock_column_names[c]);
	printf("\n");
	for (unsigned int i = 0; i < VSOCK_SIZES; i++) {
		bool any = false;

		for (int c = 0; c < COL_COUNT; c++)
			any |= table->cell[i][c].runs;
		if (!any)
			continue;
		printf("%5s", vsock_size_name(vsock_sizes[i]));
		for (int c = 0; c < COL_COUNT; c++)
			if (table->used[c])
				printf(" %8.2f%6.0f",
				       vsock_median(&table->cell[i][c]),
				       table->cell[i][c].packets_per_mb);
		printf("\n");
	}
}

struct json_object *vsock_json(const struct vsock_table *table)
{
	struct json_object *rows = json_object_new_array();

	for (unsigned int i = 0; i < VSOCK_SIZES; i++) {
		struct json_object *row = json_object_new_object();

		json_object_object_add(row, "bytes_per_write",
				       json_object_new_int64(vsock_sizes[i]));
		for (int c = 0; c < COL_COUNT; c++) {
			const struct vsock_cell *cell = &table->cell[i][c];
			struct json_object *o, *runs;

			if (!cell->runs)
				continue;
			o = json_object_new_object();
			runs = json_object_new_array();
			for (unsigned int r = 0; r < cell->runs; r++)
				json_object_array_add(runs,
					json_object_new_double(cell->mb_per_s[r]));
			json_object_object_add(o, "mb_per_s",
				json_object_new_double(vsock_median(cell)));
			json_object_object_add(o, "packets_per_mb",
				json_object_new_double(cell->packets_per_mb));
			json_object_object_add(o, "runs", runs);
			json_object_object_add(row, vsock_column_names[c], o);
		}
		json_object_array_add(rows, row);
	}
	return rows;
}
