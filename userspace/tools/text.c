// SPDX-License-Identifier: MIT OR LGPL-2.1
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void wrapped_from(FILE *f, size_t column, unsigned int indent, const char *text)
{
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

void wrapped(FILE *f, const char *first, unsigned int indent, const char *text)
{
	fputs(first, f);
	wrapped_from(f, strlen(first), indent, text);
}

void vcomplain(const char *fmt, va_list ap)
{
	char *text = NULL, *out = NULL, *line, *next;
	size_t len = 0;
	FILE *f;

	if (vasprintf(&text, fmt, ap) < 0)
		return;
	f = open_memstream(&out, &len);
	for (line = text; f && line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		wrapped(f, "", strncmp(line, "Next: ", 6) ? 2 : 6, line);
	}
	if (f && !fclose(f) && write(STDERR_FILENO, out, len) < 0)
		clearerr(stderr);
	free(out);
	free(text);
}

void complain(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vcomplain(fmt, ap);
	va_end(ap);
}

bool parse_number(const char *text, unsigned long long least,
		  unsigned long long most, unsigned long long *n)
{
	char *end;

	/* strtoull() itself takes blanks and a sign. */
	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	*n = strtoull(text, &end, 0);
	return !errno && !*end && *n >= least && *n <= most;
}
