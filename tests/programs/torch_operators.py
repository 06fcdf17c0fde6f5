# SPDX-License-Identifier: Apache-2.0
"""torch_operators.py LIBRARY STEPS: enters and leaves the scopes of a data loader and an optimizer, as PyTorch does, by the made-up
operators of torch_operators.cc, as soon as they are probed. Any CPython from 3.8 on."""
import ctypes
import sys
import time

ENTER, EXIT = 0, 1
LOAD_S, STEP_S = 0.02, 0.002
CODE_BYTES = 32
library = ctypes.PyDLL(sys.argv[1])
call = library.call_operator
call.argtypes = [ctypes.c_int, ctypes.py_object]
library.operator_code.restype = ctypes.c_void_p
with open(sys.argv[1], "rb") as file:
    unchanged = file.read()
until = time.time() + 20
while ctypes.string_at(library.operator_code(), CODE_BYTES) in unchanged and time.time() < until:
    time.sleep(0.01)  # allowed: the pause of a poll loop, until it is probed


def in_scope(name, seconds):
    call(ENTER, (name, None))
    time.sleep(seconds)  # allowed: how long a scope lasts is what is observed
    call(EXIT, (object(),))


for step in range(int(sys.argv[2])):
    in_scope("enumerate({})#{}.__next__".format("DataLoader", "_SingleProcessDataLoaderIter"), LOAD_S)
    call(ENTER, ("Optimizer.step#{}.step".format("SGD"), None))
    in_scope("\u89b3\u6e2c", STEP_S)
    call(EXIT, (object(),))
    call(EXIT, (2, 3))
