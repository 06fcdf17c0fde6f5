# SPDX-License-Identifier: Apache-2.0
"""Files with one bad item, bytes at odd places and forms that only some readers take: the damage costs itself, and accuses nobody."""
import gzip
import json
import os
import pickle
import re

from files.dumps import all_reduce, dumps, same
from files.forms import exported
from files.kineto import each, profiles
from files.timeline import NO_WORKERS, Model
from scenario import FINE, FINE_OR_UNKNOWN, FOUND, May, Scenario

GROUP, SMALL = "damage", Model(layers=1)
SURE, UNSURE, FOUND_OR_REFUSED = frozenset({FOUND}), frozenset({0, 2, 11}), frozenset({FOUND, 2})
INPUT = (May("common_input"), May("gpu_starved", detail="loader"))
SLOW_INPUT = {"loader_us": 14_000.0, "loader": NO_WORKERS, "model": SMALL, "steps": 16}
COUNTED = ("import_bad_events",)  # what is left out is said
NOT_IDLE = (r"device is idle for [2-9]\d|device is idle for 100",)


def with_input(title, why, statuses=SURE, /, **options):
    """Half of each step is in the loader, in a file that says so in an odd way."""
    return Scenario("damage_" + title, GROUP, "Half of each step is in the loader. " + why,
                    make=profiles(1, **{"seed": 501, **SLOW_INPUT, **options}), statuses=statuses,
                    findings=INPUT)


def healthy(title, why, world=1, /, statuses=FINE, says=(), **options):
    return Scenario("damage_" + title, GROUP, "Healthy. " + why, make=profiles(world, 510 + world, **{"model": SMALL, **options}), statuses=statuses,
                    never=NOT_IDLE, says=says)


