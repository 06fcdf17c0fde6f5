#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""truth.py [--build npm|openmp] [--model toy-F32] [options of the driver]: what a generation executes, from two sources that know nothing of
Kansoku, as a table; exit 1 where they contradict each other or ggml.

(a) ggml's own listing of nodes (GGML_SCHED_DEBUG=2) of the same generation, every graph built anew (LLAMA_GRAPH_REUSE_DISABLE=1).
(b) The schedule of micro-batches and the FLOPs and bytes of matrix products and attention, by arithmetic on the GGUF file's tensor shapes and
    the driver's options alone.
(c) ggml_nbytes and ne of the nodes as ggml's own callback shows them: the check of (b), never what is compared with Kansoku.

An operator is executed when its function is entered on the CPU: NONE, VIEW, RESHAPE, PERMUTE and TRANSPOSE are not; tensors without elements (a
micro-batch without outputs has them after its last attention) return before the operator, but the fused RMS_NORM+MUL is entered for them too."""
import argparse
import collections
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import models
from builds import SKIPPED, Unavailable

VIEWS = {"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"}
FUSED = "RMS_NORM+MUL"
COUNTED = ("MUL_MAT", "MUL_MAT_ID", "FLASH_ATTN_EXT")  # the operators with FLOPs and bytes

# ---- GGUF ----

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
# Elements and bytes of a block, by ggml's number of the type.
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 14: (256, 210)}
F32, F16 = 0, 1


class Gguf:
    """Metadata (arrays left out) and tensors: name -> (type, shape, fastest dimension first)."""

    def __init__(self, path):
        with open(path, "rb") as self.file:
            magic, version, tensors, keys = struct.unpack("<4sIQQ", self.file.read(24))
            if magic != b"GGUF" or version != 3:
                raise RuntimeError(f"{path}: no GGUF file of version 3")
            self.values = {}
            for _ in range(keys):
                key = self.text()
                self.values[key] = self.value(self.number("<I"))
            self.tensors = {}
            for _ in range(tensors):
                name, dimensions = self.text(), self.number("<I")
                shape = [self.number("<Q") for _ in range(dimensions)]
                kind, _ = self.number("<I"), self.number("<Q")
                self.tensors[name] = (kind, shape)

    def number(self, kind):
        return struct.unpack(kind, self.file.read(struct.calcsize(kind)))[0]

    def text(self):
        return self.file.read(self.number("<Q")).decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, count = self.number("<I"), self.number("<Q")
            for _ in range(count):
                self.value(of)
            return None
        return self.number(SCALARS[kind])


def tensor_bytes(kind, *shape):
    """Of a contiguous tensor."""
    elements, size = BLOCKS[kind]
    count = 1
    for length in shape:
        count *= length
    return count // elements * size


# ---- the schedule ----

MicroBatch = collections.namedtuple("MicroBatch", "tokens sequences outputs used")  # used: cells of the KV cache, highest + 1


def phase(batch):
    """Of drafts all tokens ask for an output."""
    return "prefill" if batch.tokens > batch.sequences and batch.outputs < batch.tokens else "decode"


def of_fill(case, begin, end, wants_output):
    """The calls that decode positions [begin, end) of one sequence: a list of lists of micro-batches."""
    calls, size = [], min(case["batch"], case["context"] * case["sequences"])
    if size < case["batch"]:
        raise RuntimeError("batch is greater than the context; llama.cpp would cut it")
    for at in range(begin, end, size):
        stop, call = min(end, at + size), []
        for first in range(at, stop, min(case["ubatch"], size)):
            last = min(stop, first + case["ubatch"])
            call.append(MicroBatch(last - first, 1, int(wants_output and last == end), last))
        calls.append(call)
    return calls


def accepted(case, step):
    """Drafts of each sequence that the step takes."""
    return step % (case["drafts"] + 1)


def expected_drafts(case):
    """What a report has to say of them; of the last step only what it certainly generated is known."""
    steps = case["tokens"] - 1 if case["drafts"] else 0
    taken = sum(accepted(case, step) for step in range(1, steps))
    n = times(case)
    return {"micro_batches": steps * n, "tokens": steps * case["drafts"] * case["sequences"] * n, "accepted": taken * case["sequences"] * n}


def schedule(case):
    """The calls of one generation of one context that succeed, and how many fail."""
    calls = []
    for _ in range(case["sequences"]):
        calls += of_fill(case, 0, case["prompt_tokens"], True)
    position = case["prompt_tokens"]
    for step in range(1, case["tokens"]):
        if position == case["context"]:
            position = 0
        tokens = case["sequences"] * (case["drafts"] + 1)
        calls.append([MicroBatch(tokens, case["sequences"], tokens, position + case["drafts"] + 1)])
        position += accepted(case, step) + 1
    if case["failing"]:
        calls += of_fill(case, position, case["context"], False)
    return calls, case["failing"]


def times(case):
    return case["contexts"] * (case["reload"] + 1)


def expected_calls(case):
    """What the driver has to say of itself, by arithmetic."""
    calls, failing = schedule(case)
    batches = [batch for call in calls for batch in call]
    tokens, n = sum(batch.tokens for batch in batches), times(case)
    results = {"0": len(calls) * n}
    if failing:
        results["1"] = failing * n
    return {"decode": {"calls": (len(calls) + failing) * n, "results": results, "tokens": (tokens + failing) * n},
            "micro_batches": {"count": len(batches) * n, "tokens": tokens * n},
            "generated": sum(accepted(case, step) + 1 for step in range(case["tokens"])) * case["sequences"] * n}


# ---- (b) FLOPs and bytes ----

class Sums(collections.defaultdict):
    """(operator, phase) -> [count, FLOPs, bytes]."""

    def __init__(self):
        super().__init__(lambda: [0, 0, 0])

    def add(self, key, flops, size):
        row = self[key]
        row[0], row[1], row[2] = row[0] + 1, row[1] + flops, row[2] + size


class Arithmetic:
    """The products of one micro-batch of a model of the llama architecture."""

    def __init__(self, gguf, case):
        value = gguf.values
        self.gguf, self.case, self.layers = gguf, case, value["llama.block_count"]
        self.heads, self.kv_heads = value["llama.attention.head_count"], value["llama.attention.head_count_kv"]
        self.width = value["llama.embedding_length"]
        self.head = self.width // self.heads
        self.used = value.get("llama.expert_used_count", 0)

    def product(self, sums, key, weight, rows):
        """weight x activations in F32: [ne0, rows] -> [ne1, rows]."""
        kind, (ne0, ne1) = self.gguf.tensors[weight]
        if rows:
            sums.add(("MUL_MAT", key), 2 * ne0 * ne1 * rows, tensor_bytes(kind, ne0, ne1) + 4 * (ne0 + ne1) * rows)

    def of_experts(self, sums, key, weight, rows, shared):
        """All experts' weights x activations; `shared`: each token's activation is one, which all its experts take."""
        kind, (ne0, ne1, experts) = self.gguf.tensors[weight]
        if rows:
            reached = min(experts, self.used * rows)
            inputs = ne0 * (1 if shared else self.used) * rows
            sums.add(("MUL_MAT_ID", key), 2 * ne0 * ne1 * self.used * rows,
                     reached * tensor_bytes(kind, ne0, ne1) + 4 * (inputs + ne1 * self.used * rows))

    def attention(self, sums, key, batch):
        cells = min(self.case["context"], max(256, -(-batch.used // 256) * 256))
        streams, tokens = batch.sequences, batch.tokens
        wide = self.head * self.kv_heads  # elements of a cell
        # A view of the cells used of each sequence; between two sequences lies a whole cache.
        cache = 2 * (wide * cells + (streams - 1) * wide * self.case["context"])
        pairs, q = cells * tokens * self.heads, 4 * self.head * self.heads * tokens
        if self.case["flash"]:
            sums.add(("FLASH_ATTN_EXT", key), 4 * self.head * pairs, q + 2 * cache + 2 * cells * tokens + q)
            return
        scores = 4 * pairs
        sums.add(("MUL_MAT", key), 2 * self.head * pairs, cache + q + scores)
        # V is kept transposed: its rows are the whole cache's length.
        size = self.case["context"]
        values = 2 * (cells + (wide - 1) * size + (streams - 1) * wide * size)
        sums.add(("MUL_MAT", key), 2 * self.head * pairs, values + scores + q)

    def micro_batch(self, sums, batch):
        key = phase(batch)
        for layer in range(self.layers):
            name = f"blk.{layer}.".__add__
            rows = batch.outputs if layer == self.layers - 1 else batch.tokens  # the last layer goes on with the outputs alone
            for part in ("attn_q", "attn_k", "attn_v"):
                self.product(sums, key, name(part + ".weight"), batch.tokens)
            self.attention(sums, key, batch)
            self.product(sums, key, name("attn_output.weight"), batch.tokens)
            if self.used:
                self.product(sums, key, name("ffn_gate_inp.weight"), rows)
                for part in ("up", "gate", "down"):
                    self.of_experts(sums, key, name(f"ffn_{part}_exps.weight"), rows, part != "down")
            else:
                for part in ("up", "gate", "down"):
                    self.product(sums, key, name(f"ffn_{part}.weight"), rows)
        self.product(sums, key, "output.weight", batch.outputs)


def arithmetic(case):
    """(operator, phase) -> [count, FLOPs, bytes] of the whole run; of MUL_MAT_ID the bytes are an upper bound."""
    of_model, one = Arithmetic(Gguf(models.model(case["model"])), case), Sums()
    kinds = collections.Counter(batch for call in schedule(case)[0] for batch in call)
    for batch, count in kinds.items():
        sums = Sums()
        of_model.micro_batch(sums, batch)
        for key, row in sums.items():
            for i in range(3):
                one[key][i] += row[i] * count * times(case)
    return dict(one)


# ---- (a) ggml's listing ----

UNARY = set("ABS SGN NEG STEP TANH ELU RELU SIGMOID GELU GELU_QUICK SILU HARDSWISH HARDSIGMOID EXP EXPM1 SOFTPLUS GELU_ERF XIELU FLOOR CEIL ROUND "
            "TRUNC".split())
GLU = set("REGLU GEGLU SWIGLU SWIGLU_OAI GEGLU_ERF GEGLU_QUICK SWIGLU_CLAMP".split())
CUT = {"FLASH_ATTN": "FLASH_ATTN_EXT"}  # the listing shows ten characters
NODE = re.compile(r"node #\s*(\d+) \(\s*(\S+)\): (.{20}) \(.{5}\) \[.{5} .{8}\] use=(\d+),c=([01]):(.*)$")
SOURCE = re.compile(r" (.{20}) \(.{5}\) \[.{5} .{8}\]")


def operator(shown):
    """ggml_op_name of what ggml_op_desc showed."""
    if shown in UNARY:
        return "UNARY"
    if shown in GLU:
        return "GLU"
    return CUT.get(shown, shown)


Node = collections.namedtuple("Node", "index op name uses computed sources")


def nodes_of(text):
    found = []
    for line in text.splitlines():
        if line.startswith("node #"):
            match = NODE.match(line)
            if match is None:
                raise RuntimeError(f"not understood: {line}")
            index, shown, name, uses, computed, rest = match.groups()
            found.append(Node(int(index), operator(shown), name.strip(), int(uses), computed == "1", [s.strip() for s in SOURCE.findall(rest)]))
    return found


def fuses(node, following, weights):
    """ggml_can_fuse as far as the listing shows it: neighbours in the graph, used once, multiplied by a vector of the model (F32)."""
    return (node.op == "RMS_NORM" and following is not None and following.op == "MUL" and following.index == node.index + 1 and node.uses == 1
            and following.computed and node.name in following.sources and any(source in weights for source in following.sources))


def executed(nodes, has_outputs, weights):
    """[(operator, name)] of what a graph executes."""
    done, empty, skip = [], False, False
    for i, node in enumerate(nodes):
        if skip:
            skip = False
            continue
        if node.op == "GET_ROWS" and any("out_ids" in source for source in node.sources) and not has_outputs:
            empty = True
        if node.op in VIEWS or not node.computed:
            continue
        if fuses(node, nodes[i + 1] if i + 1 < len(nodes) else None, weights):
            done.append((FUSED, nodes[i + 1].name))
            skip = True
        elif not empty:
            done.append((node.op, node.name))
    return done


def command(case, *more):
    """The driver's command line for the case, without --fork: a child's expectations are its parent's."""
    words = [models.driver(case["build"]), "--model", models.model(case["model"])]
    for name in DEFAULTS:
        if name not in ("build", "model", "fork"):
            words += ["--" + name.replace("_", "-"), str(case[name])]
    return words + list(more)


