// SPDX-License-Identifier: MIT OR LGPL-2.1
/*
 * File and descriptor calls by a guest: result, errno, buffers, file positions
 * and contents equal those of the same call made natively (see cases_file.c).
 */
#include "callcase.h"
#include "kselftest_harness.h"

FIXTURE(calls_file) {
	struct tvm t;
};

FIXTURE_SETUP(calls_file)
{
	REQUIRE_MODULE();
	ASSERT_EQ(0, tvm_create(&self->t, 0, 0))
		TH_LOG("%s", gvm_strerror(&self->t.vm));
}

FIXTURE_TEARDOWN(calls_file)
{
	tvm_destroy(&self->t);
	unlink(CASE_FILE);
}

TEST_F(calls_file, equal_native)
{
	unsigned int i, errors = 0;

	for (i = 0; i < n_cases_file; i++) {
		int64_t ret = 0;
		const char *why = case_differs(&self->t, &cases_file[i], &ret);

		EXPECT_EQ(NULL, why)
			TH_LOG("%s: %s", cases_file[i].name, why);
		errors += ret < 0;
	}
	/* A table whose calls all fail, or none, would show little. */
	EXPECT_LT(10, errors);
	EXPECT_LT(20, n_cases_file - errors);
}

TEST_HARNESS_MAIN
