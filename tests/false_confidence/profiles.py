# SPDX-License-Identifier: Apache-2.0
"""Files in the forms of other tools, made from a model of a job whose truth is known: profiles, dumps of collectives, pairs to compare."""
import gzip
import json
import os

import dump_model
import profile_model
from scenario import FINE, FINE_OR_UNKNOWN, May, Scenario
from profile_model import CUDA, DRIVER, OWN, ROCM, XPU, train, write, write_all

FINDS = frozenset({10})
VENDORS = {"cuda": CUDA, "driver": DRIVER, "rocm": ROCM, "xpu": XPU, "own": OWN}


def of_files(name, group, why, make, **more):
    return Scenario(name, group, why, (), make=make, **{"ask": ("diagnose", "--json", "{folder}"), **more})


def profiled(name, why, statuses=FINE, findings=(), form="rank-{}.pt.trace.json", says=(), group="profiles", **options):
    return of_files(name, group, why, lambda folder: write_all(folder, train(**options), form), statuses=statuses, findings=findings, says=says)


def late(*ranks):
    """True of a rank that the others wait for, whatever of it Kansoku sees first."""
    return tuple(May(kind, ranks) for kind in ("slow_worker", "slow_kernel", "asymmetry", "gpu_starved", "launch_bound"))


def alone(*kinds):
    return tuple(May(kind, (0,)) for kind in kinds)


def of_one_rank():
    for name, vendor in VENDORS.items():
        yield profiled(f"healthy_{name}", "A device that is busy all the time.", vendor=vendor, group="vendors")
        yield profiled(f"loader_{name}", "Half of each step is spent in the loader.", FINDS, alone("common_input", "gpu_starved"), vendor=vendor,
                       loader_us=11_000, group="vendors")
    for name in ("cuda", "rocm", "xpu", "own"):
        yield of_files(f"small_kernels_{name}", "vendors", "Kernels of 3 us, launched 40 us apart: the host cannot keep up.",
                       lambda folder, name=name: write_all(folder, [small_kernels(VENDORS[name])]), statuses=FINDS, findings=alone("launch_bound"))
    yield profiled("busy_at_60", "The program's own function takes 7 ms of each step.", FINDS, alone("gpu_starved"), host_us=7_000, host_name="tokenize")
    yield profiled("unseen_host", "The host is silent for 8 ms in each step: the idle time is seen, its cause is not.", FINE_OR_UNKNOWN | FINDS,
                   alone("gpu_starved"), unseen_us=8_000)
    yield of_files("one_of_16", "profiles", "One rank of sixteen: half of its time in an all-reduce, and nobody can say who is waited for.",
                   lambda folder: write_all(folder, train(16, reduce_us=12_000)[5:6]), statuses=FINE_OR_UNKNOWN, says=("with no kernel beside it",))
    yield of_files("pause_inside", "silence", "A checkpoint of 400 ms between two of many steps.",
                   lambda folder: write_all(folder, with_pause(7)), statuses=FINE | FINDS, findings=alone("gpu_starved"), says=("4[0-9][0-9]\\.[0-9]",))
    yield of_files("pause_in_front", "silence", "400 ms of the host before the first operation of the device.",
                   lambda folder: write_all(folder, with_pause(0)), statuses=FINE | FINDS, findings=alone("gpu_starved"), says=("4[0-9][0-9]\\.[0-9]",))
    yield of_files("four_operations", "silence", "Four operations in 300 ms say nothing of a pattern.",
                   lambda folder: write_all(folder, [few_operations()]), statuses=FINE_OR_UNKNOWN)
    yield of_files("no_device", "silence", "Operators of a processor alone.", lambda folder: write_all(folder, [without(train()[0], "kernel", "cuda_runtime")]),
                   statuses=FINE_OR_UNKNOWN)


def small_kernels(vendor):
    rank = profile_model.Rank(vendor=vendor)
    for number in range(12):
        begin = rank.now
        for _ in range(300):
            rank.kernel(vendor.gemm, 3, operator_us=28, call_us=12, blocks=2)
        rank.wait()
        rank.add("user_annotation", f"ProfilerStep#{number}", begin, rank.now - begin)
    return rank


def with_pause(at):
    rank = profile_model.Rank()
    for number in range(16):
        if number == at:
            rank.host("user_annotation", "save_checkpoint", 400_000)
        profile_model.step([rank], number)
    return [rank]


