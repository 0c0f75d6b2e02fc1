// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <string.h>

#include "tool.h"

#define WIDTH 80

const char *grouped(unsigned long long n)
{
	static char bufs[8][32];
	static unsigned int which;
	char *p = bufs[which++ % 8] + 31;
	unsigned int digits = 0;

	*p = '\0';
	do {
		if (digits && digits % 3 == 0)
			*--p = ',';
		*--p = (char)('0' + n % 10);
		n /= 10;
		digits++;
	} while (n);
	return p;
}

void wrapped(FILE *f, const char *first, unsigned int indent, const char *text)
{
	size_t column = strlen(first);

	fputs(first, f);
	for (const char *p = text; *p;) {
		size_t len = strcspn(p, " ");

		if (p != text && column + 1 + len > WIDTH) {
			fprintf(f, "\n%*s", (int)indent, "");
			column = indent;
		} else if (p != text) {
			fputc(' ', f);
			column++;
		}
		fwrite(p, 1, len, f);
		column += len;
		p += len;
		p += strspn(p, " ");
	}
	fputc('\n', f);
}
