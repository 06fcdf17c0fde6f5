# SPDX-License-Identifier: Apache-2.0
"""Programs for the software GPU, and the truth that its executor writes down: files named by a beginning and a pid."""
import collections
import glob
import os
import shutil
import subprocess

from kit.kansoku import ROOT
from kit.outcome import Wrong, need

CLANG = os.path.join(ROOT, "share/softgpu/softgpu-clang")


def need_clang(clang=None):
    """`clang`: another path of softgpu-clang, which is asked."""
    name = os.environ.get("CLANG", "clang++-19")
    need(shutil.which(name) and (not clang or subprocess.run([clang, "--version"], capture_output=True, check=False).returncode == 0),
         f"{name} is missing: it compiles for the device")


def is_sanitized():
    """The libraries of this build have a sanitizer: a program without one cannot load them while it runs."""
    return "KANSOKU_SANITIZE" in os.environ


def compile_for_device(kansoku, out, *words, clang=CLANG, **environment):
    """`words`: sources and options of softgpu-clang. The path of the program."""
    done = subprocess.run([clang, *words, "-o", out], env={**os.environ, "KANSOKU": os.path.abspath(kansoku), **environment},
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Wrong(f"softgpu-clang {' '.join(words)}: {done.stderr[-3000:]}")
    return out


def remove_files(begin):
    """Those of an earlier run."""
    for path in glob.glob(begin + ".*"):
        os.remove(path)


def the_file(begin):
    """The one that one process has written."""
    found = glob.glob(begin + ".*")
    if len(found) != 1:
        raise Wrong(f"{len(found)} processes wrote {begin}.*")
    return found[0]


def read_counts(path):
    """Kind -> name -> numbers, of a file of counts (docs/softgpu-tests.md) or of a program's own."""
    out = collections.defaultdict(dict)
    with open(path, encoding="utf-8") as file:
        for line in file:
            kind, *words = line.split()
            if kind == "unrun" and words[0] == "kernel":
                words = [" ".join(words[:2]), *words[2:]]
            out[kind][words[0]] = [int(number) for number in words[1:]]
    return out


def differences(got, want, got_words="seen", want_words="run"):
    """A line for each name whose numbers differ."""
    return [f"{name}: {got.get(name, 0)} {got_words}, {want.get(name, 0)} {want_words}" for name in sorted(got | want)
            if got.get(name, 0) != want.get(name, 0)]
