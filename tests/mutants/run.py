#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Do the tests see a change of the program? Mutants drawn at random, each run against the tests that reach it, to the first failure.

    run.py [--mutants N] [--seed S] [--folder FOLDER] [--minutes M] [--fast] [--prepare]

All mutants are compiled into one build of a copy of the tree, and switched on one at a time. The tests of `make test` run first, but
for llama.cpp's; where they find nothing, every single unit test runs in a process of its own. Goes on where it stood; prints a table.
A mutant that only a process without the test's environment reaches counts as not reached.
"""
import argparse
import collections
import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

sys.path.insert(0, os.path.join(kit.ROOT, "tools"))
import compile_commands  # noqa: E402
import ctest_suite  # noqa: E402
import draw  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY = 12 << 30  # bytes of a test's data: a mutant may ask for all there is
LANES = 2  # tests at once; those that hold a lock take turns
NONE, REACHED = 0, -1
# How a mutant is found, or is not.
TOGETHER, ALONE, UNSEEN, UNREACHED = "as the tests run", "only by a unit test alone", "reached, not found", "not reached"


def read_json(path):
    """None if there is no such file."""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def end_left_over(folder):
    """Ends what runs of this folder's tests, also in sessions of its own; each has the mark in its environment."""
    mark = f"KANSOKU_MUTANTS_OF={folder}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass  # ended meanwhile, or another user's


