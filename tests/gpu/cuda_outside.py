#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`kansoku cuda stat` against the executor: what uprobes on the driver count is what the software device ran.

cuda_outside.py BUILD_FOLDER [samples] [rules] [halide] [llama] [late]. Observed from the start, launches by kernel equal the executor's own table
(KANSOKU_SOFTGPU_TIMES) with all names, and calls that returned 0 by entry point the driver's (KANSOKU_SOFTGPU_COUNTS); both are set in the
child alone. Operations and bytes of copies and sets equal the executor's, where no graph runs some. Graphs of llama.cpp are on and off. Attached to a running generation: no kernel
is named that the executor did not run, none oftener, and the share without a name is printed. Exit status 77: no root, no eBPF, or
nothing of all that is here.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from kit import ROOT, Wrong, need  # noqa: E402
sys.path.insert(0, os.path.join(ROOT, "tests/cuda"))
import rules as rules_program  # noqa: E402

SAMPLES = ["vector_add", "matrix_product", "reduction", "scan", "histogram", "nbody", "streams", "graphs"]
TOKENS_BEFORE, LAUNCHES_A_TOKEN = 3, 21  # in half a second; a loaded machine computes no more
LIMIT_S = 600


def plain(name):
    """As the executor's table has names: without the types of result and parameters."""
    name, depth = name.removeprefix("void "), 0
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and not name.startswith("(anonymous", i):
            return name[:i]
    return name


def table(text):
    """Launches by kernel as the executor counted them."""
    head = re.search(r"kernels by time \(.*\): .* ms in (\d+) launches of (\d+) kernels", text)
    if head is None:
        raise Wrong("the executor printed no table: " + text[-500:])
    rows = {}
    for launches, name in re.findall(r"(\d+) launches  (.*)$", text[head.end():], re.M):
        rows[name] = rows.get(name, 0) + int(launches)
    if sum(rows.values()) != int(head[1]):
        raise Wrong("the executor's table is cut")
    return rows


BEGINS = ("launch", "graph_launch", "host_function", "event_record", "stream_wait")
BEGUN_ONLY = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel")
LAUNCHES = re.compile("cu(Launch|GraphLaunch|Memcpy|Memset|MemAlloc|MemFree|MemHostAlloc|.*Synchronize|.*Query$)")


def moved(process, did):
    """Problems with copies and sets: operations, and bytes as far as they are told."""
    if "graph" in did:
        return []  # what a graph copies, its launch does not say
    problems = []
    for kind, begin in (("copy", "copy_"), ("set", "set")):
        rows = [entry for entry in process["functions"] if entry["kind"] == kind]
        ran = [numbers for name, numbers in did.items() if name.startswith(begin)]
        for what, got, want in (("operations", sum(row["operations"] for row in rows), sum(numbers[0] for numbers in ran)),
                                ("bytes", sum(row["bytes"] for row in rows), sum(numbers[1] for numbers in ran))):
            is_told = what == "operations" or not any(row["calls_without_bytes"] for row in rows)
            if is_told and got != want or got > want:
                problems.append(f"{what} of kind {kind}: {got} seen, {want} done")
    return problems


def counted(process):
    """Launches that ran by kernel, and how many of them without a name."""
    rows = {}
    for kernel in process["kernels"]:
        ran = kernel["launches"] + kernel["by_graphs"]
        if ran:
            name = plain(kernel["full_name"]) if kernel["is_named"] else kernel["full_name"]
            rows[name] = rows.get(name, 0) + ran
    return rows


