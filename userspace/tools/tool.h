/* SPDX-License-Identifier: MIT OR LGPL-2.1 */
/* What the subcommands of kvm-fastsys share. */
#ifndef KFS_TOOL_H
#define KFS_TOOL_H

#include <argp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Exit statuses, as the manual page has them. */
enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,	/* it did not work, or `check` says it would not */
	EXIT_USAGE = 2,
	EXIT_NO_MODULE = 3,	/* the module is not loaded */
	EXIT_RUN_FAILED = 125,	/* `run`: the program could not be run */
};

#define MODULE_DIR "/sys/module/kvm_fastsys"

int cmd_status(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_policy(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_trace(int argc, char **argv);

/* argp_parse() with the options every subcommand has the same way. */
void parse(const struct argp *argp, int argc, char **argv, void *input);
/* The same for those that hand the rest of the line to somebody else. */
void parse_in_order(const struct argp *argp, int argc, char **argv,
		    void *input);

/* True when the file exists; its first line goes to buf, without the newline. */
bool first_line(const char *path, char *buf, size_t len);

/*
 * Colours, empty when stdout is no terminal or NO_COLOR is set.
 */
enum colour { PLAIN, GOOD, BAD, FAINT };
const char *colour(enum colour c);

/* 1234567 as "1,234,567"; the buffers rotate, eight can be in use at once. */
const char *grouped(unsigned long long n);

/*
 * `first`, then the text, in lines of at most 80 columns; all but the first
 * line are indented.
 */
void wrapped(FILE *f, const char *first, unsigned int indent, const char *text);
/* The same where `column` columns of the line are written already. */
void wrapped_from(FILE *f, size_t column, unsigned int indent, const char *text);

/*
 * What went wrong, for stderr: every line of it (the second is "Next: " and a
 * command) in at most 80 columns, and all of it by one write(2).
 */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void vcomplain(const char *fmt, va_list ap);

/*
 * All of the text is a number in that range: decimal, 0x hexadecimal or 0
 * octal, without a sign.
 */
bool parse_number(const char *text, unsigned long long least,
		  unsigned long long most, unsigned long long *n);

#endif /* KFS_TOOL_H */