def run_driver(case, *more, settings=None):
    done = subprocess.run(command(case, *more), env=dict(models.settings(case["build"]), **(settings or {})), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"driver: exit {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def listing(case):
    """What ran by ggml's listing: (operator, phase) -> count, how many graphs, and the operators of the last graph. Of several contexts one is
    listed and multiplied: ggml formats the sizes in one static buffer, so two threads' listings are garbled."""
    gguf = Gguf(models.model(case["model"]))
    vectors = {name[:20] for name, (kind, shape) in gguf.tensors.items() if len(shape) == 1 and kind == F32}
    batches = [batch for call in schedule(case)[0] for batch in call] * (case["reload"] + 1)
    counts, known, last = collections.Counter(), {}, []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "nodes")
        said = run_driver(dict(case, contexts=1), "--nodes", path, settings={"GGML_SCHED_DEBUG": "2", "LLAMA_GRAPH_REUSE_DISABLE": "1"})
        with open(path + ".0", encoding="utf-8", errors="replace") as file:
            blocks = file.read().split("\n## SPLIT #0")[1:]
    if len(blocks) != len(batches) or said["n_reused"] != 0:
        raise RuntimeError(f"{len(blocks)} graphs listed, {said['n_reused']} reused, {len(batches)} micro-batches scheduled")
    for block, batch in zip(blocks, batches):
        if "## SPLIT" in block:
            raise RuntimeError("a graph was split; only the CPU was expected")
        key = (block, batch.outputs > 0)
        if key not in known:
            known[key] = executed(nodes_of(block), batch.outputs > 0, vectors)
        last, where = known[key], phase(batch)
        for op, _ in last:
            counts[(op, where)] += case["contexts"]
    return dict(counts), len(blocks) * case["contexts"], last


