#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unlinked.py [--kansoku FILE]: a library of ggml that its process has mapped and never links. Its table of operator names stays empty: the
recorder waits for it a while, then says so, and goes on with tokens alone."""
import ctypes
import mmap
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

LIBRARY = """
static const char* const kNames[] = {"NONE", "DUP", "ADD", "MUL_MAT", "MUL_MAT_ID"};
const char* ggml_op_name(int op) { return kNames[op]; }
int ggml_backend_sched_graph_compute_async(void* scheduler, void* graph) { return scheduler == graph; }
int llama_decode(void* context) { return context != 0; }
"""
PT_LOAD = 1
MAP_FIXED = 0x10
PAGE = mmap.PAGESIZE


def map_unlinked(path):
    """As the dynamic linker maps a library's segments, before it relocates them."""
    with open(path, "rb") as file:
        data = file.read()
        begin, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
        headers = [struct.unpack_from("<IIQQQQQQ", data, begin + size * at) for at in range(count)]
        segments = [(flags, offset, address, in_file, length) for kind, flags, offset, address, _, in_file, length, _ in headers if kind == PT_LOAD]
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        end = max(address + length for _, _, address, _, length in segments)
        bias = libc.mmap(None, end + PAGE, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        for flags, offset, address, in_file, _ in segments:
            before = address % PAGE
            access = (flags & 4 and mmap.PROT_READ) | (flags & 2 and mmap.PROT_WRITE) | (flags & 1 and mmap.PROT_EXEC)
            if libc.mmap(bias + address - before, in_file + before, access, mmap.MAP_PRIVATE | MAP_FIXED, file.fileno(), offset - before) in (
                    None, ctypes.c_void_p(-1).value):
                raise OSError(ctypes.get_errno(), "mmap")
    print("mapped", flush=True)
    sys.stdin.read()


def main(report):
    options = kit.parser(__doc__).parse_args()
    kit.need_root()
    with tempfile.TemporaryDirectory() as folder:
        library, trace = os.path.join(folder, "libggml-base.so"), os.path.join(folder, "run.pftrace")
        subprocess.run(["gcc", "-x", "c", "-O2", "-fPIC", "-shared", "-o", library, "-"], input=LIBRARY, text=True, check=True)
        with kit.Job([sys.executable, os.path.abspath(__file__), "map", library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
            kit.expect(job.stdout.readline() == "mapped\n", "the library is not mapped")
            with kit.Job([options.kansoku, "llm", "record", "--force", "-o", trace, "-p", str(job.pid)], "SIGINT", 60.0, stderr=subprocess.PIPE,
                         text=True) as recorder:
                kit.expect(any("seen up to the token level only" in line for line in recorder.stderr), "the recorder ended and had not said it")
        said = kit.answer(options.kansoku, "llm", "report", "--json", trace)

        def is_told():
            unknown = {row["figure"]: row["reason"] for row in said["processes"][0]["unknown"]}
            for figure in ("graphs", "operators", "threads"):
                kit.expect("has not relocated them" in unknown[figure], f"{figure}: {unknown[figure]}")
        report.part("an empty table is given up, and said", is_told)


if sys.argv[1:2] == ["map"]:
    map_unlinked(sys.argv[2])
else:
    kit.run(main)
