#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/cuda_table.py refuses tables that say nonsense, and tools/gen_softcuda.py sources that disagree with the table."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools"))
import cuda_table  # noqa: E402

GOOD = """# class copy  copies
# class launch  starts
cuA 3020 cuA_v2 - copy 1 - CUdeviceptr,CUstream
cuA 7000 cuA_v2_ptds per-thread copy 1 - CUdeviceptr,CUstream
cuB 11060 cuB - launch -2 13000 const CUlaunchConfig*,void**
cuC 4000 cuC - copy -1 - ?
cuD 4000 cuD - copy -1 - void
"""


class Rows(unittest.TestCase):
    def test_columns(self):
        rows, classes = cuda_table.parse(GOOD, "t")
        self.assertEqual(classes, {"copy": "copies", "launch": "starts"})
        self.assertEqual(rows[0], cuda_table.Row("cuA", 3020, "cuA_v2", False, "copy", 1, None, ["CUdeviceptr", "CUstream"], "CUresult"))
        self.assertTrue(rows[1].is_per_thread)
        self.assertEqual((rows[2].stream, rows[2].until), (-2, 13000))
        self.assertIsNone(rows[3].types)
        self.assertEqual(rows[4].types, [])

    def test_results(self):
        text = GOOD.replace("# class copy", "# result cudaError_t\n# class copy").replace("- void\n", "- const char*(cudaError_t)\n")
        rows = cuda_table.parse(text, "t")[0]
        self.assertEqual((rows[0].result, rows[4].result, rows[4].types), ("cudaError_t", "const char*", ["cudaError_t"]))

    def test_versions(self):
        rows = cuda_table.parse(GOOD, "t")[0]
        self.assertEqual([row.symbol for row in cuda_table.of_version(rows, 11000)], ["cuA_v2", "cuA_v2_ptds", "cuC", "cuD"])
        self.assertIn("cuB", [row.symbol for row in cuda_table.of_version(rows, 12090)])
        self.assertNotIn("cuB", [row.symbol for row in cuda_table.of_version(rows, 13000)])

    def test_refused(self):
        for old, new, message in (
                ("cuC 4000", "cuC many", "cuC: since, until and thread"),
                ("- launch -2", "- start -2", "cuB: no class start"),
                ("- copy 1 - CUdeviceptr,CUstream\ncuA 7", "- copy 0 - CUdeviceptr,CUstream\ncuA 7", "the stream is argument 1, not 0"),
                ("cuD 4000 cuD", "cuD 4000 cuC", "cuC stands twice"),
                ("cuB 11060", "cuA 3010", "cuB: older forms first"),
                ("- void", "- CUdeviceptr x[3]", "not a list of types"),
                ("cuD 4000 cuD - copy -1 - void", "cuD 4000 cuD", "8 columns"),
                ("# class launch  starts", "# class launch  starts\n# class set  fills", "no row of class set")):
            text = GOOD.replace(old, new, 1)
            self.assertNotEqual(text, GOOD)
            with self.assertRaisesRegex(cuda_table.TableError, message):
                cuda_table.parse(text, "t")

    def test_ours(self):
        rows = cuda_table.driver()
        self.assertGreater(len(rows), 600)
        forms = {row.symbol: row for row in rows}
        self.assertEqual(forms["cuLaunchKernel"].stream, 8)
        self.assertEqual(forms["cuLaunchKernelEx_ptsz"].stream, -2)
        self.assertEqual(forms["cuMemcpyHtoDAsync_v2"].kind, "copy")
        for row in rows:
            if row.is_per_thread:  # the same arguments as the form that it stands for
                self.assertEqual(row.types, forms[row.symbol[:-5]].types, row.symbol)


class Sources(unittest.TestCase):
    def test_a_disagreement_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            for part in ("tools", "src/softcuda", "src/cuda"):
                shutil.copytree(os.path.join(ROOT, part), os.path.join(folder, part))

            def header():
                command = [sys.executable, "-B", os.path.join(folder, "tools", "gen_softcuda.py"), "header", os.path.join(folder, "out")]
                return subprocess.run(command, capture_output=True, text=True, check=False)

            self.assertEqual(header().returncode, 0)
            table = os.path.join(folder, "src", "cuda", "interface", "driver.txt")
            with open(table, encoding="utf-8") as file:
                text = file.read()
            for old, new, message in (
                    (" - CUdeviceptr*,size_t\n", " - CUdeviceptr*,unsigned\n", "cuMemAlloc_v2 takes (CUdeviceptr*, size_t)"),
                    ("cuMemFree 3020 cuMemFree_v2 - free -1 - CUdeviceptr\n", "", "not in the table: cuMemFree_v2")):
                self.assertIn(old, text)
                with open(table, "w", encoding="utf-8") as file:
                    file.write(text.replace(old, new))
                done = header()
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
