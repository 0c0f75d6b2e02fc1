#!/bin/sh
# SPDX-License-Identifier: MIT OR LGPL-2.1
#
# The examples and the tool against the loaded module, in the emulated machine
# or on a real one, as root. TAP on stdout.
set -u
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
		sed 's/^/# /' "$tmp"/* 2>/dev/null
		bad=1
	fi
}

# The documents' examples, beside this.
set -- "$(dirname "$(command -v "$0")")"/../snippets/*-*
[ -x "$1" ] || { echo "Bail out! no $1: make user"; exit 1; }
echo 1..$((38 + $#))

# runs NAME PROGRAM...: its exit status, output in $tmp
runs() {
	name=$1
	shift
	"$@" >"$tmp/$name.out" 2>"$tmp/$name.err"
}
# as_wanted NAME: the output and no complaint
as_wanted() { cmp "$tmp/$1.out" "$tmp/want" && [ ! -s "$tmp/$1.err" ]; }

# The same VMM in C and, by raw ioctls, in Rust and in Go: the same results.
cat >"$tmp/want" <<END
Hello from ring 0.
The guest's write gave 19.
The guest's getpid gave -1.
END
for vmm in vmm vmm-rust vmm-go; do
	runs $vmm $vmm
	ok "$vmm: runs"
	as_wanted $vmm
	ok "$vmm: its guest wrote, and may do nothing else"
	# Somebody watches: the same, by the VMM's own system call.
	runs $vmm strace -f -o "$tmp/trace" -e trace=write $vmm
	ok "$vmm: runs under strace"
	as_wanted $vmm
	ok "$vmm: the same under strace"
	grep -q 'write(1, "Hello from ring 0.' "$tmp/trace"
	ok "$vmm: strace saw the guest's write"
done
rm "$tmp"/*

# Everything opened first, then no root, no rights, few system calls.
cat >"$tmp/want" <<END
Hello from ring 0.
The guest's write gave 19.
The guest's getpid gave -1.
In KVM_RUN 0, by the VMM 1, by the policy 1.
END
runs jailed jailed
ok "jailed: runs"
as_wanted jailed
ok "jailed: the filter saw the call, the policy answered the other"
rm "$tmp"/*

# Stops its vCPUs three times, by the module and by signal.
for way in "" signal; do
	# shellcheck disable=SC2086
	runs pause pause $way
	ok "pause $way: its guests stood still"
	grep -q "^Kicks by ${way:-the module}\.$" "$tmp/pause.out"
	ok "pause $way: says how"
done
rm "$tmp"/*

# Without the module: the same answer from each, and what is wrong.
module=${KFS_DIR:-}/kvm_fastsys.ko
if [ -e "$module" ]; then
	cat >"$tmp/want" <<-END
	The guest's write gave -1000.
	The guest's getpid gave -1000.
	END
	# A VM's end is not waited for by who ends it.
	end=$(($(date +%s) + 10))
	while [ "$(cat /sys/module/kvm_fastsys/refcnt)" != 0 ] &&
		[ "$(date +%s)" -lt $end ]; do :; done
	rmmod kvm_fastsys
	for vmm in vmm vmm-rust vmm-go; do
		runs $vmm $vmm
		[ $? = 3 ] && cmp "$tmp/$vmm.out" "$tmp/want" &&
			grep -q /dev/kvm_fastsys "$tmp/$vmm.err"
		ok "$vmm: without the module"
	done
	insmod "$module"
	rm "$tmp"/*
else
	for vmm in vmm vmm-rust vmm-go; do
		n=$((n + 1))
		echo "ok $n - $vmm: # SKIP no module file to load again"
	done
fi

for program in "$@"; do
	runs example "$program"
	ok "example ${program##*/}: runs with the module"
done
rm -f "$tmp"/*

# All vCPUs paused and resumed: no signal with the module, one without.
runs pause strace -f -o "$tmp/trace" -e trace=signal pause
ok "pause: runs"
grep -q '^Kicks by the module.$' "$tmp/pause.out" &&
	! grep -q SIGUSR1 "$tmp/trace"
ok "pause: by the module, no signal"
runs signal pause signal
ok "pause: runs by signal"
sed 1d "$tmp/pause.out" >"$tmp/want"
sed 1d "$tmp/signal.out" | cmp - "$tmp/want"
ok "pause: the same by signal"
kvm-fastsys status | grep -q '^kick by TIF_NOTIFY_SIGNAL'
ok "status: says how kicks work"
rm "$tmp"/*

kvm-fastsys check >"$tmp/check" 2>&1
ok "check: would work here"
kvm-fastsys check --json >"$tmp/json" 2>&1 &&
	grep -q '"would_work":true' "$tmp/json"
ok "check --json says the same"
rm "$tmp"/*

kvm-fastsys status >"$tmp/status" 2>&1 &&
	grep -q '^hypercall .*kvm_emulate_hypercall' "$tmp/status"
ok "status: names the hook"
! grep -q "$(printf '\033')" "$tmp/status"
ok "status: no colour into a file"

# A VM at work, asked about from outside: until it shows or has ended.
hypercall --set loaded --calls 20000 --passes 2 >"$tmp/bench" 2>&1 &
vmm=$!
while kvm-fastsys status --json >"$tmp/json" && kill -0 $vmm 2>/dev/null; do
	kvm-fastsys status >"$tmp/status"
	grep -q '"ran":[1-9]' "$tmp/json" &&
		grep -q '^  getppid  *[1-9]' "$tmp/status" && break
done
grep -q "\"pid\":$vmm," "$tmp/json" && grep -q '"state":"enabled"' "$tmp/json"
ok "status --json: a VM at work with its process"
grep -q "^VM [0-9]*: pid $vmm (hypercall), identity, enabled$" "$tmp/status"
ok "status: the same"
grep -q '^  ran [1-9][0-9,]*, denied 0, deferred 0, refused 0, interrupted 0$' \
	"$tmp/status"
ok "status: its counters"
kill $vmm 2>/dev/null
wait $vmm 2>/dev/null
rm "$tmp"/*

# In this order: the demo leaves its VM behind for a moment.
kvm-fastsys demo --keep-module >"$tmp/demo" 2>&1
ok "demo: all as it should be, module kept"
kvm-fastsys status --json >"$tmp/json" 2>&1 &&
	grep -q '"loaded":true' "$tmp/json"
ok "status --json: one object"

rm -rf "$tmp"
exit $bad