class Bench:
    def __init__(self, build, folder):
        self.kansoku, self.folder = os.path.join(build, "kansoku"), folder

    def child(self, command, log, settings=()):
        own = ["KANSOKU_SOFTGPU_TIMES=1000", f"KANSOKU_SOFTGPU_LOG={log}", f"KANSOKU_SOFTGPU_COUNTS={log}.counts"]
        return ["env", *own, *settings, self.kansoku, "run", "--softgpu", "--", *command]

    def stat(self, *arguments):
        out = os.path.join(self.folder, "stat.json")
        if os.path.exists(out):
            os.unlink(out)
        done = subprocess.run([self.kansoku, "cuda", "stat", "--json", "--quiet", "--budget", "0", "-o", out, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", timeout=LIMIT_S)
        if not os.path.exists(out):
            need(done.returncode != kit.NO_PERMISSION and os.geteuid() == 0, done.stderr.strip())
            raise Wrong(done.stderr[-1000:])
        need(done.returncode != 77, "the device has no such thing")
        kit.expect(done.returncode == 0, done.stdout[-500:] + done.stderr[-1000:])
        with open(out, encoding="utf-8") as file:
            return json.load(file)

    def whole(self, title, command, settings=(), own=None):
        """From the start: equal, and all named. `own`: the file in which the program writes what it does itself."""
        log = os.path.join(self.folder, "log")
        open(log, "w", encoding="utf-8").close()
        result = self.stat("--", *self.child(command, log, settings))
        with open(log, encoding="utf-8", errors="replace") as file:
            want = table(file.read())
        if len(result["processes"]) != 1:
            raise Wrong(f"{len(result['processes'])} processes")
        process, probes = result["processes"][0], result["probes"]
        got = counted(process)
        counts = kit.read_counts(f"{log}.counts.{process['pid']}")
        calls = {name: tuple(numbers) for name, numbers in counts["call"].items()}
        unrun = {} if own is None else kit.read_counts(own)["unrun"]
        # Of launches the begin alone is seen: one that fails, or that an error keeps from running, counts.
        failed = {name: calls.get(name, (0, 0)) for name in BEGUN_ONLY}
        more = sum(begun - succeeded for begun, succeeded in failed.values()) + sum(n[0] for name, n in unrun.items() if name.startswith("kernel "))
        unknown = unrun.get("unknown_graph", [0])[0]
        problems = [] if more or unknown else kit.differences(got, want)
        ran = sum(numbers[0] for numbers in counts["kernel"].values())
        if not unknown and sum(got.values()) != ran + more:
            problems.append(f"{sum(got.values())} launches seen, {ran} run and {more} failed")
        problems += moved(process, counts["did"])
        if probes["lost_records"] or probes["share_of_time_seen"] != 1:
            problems.append(f"lost {probes['lost_records']}, seen {probes['share_of_time_seen']}")
        for entry in process["functions"]:
            begun, succeeded = calls.get(entry["function"], (0, 0))
            # Of launches the begin alone is seen.
            seen = entry["ended"] - entry["failed"] - entry["not_ready"] if entry["kind"] not in BEGINS else entry["begun"]
            if entry["begun"] != begun or seen != (begun if entry["function"] in BEGUN_ONLY else succeeded):
                problems.append(f"{entry['function']}: {entry['begun']} seen, {seen} of them returned 0; called {begun}, {succeeded}")
        missed = {name for name, (count, _) in calls.items() if count and LAUNCHES.match(name)} - {e["function"] for e in process["functions"]}
        problems += [f"{name}: called and not seen" for name in sorted(missed)]
        if process["launches_unnamed"] or process["graph_launches_unknown"] != unknown:
            problems.append(f"{process['launches_unnamed']} launches without a name, {process['graph_launches_unknown']} unknown graphs")
        busy = process["device_busy"]
        if not busy["is_known"] or not 0 <= busy["lower_s"] <= busy["upper_s"] <= busy["observed_s"]:
            problems.append(f"bounds {busy}")
        if problems:
            raise Wrong("\n  ".join(problems[:20]))
        graphs = sum(kernel["by_graphs"] for kernel in process["kernels"])
        print(f"{title}: {sum(want.values())} launches of {len(want)} kernels equal the executor's, all named; {graphs} by graphs; "
              f"{len(process['functions'])} entry points equal the driver's; busy {busy['lower_s']:.3f} to {busy['upper_s']:.3f} of {busy['observed_s']:.3f} s")

    def wait_until_it_launches(self, child):
        """Modules are loaded then, and graphs are made."""
        while child.poll() is None:
            seen = self.stat("-p", str(child.pid), "--for", "500ms")["processes"]
            if seen and (seen[0]["launches"] > TOKENS_BEFORE * LAUNCHES_A_TOKEN or seen[0]["graph_launches_unknown"] > TOKENS_BEFORE):
                return
        raise Wrong("it ended before it was observed")

    def late(self, title, command, settings=()):
        """In the middle: nothing that was not run."""
        log = os.path.join(self.folder, "log")
        open(log, "w", encoding="utf-8").close()
        with kit.Job(self.child(command, log, settings), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            self.wait_until_it_launches(child)
            result = self.stat("-p", str(child.pid), "--for", "2s")
            child.wait(LIMIT_S)
        with open(log, encoding="utf-8", errors="replace") as file:
            want = table(file.read())
        if not result["processes"]:
            raise Wrong("nothing was seen")
        process = result["processes"][0]
        named = {name: count for name, count in counted(process).items() if not name.startswith("function@")}
        wrong = [f"{name}: {count} seen, {want.get(name, 0)} run" for name, count in named.items() if count > want.get(name, 0)]
        if wrong:
            raise Wrong("\n  ".join(wrong[:20]))
        # Of a graph that was made earlier nobody saw what it launches; a program may launch nothing else.
        launches, of_earlier = process["launches"], process["graph_launches_unknown"]
        if launches == 0 and of_earlier == 0:
            raise Wrong("no launch was seen")
        print(f"{title}: {launches} launches seen of {sum(want.values())}, no wrong name, {process['launches_unnamed']} "
              f"without one, {of_earlier} launches of graphs that were made earlier")


def samples(bench):
    kit.need_clang()
    for sample in SAMPLES:
        yield sample, bench.whole, sample, [kit.compile_for_device(bench.kansoku, os.path.join(bench.folder, sample), "-std=c++17",
                                                                   os.path.join(ROOT, f"examples/cuda_samples/{sample}.cu"))]


def rules(bench):
    kit.need_clang()
    os.environ["KANSOKU"] = bench.kansoku
    program = rules_program.build(kit.softgpu.CLANG, bench.folder)
    for name in rules_program.sections():
        own = os.path.join(bench.folder, "rules." + name)
        yield "rules " + name, bench.whole, "rules " + name, [program, name, own], (), own


def halide(bench):
    need(subprocess.run(["/usr/bin/python3", "-c", "import halide"], capture_output=True).returncode == 0, "not installed")
    yield "halide", bench.whole, "halide", ["/usr/bin/python3", os.path.join(ROOT, "examples/halide/halide_demo.py")]


def llama_programs():
    sys.path.insert(0, os.path.join(ROOT, "tests/llama"))
    import builds
    program, model = os.path.join(builds.CACHE, "lean-80/bin/generate"), None
    for folder in sorted(os.listdir(builds.CACHE)) if os.path.isdir(builds.CACHE) else []:
        path = os.path.join(builds.CACHE, folder, "F32.gguf")
        if folder.startswith("models-") and os.path.exists(path):
            model = path
    need(model and os.path.exists(program), "llama.cpp is not built (tests/llama/run.py build)")
    return [program, "text", model]


GRAPHS = (("graphs on", ()), ("graphs off", ("GGML_CUDA_DISABLE_GRAPHS=1",)))


def llama(bench):
    command = llama_programs()
    for graphs, settings in GRAPHS:
        title = f"llama.cpp, {graphs}"
        yield title, bench.whole, title, [*command, "--tokens", "32"], ("KANSOKU_SOFTGPU_ARCH=sm_80", *settings)


def late(bench):
    command = llama_programs()
    for graphs, settings in GRAPHS:
        title = f"llama.cpp, {graphs}, attached late"
        yield title, bench.late, title, [*command, "--tokens", "500"], ("KANSOKU_SOFTGPU_ARCH=sm_80", *settings)


def main(report):
    build, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:] or ["samples", "rules", "halide", "llama", "late"]
    kit.need_root()
    with tempfile.TemporaryDirectory(prefix="kansoku-outside-") as folder:
        os.environ["KANSOKU_SOFTGPU_DIR"] = os.path.join(folder, "state")
        bench = Bench(build, folder)
        for name in wanted:
            report.parts(name, {"samples": samples, "rules": rules, "halide": halide, "llama": llama, "late": late}[name](bench))


if __name__ == "__main__":
    kit.run(main)
