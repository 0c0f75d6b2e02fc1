# SPDX-License-Identifier: MIT OR LGPL-2.1
# shellcheck shell=bash
#
# What the scripts in tests/ share: where things are, how they talk. Sourced.

KFS_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
KFS_O=${O:-$KFS_TOP/build}
case $KFS_O in /*) ;; *) KFS_O=$PWD/$KFS_O ;; esac
# Downloads and build roots. Point it outside the tree to share them between
# clones; everything in it can be deleted at any time.
KFS_CACHE=${KFS_CACHE:-$KFS_O/cache}
KFS_MACHINE=$KFS_TOP/tests/machine
KFS_ME=${0##*/}

say() { printf '%s: %s\n' "$KFS_ME" "$*" >&2; }

die() {
	say "$*"
	exit 1
}

# The Debian release a kernel of releases.txt comes from.
kfs_suite() {
	awk -v k="$1" '$1 == k { print $2 }' "$KFS_MACHINE/releases.txt"
}

kfs_kernels() {
	awk '!/^#/ && NF { print $1 }' "$KFS_MACHINE/releases.txt"
}

# Sets KFS_KVER, KFS_VMLINUZ, KFS_MODULES, KFS_CHROOT, KFS_KDIR.
kfs_load_kernel() {
	local env=$KFS_O/setup/$1.env

	[ -r "$env" ] ||
		die "kernel $1 is not set up: run tests/machine/setup $1"
	# shellcheck disable=SC1090
	. "$env"
}

# run_long LABEL COMMAND...: says what takes long, that it is still going, and
# on failure shows the end of the log and its name.
run_long() {
	local label=$1 log start pid rc=0 waited=0
	shift

	mkdir -p "$KFS_O/log"
	log=$KFS_O/log/$(printf '%s' "$label" | tr -cs 'a-zA-Z0-9.' '-').log
	start=$SECONDS
	say "$label ..."
	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		sleep 1
		waited=$((waited + 1))
		[ $((waited % 20)) -ne 0 ] ||
			say "$label ... $((SECONDS - start)) s, log $log"
	done
	wait "$pid" || rc=$?
	if [ "$rc" -ne 0 ]; then
		tail -n 20 "$log" >&2
		die "$label failed (status $rc), whole log: $log"
	fi
	[ $((SECONDS - start)) -lt 5 ] ||
		say "$label: done in $((SECONDS - start)) s"
}