def few_operations():
    rank = profile_model.Rank()
    for _ in range(4):
        rank.kernel(CUDA.gemm, 500)
        rank.pause(75_000)
    return rank


def without(rank, *categories):
    rank.events = [event for event in rank.events if event["cat"] not in categories]
    return rank


def of_ranks():
    for count in (2, 3, 8, 16):
        yield profiled(f"healthy_{count}_ranks", "Ranks with the same work.", count=count, form="rank-{}.json.gz")
    for count, rank in ((3, 0), (6, 4), (16, 11)):
        yield profiled(f"slow_device_of_{count}", f"All kernels of rank {rank} take 1.35 times as long.", FINDS, late(rank), count=count,
                       of_rank={rank: {"kernels": 1.35}})
        yield profiled(f"slow_loader_of_{count}", f"The loader of rank {rank} takes 6 ms more a step.", FINDS, late(rank), count=count,
                       of_rank={rank: {"loader_us": 6_200}})
        yield profiled(f"slow_host_of_{count}", f"Rank {rank} does something of its own for 5 ms a step.", FINDS, late(rank), count=count,
                       of_rank={rank: {"host_us": 5_000, "host_name": "log_images"}})
    yield profiled("slow_device_of_2", "Of two ranks one has the slower device.", FINDS, late(1), count=2, of_rank={1: {"kernels": 1.4}})
    yield profiled("slow_pair_of_8", "Two of eight ranks have slow devices.", FINDS, (*late(2), *late(5), *late(2, 5)), count=8,
                   of_rank={2: {"kernels": 1.3}, 5: {"kernels": 1.3}})
    yield profiled("slow_network", "All ranks wait for the network for half of each step: nobody is late.", FINE_OR_UNKNOWN, count=6, reduce_us=11_000,
                   says=("with no kernel beside it",))
    yield profiled("input_of_all", "The loaders of all ranks are too slow.", FINDS, (May("common_input", tuple(range(5))), May("gpu_starved", tuple(range(5)))),
                   count=5, loader_us=9_000)
    yield profiled("no_steps_of_4", "Nobody marked the steps; rank 2 is slow.", FINDS, late(2), count=4, has_steps=False, of_rank={2: {"kernels": 1.4}})
    yield profiled("healthy_without_steps", "Nobody marked the steps, and nobody is slow.", FINE_OR_UNKNOWN, count=4, has_steps=False)
    yield of_files("windows", "identity", "Of two windows the newer is fine; the older had a slow loader.", two_windows, statuses=FINE_OR_UNKNOWN,
                   says=("2 windows",))
    yield of_files("same_pid", "identity", "Ranks in containers have one pid and one device number each.", same_pid, statuses=FINE)
    yield of_files("nsight_alone", "identity", "One process, busy.", lambda folder: profile_model.write_nsight(os.path.join(folder, "a.sqlite"), train()),
                   statuses=FINE_OR_UNKNOWN)
    yield of_files("nsight_three", "identity", "Three processes, each with a device 0 of its own.", lambda folder: profile_model.write_nsight(
        os.path.join(folder, "job.sqlite"), [renamed(train(seed=seed)[0], 8000 + seed) for seed in (1, 2, 3)]), statuses=FINE_OR_UNKNOWN)


def renamed(rank, pid):
    for event in rank.events:
        event["pid"] = pid if event["pid"] == rank.pid else event["pid"]
        event["tid"] = pid if event["tid"] == rank.pid else event["tid"]
    rank.pid = pid
    return rank


def two_windows(folder):
    for at, options in ((1_700_000_000_000, {"loader_us": 11_000}), (1_700_000_900_000, {})):
        write(folder, f"worker0.{at}.pt.trace.json", profile_model.profile(train(**options)[0]))


def same_pid(folder):
    ranks = [renamed(rank, 1) for rank in train(4)]
    for rank in ranks:
        for event in rank.events:
            event["pid"] = 0 if event["pid"] == rank.device and event["cat"] == "kernel" else event["pid"]
    write_all(folder, ranks)


