#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of capturing under another kernel: one of Debian's, in qemu, on this machine's own files, which it may only read.

  run.py                      Debian's kernel of this release; tests/kernels/in_guest.sh
  run.py --package NAME       another package of apt's, e.g. linux-image-6.12.43+deb12-amd64
  run.py -- COMMAND           something else than in_guest.sh, in the root of the source tree
The kernel is downloaded and unpacked under build/kernels, not installed. Needs qemu-system-x86 and busybox-static. Exit status: that of
the command; 3 if the guest did not come to its end.
"""
import argparse
import glob
import os
import re
import secrets
import shlex
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODULES = ("virtio_pci", "9pnet_virtio", "9p")
MEMORY, PROCESSORS = "6G", 2
CPU = "Nehalem"  # enough for x86-64-v2; the emulation of newer ones hangs in the kernel's tests of its ciphers
DEBIAN = "linux-image-amd64"
INIT = """#!/bin/busybox sh
export PATH=/bin
busybox mkdir -p /proc /sys /dev /host
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs devtmpfs /dev
for module in {modules}; do busybox insmod /modules/$module; done
busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host || busybox poweroff -f
busybox mount -t proc proc /host/proc
busybox mount -t sysfs sysfs /host/sys
busybox mount -t tracefs tracefs /host/sys/kernel/tracing
busybox mount -t bpf bpf /host/sys/fs/bpf
busybox mount -t cgroup2 cgroup2 /host/sys/fs/cgroup
busybox mount -t devtmpfs devtmpfs /host/dev
busybox mkdir -p /host/dev/shm
for folder in dev/shm tmp run var/tmp; do busybox mount -t tmpfs tmpfs /host/$folder; done
busybox ip link set lo up
busybox chroot /host /usr/bin/env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHONDONTWRITEBYTECODE=1 /bin/sh -c {command}
echo "{word} $?"
busybox sync
busybox poweroff -f
"""


def run(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def newest_package():
    depends = re.findall(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", DEBIAN))
    if not depends:
        sys.exit(f"{DEBIAN}: apt knows no such package; apt-get update?")
    return depends[0]


def unpacked(package, folder):
    """The folder with boot/ and lib/modules/ of the kernel."""
    out = os.path.join(folder, package)
    if not os.path.exists(os.path.join(out, "done")):
        os.makedirs(folder, exist_ok=True)
        print(f"downloading {package}", flush=True)
        run("apt-get", "download", package, cwd=folder)
        (archive,) = glob.glob(os.path.join(folder, f"{package}_*.deb"))
        run("dpkg-deb", "-x", archive, out)
        os.remove(archive)
        open(os.path.join(out, "done"), "w", encoding="ascii").close()
    return out


def with_dependencies(modules_folder):
    """Files of MODULES and of what they need, in an order in which they can be inserted."""
    run("depmod", "-b", modules_folder.split("/lib/modules/")[0], os.path.basename(modules_folder))
    needs = {}
    with open(os.path.join(modules_folder, "modules.dep"), encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            needs[name] = rest.split()
    by_name = {os.path.basename(path).split(".ko")[0]: path for path in needs}
    out = []
    for module in MODULES:
        if module not in by_name:
            continue  # built in
        path = by_name[module]
        out += [part for part in (*reversed(needs[path]), path) if part not in out]
    return out


def make_initramfs(kernel, version, command, word):
    """A file system of busybox, the modules, and an init that runs the command in this machine's files."""
    modules_folder = os.path.join(kernel, "lib/modules", version)
    tree = os.path.join(kernel, "initramfs")
    os.makedirs(os.path.join(tree, "bin"), exist_ok=True)
    os.makedirs(os.path.join(tree, "modules"), exist_ok=True)
    names = []
    for path in with_dependencies(modules_folder):
        name = os.path.basename(path)
        names.append(name)
        run("cp", os.path.join(modules_folder, path), os.path.join(tree, "modules", name))
    run("cp", "/bin/busybox", os.path.join(tree, "bin/busybox"))
    init = os.path.join(tree, "init")
    with open(init, "w", encoding="utf-8") as file:
        file.write(INIT.format(modules=" ".join(names), command=shlex.quote(command), word=word))
    os.chmod(init, 0o755)
    out = os.path.join(kernel, "initramfs.cpio")
    with open(out, "wb") as file:
        files = subprocess.run(["find", "."], cwd=tree, check=True, stdout=subprocess.PIPE)
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=tree, check=True, input=files.stdout, stdout=file)
    return out


def boot(kernel, version, initramfs, word, accelerator, limit_s):
    """Prints what the guest prints; gives the status of its command."""
    command = ["timeout", "--kill-after=5", str(limit_s), "qemu-system-x86_64", "-accel", accelerator, "-cpu", CPU,
               "-smp", str(PROCESSORS), "-m", MEMORY, "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
               "-kernel", os.path.join(kernel, "boot", f"vmlinuz-{version}"), "-initrd", initramfs,
               "-append", "console=ttyS0 quiet panic=-1 oops=panic cryptomgr.notests=1",
               "-virtfs", "local,path=/,mount_tag=host,security_model=passthrough,readonly=on,multidevs=remap"]
    status = 3
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace") as guest:
        for line in guest.stdout:
            if line.startswith(word):
                status = int(line.split()[1])
            else:
                print(line.rstrip("\r\n"), flush=True)
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", help="of a kernel [what linux-image-amd64 depends on]")
    parser.add_argument("--root", default=os.path.join(ROOT, "build/kernels"), metavar="FOLDER", help="[build/kernels]")
    parser.add_argument("--accelerator", default="tcg", help="of qemu, e.g. kvm, where that works [tcg: emulated, some thirty times slower]")
    parser.add_argument("--limit-s", type=int, default=3600, help="[3600]")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    kernel = unpacked(options.package or newest_package(), options.root)
    (version,) = os.listdir(os.path.join(kernel, "lib/modules"))
    word = f"status-{secrets.token_hex(8)}"
    inside = shlex.join(options.command) if options.command else os.path.join(HERE, "in_guest.sh")
    initramfs = make_initramfs(kernel, version, f"cd {shlex.quote(ROOT)} && {inside}", word)
    sys.exit(boot(kernel, version, initramfs, word, options.accelerator, options.limit_s))


main()
