# SPDX-License-Identifier: MIT OR LGPL-2.1
# shellcheck shell=sh
#
# Sourced by the tests of kvm-fastsys run: TAP, a tree of files, a program.
tmp=$(mktemp -d)
n=0 bad=0

# ok NAME: the last command's status decides
ok() {
	status=$?
	n=$((n + 1))
	if [ $status = 0 ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		for f in "$tmp"/*.out "$tmp"/*.err; do
			[ ! -s "$f" ] || head -c 1500 "$f" |
				tr -cd '\11\12\40-\176' |
				sed "s,^,# ${f##*/}: ,"
		done
		bad=1
	fi
}

done_testing() {
	echo "1..$n"
	cd /
	rm -rf "$tmp"
	exit $bad
}

tree=$tmp/tree
mkdir -p "$tree/a/b" "$tree/c"
seq 1 3000 | sed 's/\(.*\)\(.\)/\2\1 line/' >"$tree/a/numbers"
head -c 300000 /bin/busybox >"$tree/a/b/binary"
ln -s ../a/numbers "$tree/c/link"
echo hidden >"$tree/c/.dot"
cd "$tree" || exit 1

# probe WANTED-STATUS MODE PROGRAM WORD...: stdout in got.out
probe() {
	wanted=$1 mode=$2
	shift 2
	kvm-fastsys run --mode "$mode" "$@" >"$tmp/got.out" 2>"$tmp/got.err"
	got=$?
	[ $got = "$wanted" ] || { echo "status $got" >>"$tmp/got.err"; false; }
}
says() { grep -q -e "$1" "$tmp/got.$2"; }