def bytes_of_files():
    cut = "The file ends inside "
    for name, place in (("a_name", b'"name": "aten::'), ("a_number", b'"ts": 73'), ("a_key", b'"ca')):
        yield with_input("cut_in_" + name, cut + name.replace("_", " ") + ".", FOUND_OR_REFUSED,
                         raw=lambda text, _rank, place=place: text[:text.rindex(place, 0, len(text) * 3 // 4) + len(place)])
    def shortened(text, _rank):
        packed = gzip.compress(text, 6, mtime=0)
        return packed[:len(packed) * 9 // 10]
    yield with_input("cut_gzip", "The gzip stream has lost its last tenth.", FOUND_OR_REFUSED, name="rank-{}.json.gz", raw=shortened)

    def members(text, _rank):
        third = len(text) // 3
        return b"".join(gzip.compress(text[at:at + third + 3], 6, mtime=0) for at in (0, third + 3, 2 * third + 6))
    yield with_input("gzip_of_three_members", "The file is three members of gzip, one behind the other, which is one text.", name="rank-{}.json.gz",
                     raw=members)
    yield with_input("gzip_and_garbage", "Behind the gzip stream lie a kilobyte of zeros and a line of text.", FOUND_OR_REFUSED,
                     name="rank-{}.json.gz",
                     raw=lambda text, _rank: gzip.compress(text, 6, mtime=0) + bytes(1024) + b"uploaded\n")
    yield with_input("garbage_behind", "Behind the closing brace follow zeros, as of a file that was allocated first.", FOUND_OR_REFUSED,
                     raw=lambda text, _rank: text + bytes(4096))
    yield with_input("byte_order_mark", "The text begins with a byte order mark.", FOUND_OR_REFUSED, raw=lambda text, _rank: b"\xef\xbb\xbf" + text)
    yield healthy("crlf", "Written with indentation and the line ends of Windows.",
                  raw=lambda text, _rank: json.dumps(json.loads(text), indent=1).replace("\n", "\r\n").encode())
    yield healthy("bad_bytes", "Bytes that are no UTF-8 in names of operators of both ranks.", 2, raw=lambda text,
                  _rank: text.replace(b"aten::silu", b"aten::s\xc3\x28\xff"))
    yield healthy("lone_surrogates", "Escapes of half a character in names.", raw=lambda text,
                  _rank: text.replace(b"aten::item", rb"aten::\ud83d item \udc00"))
    yield with_input("twice_the_file", "Two writers: the trace stands in the file twice, one behind the other.", FOUND_OR_REFUSED, raw=lambda text,
                     _rank: text + text)
    yield Scenario("damage_nothing_in_it", GROUP, "Files of no bytes, of spaces, of one brace: nothing can be read.", statuses=frozenset({2, 11}),
                   make=lambda folder: [
        open(os.path.join(folder, f"rank-{rank}.json"), "w", encoding="ascii").write(text) for rank, text in enumerate(("", "   \n", "{"))])


def numbers():
    def kernels(change, *ranks, category="kernel"):
        def edit(made, rank):
            if rank in ranks:
                change(each(made, category))
        return edit

    def put(key, at, value):
        return lambda found: found[at].__setitem__(key, value)
    yield healthy("nan_on_rank_2", "A kernel of rank 2 lasts NaN, and an operator begins at Infinity.", 4, statuses=FINE_OR_UNKNOWN, says=COUNTED,
                  edit=kernels(
        lambda found: (found[20].__setitem__("dur", float("nan")), found[60].__setitem__("ts", float("inf"))), 2))
    yield healthy("copy_of_30_hours", "A copy of rank 0 of 3 lasts 30 hours, over thousands of later ones.", 3, says=COUNTED,
                  edit=kernels(put("dur", 5, 1.08e11), 0, category="gpu_memcpy"))
    yield healthy("negative_begin", "One kernel of rank 1 begins before the machine was built.", 4, says=COUNTED,
                  edit=kernels(put("ts", 77, -9.2e15), 1))
    yield healthy("one_in_nanoseconds", "One kernel of rank 3 has its begin in nanoseconds, the others in microseconds.", 4, says=COUNTED,
                  edit=kernels(
        lambda found: found[100].__setitem__("ts", found[100]["ts"] * 1000), 3))
    yield healthy("operator_in_milliseconds", "One operator has its begin in milliseconds.", edit=kernels(
        lambda found: found[100].__setitem__("ts", found[100]["ts"] / 1000), 0, category="cpu_op"), statuses=FINE_OR_UNKNOWN)
    yield healthy("lost_end", "One product of rank 1 has no end, so that it lasts until the end of the profile.", 4, edit=kernels(
        lambda found: found[44].__setitem__("dur", found[-1]["ts"] - found[44]["ts"] + 9e5), 1), statuses=FINE_OR_UNKNOWN)
    yield healthy("lost_ends_of_nothing", "Three kernels last 0: their ends were never written.", 4, edit=kernels(
        lambda found: [one.__setitem__("dur", 0) for one in found[30:33]], 2))

    def texts(made, _rank):
        for one in made["traceEvents"]:
            for key in ("ts", "dur"):
                if key in one:
                    one[key] = f"{one[key]:.3f}"
    yield Scenario("damage_numbers_as_texts", GROUP, "Times are texts; rank 1 of 3 waits 8 ms of each step for its loader.",
                   make=profiles(3, 520, loader_of={1: 8250.0}, model=SMALL, edit=texts), statuses=FOUND_OR_REFUSED | {11},
                   findings=(May("slow_worker|gpu_starved", (1,)),))
    yield Scenario("damage_not_only_events", GROUP, "Nulls, numbers, texts and lists lie among the events of all; rank 4 of 5 is clocked lower.",
                   make=profiles(5, 521, slow={4: 1.3}, model=SMALL, edit=lambda made,
        _rank: made["traceEvents"].__setitem__(slice(200, 200), [None, -1, "", [[]], {}, True])),
        statuses=SURE, findings=(May("slow_kernel", (4,)),), says=COUNTED)
    yield Scenario("damage_twice_the_key", GROUP,
                   "Each kernel says its begin twice, first 1.0: readers of JSON take the last; rank 2 of 3 is clocked lower.",
                   make=profiles(3, 522, slow={2: 1.3}, model=SMALL, raw=lambda text,
                                 _rank: re.sub(rb'("cat": "kernel", )', rb'\1"ts": 1.0, ', text)),
        statuses=FOUND_OR_REFUSED, findings=(May("slow_kernel", (2,)),), never=NOT_IDLE)

    def deep(made, _rank):
        inner = []
        for _ in range(400):
            inner = [inner]
        each(made, "cpu_op")[7]["args"]["Concrete Inputs"] = inner
    yield healthy("deep_arguments", "An argument with 400 lists in each other.", 2, edit=deep)


def dumps_and_exports():
    stopped, missing = same(5, [all_reduce()] * 20, stops={0: 15}), May("hang", (0,))
    yield Scenario("damage_dump_without_its_last_byte", GROUP, "Rank 0 is missing; the dump of rank 3 lacks its last byte.", findings=(missing,),
                   statuses=FOUND_OR_REFUSED | {11},
                   make=dumps(stopped, raw=lambda content, rank: content[:-1] if rank == 3 else content), never=("rank 3 left no dump",))
    yield Scenario("damage_dump_with_nan", GROUP, "Rank 0 is missing; durations are NaN and one entry is null.", findings=(missing,), statuses=SURE,
                   make=dumps(stopped, as_json=True, name="fr_{}.json", edit=lambda made, rank: (
                       made["entries"].insert(3, None) if rank == 2 else None,
                       [one.update(duration_ms=float("nan")) for one in made["entries"] if one])))
    yield Scenario("damage_dump_is_a_program", GROUP, "Rank 1's pickle calls a function: it is not run, and refused.", statuses=frozenset({2}),
                   says=("rank_1",),
                   make=dumps(stopped, raw=lambda content, rank: b"\x80\x02cos\nsystem\nX\x06\x00\x00\x00exit 3\x85R." if rank == 1 else content))
    yield Scenario("damage_dump_of_huge_numbers", GROUP, "All is over; a duration, a time and a size beyond 64 bits on rank 2.", statuses=UNSURE,
                   make=dumps(same(4, [all_reduce()] * 9), edit=lambda made, rank: made["entries"][4].update(
            duration_ms=1e300, time_created_ns=2 ** 70, input_sizes=((2 ** 66,),)) if rank == 2 else None))
    yield Scenario("damage_dump_twice", GROUP,
                   "Each rank's dump was appended to an older one of its own: the first pickle ends in the file's middle.", statuses=UNSURE | {FOUND},
                   make=dumps(stopped, raw=lambda content, _rank: pickle.dumps(pickle.loads(content), protocol=4) + content), findings=(missing,))

    def torn(folder):
        exported(1, 530, model=SMALL)(folder)
        with open(os.path.join(folder, "job.sqlite"), "r+b") as file:
            file.truncate(os.path.getsize(file.name) * 2 // 3)
    yield Scenario("damage_cut_export", GROUP, "Healthy. The last third of an Nsight export was not copied.", make=torn, statuses=UNSURE)

    def scrambled(folder):
        exported(1, 531, model=SMALL)(folder)
        with open(os.path.join(folder, "job.sqlite"), "r+b") as file:
            for page in range(9, os.path.getsize(file.name) // 4096, 11):
                file.seek(page * 4096 + 100)
                file.write(b"\x00\xff" * 40)
    yield Scenario("damage_scrambled_export", GROUP, "Healthy. Bytes of some pages of an export are wrong.", make=scrambled, statuses=UNSURE)


SCENARIOS = [*bytes_of_files(), *numbers(), *dumps_and_exports()]
