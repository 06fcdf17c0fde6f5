#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A network switch in user space, for kernels without netem: relay.py [--device NAME] [--subnet A.B.C] NAMESPACE...

Opens a TUN device [eth0] with the address [10.77.0].(i+1) in the i-th network namespace, relays IP packets between them, and prints
"ready". A line "INDEX SECONDS [LOSS]" on standard input delays all packets from and to that namespace from then on, in order, and
loses that share of them. Ends with its standard input. Root only. The last byte of an address says whose it is, whatever its subnet.
"""
import argparse
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000
MTU = 60000  # few large packets: the relay shares the processors with the job
QUEUE_MAX, PACKETS_A_TURN = 20000, 64
_libc = ctypes.CDLL(None, use_errno=True)


def enter(fd):
    if _libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def open_tun(namespace, device, address):
    """A descriptor whose device lives in the namespace; the caller stays outside."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open("/run/netns/" + namespace, os.O_RDONLY)
    enter(there)
    try:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
        subprocess.check_call(["ip", "link", "set", device, "mtu", str(MTU), "up"])
        subprocess.check_call(["ip", "addr", "add", address + "/24", "dev", device])
    finally:
        enter(home)
        os.close(home)
        os.close(there)
    return fd


class Switch:
    def __init__(self, devices):
        self.devices, self.delays = devices, [0.0] * len(devices)
        self.losses, self.rng = [0.0] * len(devices), random.Random(1)
        self.queue, self.order = [], 0

    def take(self, source):
        """Reads what the device has and puts it in the queue, or forwards it at once where nothing delays it."""
        for _ in range(PACKETS_A_TURN):
            try:
                packet = os.read(self.devices[source], 65536)
            except BlockingIOError:
                return
            target = packet[19] - 1  # the last byte of the destination address
            if packet[0] >> 4 != 4 or not 0 <= target < len(self.devices) or len(self.queue) >= QUEUE_MAX:
                continue  # not ours, or a full queue: lost, as in a switch
            if self.rng.random() < max(self.losses[source], self.losses[target]):
                continue
            self.order += 1
            due = time.monotonic() + self.delays[source] + self.delays[target]
            heapq.heappush(self.queue, (due, self.order, target, packet))

    def give(self):
        now = time.monotonic()
        while self.queue and self.queue[0][0] <= now:
            _, _, target, packet = heapq.heappop(self.queue)
            try:
                os.write(self.devices[target], packet)
            except OSError:
                pass  # the device is full or going away: lost

    def run(self):
        while True:
            wait = max(0.0, self.queue[0][0] - time.monotonic()) if self.queue else None
            for readable in select.select([*self.devices, sys.stdin], [], [], wait)[0]:
                if readable is sys.stdin:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    index, seconds, *loss = line.split()
                    self.delays[int(index)], self.losses[int(index)] = float(seconds), float(loss[0]) if loss else 0.0
                else:
                    self.take(self.devices.index(readable))
            self.give()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="eth0")
    parser.add_argument("--subnet", default="10.77.0")
    parser.add_argument("namespaces", nargs="+")
    options = parser.parse_args()
    devices = [open_tun(name, options.device, f"{options.subnet}.{i + 1}") for i, name in enumerate(options.namespaces)]
    print("ready", flush=True)
    Switch(devices).run()


if __name__ == "__main__":
    main()
