#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_abi.py finds what a header has otherwise than the tables, and nothing else."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDE = os.path.join("share", "softgpu", "toolkit", "include")
FILES = [os.path.join("src", "cuda", "abi.h"), os.path.join("src", "cuda", "interface", "driver.txt"),
         os.path.join("src", "cuda", "interface", "layout.inc"), os.path.join(INCLUDE, "cuda.h"),
         os.path.join(INCLUDE, "softgpu_driver_types.h")]
FILES += [os.path.join("src", "cuda", "interface", name) for name in ("runtime.txt", "cublas.txt", "nccl.txt")]
FILES += [os.path.join(INCLUDE, "nccl.h")]
HEADER, TYPES = FILES[3], FILES[4]


class CheckAbi(unittest.TestCase):
    def setUp(self):
        if shutil.which("cc") is None:
            self.skipTest("no C compiler")
        folder = tempfile.TemporaryDirectory(prefix="kansoku-selftest-")
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        for path in FILES:
            os.makedirs(os.path.dirname(os.path.join(self.root, path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(self.root, path))

    def check(self, *options):
        command = [sys.executable, os.path.join(ROOT, "tools", "check_abi.py"), "--root", self.root, *options]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def change(self, path, old, new):
        full = os.path.join(self.root, path)
        with open(full, encoding="utf-8") as file:
            text = file.read()
        self.assertIn(old, text)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text.replace(old, new, 1))

    def expect(self, *problems, options=()):
        done = self.check(*options)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), len(problems) + 1, done.stdout)
        for problem in problems:
            self.assertEqual(sum(problem in line for line in lines), 1, f"{problem!r} in:\n{done.stdout}")
        self.assertEqual(done.returncode, 1 if problems else 0)
        self.assertIn(f"of headers of 12040: {len(problems)} differences", lines[-1])

    def test_ours_agrees(self):
        self.expect()

    def test_types_of_arguments(self):
        self.change(HEADER, "CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes);",
                    "CUresult cuMemAlloc_v2(CUdeviceptr* pointer, unsigned int bytes);")
        self.change(HEADER, "CUresult cuMemFreeHost(void* pointer);", "CUresult cuMemFreeHost(void* pointer, int);")
        self.change(HEADER, "CUresult cuModuleLoadData(CUmodule* module, const void* image);",
                    "CUresult cuModuleLoadData(CUmodule* module, void* image);")
        self.expect("cuMemAlloc_v2: the table takes (CUdeviceptr*, size_t), the header (CUdeviceptr*, unsigned)",
                    "cuMemFreeHost: the table takes (void*), the header (void*, int)",
                    "cuModuleLoadData: the table takes (CUmodule*, const void*), the header (CUmodule*, void*)")

    def test_another_name_of_a_type_is_the_same(self):
        self.change(HEADER, "CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes);",
                    "typedef CUdeviceptr address_t;\nCUresult cuMemAlloc_v2(address_t* pointer, size_t count[1]);")
        self.change(HEADER, "size_t count[1]", "unsigned long int count")
        self.expect()

    def test_functions(self):
        self.change(HEADER, "CUresult cuMemFreeHost(void* pointer);", "CUresult cuMemFreeAtLast(void* pointer);")
        self.expect("cuMemFreeAtLast: not in the table")
        done = self.check("--cuda-h", os.path.join(self.root, HEADER))
        self.assertIn("cuMemFreeHost: the table has it since 2000, the header of 12040 not", done.stdout)
        self.change(FILES[1], "cuMemHostGetFlags 2030", "cuMemHostGetFlags 13000")
        self.assertIn("cuMemHostGetFlags: the table has it since 13000, the header of 12040 declares it", self.check().stdout)

    def test_numbers(self):
        self.change(TYPES, "CU_MEMORYTYPE_DEVICE = 2", "CU_MEMORYTYPE_DEVICE = 5")
        self.change(TYPES, "CU_LIMIT_MALLOC_HEAP_SIZE = 2", "CU_LIMIT_HEAP = 2")
        self.change(TYPES, "CUDA_ERROR_NOT_READY = 600", "CUDA_ERROR_NOT_READY = 601")
        self.expect("CU_MEMORYTYPE_DEVICE: not 2", "CU_LIMIT_MALLOC_HEAP_SIZE: not in the header", "CUDA_ERROR_NOT_READY: not 600")

    def test_layout(self):
        self.change(TYPES, "  unsigned numAttrs;\n} CUlaunchConfig;", "  unsigned more, numAttrs, yetMore;\n} CUlaunchConfig;")
        self.change(FILES[2], "KANSOKU_ABI_MEMBER(CUDA_MEMCPY2D, Height, 120)\n", "")
        self.change(FILES[2], "KANSOKU_ABI_SIZE(CUdevprop, ", "KANSOKU_ABI_SIZE(CUdevpropOther, ")
        self.expect("CUlaunchConfig: not 56 bytes", "CUlaunchConfig.numAttrs: not at ",
                    "CUDA_MEMCPY2D.Height: its offset is not in layout.inc", "CUdevprop: its size is not in layout.inc",
                    "CUdevpropOther: not in the header")

    def test_companions(self):
        self.change(FILES[-1], "ncclResult_t ncclCommCount(ncclComm_t comm, int* ranks);", "ncclResult_t ncclCommCount(ncclComm_t comm, long* ranks);")
        self.expect("ncclCommCount: the table of nccl takes (ncclComm_t, int*), the header (ncclComm_t, long*)")
        self.change(FILES[-1], "ncclResult_t ncclGroupEnd(void);", "")
        self.assertIn("ncclGroupEnd: not in nccl.h", self.check("--cuda-h", os.path.join(self.root, HEADER)).stdout)


if __name__ == "__main__":
    unittest.main()