# ---- (c) ggml's own word for shapes ----

def shapes(case):
    """(operator, phase) -> [count with elements, FLOPs, bytes with the experts really used, bytes as a bound]."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shapes")
        run_driver(case, "--shapes", path)
        for index in range(case["contexts"]):
            with open(f"{path}.{index}", encoding="utf-8") as file:
                for line in file:
                    op, where, *numbers = line.split()
                    count, empty, flops, size, bound = map(int, numbers)
                    row = found.setdefault((op, where), [0, 0, 0, 0])
                    for i, value in enumerate((count - empty, flops, size, bound)):
                        row[i] += value
    return found


DEFAULTS = {"build": "openmp", "model": "toy-F32", "tokens": 32, "prompt_tokens": 8, "batch": 256, "ubatch": 256, "context": 256, "threads": 1,
            "sequences": 1, "contexts": 1, "reload": 0, "failing": 0, "drafts": 0, "flash": 1, "fork": 0}


def case_of(**values):
    unknown = set(values) - set(DEFAULTS)
    if unknown:
        raise RuntimeError(f"no such option: {sorted(unknown)}")
    return dict(DEFAULTS, **values)


def truth(case, needs_experts=False):
    """All that a report of this case has to say. Raises where the sources contradict each other. One thread: how many share an operator changes
    neither graphs nor (the models are made so) the text, and npm's threads on too few processors take 100 times as long."""
    case = dict(case, threads=1)
    counts, graphs, nodes = listing(case)
    said, want, sums = run_driver(case), expected_calls(case), arithmetic(case)
    for name in ("decode", "micro_batches", "generated"):
        if said[name] != want[name]:
            raise RuntimeError(f"driver says {name} {said[name]}, the schedule {want[name]}")
    if graphs != want["micro_batches"]["count"]:
        raise RuntimeError(f"{graphs} graphs listed, {want['micro_batches']['count']} micro-batches")
    for op in COUNTED:
        for where in ("decode", "prefill"):
            listed, computed = counts.get((op, where), 0), sums.get((op, where), [0])[0]
            if listed != computed:
                raise RuntimeError(f"{op} {where}: {listed} listed, {computed} by arithmetic")
    by_ggml = shapes(case) if needs_experts else {}
    operators = {}
    for key, count in sorted(counts.items()):
        row = {"count": count}
        if key in sums:
            row["flops"], row["bytes"] = sums[key][1], [sums[key][2]]
            if key[0] == "MUL_MAT_ID" and key in by_ggml:
                row["bytes"].append(by_ggml[key][2])  # where the recorder reads the experts' numbers
        operators[key] = row
    return {**want, "graphs": graphs, "operators": operators, "hash": said["hash"], "last_graph": nodes}


