# SPDX-License-Identifier: MIT OR LGPL-2.1
# shellcheck shell=bash
# TAP for the shell tests here: `t NAME COMMAND...` is one test, `done_testing`
# ends. What a failed command printed follows it.
# tmp is a directory for the test's own use.
tap_n=0 tap_bad=0 tap_out=$(mktemp) tmp=$(mktemp -d)
trap 'rm -rf "$tap_out" "$tmp"' EXIT

t() {
	local name=$1

	shift
	tap_n=$((tap_n + 1))
	if "$@" >"$tap_out" 2>&1; then
		echo "ok $tap_n - $name"
	else
		echo "not ok $tap_n - $name"
		sed 's/^/# /' "$tap_out"
		tap_bad=1
	fi
}

skip() {
	tap_n=$((tap_n + 1))
	echo "ok $tap_n - $1 # SKIP $2"
}

done_testing() {
	echo "1..$tap_n"
	exit $tap_bad
}
