#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""run_example.py PROGRAM EXPECTED: runs the program and compares what it prints with the file, byte for byte."""
import difflib
import subprocess
import sys

program, expected_path = sys.argv[1:]
done = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=False)
with open(expected_path, encoding="utf-8") as file:
    expected = file.read()
if done.returncode or done.stdout != expected:
    sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True), done.stdout.splitlines(True), expected_path, program))
    sys.exit(f"run_example.py: {program}: exit status {done.returncode}, output as above")