def contradictions(case):
    """Where (b) and (c) differ, as text."""
    sums, by_ggml, lines = arithmetic(case), shapes(case), []
    for key in sorted(set(sums) | {key for key in by_ggml if key[0] in COUNTED and by_ggml[key][0]}):
        mine, ggml = sums.get(key, [0, 0, 0]), by_ggml.get(key, [0, 0, 0, 0])
        for what, a, b in (("count", mine[0], ggml[0]), ("flops", mine[1], ggml[1]), ("bytes", mine[2], ggml[3])):
            if a != b:
                lines.append(f"{' '.join(key)} {what}: {a} by arithmetic, {b} by ggml")
    return lines


def add_options(parser):
    for name, value in DEFAULTS.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    case = case_of(**vars(parser.parse_args()))
    try:
        found = truth(case, needs_experts=True)
        for name in ("decode", "micro_batches", "graphs"):
            print(name, json.dumps(found[name]))
        for (op, where), row in found["operators"].items():
            print(f"{op:16} {where:8} {row['count']:9} {row.get('flops', '')!s:>16} {' or '.join(map(str, row.get('bytes', [])))}")
        print(f"last graph: {len(found['last_graph'])} operators: " +
              " ".join(f"{op}:{count}" for op, count in sorted(collections.Counter(op for op, _ in found["last_graph"]).items())))
        wrong = contradictions(case)
        print("\n".join(wrong) if wrong else "FLOPs and bytes by arithmetic are those of ggml")
        return 1 if wrong else 0
    except Unavailable as reason:
        print(f"skipped: {reason}")
        return SKIPPED
    except (RuntimeError, OSError) as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