def damaged():
    """One item of rank 1 is damaged; the job is healthy, or rank 3 of five is slow."""
    def number(text):
        return lambda data: data.replace(b'"dur": ', b'"dur": ' + text + b', "was": ', 1)

    damages = {
        "nan": number(b"NaN"), "infinite": number(b"1e400"), "negative": number(b"-7.5"), "as_text": number(b'"17"'), "nothing": number(b"null"),
        "nested": number(b"[" * 40 + b"]" * 40), "bad_byte": lambda data: data.replace(b"aten::gelu", b"aten::\xff\xfe", 1),
        "bare_quote": lambda data: data.replace(b"aten::gelu", b'aten::"gelu', 1), "byte_order_mark": lambda data: b"\xef\xbb\xbf" + data,
        "cut": lambda data: data[:len(data) * 9 // 10], "trailing": lambda data: data + b"\n\x00\x00garbage",
        "lines": lambda data: data.replace(b", ", b",\r\n"),
    }
    for at, (name, damage) in enumerate(damages.items()):
        is_slow = at % 2 == 0
        def make(folder, damage=damage, is_slow=is_slow):
            ranks = train(5, of_rank={3: {"kernels": 1.35}} if is_slow else {})
            write_all(folder, ranks)
            write(folder, "rank-1.pt.trace.json", damage(json.dumps(profile_model.profile(ranks[1])).encode()))
        yield of_files(f"damaged_{name}", "damage", "Rank 3 of five is slow, and an item of rank 1 is damaged." if is_slow else
                       "Five healthy ranks, and an item of one is damaged.", make, statuses=FINDS if is_slow else FINE_OR_UNKNOWN,
                       findings=late(3) if is_slow else ())
    yield of_files("gzip_of_parts", "damage", "A compressed file of two members, as a logger that appends writes it.", parts, statuses=FINE)


def parts(folder):
    data = json.dumps(profile_model.profile(train()[0])).encode()
    with open(os.path.join(folder, "rank-0.json.gz"), "wb") as file:
        file.write(gzip.compress(data[:5000], mtime=0) + gzip.compress(data[5000:], mtime=0))


def hang(*ranks):
    return (May("hang", ranks),)


def dumped(name, why, make, statuses=FINE, findings=(), form="pickle", old=False, says=()):
    return of_files(name, "dumps", why, lambda folder: dump_model.write(folder, make(), form, old), statuses=statuses, findings=findings, says=says)


def in_default(count, last, version="2.10", before=20):
    """`last(dump)` adds the end of each rank's."""
    out = []
    for rank in range(count):
        dump = dump_model.Dump(rank, dump_model.world(count), version).many(before)
        last(dump)
        out.append(dump)
    return out


def absent(*ranks):
    return lambda dump: dump.rank in ranks or dump.add("all_reduce", state="started")


def grids(tensor, data, last):
    """Ranks in groups of `tensor` neighbours and `data` replicas."""
    out = []
    for rank in range(tensor * data):
        first = rank // tensor * tensor
        groups = {"0": ("default_pg", list(range(tensor * data))), f"t{rank // tensor}": ("TENSOR_PARALLEL", list(range(first, first + tensor))),
                  f"d{rank % tensor}": ("DATA_PARALLEL", list(range(rank % tensor, tensor * data, tensor)))}
        dump = dump_model.Dump(rank, groups)
        for _ in range(8):
            dump.add("all_gather", f"t{rank // tensor}").add("reduce_scatter", f"d{rank % tensor}")
        last(dump, f"t{rank // tensor}", f"d{rank % tensor}")
        out.append(dump)
    return out


def of_dumps():
    for version in ("2.1", "2.4", "2.10"):
        yield dumped(f"dumps_idle_{version}", "All operations are over.", lambda version=version: in_default(6, lambda dump: None, version))
    yield dumped("dumps_idle_old", "All operations of a dump of version 1 are over.", lambda: in_default(6, lambda dump: None), FINE_OR_UNKNOWN, old=True)
    yield dumped("dumps_retired", "Without timing, states stay behind: but all is retired.",
                 lambda: in_default(4, lambda dump: dump.many(6, state="scheduled", retired=True)))
    yield dumped("dumps_grid_idle", "Groups of groups, all over.", lambda: grids(4, 4, lambda dump, t, d: None))
    yield dumped("dumps_later", "Rank 2 was dumped two operations earlier: it took part in them since.",
                 lambda: in_default(5, lambda dump: dump.rank == 2 or dump.many(2)), FINE_OR_UNKNOWN)
    yield dumped("dumps_ring", "Transfers in a ring, over.", lambda: in_default(4, ring))
    for count, ranks in ((2, (1,)), (9, (4,)), (32, (7, 20))):
        yield dumped(f"dumps_absent_of_{count}", f"Rank {ranks} never came to the last all-reduce.", lambda count=count, ranks=ranks: in_default(
            count, absent(*ranks)), FINDS, hang(*ranks))
    yield dumped("dumps_absent_json", "The same as JSON.", lambda: in_default(6, absent(3)), FINDS, hang(3), form="json")
    yield dumped("dumps_absent_old", "The same of version 1.", lambda: in_default(6, absent(5)), FINDS, hang(5), old=True)
    yield dumped("dumps_absent_in_group", "Rank 6 is missing in its tensor group; others wait further behind.", lambda: grids(4, 3, in_group), FINDS, hang(6))
    yield dumped("dumps_other_call", "Rank 1 gathers where the others reduce.", lambda: in_default(
        4, lambda dump: dump.add("_all_gather_base" if dump.rank == 1 else "all_reduce", state="started")), FINDS, hang(1))
    yield dumped("dumps_other_size", "Rank 0 reduces more elements than the others.", lambda: in_default(
        4, lambda dump: dump.add("all_reduce", state="started", elements=8192 if dump.rank == 0 else 4096)), FINDS, hang(0))
    yield dumped("dumps_stuck_device", "Rank 2 has not completed what its peers have.", lambda: in_default(4, stuck), FINDS, hang(2))
    yield dumped("dumps_one_missing", "Ranks wait, and rank 3 of five left no dump.", lambda: in_default(5, absent(3))[:3] + in_default(5, absent(3))[4:],
                 FINDS, hang(3))


def ring(dump):
    for _ in range(5):
        dump.add(f"send {dump.rank}->{(dump.rank + 1) % 4}", is_transfer=True).add(f"recv {dump.rank}<-{(dump.rank - 1) % 4}", is_transfer=True)


def in_group(dump, tensor, data):
    if dump.rank == 6:
        return
    dump.add("all_gather", tensor, state="started" if dump.rank // 4 == 1 else "completed")
    if dump.rank // 4 != 1:
        dump.add("reduce_scatter", data, state="started")


def stuck(dump):
    dump.add("all_reduce", state="started" if dump.rank == 2 else "completed", at_ms=900)
    dump.add("all_reduce", state="scheduled" if dump.rank == 2 else "started", at_ms=950)


def compared(name, why, before, after, statuses, findings=(), never=(), says=()):
    def make(folder):
        for side, options in (("before", before), ("after", after)):
            write(folder, side + ".json", profile_model.profile(train(**{"steps": 30, "seed": 1 if side == "before" else 2, **options})[0]))
    return Scenario(name, "comparisons", why, (), make=make, statuses=statuses, findings=findings, never=never, says=says,
                    ask=("diff", "--json", "{folder}/before.json", "{folder}/after.json"))


def of_pairs():
    slower, faster = (lambda name: (May("slower", (), name),)), (lambda name: (May("faster", (), name),))
    yield compared("diff_same_job", "Two runs of one program.", {}, {}, FINE)
    yield compared("diff_attention", "Attention takes 1.5 times as long.", {}, {"slower": {"attention": 1.5}}, FINDS, slower("flash"))
    yield compared("diff_faster", "The product takes two thirds of its time.", {}, {"slower": {CUDA.gemm: 0.66}}, FINDS, faster("gemm|aten::mm"))
    yield compared("diff_batch", "Twice the batch: twice the work in each kernel.", {}, {"batch": 16}, FINDS, says=("batch or shape changed",),
                   findings=(May("larger", ()),))
    yield compared("diff_batch_and_gelu", "Twice the batch, and gelu takes 1.6 times as long besides.", {}, {"batch": 16, "slower": {"GeluCUDA": 1.6}}, FINDS,
                   (May("larger, slower", (), "Gelu"), May("larger", ())), says=("batch or shape changed",))
    yield compared("diff_layers", "Six layers in place of four: more calls, each as fast.", {"layers": 4}, {"layers": 6}, FINDS, (May("more calls", ()),))
    yield compared("diff_renamed", "Another build gives the product another name, and the same time.", {}, {"gemm": "sm80_xmma_gemm_f16f16_128x64"},
                   FINE | FINDS, (May("new", ()), May("removed", ())))
    yield compared("diff_loader", "The loader takes 4 ms more a step.", {}, {"loader_us": 4_200}, FINDS, slower("DataLoader"))


SCENARIOS = [*of_one_rank(), *of_ranks(), *damaged(), *of_dumps(), *of_pairs()]
