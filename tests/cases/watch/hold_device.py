#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Holds 64 MiB of the first device and allocates a little now and then: kansoku run --softgpu -- hold_device.py"""
import ctypes
import time

driver = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    status = getattr(driver, name)(*arguments)
    if status != 0:
        raise SystemExit(f"{name}: {status}")


device, context, held, little = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(held), ctypes.c_size_t(64 << 20))
while True:
    call("cuMemAlloc_v2", ctypes.byref(little), ctypes.c_size_t(4096))
    call("cuMemFree_v2", little)
    time.sleep(0.05)  # allowed: what it does, not a wait
