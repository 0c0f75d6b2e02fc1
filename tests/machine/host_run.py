# SPDX-License-Identifier: MIT OR LGPL-2.1
"""HOST=1: the same command on this computer, when it can do it.

It can with a usable /dev/kvm, as root, with the module built for the running
kernel. Nothing is changed but the module, and that only if it was not loaded.
"""
import fcntl
import os
import re
import selectors
import shlex
import shutil
import subprocess
import sys
import time

EXIT_TIMEOUT, EXIT_MACHINE = 124, 125


def say(text):
    print("host: " + text, file=sys.stderr, flush=True)


def kvm_is_usable():
    """None, or why not. Opening is not enough: it has to make a VM."""
    create_vm = 0xAE01
    try:
        fd = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    except OSError as e:
        return f"/dev/kvm: {e.strerror}"
    try:
        os.close(fcntl.ioctl(fd, create_vm, 0))
    except OSError as e:
        return f"/dev/kvm makes no VM: {e.strerror}"
    finally:
        os.close(fd)
    return None


def missing(opts, out):
    """Everything that is in the way, each with what to do."""
    found = []
    if os.geteuid() != 0:
        found.append("not root: run it as root")
    why = kvm_is_usable()
    if why:
        found.append(why + ": without HOST=1 the emulated machine does it")
    if not opts.no_module:
        release = os.uname().release
        module = os.path.join(out, "host", "kvm_fastsys.ko")
        if not os.path.isdir(f"/lib/modules/{release}/build"):
            found.append(f"no headers for the running kernel {release}: "
                         f"apt-get install linux-headers-{release}")
        elif not os.path.exists(module):
            found.append("the module is not built for the running kernel: "
                         "make KERNEL=host module")
        if not os.path.isdir("/sys/module/kvm"):
            found.append("KVM is built into this kernel: a modular KVM is "
                         "needed")
    if opts.shell:
        found.append("no shell by HOST=1: you have one")
    return found


def loaded():
    return os.path.isdir("/sys/module/kvm_fastsys")


def kernel_log():
    proc = subprocess.run(["dmesg"], text=True, stdout=subprocess.PIPE,
                          errors="replace", check=False)
    return proc.stdout.splitlines()


def new_lines(before, after):
    """What came since: the buffer may have dropped old lines meanwhile."""
    if not before:
        return after
    for at in range(len(after) - 1, -1, -1):
        if after[at] == before[-1]:
            return after[at + 1:]
    return after


def taint():
    with open("/proc/sys/kernel/tainted") as f:
        return int(f.read())


def environment(opts, rundir, out):
    user = os.path.join(out, "user")
    dirs = [os.path.join(out, "host")]
    for root, _, files in os.walk(user):
        if any(os.access(os.path.join(root, x), os.X_OK) for x in files):
            dirs.append(root)
    env = dict(os.environ)
    env.update({
        "PATH": ":".join(dirs) + ":" + env.get("PATH", ""),
        "LD_LIBRARY_PATH": user,
        "KFS_DIR": user,
        "KFS_RESULTS": os.path.join(rundir, "results"),
        "KFS_MODE": "host",
        "KFS_KERNEL": "host",
        "KFS_MODULE": os.path.join(out, "host", "kvm_fastsys.ko"),
    })
    if opts.no_module:
        env["KFS_NO_MODULE"] = "1"
    env.update(opts.env)
    return env


def run_command(opts, rundir, env):
    """Exit status, or None when it ran out of time."""
    command = list(opts.cmd)
    path = shutil.which(command[0], path=env["PATH"])
    if path is None:
        say(f"{command[0]}: no such program: run make programs")
        return 127
    command[0] = path
    proc = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env,
                            stdout=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + opts.timeout * float(
        os.environ.get("KFS_TIMEOUT_SCALE", "1"))
    sel = selectors.DefaultSelector()
    sel.register(proc.stdout, selectors.EVENT_READ)
    with open(os.path.join(rundir, "stdout"), "wb") as log:
        while sel.select(max(0, deadline - time.monotonic())):
            data = os.read(proc.stdout.fileno(), 65536)
            if not data:
                break
            log.write(data)
            log.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    try:
        return proc.wait(max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(proc.pid, 9)
        proc.wait()
        return None


def run(opts, rundir, name, out, complaints):
    """What the machine's run does, here. The exit status is the same."""
    found = missing(opts, out)
    for text in found:
        say("cannot run here: " + text)
    if found:
        return EXIT_MACHINE
    shutil.rmtree(rundir, ignore_errors=True)
    os.makedirs(os.path.join(rundir, "results"))
    module = os.path.join(out, "host", "kvm_fastsys.ko")
    was_loaded = loaded()
    if was_loaded and opts.no_module:
        say("kvm_fastsys is loaded: rmmod kvm_fastsys first")
        return EXIT_MACHINE
    before, taint_before = kernel_log(), taint()
    if not opts.no_module and not opts.no_load and not was_loaded:
        if subprocess.run(["insmod", module], check=False).returncode:
            say("the module does not load: see dmesg | tail")
            return EXIT_MACHINE
    start = time.monotonic()
    try:
        status = run_command(opts, rundir, environment(opts, rundir, out))
    finally:
        if not was_loaded and loaded():
            subprocess.run(["rmmod", "kvm_fastsys"], check=False)
    fresh = new_lines(before, kernel_log())
    log = os.path.join(rundir, "console.log")
    with open(log, "w") as f:
        f.write("\n".join(fresh) + "\n")

    faults = []
    bad = [x for x in fresh if re.search(complaints, x)]
    if bad:
        faults.append("the kernel complained: " + bad[0].strip())
    new_taint = taint() & ~taint_before & ~(4096 | 8192)
    if new_taint:
        faults.append(f"unexpected taint {new_taint}")
    if not was_loaded and loaded():
        faults.append("the module cannot be unloaded after it")
    if status is None:
        faults.append(f"no end within {opts.timeout:.0f} s")
    for fault in faults:
        say(f"{name}: {fault}")
    if faults:
        say(f"{name}: FAILED, log {log}")
        return EXIT_TIMEOUT if status is None else EXIT_MACHINE
    say(f"{name}: exit {status} after {time.monotonic() - start:.0f} s, "
        f"{shlex.join(opts.cmd)} on this computer, log {log}")
    return status
