#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""environment.py install [NAME...] | list | python NAME: PyTorch from PyPI and what people run on it, in the user's cache.

NAME is a version and an interpreter, 2.15-py3.11 [default]; NAME.txt beside this file pins its packages. An environment is whole once its
`complete` says which pins it was made from, so that a broken off installation is made anew, and changed pins are installed.
$KANSOKU_TORCH_CACHE is the folder [~/.cache/kansoku/torch]. Status 77: no such interpreter here, or nothing was installed."""
import hashlib
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import kit  # noqa: E402

CACHE = os.environ.get("KANSOKU_TORCH_CACHE") or os.path.expanduser("~/.cache/kansoku/torch")
DEFAULT = "2.15-py3.11"


def names():
    return sorted(name.removesuffix(".txt") for name in os.listdir(HERE) if name.endswith(".txt"))


def pins_of(name):
    kit.need(name in names(), f"no environment {name}; there are {', '.join(names())}")
    return os.path.join(HERE, name + ".txt")


def mark_of(name):
    with open(pins_of(name), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def is_whole(name):
    try:
        with open(os.path.join(CACHE, name, "complete"), encoding="ascii") as file:
            return file.read().strip() == mark_of(name)
    except FileNotFoundError:
        return False


def python_of(name=DEFAULT):
    """The interpreter of an environment; kit.Impossible where it is not installed."""
    kit.need(is_whole(name), f"PyTorch {name} is not installed: make deps-torch")
    return os.path.join(CACHE, name, "bin", "python3")


def interpreter(version):
    """An interpreter of that version that people have: Debian's, or one of pyenv's."""
    if os.path.exists(f"/usr/bin/python{version}"):
        return f"/usr/bin/python{version}"
    root = os.path.join(os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv"), "versions")
    found = sorted(name for name in (os.listdir(root) if os.path.isdir(root) else []) if name.startswith(version + "."))
    if found:
        return os.path.join(root, found[-1], "bin", "python3")
    path = shutil.which(f"python{version}")  # last: pyenv has a shim for each version, which runs the chosen ones alone
    kit.need(path, f"no Python {version} here")
    return path


def install(name):
    if is_whole(name):
        return
    folder = os.path.join(CACHE, name)
    base = interpreter(name.rpartition("-py")[2])
    print(f"PyTorch {name} from PyPI into {folder}: 5 GB, some minutes", flush=True)
    os.makedirs(CACHE, exist_ok=True)
    subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
    subprocess.run([os.path.join(folder, "bin", "pip"), "install", "--disable-pip-version-check", "-q", "-r", pins_of(name)], check=True)
    with open(os.path.join(folder, "complete"), "w", encoding="ascii") as file:
        file.write(mark_of(name) + "\n")


def main(report):
    words = kit.words(__doc__, 1, 20)
    if words[0] == "list":
        for name in names():
            print(f"{name:<16} {'installed' if is_whole(name) else 'not installed'}")
        return 0
    if words[0] == "python":
        print(python_of(*words[1:]))
        return 0
    kit.expect(words[0] == "install", f"{words[0]}: no such word")
    for name in words[1:] or [DEFAULT]:
        report.part(name, install, name)
    return None


if __name__ == "__main__":
    kit.run(main)
