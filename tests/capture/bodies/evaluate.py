#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""evaluate.py [--bodies N] [--seed S] [--compilers g++,clang++] [--levels 0,1,2,3,s]: compiles generated function bodies
(make_bodies.py), which count their own calls, records the program with a probe on each body, and compares. Of each function it says
exact, by exits alone, refused by name, or unjudged: the compiler made jumps of some of its calls of itself and left others, so the
truth is not known. A count that differs is wrong, and fails. Needs root. docs/record.md has the results."""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
import kit  # noqa: E402

ROOT = HERE.parent.parent.parent
REFUSED_MAX = 0.05  # of all functions
PACK = """schema = 1
name = "bodies"
description = "generated functions"
[[probe]]
library = "%s"
symbols = ["body_*"]
exclude = ["*.*"]
category = "body"
"""


def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=True).stdout


def own_call_instructions(program):
    """How many instructions of each body call that body; a call that it makes last of itself may have become a jump."""
    out, body = {}, None
    for line in output_of("objdump", "-d", "--no-show-raw-insn", program).splitlines():
        head = re.match(r"[0-9a-f]+ <(body_\d+)[.\w]*>:", line)
        if head or line.endswith(">:"):
            body = head and head[1]
        call = re.search(r"\bcall\w* .*<(body_\d+)>", line)
        if call and call[1] == body:
            out[body] = out.get(body, 0) + 1
    return out


def truth_of(program, source):
    """Calls of each body from outside, and by its own call instructions. Nothing for a body of whose calls some became jumps."""
    instructions, out = own_call_instructions(program), {}
    places = collections.Counter(re.findall(r"\bOWN\((\d+),", source))
    for line in output_of(program).splitlines():
        name, calls, own = line.split()
        made = instructions.get(name, 0)
        out[name] = int(calls) + (int(own) if made else 0)
        if made and made < places[name[len("body_"):]] and int(own):
            out[name] = None
    return out


def slices(trace):
    """How often each body is in a recording, as a slice or an instant."""
    decoded = json.loads(output_of("/usr/bin/python3", ROOT / "tests/proto/check_trace.py", "--json", trace))
    out = {}
    for names in decoded["slices"].values():
        for name, entry in names.items():
            out[name] = out.get(name, 0) + entry["count"]
    for name, count in decoded["instant_names"].items():
        out[name] = out.get(name, 0) + count
    return out


def record(options, folder, program):
    """What the recorder tells of its probes, and the calls that it saw."""
    pack, trace = folder / "bodies.toml", folder / (program.name + ".pftrace")
    pack.write_text(PACK % program.name)
    attached = re.compile("attached .*" + re.escape(program.name))
    with kit.Job([program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as job, \
            kit.Recorder(options.kansoku, trace, "--probes", str(pack), "--explain", pids=[job.pid], until=attached.search, stdout=subprocess.PIPE) as recorder:
        job.communicate(b"x")
        explained, rest = recorder.communicate()
    lost = re.search(r"(\d+) lost", rest)
    if job.returncode != 0 or lost is None or int(lost[1]) != 0:
        raise kit.Wrong("%s: status %d; the recorder: %s" % (program.name, job.returncode, rest))
    return explained, slices(trace)


def judge(program, truth, explained, seen):
    """How many functions of each verdict; prints what is wrong."""
    ends = {name: "counted by" if "; counted by " in rest else "begin and end"
            for name, rest in re.findall(r"^bodies +(body_\d+) (.*)", explained, re.MULTILINE)}
    refused = set(re.findall(r"^missing +(body_\d+): its (?:calls|end)", explained, re.MULTILINE))
    out = {"exact": 0, "exits": 0, "refused": 0, "unjudged": 0, "wrong": 0}
    for name, calls in truth.items():
        if name not in ends:
            out["refused" if name in refused else "wrong"] += 1
            if name not in refused:
                print("%s %s: neither attached nor refused" % (program.name, name))
        elif calls is None:
            out["unjudged"] += 1
        elif seen.get(name, 0) != calls:
            out["wrong"] += 1
            print("%s %s: %d calls, %d recorded, %s" % (program.name, name, calls, seen.get(name, 0), ends[name]))
        else:
            out["exits" if ends[name] == "counted by" else "exact"] += 1
    return out


def main(report):
    parser = kit.parser(__doc__)
    parser.add_argument("--bodies", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compilers", default="g++,clang++")
    parser.add_argument("--levels", default="0,1,2,3,s")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the programs and recordings")
    options = parser.parse_args()
    kit.need_root()
    total = {"exact": 0, "exits": 0, "refused": 0, "unjudged": 0, "wrong": 0}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or pathlib.Path(scratch)
        source = folder / "bodies.cc"
        source.write_text(output_of(sys.executable, HERE / "make_bodies.py", str(options.bodies), str(options.seed)))
        for compiler in options.compilers.split(","):
            for level in options.levels.split(","):
                program = folder / ("bodies_%s_O%s" % (compiler.rstrip("+"), level))
                output_of(compiler, "-std=c++20", "-w", "-fwrapv", "-O" + level, "-o", program, source)
                truth = truth_of(program, source.read_text())
                found = judge(program, truth, *record(options, folder, program))
                print("%s -O%s: %s" % (compiler, level, ", ".join("%d %s" % (count, word) for word, count in found.items())), flush=True)
                total = {word: total[word] + count for word, count in found.items()}
    print("all: " + ", ".join("%d %s" % (count, word) for word, count in total.items()))
    functions = sum(total.values())
    report.judge("bodies", [text for is_wrong, text in ((not functions, "no function"), (total["wrong"], "counts differ"),
                                                        (total["refused"] > REFUSED_MAX * functions, "too many are refused")) if is_wrong])


if __name__ == "__main__":
    kit.run(main)
