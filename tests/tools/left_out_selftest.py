#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A target names the parts that it lacks: cmake/left_out.cmake, at the configuration and at the end of `make softgpu`."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The configuration looks for these: OFF stands for "searched, and not there", a path for "there"; nothing is built.
LOOKED_FOR = ("KANSOKU_CUDA_CLANG", "CLANG_PTX_PROGRAM", "KANSOKU_LIBCLC", "GLOO_LIBRARY")


class LeftOut(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kansoku-selftest-")
        self.addCleanup(folder.cleanup)
        self.build = folder.name

    def configured(self, **found):
        """The lines of the configuration about left out parts, and those of the target's last command."""
        options = [f"-D{name}={'/there' if found.get(name, True) else 'OFF'}" for name in LOOKED_FOR]
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", self.build, "-DKANSOKU_TESTS=OFF", *options], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        commands = subprocess.run(["ninja", "-C", self.build, "-t", "commands", "softgpu"], stdout=subprocess.PIPE, text=True, check=True).stdout
        end = subprocess.run(commands.splitlines()[-1], shell=True, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        return [line[3:] for line in done.stdout.splitlines() if line.startswith("-- left out")], end

    def test_each_part_and_the_command_that_adds_it(self):
        self.assertEqual(self.configured(), ([], []), "nothing is missing")
        for missing, parts in (("GLOO_LIBRARY", ["libnccl"]), ("KANSOKU_LIBCLC", ["device mathematics"]), ("CLANG_PTX_PROGRAM", ["libcublas"])):
            said, end = self.configured(**{missing: False})
            self.assertEqual(said, end, missing)
            self.assertEqual(len(end), len(parts), end)
            for part, line in zip(parts, end):
                self.assertRegex(line, f"^left out of softgpu: .*{part}.*; to add it: tools/install_deps.sh softgpu && make softgpu$")
        said, end = self.configured(**{name: False for name in LOOKED_FOR})
        self.assertEqual((len(said), said), (3, end))
        self.assertEqual(self.configured(), ([], []), "added meanwhile: nothing is left of it")


if __name__ == "__main__":
    unittest.main()