class Tree:
    """A copy of the tree with all mutants compiled in."""

    def __init__(self, folder):
        self.folder, self.root, self.build = folder, os.path.join(folder, "tree"), os.path.join(folder, "tree/build/release")
        listed = read_json(os.path.join(folder, "mutants.json"))
        self.mutants = listed and [draw.Mutant(*one) for one in listed]

    def commit(self):
        """Results of this copy hold for it, whatever becomes of the tree that it was made of."""
        return subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=self.root, capture_output=True, text=True, check=True).stdout.strip()

    def switch(self, number):
        with open(os.path.join(self.folder, "active"), "w", encoding="utf-8") as file:
            file.write(str(number))

    def make(self, count, seed):
        release = os.path.join(kit.ROOT, "build/release")
        entries = list(compile_commands.entries(release))
        if not entries:
            raise kit.Impossible("build/release is not configured (make build)")
        os.makedirs(self.folder, exist_ok=True)
        subprocess.run(["git", "clone", "-q", kit.ROOT, self.root], check=True)
        if not os.path.exists(os.path.join(self.folder, "shared")):
            os.symlink(os.path.realpath(os.path.join(kit.ROOT, "../shared")), os.path.join(self.folder, "shared"))
        drawn = draw.draw(entries, kit.ROOT, compile_commands.flags, count, seed)
        self.flags = f"-include {HERE}/mutants.h -DKANSOKU_MUTANTS='\"{self.folder}\"' -DKANSOKU_MUTANTS_COUNT={count}"
        commands = draw.sources(entries, kit.ROOT)
        bad = {name for name in sorted({one.file for one in drawn}) if not self.compiles(drawn, name, commands[name][0])}
        drawn = [one for one in drawn if one.file not in bad]
        print(f"{len(drawn)} mutants in {len({one.file for one in drawn})} files; {len(bad)} files did not compile with theirs", flush=True)
        subprocess.run(["git", "checkout", "-q", "."], cwd=self.root, check=True)
        draw.apply(drawn, kit.ROOT, self.root)
        self.switch(NONE)
        subprocess.run(["cmake", "--preset", "release", "-DKANSOKU_WERROR=OFF", f"-DCMAKE_CXX_FLAGS={self.flags} -w",
                        "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DNDEBUG"], cwd=self.root, check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", "--preset", "release", "-j", str(os.cpu_count())], cwd=self.root, check=True)
        os.symlink("release/kansoku", os.path.join(self.root, "build/kansoku"))
        self.mutants = drawn
        with open(os.path.join(self.folder, "mutants.json"), "w", encoding="utf-8") as file:
            json.dump(drawn, file)

    def compiles(self, drawn, name, words):
        draw.apply([one for one in drawn if one.file == name], kit.ROOT, self.root)
        own = [word.replace(kit.ROOT + "/src", self.root + "/src") for word in compile_commands.flags(words)]
        done = subprocess.run(["/bin/sh", "-c", f'"$@" {self.flags} -w -fsyntax-only -x c++ {os.path.join(self.root, os.path.relpath(name, kit.ROOT))}',
                               "sh", *own], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{os.path.relpath(name, kit.ROOT)}: {next((line for line in done.stderr.splitlines() if 'error' in line), '')}")
        return done.returncode == 0


def run_test(tree, test, key, seconds):
    """(state, seconds, what it printed) of one test of ctest. A test that does not end fails."""
    place = os.path.join(tree.folder, f"tmp-{key}-{threading.get_ident()}")
    shutil.rmtree(place, ignore_errors=True)
    test.environment.update(KANSOKU_MUTANTS_TEST=str(key), KANSOKU_MUTANTS_OF=tree.folder)
    process = ctest_suite.Process(["prlimit", f"--data={MEMORY}", "--", *test.command], test, place)
    over = threading.Event()
    timer = threading.Timer(seconds, lambda: (over.set(), process.kill()))
    begin = time.monotonic()
    timer.start()
    status, output = process.collect()
    timer.cancel()
    state = ctest_suite.FAILED if over.is_set() else test.judge(status, output)[0]
    return state, time.monotonic() - begin, output


def in_lanes(folder, tests, run):
    """Calls `run` for each; tests that hold a lock, or many processors, follow one another beside the others. True ends it."""
    stop = threading.Event()

    def lane(ones):
        for one in ones:
            if stop.is_set():
                return
            if run(one):
                stop.set()
    alone = [one for one in tests if one[1].serial or one[1].locks or one[1].processors > 1]
    others = [one for one in tests if one not in alone]
    with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
        try:
            list(pool.map(lane, (alone, others) if alone else (others[::2], others[1::2])))
        except BaseException:  # Ctrl-C, too
            stop.set()
            end_left_over(folder)
            raise


def cover(tree, tier, tests):
    """{name of a test: its state and time here as it is, and the mutants that it reaches}."""
    path = os.path.join(tree.folder, f"cover-{tier}.json")
    if known := read_json(path):
        return known
    place = os.path.join(tree.folder, "reached")
    shutil.rmtree(place, ignore_errors=True)
    os.mkdir(place)
    os.chmod(place, 0o1777)
    tree.switch(REACHED)
    known = {}

    def one(item):
        key, test = item
        state, seconds, output = run_test(tree, test, key, test.timeout_s)
        known[key] = {"state": state, "seconds": seconds}
        print(f"{test.name} {state} {seconds:.1f} s", flush=True)
        if state == ctest_suite.FAILED:
            print(output[-1500:], flush=True)
    in_lanes(tree.folder, list(enumerate(tests)), one)
    tree.switch(NONE)
    reached = [name.partition(".")[::2] for name in os.listdir(place)]
    result = {test.name: {**known[key], "reaches": sorted(int(number) for by, number in reached if by == str(key))}
              for key, test in enumerate(tests)}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=0)
    return result


def first_failure(tree, number, tests, seconds):
    """The test that fails with the mutant and passes without it; None if none does."""
    found = []

    def one(item):
        key, test = item
        before = seconds.get(test.name, 5)
        if run_test(tree, test, key, 20 + 5 * before)[0] != ctest_suite.FAILED:
            return False
        found.append((key, test, before))
        return True
    tree.switch(number)
    try:
        in_lanes(tree.folder, list(enumerate(tests)), one)
    finally:
        tree.switch(NONE)
        end_left_over(tree.folder)
    for key, test, before in found:
        if run_test(tree, test, key, 60 + 10 * before)[0] == ctest_suite.FAILED:
            print(f"(and {test.name} fails without it, too) ", end="")
        else:
            return test.name
    return None


def judge(tree, number, covered, entries):
    """The test that finds a mutant, in which form, and how many reach it."""
    seconds = {name: one["seconds"] for name, one in covered.items() if number in one["reaches"] and one["state"] == ctest_suite.PASSED}
    names = sorted(seconds, key=seconds.get)
    together = [ctest_suite.Test(entries[name]) for name in names]
    alone = [test for name in names if ctest_suite.unit_program(entries[name]) for test in ctest_suite.tests_of(entries[name])]
    for form, tests in ((TOGETHER, together), (ALONE, alone)):
        if by := first_failure(tree, number, tests, seconds):
            return {"by": by, "reached": len(names), "form": form}
    return {"by": None, "reached": len(names), "form": UNSEEN if names else UNREACHED}


def is_run(entry, only_fast):
    labels = {label for item in entry.get("properties", []) if item["name"] == "LABELS" for label in item["value"]}
    if only_fast:
        return "fast" in labels
    return "all" not in labels and not re.match(r"llama\.|flaky\.", entry["name"])


def main(report):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=80, help="so many are drawn [%(default)d]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default=os.path.join(kit.ROOT, "build/mutants"), type=os.path.realpath, help="[%(default)s]")
    parser.add_argument("--minutes", type=float, default=30, help="begin no mutant after so many [%(default)g]")
    parser.add_argument("--fast", action="store_true", help="the tests of make test-fast alone")
    parser.add_argument("--prepare", action="store_true", help="draw and compile, no more")
    options = parser.parse_args()
    tree = Tree(options.folder)
    if tree.mutants is None:
        kit.need(importlib.util.find_spec("clang"), "needs libclang for Python (apt-get install python3-clang-14)")
        kit.need(not subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "src"], cwd=kit.ROOT, check=False).returncode, "src has changes without a commit")
        tree.make(options.mutants, options.seed)
    if options.prepare:
        return 0
    entries = {entry["name"]: entry for entry in ctest_suite.entries(tree.build)}
    whole = [ctest_suite.Test(entry) for entry in entries.values() if is_run(entry, options.fast)]
    tier = "fast" if options.fast else "gate"
    covered = cover(tree, tier, whole)
    parts = kit.Parts(options.folder, path=os.path.join(options.folder, f"results-{tier}.jsonl"), commit=tree.commit())
    plan = []
    for number, one in enumerate(tree.mutants, 1):
        title = f"{number} {os.path.relpath(one.file, kit.ROOT)}:{one.line} {one.kind}: {one.before}"
        plan.append(kit.Part((number,), title, lambda number=number: judge(tree, number, covered, entries), {"title": title}))
    kit.run_until_stopped(lambda: parts.run(plan, report, lambda result: result["by"] or f"not found ({result['reached']} tests reach it)", options.minutes))
    count = collections.Counter(result["form"] for part in plan if (result := parts.result(part.key)))
    table = kit.Table("", "found", "mutants")
    for form in (TOGETHER, ALONE, UNSEEN, UNREACHED):
        table.row(form, count[form], right=form != ALONE or not count[form])


if __name__ == "__main__":
    kit.run(main)
