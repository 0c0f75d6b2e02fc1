# SPDX-License-Identifier: MIT OR LGPL-2.1
"""The demo's transcript in README.md, and whether an output is the same.

The transcript is the code block after the line `<!-- demo transcript -->`.
What differs from run to run or kernel to kernel must not count: numbers of
instructions may differ by a tenth, process numbers and kernel versions at
all.
"""
import os
import re

MARK = "<!-- demo transcript -->"
TOLERANCE = 0.10
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)*")


def wanted(top):
    path = os.path.join(top, "README.md")
    if not os.path.exists(path):
        return None
    with open(path) as f:
        text = f.read()
    if MARK not in text:
        return None
    match = re.search(r"```[a-z]*\n(.*?)```", text.split(MARK, 1)[1], re.S)
    return match.group(1) if match else None


def lines(text):
    out = []
    for line in text.splitlines():
        # The command line a reader sees is not the demo's own output.
        if line.startswith("$ ") or not line.strip():
            continue
        out.append(" ".join(line.split()))
    return out


def same(a, b):
    if a == b:
        return True
    loose = re.compile(r"(\b[Pp]id\b\W*|\[pid +|process )\d+")
    a, b = loose.sub(r"\1N", a), loose.sub(r"\1N", b)
    kernel = re.compile(r"\b\d+\.\d+\.\d+[-+.\w]*-amd64")
    a, b = kernel.sub("K", a), kernel.sub("K", b)
    if NUMBER.sub("0", a) != NUMBER.sub("0", b):
        return False
    for x, y in zip(NUMBER.findall(a), NUMBER.findall(b)):
        if x == y:
            continue
        try:
            x, y = float(x.replace(",", "")), float(y.replace(",", ""))
        except ValueError:
            return False
        # Counts of calls are small or round and must be exact.
        if x < 100 or x % 100 == 0 or abs(x - y) > TOLERANCE * x:
            return False
    return True


def compare(want, got):
    """None, or the first difference in words."""
    want, got = lines(want), lines(got)
    for number, (a, b) in enumerate(zip(want, got), 1):
        if not same(a, b):
            return f"line {number}: wanted '{a}', got '{b}'"
    if len(want) != len(got):
        return f"{len(want)} lines wanted, {len(got)} came"
    return None
