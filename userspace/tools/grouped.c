// SPDX-License-Identifier: MIT OR LGPL-2.1
#include "tool.h"

const char *grouped(unsigned long long n)
{
	static char bufs[4][32];
	static unsigned int which;
	char *p = bufs[which++ % 4] + 31;
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
