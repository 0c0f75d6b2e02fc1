// SPDX-License-Identifier: MIT OR LGPL-2.1
/* The benchmark's table as an SVG: bytes per write against MB/s, both log. */
#include <errno.h>
#include <math.h>

#include "vsock.h"

#define WIDTH	760
#define HEIGHT	480
#define LEFT	80
#define RIGHT	170
#define TOP	50
#define BOTTOM	70

static const char *const colours[COL_COUNT] = {
	"#888888", "#d62728", "#ff9896", "#1f77b4", "#7fb3d9",
};

struct axis {
	double low, high;	/* powers of ten */
};

static double x_of(unsigned int i)
{
	return LEFT + (double)i * (WIDTH - LEFT - RIGHT) / (VSOCK_SIZES - 1);
}

static double y_of(const struct axis *axis, double value)
{
	double part = (log10(value) - axis->low) / (axis->high - axis->low);

	return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

static struct axis range(const struct vsock_table *table)
{
	struct axis axis = { 99, -99 };

	for (int i = 0; i < VSOCK_SIZES; i++)
		for (int c = 0; c < COL_COUNT; c++) {
			double v = vsock_median(&table->cell[i][c]);

			if (v <= 0)
				continue;
			axis.low = fmin(axis.low, floor(log10(v)));
			axis.high = fmax(axis.high, ceil(log10(v)));
		}
	if (axis.low >= axis.high)
		axis.high = axis.low + 1;
	return axis;
}

static void grid(FILE *f, const struct axis *axis)
{
	for (double e = axis->low; e <= axis->high; e++) {
		double y = y_of(axis, pow(10, e));

		fprintf(f, "<line x1='%d' y1='%.1f' x2='%d' y2='%.1f' stroke='#ddd'/>\n",
			LEFT, y, WIDTH - RIGHT, y);
		fprintf(f, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
			LEFT - 8, y + 4, pow(10, e));
	}
	for (unsigned int i = 0; i < VSOCK_SIZES; i++)
		fprintf(f, "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n",
			x_of(i), HEIGHT - BOTTOM + 18,
			vsock_size_name(vsock_sizes[i]));
	fprintf(f, "<text x='%d' y='%d' text-anchor='middle'>bytes per write</text>\n",
		LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 22);
	fprintf(f, "<text transform='translate(22 %d) rotate(-90)' text-anchor='middle'>MB/s (log scale)</text>\n",
		TOP + (HEIGHT - TOP - BOTTOM) / 2);
}

static void draw_column(FILE *f, const struct axis *axis,
		 const struct vsock_table *table, int c, int row)
{
	fprintf(f, "<polyline fill='none' stroke='%s' stroke-width='2' points='",
		colours[c]);
	for (unsigned int i = 0; i < VSOCK_SIZES; i++) {
		double v = vsock_median(&table->cell[i][c]);

		if (v > 0)
			fprintf(f, "%.1f,%.1f ", x_of(i), y_of(axis, v));
	}
	fprintf(f, "'/>\n<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='%s' stroke-width='2'/>\n",
		WIDTH - RIGHT + 14, TOP + 20 * row, WIDTH - RIGHT + 40,
		TOP + 20 * row, colours[c]);
	fprintf(f, "<text x='%d' y='%d'>%s</text>\n", WIDTH - RIGHT + 46,
		TOP + 20 * row + 4, vsock_column_names[c]);
}

int vsock_plot(const char *path, const char *title,
	       const struct vsock_table *table)
{
	struct axis axis = range(table);
	FILE *f = fopen(path, "we");
	int row = 0;

	if (!f)
		return -errno;
	fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' font-size='12'>\n"
		"<rect width='100%%' height='100%%' fill='white'/>\n"
		"<text x='%d' y='26' font-size='15'>%s</text>\n",
		WIDTH, HEIGHT, LEFT, title);
	grid(f, &axis);
	for (int c = 0; c < COL_COUNT; c++)
		if (table->used[c])
			draw_column(f, &axis, table, c, row++);
	fprintf(f, "</svg>\n");
	if (fclose(f))
		return -errno;
	return 0;
}
