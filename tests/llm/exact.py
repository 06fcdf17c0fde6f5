#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exact.py [quick|prebuilt|full|NAME...] [--mutant] | selftest | list: `kansoku llm record` against the truth, case by case.

Each case starts the driver, attaches a recorder to it, lets it generate, and compares the report with what truth.py says of the same generation:
decode calls by result, tokens, micro-batches, graphs and how many were built, operators by type and phase, FLOPs and bytes. A report with losses is
wrong. One line a case, with its differences; exit 1 on any.

  quick      less than a minute in all [default]        full      10,000 tokens with OpenMP, 200 without
  prebuilt   those of quick that up to two threads run, on the prebuilt libraries alone: nothing is built but the driver
  selftest   the comparison itself, with hand-made reports and a recorder that is a script
  --mutant   drops every tenth operator's row from each report before it is compared: has to fail

$KANSOKU is the program [build/kansoku, or else build/release/kansoku]. Exit status 1 if a case is wrong, whatever else is missing; else 77 if one
cannot be had here, with the reason."""
import argparse
import copy
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import models
import truth
from builds import ROOT, SKIPPED, Unavailable, say, sources

PREFILL = {"prompt_tokens": 70, "batch": 32, "ubatch": 16}  # 70 = 32 + 32 + 6: four micro-batches have no outputs

QUICK = {
    "npm-1": {"build": "npm", "tokens": 200},
    "npm-2": {"build": "npm", "tokens": 30, "threads": 2},
    "npm-q4_0": {"build": "npm", "tokens": 100, "model": "toy-Q4_0"},
    "stripped": {"build": "stripped", "tokens": 50},
    "static": {"build": "static", "tokens": 60, "threads": 2},
    "openmp-1": {"tokens": 300},
    "openmp-2": {"tokens": 300, "threads": 2},
    "openmp-4": {"tokens": 60, "threads": 4, "model": "toy-F16"},
    "prefill": {"tokens": 10, **PREFILL},
    "one-token-left": {"tokens": 4, "prompt_tokens": 33, "batch": 33, "ubatch": 16},  # the last micro-batch of the prompt is one token: decode
    "sequences": {"tokens": 40, "sequences": 4, "prompt_tokens": 20},
    "drafts": {"build": "npm", "tokens": 40, "drafts": 3, "prompt_tokens": 20},
    "drafts-of-two": {"build": "npm", "tokens": 30, "drafts": 2, "sequences": 2},
    "experts": {"tokens": 40, "model": "moe-F32", "prompt_tokens": 35, "ubatch": 2},
    "q4_k": {"tokens": 60, "model": "toy-Q4_K"},
    "no-flash": {"tokens": 40, "flash": 0, "build": "npm", "sequences": 2},
    "failing": {"tokens": 20, "failing": 7},
    "contexts": {"tokens": 60, "contexts": 2},
    "reload": {"tokens": 40, "reload": 2},
    "fork": {"tokens": 60, "fork": 1},
}
FULL = {
    "openmp-1-10000": {"tokens": 10000},
    "openmp-2-10000": {"tokens": 10000, "threads": 2},
    "openmp-4-10000": {"tokens": 10000, "threads": 4},
    "npm-1-200": {"build": "npm", "tokens": 200},
    "npm-2-200": {"build": "npm", "tokens": 200, "threads": 2},
    "npm-4-200": {"build": "npm", "tokens": 200, "threads": 4},
    "npm-q8_0": {"build": "npm", "tokens": 1000, "model": "toy-Q8_0"},
    "openmp-q6_k": {"tokens": 1000, "model": "toy-Q6_K", **PREFILL},
    "mid": {"tokens": 60, "model": "mid"},
}


def kansoku():
    built = [os.path.join(ROOT, "build", *where, "kansoku") for where in ((), ("release",))]
    return os.environ.get("KANSOKU") or next(filter(os.path.exists, built), built[-1])


# ---- the comparison ----

def difference(what, got, want):
    return [] if got == want else [f"{what} {got}, not {want}"]


def number(value, what):
    """An integer of the report; beyond 2^53 it may be a string."""
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not re.fullmatch(r"-?\d+", str(value)):
        raise RuntimeError(f"{what}: {value!r} is no integer")
    return int(value)


def rows_of(process):
    """(operator, phase) -> row, of what ran at all."""
    rows = {}
    for row in process["operators"]:
        key = (row["op"], row["phase"])
        if key in rows:
            raise RuntimeError(f"two rows of {' '.join(key)}")
        if number(row["count"], "count"):
            rows[key] = row
    return rows


def operators_differ(process, want):
    rows, wrong = rows_of(process), []
    for key in sorted(set(rows) | set(want)):
        name = " ".join(key)
        if key not in rows or key not in want:
            count = rows[key]["count"] if key in rows else want[key]["count"]
            wrong.append(f"{name}: {count} {'too many, none expected' if key in rows else 'expected, no row'}")
            continue
        got, expected = rows[key], want[key]
        wrong += difference(f"{name} count", number(got["count"], name), expected["count"])
        if "flops" in expected:
            wrong += difference(f"{name} flops", number(got["flops"], name), expected["flops"])
            if number(got["bytes"], name) not in expected["bytes"]:
                wrong.append(f"{name} bytes {got['bytes']}, not {' or '.join(map(str, expected['bytes']))}")
    return wrong


def time_differs(process, case, seconds):
    """Not exact: operators take time, and no more than the threads had."""
    total = sum(number(row["time_ns"], "time_ns") for row in process["operators"])
    limit = int(seconds * 1e9 * case["threads"] * case["contexts"] * 1.05)
    return [] if 0 < total <= limit else [f"operators' time {total} ns, not within 1 and {limit}"]


def process_differs(process, case, want, said):
    """said: what the driver printed of this very process."""
    wrong = difference("ggml", process["ggml"], ggml_version())
    decode, batches, graphs = process["decode"], process["micro_batches"], process["graphs"]
    wrong += difference("decode calls", number(decode["calls"], "calls"), want["decode"]["calls"])
    results = {result: number(count, "results") for result, count in decode["results"].items() if number(count, "results")}
    wrong += difference("results", results, want["decode"]["results"])
    wrong += difference("decode tokens", number(decode["tokens"], "tokens"), want["decode"]["tokens"])
    for name in ("count", "tokens"):
        wrong += difference(f"micro-batches {name}", number(batches[name], name), want["micro_batches"][name])
    drafts = {name: number(count, name) for name, count in batches["drafts"].items()}
    wrong += difference("drafts", drafts, truth.expected_drafts(case))
    wrong += difference("graphs", number(graphs["count"], "graphs"), want["graphs"])
    wrong += difference("graphs that were built", number(graphs["built"], "built"), want["graphs"] - said["n_reused"])
    wrong += operators_differ(process, want["operators"]) + time_differs(process, case, said["seconds"])
    return wrong + ([] if process["threads"] is None else ["threads, of which the operator level knows nothing"])


def driver_differs(said, want):
    """The observed generation is the one that was not observed."""
    wrong = []
    for name in ("decode", "micro_batches", "generated", "hash"):
        wrong += difference(f"driver's {name}", said[name], want[name])
    return wrong


def report_differs(report, case, want, said):
    try:
        wrong = difference("schema", report["schema"], "kansoku.llm.report") + difference("version", report["version"], 2)
        wrong += [f"lost {name}: {count}" for name, count in sorted(report["losses"].items()) if number(count, name)]
        processes = {number(process["pid"], "pid"): process for process in report["processes"]}
        wrong += difference("processes", len(report["processes"]), len(processes))
        family = {one["pid"]: one for one in [said, *said["children"]]}
        wrong += [f"process {pid}: unknown" for pid in sorted(set(processes) - set(family))]
        for pid, one in family.items():
            wrong += driver_differs(one, want)
            if pid in processes:
                wrong += [("" if pid == said["pid"] else "child: ") + text for text in process_differs(processes[pid], case, want, one)]
            else:
                wrong.append(f"process {pid}: not in the report")
        return wrong
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        return [f"report not understood: {type(error).__name__} {error}"]


def mutated(report):
    changed = copy.deepcopy(report)
    for process in changed["processes"]:
        process["operators"] = [row for i, row in enumerate(process["operators"]) if i % 10]
    return changed


VERSION = []


def ggml_version():
    if not VERSION:
        with open(os.path.join(sources()[0], "ggml", "CMakeLists.txt"), encoding="utf-8") as file:
            found = dict(re.findall(r"set\(GGML_VERSION_(MAJOR|MINOR|PATCH) (\d+)\)", file.read()))
        VERSION.append(f"{found['MAJOR']}.{found['MINOR']}.{found['PATCH']}")
    return VERSION[0]


# ---- a case ----

class Recorder:
    """The recorder of one process; ready once it said so."""

    def __init__(self, pid, out):
        self.out, self.lines, self.ready = out, [], threading.Event()
        self.process = subprocess.Popen([kansoku(), "llm", "record", "-p", str(pid), "--level", "operator", "--budget", "100%", "-o", out],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("recording"):
                self.ready.set()

    def wait_until_ready(self, seconds=60):
        end = time.monotonic() + seconds
        while not self.ready.wait(0.02):
            if time.monotonic() > end or self.process.poll() is not None:
                self.stop()
                raise RuntimeError(f"no recorder: exit {self.process.returncode}: {''.join(self.lines)[-1000:].strip()}")

    def wait_until_observed(self, pid, seconds=60):
        """The recording tells of a process once its places are attached, so nothing that it does from now on is missed."""
        end, known = time.monotonic() + seconds, []
        while pid not in known:
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError(f"process {pid} is not observed after {seconds} s: only {known}")
            time.sleep(0.05)  # allowed: between two looks
            try:
                known = [number(process["pid"], "pid") for process in report_of(self.out)["processes"]]
            except RuntimeError:
                pass  # nothing is written yet

    def wait_until_ended(self, seconds=120):
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.stop()
            raise RuntimeError(f"the recorder did not end in {seconds} s after its process") from error
        self.reader.join(5)
        if code != 0:
            raise RuntimeError(f"recorder: exit {code}: {''.join(self.lines)[-1000:].strip()}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def ready_pid(driver):
    ready = re.fullmatch(r"ready (\d+)\n", driver.stdout.readline())
    if ready is None:
        raise RuntimeError(f"driver: {driver.stderr.read()[-1000:]}")
    return int(ready[1])


def recorded(driver, out, timeout_s, before=lambda recorder: None):
    """Records a driver that waits for a line; `before` is called once the recorder is ready. The driver's output."""
    try:
        recorder = Recorder(ready_pid(driver), out)
        try:
            recorder.wait_until_ready()
            before(recorder)
            text, errors = driver.communicate("go\n", timeout=timeout_s)
            if driver.returncode != 0:
                raise RuntimeError(f"driver: exit {driver.returncode}: {errors[-1000:]}")
            recorder.wait_until_ended()
        finally:
            recorder.stop()
    finally:
        if driver.poll() is None:
            driver.kill()
    return text


