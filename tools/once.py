#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a long test once for each state of the files that it stands on: once.py NAME PATH... -- COMMAND...; once.py --list BUILD

The state is a hash of the contents of the tracked files under each PATH, of their modes, of the command, and of the compiler's version. A
pass is remembered under $XDG_CACHE_HOME/kansoku/once [~/.cache]; with the same state again the test passes at once and says which run
that was. A failure or a skip (77) is never remembered. KANSOKU_ONCE=never runs it in any case, as `make test-all` does. --list says
which tests of a build folder would be taken from which run, before ctest does so in silence.
"""
import datetime
import hashlib
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
import source_text  # noqa: E402

ROOT = source_text.repository_root()
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kansoku", "once")
RECORDS_MAX = 200  # of the cache folder; the oldest go


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    return done.stdout


def state_of(paths, command):
    """The hash of all that the test stands on; places of this tree do not count."""
    total = hashlib.sha256(output_of("c++", "--version").encode())
    total.update(repr([part.replace(ROOT, "") for part in command]).encode())
    for path in sorted(source_text.tree_files(ROOT)):
        if any(path == one or path.startswith(one + "/") for one in paths):
            full = os.path.join(ROOT, path)
            with open(full, "rb") as file:
                total.update(f"{path} {os.stat(full).st_mode & 0o111}\n".encode() + hashlib.sha256(file.read()).digest())
    return total.hexdigest()


def record_of(name, state):
    try:
        with open(os.path.join(CACHE, f"{name}.{state[:32]}.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def remember(name, state):
    os.makedirs(CACHE, exist_ok=True)
    commit = output_of("git", "rev-parse", "--short", "HEAD").strip()
    entry = {"date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "commit": commit}
    path = os.path.join(CACHE, f"{name}.{state[:32]}.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(entry, file)
    os.replace(path + ".new", path)
    records = sorted((os.path.join(CACHE, one) for one in os.listdir(CACHE)), key=os.path.getmtime)
    for old in records[:-RECORDS_MAX]:
        os.unlink(old)


def is_asked_to_run():
    return os.environ.get("KANSOKU_ONCE") == "never"


def parse(words):
    """(name, paths, command) of `NAME PATH... -- COMMAND...`."""
    end = words.index("--")
    return words[0], words[1:end], words[end + 1:]


def tell_taken(build):
    import ctest_suite  # pylint: disable=import-outside-toplevel
    for entry in ctest_suite.entries(build):
        command = entry.get("command", [])
        at = next((i for i, part in enumerate(command) if part == os.path.abspath(__file__)), None)
        if at is None:
            continue
        name, paths, rest = parse(command[at + 1:])
        record = None if is_asked_to_run() else record_of(name, state_of(paths, rest))
        if record:
            print(f"taken from an earlier run: {name}, of {record['date']} at {record['commit']}")
        else:
            print(f"to be run anew: {name}")
    return 0


def main():
    words = sys.argv[1:]
    if words[:1] == ["--list"] and len(words) == 2:
        return tell_taken(words[1])
    if "--" not in words or words[0].startswith("-"):
        print(__doc__)
        return 2
    name, paths, command = parse(words)
    state = state_of(paths, command)
    record = None if is_asked_to_run() else record_of(name, state)
    if record:
        print(f"{name}: taken from the run of {record['date']} at {record['commit']}: nothing under {' '.join(paths)} has changed since")
        return 0
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        remember(name, state)
    return status if status >= 0 else 1


if __name__ == "__main__":
    sys.exit(main())
