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

echo 1..13

vmm >"$tmp/out" 2>"$tmp/err"
ok "vmm: runs"
printf 'Hello from ring 0.\nThe guest'"'"'s write gave 19.\n' >"$tmp/want"
cmp -s "$tmp/out" "$tmp/want"
ok "vmm: its guest's write reached stdout"

# Somebody watches: the same result, by the VMM's own system call.
strace -o "$tmp/trace" -e trace=write vmm >"$tmp/out" 2>"$tmp/err"
cmp -s "$tmp/out" "$tmp/want"
ok "vmm: the same under strace"
grep -q 'write(1, "Hello from ring 0.' "$tmp/trace"
ok "vmm: strace saw the guest's write"
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