def observed(case, out):
    """Generates under observation: what the driver said."""
    more = ["--wait"] + (["--fork"] if case["fork"] else [])
    with subprocess.Popen(truth.command(case, *more), env=models.settings(case["build"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as driver:

        def fork_seen(recorder):  # a child is seen once it was looked at, so it begins after that
            driver.stdin.write("go\n")
            driver.stdin.flush()
            recorder.wait_until_observed(ready_pid(driver))

        return json.loads(recorded(driver, out, 900, *([fork_seen] if case["fork"] else [])))


def report_of(path, *more):
    done = subprocess.run([kansoku(), "llm", "report", path, "--json", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 10):  # 10: with findings
        raise RuntimeError(f"report: exit {done.returncode}: {done.stderr[-1000:].strip()}")
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise RuntimeError(f"report is no JSON: {error}") from error


def run_case(name, options, mutant):
    """How many differences."""
    case, began = truth.case_of(**options), time.monotonic()
    try:
        want = truth.truth(case, needs_experts=case["model"].startswith("moe"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "recording")
            said = observed(case, path)
            report = report_of(path)
        wrong = report_differs(mutated(report) if mutant else report, case, want, said)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        wrong, want = [str(error)], {"operators": {}}
    count = sum(row["count"] for row in want["operators"].values())
    say(f"{name}: {'WRONG ' + '; '.join(wrong) if wrong else 'exact'} ({count} operators, {time.monotonic() - began:.1f} s)")
    return len(wrong)


def judged(names, differences_of):
    """The names of those that are wrong. One that cannot be had here keeps no other from being judged; Unavailable only if none is wrong."""
    wrong, missing = [], []
    for name in names:
        try:
            if differences_of(name):
                wrong.append(name)
        except Unavailable as reason:
            missing.append(f"{name}: {reason}")
            say(f"{name}: cannot be had here: {reason}")
    if missing and not wrong:
        raise Unavailable("; ".join(missing))
    return wrong


# ---- the comparison, tested without Kansoku ----

def made_report(want, said):
    """A report by hand that is right."""
    operators = [{"op": op, "phase": phase, "count": row["count"], "time_ns": 10, "flops": row.get("flops", 0),
                  "bytes": str(row.get("bytes", [0])[0])} for (op, phase), row in want["operators"].items()]
    process = {"pid": said["pid"], "ggml": ggml_version(), "decode": copy.deepcopy(want["decode"]),
               "micro_batches": {**want["micro_batches"], "drafts": {"micro_batches": 0, "tokens": 0, "accepted": 0}},
               "graphs": {"count": want["graphs"], "built": want["graphs"] - said["n_reused"]}, "operators": operators,
               "threads": None}
    return {"schema": "kansoku.llm.report", "version": 2, "losses": {"records": 0}, "processes": [process]}


def plant(report, *path_and_value):
    *path, last, value = path_and_value
    at = report
    for step in path:
        at = at[step]
    at[last] = value


MISTAKES = {
    "a lost record": ("losses", "records", 1),
    "another schema": ("schema", "kansoku.report"),
    "another process": ("processes", 0, "pid", 1),
    "no process": ("processes", []),
    "another version of ggml": ("processes", 0, "ggml", "0.24.0"),
    "a call too few": ("processes", 0, "decode", "calls", 0),
    "no failed calls": ("processes", 0, "decode", "results", "1", 0),
    "a token too many": ("processes", 0, "decode", "tokens", 10**6),
    "micro-batches are calls": ("processes", 0, "micro_batches", "count", 1),
    "graphs": ("processes", 0, "graphs", "count", 3),
    "every graph was built": ("processes", 0, "graphs", "built", 10**6),
    "an operator's count": ("processes", 0, "operators", 3, "count", 1),
    "accepted drafts": ("processes", 0, "micro_batches", "drafts", "accepted", 7),
    "an operator's phase": ("processes", 0, "operators", 0, "phase", "prefill"),
    "an operator's name": ("processes", 0, "operators", 1, "op", "NOP"),
    "no operators": ("processes", 0, "operators", []),
    "no time": ("processes", 0, "operators", 0, "time_ns", -10**9),
    "more time than there was": ("processes", 0, "operators", 0, "time_ns", 10**15),
    "a count that is no number": ("processes", 0, "operators", 0, "count", 1.5),
    "threads that were not seen": ("processes", 0, "threads", []),
}

FAKE = """#!/usr/bin/env python3
import json, os, sys, time
words = sys.argv[1:]
folder = os.path.dirname(os.path.abspath(__file__))
def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
if words[:2] == ["llm", "record"]:
    pid = int(words[words.index("-p") + 1])
    print("recording", pid, file=sys.stderr, flush=True)
    while alive(pid):
        time.sleep(0.01)  # allowed: the pause of a poll loop
    with open(words[words.index("-o") + 1], "w") as file:
        file.write(str(pid))
else:
    with open(words[2]) as file:
        pid = int(file.read())
    with open(os.path.join(folder, "report.json")) as file:
        report = json.load(file)
    report["processes"][0]["pid"] = pid
    print(json.dumps(report))
"""


def selftest_of_comparison(case, want, said):
    good, failed = made_report(want, said), 0
    wrong = report_differs(good, case, want, said)
    if wrong:
        say(f"selftest: a right report is refused: {'; '.join(wrong)}")
        failed += 1
    changes = {name: (lambda report, change=change: plant(report, *change)) for name, change in MISTAKES.items()}
    for i, row in enumerate(good["processes"][0]["operators"]):
        if row["op"] in truth.COUNTED:
            for what in ("flops", "bytes"):
                changes[f"{row['op']} {row['phase']} {what}"] = lambda report, i=i, what=what, row=row: plant(
                    report, "processes", 0, "operators", i, what, int(row[what]) + 1)
    for name, change in {**changes, "every tenth operator": None}.items():
        report = copy.deepcopy(good)
        if change is None:
            report = mutated(report)
        else:
            change(report)
        if not report_differs(report, case, want, said):
            say(f"selftest: not seen: {name}")
            failed += 1
    say(f"selftest: {len(changes) + 1} planted mistakes, {failed} wrong")
    return failed


def selftest_of_cases(options, want, said):
    """The whole way with a recorder that is a script: right, mutant, with losses."""
    failed, kept = 0, os.environ.get("KANSOKU")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["KANSOKU"] = os.path.join(folder, "kansoku")
        try:
            with open(os.environ["KANSOKU"], "w", encoding="utf-8") as file:
                file.write(FAKE)
            os.chmod(os.environ["KANSOKU"], 0o755)
            for name, losses, mutant, is_right in (("right", 0, False, True), ("mutant", 0, True, False), ("lossy", 1, False, False)):
                report = made_report(want, said)
                report["losses"]["records"] = losses
                with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
                    json.dump(report, file)
                if (run_case("selftest-" + name, options, mutant) == 0) != is_right:
                    say(f"selftest: {name} was taken for {'wrong' if is_right else 'right'}")
                    failed += 1
        finally:
            if kept is None:
                del os.environ["KANSOKU"]
            else:
                os.environ["KANSOKU"] = kept
    return failed


def selftest_of_missing():
    """A wrong case stays wrong beside one that cannot be had, before it and behind it."""
    def differences_of(name):
        if name == "missing":
            raise Unavailable("planted")
        return int(name == "wrong")

    failed = 0
    for names, expected in ((["wrong", "missing"], ["wrong"]), (["missing", "wrong"], ["wrong"]), (["right", "missing"], "skipped"), (["right"], [])):
        try:
            found = judged(names, differences_of)
        except Unavailable:
            found = "skipped"
        if found != expected:
            say(f"selftest: {' and '.join(names)}: {found}, not {expected}")
            failed += 1
    return failed


def selftest():
    failed = selftest_of_missing()
    options = {"build": "npm", "tokens": 20, "failing": 2, "model": "moe-F32", **PREFILL}
    case = truth.case_of(**options)
    want, said = truth.truth(case, needs_experts=True), truth.run_driver(case)
    for name in ("decode", "micro_batches", "generated", "hash"):
        failed += said[name] != want[name]
    failed += selftest_of_comparison(case, want, said) + selftest_of_cases(options, want, said)
    say("selftest: " + ("passed" if failed == 0 else "FAILED"))
    return failed


def perform(names, mutant):
    if names == ["list"]:
        say("\n".join([*QUICK, *FULL]))
        return 0
    if names == ["selftest"]:
        return selftest()
    if not os.path.exists(kansoku()):
        raise Unavailable(f"no {kansoku()}")
    if os.geteuid() != 0:
        raise Unavailable("needs root")
    cases = {**QUICK, **FULL}
    prebuilt = {f"prebuilt-{name}": {**case, "build": "npm"} for name, case in QUICK.items() if "build" not in case and case.get("threads", 1) == 1}
    prebuilt.update({name: case for name, case in QUICK.items() if case.get("build") in models.PREBUILT})
    cases.update(prebuilt)
    chosen = [case for name in names or ["quick"] for case in {"quick": QUICK, "full": FULL, "prebuilt": prebuilt}.get(name, [name])]
    for name in chosen:
        if name not in cases:
            raise RuntimeError(f"{name}: no such case; exact.py list")
    wrong = judged(chosen, lambda name: run_case(name, cases[name], mutant))
    say(f"{len(chosen)} cases, {len(wrong)} wrong{': ' + ' '.join(wrong) if wrong else ''}")
    return len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mutant", action="store_true")
    options = parser.parse_args()
    try:
        return 1 if perform(options.names, options.mutant) else 0
    except Unavailable as reason:
        say(f"skipped: {reason}")
        return SKIPPED
    except (RuntimeError, OSError) as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
