# SPDX-License-Identifier: Apache-2.0
"""Profiles of other versions, with members that are missing; of other vendors' devices; of several processes, windows and hosts."""
import json
import os
from dataclasses import replace

from files.dumps import all_reduce, dumps, same
from files.kineto import each, events, new_ranks, profiles, recategorised, save, trace, without_args
from files.nsight import Export
from files.timeline import CUDA, HIP, NO_WORKERS, XPU, Job, Model, tiny, train
from scenario import FINE, FINE_OR_UNKNOWN, FOUND, May, Scenario

SURE, REFUSED, UNSURE, FOUND_OR_REFUSED = frozenset({FOUND}), frozenset({2}), frozenset({0, 2, 11}), frozenset({FOUND, 2, 11})
REPORT = ("cuda", "report", "--json", "{folder}")
SMALL = Model(layers=1)
INPUT = (May("common_input"), May("gpu_starved", detail="loader"))
SLOW_INPUT = {"loader_us": 15_000.0, "loader": NO_WORKERS}
IDLE_AS_A_FACT = (r'"kind": "(gpu_starved|launch_bound|common_input)"', r"device is idle for (100|9\d) %")


def slow_kernel(*ranks):
    return May("slow_kernel", ranks)


def graphs(pause_us):
    """A graph a token; a long pause behind it is in a function."""
    def run(ranks):
        for step in range(60):
            begin = ranks[0].now
            ranks[0].graph(("norm", "product", "attention", "product", "activation"), 420.0)
            ranks[0].wait()
            ranks[0].busy("detokenize" if pause_us > 500 else "", pause_us)
            ranks[0].end_step(step, begin)
    return run


def fields():
    group, unlinked = "missing fields", without_args("correlation")
    yield Scenario("profile_without_shapes", group, "No shapes; rank 1's loader takes 10 ms of each step more.", statuses=SURE,
                   findings=(May("asymmetry", (1,)),),
                   make=profiles(2, 401, loader_of={1: 10_250.0}, edit=without_args("Input Dims", "Input type")))
    yield Scenario("profile_unlinked_and_launch_bound", group, "Nothing links operations to calls: 90 % idle is seen, launches as the cause are not.",
                   findings=(May("gpu_starved", (0,), detail="unknown|function|operator"), May("launch_bound", (0,))), statuses=FINE_OR_UNKNOWN,
        make=profiles(1, 402, run=lambda ranks: tiny(ranks, 20), edit=unlinked), says=("idle",))
    yield Scenario("report_unlinked", group, "The same job in the devices' report: what needs correlation numbers is unknown, not 0.",
                   statuses=FINE_OR_UNKNOWN, ask=REPORT,
                   findings=(May("gpu_starved", (0,), detail="unknown|function|operator"),),
                   make=profiles(1, 403, run=lambda ranks: tiny(ranks, 20), edit=unlinked),
                   never=(r'"short_kernel_count": 0',))
    yield Scenario("profile_without_external_ids", group, "Nothing links calls to operators; healthy.",
                   make=profiles(1, 404, edit=without_args("External id")), statuses=FINE)
    yield Scenario("profile_without_arguments", group, "Device events have no arguments but their stream and device; healthy.",
                   statuses=FINE_OR_UNKNOWN,
                   make=profiles(3, 405, edit=without_args("grid", "block", "External id", "queued", "context", "registers per thread",
                                                           "shared memory", "bytes",
                                  "Collective name")))

    def no_base(made, rank):
        if rank == 1:
            del made["baseTimeNanoseconds"], made["deviceProperties"]
    yield Scenario("profile_without_base_time", group, "Rank 1's file does not say since when it counts; rank 1 is clocked lower.", statuses=SURE,
                   findings=(slow_kernel(1),),
                   make=profiles(4, 406, edit=no_base, slow={1: 1.3}, model=SMALL))

    def old_threads(made, _rank):
        for one in made["traceEvents"]:
            if one.get("cat") in ("kernel", "gpu_memcpy"):
                one["tid"], one["args"]["stream"] = f"stream {one['tid']}", str(one["args"]["stream"])
    yield Scenario("profile_streams_as_texts", group, "Streams are texts, as in PyTorch 1.8; healthy.", make=profiles(1, 407, edit=old_threads),
                   statuses=FINE_OR_UNKNOWN)

    def whole(made, _rank):
        for one in made["traceEvents"]:
            for key in ("ts", "dur") if "dur" in one else ():
                one[key] = int(one[key])
    yield Scenario("profile_whole_microseconds", group,
                   "Times are cut to whole microseconds, as in PyTorch 1.8 to 2.2; half of each step is in decode_images.", statuses=SURE,
                   make=profiles(1, 408, steps=40, model=SMALL, host={0: ("decode_images", 8000.0)}, edit=whole),
                   findings=(May("gpu_starved", (0,), detail="function"),),
                   says=("decode_images",))
    yield Scenario("profile_whole_microseconds_nested", group,
                   "The same with detokenize at the end of each step: cut times let it end a microsecond behind its step. No cause is unknown.",
                   make=profiles(1, 411, run=graphs(2500.0), edit=whole), statuses=SURE, findings=(May("gpu_starved", (0,), detail="function"),),
                   says=("detokenize",))

    def calls_later(made, _rank):
        for one in each(made, "cuda_runtime"):
            one["ts"] += 1.5
    yield Scenario("profile_two_clocks_of_the_host", group,
                   "Calls are timed by CUPTI, ranges by PyTorch, 1.5 us apart, so that a wait ends within the range behind it: no cause is unknown.",
                   make=profiles(1, 412, run=graphs(2500.0), edit=calls_later), statuses=SURE,
                   findings=(May("gpu_starved", (0,), detail="function"),),
                   says=("detokenize",))
    yield Scenario("profile_array_alone", group, "The bare array of events, whose file name says the rank; rank 2 of 3 has a slow loader.",
                   statuses=SURE,
                   make=profiles(3, 409, loader_of={2: 9250.0}, model=SMALL, raw=lambda text,
                                 _rank: json.dumps(json.loads(text)["traceEvents"]).encode()),
                   findings=(May("slow_worker|gpu_starved", (2,)),))
    yield Scenario("profile_rank_in_no_name", group, "Four profiles that name no rank, in files called by words.", statuses=REFUSED,
                   make=lambda folder: [profiles(4, 410, only={rank}, name=f"{word}.json", is_distributed=False)(folder) for rank, word in
                                        enumerate(("ash", "birch", "cedar", "elm"))])


def vendors():
    group = "vendors"
    module = replace(HIP, launch="hipExtModuleLaunchKernel")
    yield Scenario("hip_module_launches_of_2", group, "Kernels of modules alone, on two healthy ranks.", make=profiles(2, 421, of={"vendor": module}),
                   statuses=FINE)
    yield Scenario("hip_slow_norm_of_8", group, "On rank 6 the norm takes 12 times as long.", statuses=SURE, findings=(slow_kernel(6),),
                   make=profiles(8, 422, of={"vendor": HIP}, slow={(6, "norm"): 12.0, (6, "norm_backward"): 12.0}, model=SMALL))
    yield Scenario("hip_slow_input", group, "Half of each step is in the loader, on ROCm with a category of its own.", statuses=SURE, findings=INPUT,
                   make=profiles(4, 423, of={"vendor": replace(HIP, runtime="hip_runtime")}, **SLOW_INPUT))
    yield Scenario("hip_graphs", group, "A hipGraph a token, 3 % idle.", make=profiles(1, 424, of={"vendor": HIP}, run=graphs(50.0)), statuses=FINE)
    yield Scenario("hip_graphs_half_idle", group, "A hipGraph a token, then 2.5 ms in detokenize.",
                   make=profiles(1, 425, of={"vendor": HIP}, run=graphs(2500.0)),
                   statuses=SURE, findings=(May("gpu_starved", (0,), detail="function"),), says=("detokenize",), never=("launch_bound",))
    yield Scenario("xpu_clocked_lower_of_8", group, "Rank 3's kernels take 1.25 times as long, on Intel's devices.", statuses=SURE,
                   findings=(slow_kernel(3),),
                   make=profiles(8, 426, of={"vendor": XPU}, slow={3: 1.25}, model=SMALL))
    yield Scenario("xpu_launch_bound", group, "Kernels of 2 us behind operators of 60 us.", statuses=SURE, findings=(May("launch_bound", (0,)),),
                   make=profiles(1, 427, of={"vendor": XPU}, run=lambda ranks: tiny(ranks, 20, 200, 2.0)))
    driver = replace(CUDA, runtime="cuda_driver", launch="cuLaunchKernelEx")
    yield Scenario("driver_launches", group, "Triton's kernels: launches of the driver's interface; healthy.",
                   make=profiles(1, 428, of={"vendor": driver}), statuses=FINE)
    habana = {"kernel": "hpu_op", "gpu_memcpy": "hpu_op", "cuda_runtime": "hpu_runtime"}
    yield Scenario("hpu_healthy", group, "Categories of Gaudi; the device is busy, and input is ready.",
                   make=profiles(1, 429, edit=recategorised(**habana)), statuses=UNSURE,
                   never=IDLE_AS_A_FACT)
    yield Scenario("hpu_input_beside_work", group, "The loader takes 6 ms while Gaudi still has queued work: nothing is lost.", statuses=UNSURE,
                   never=IDLE_AS_A_FACT,
                   make=profiles(1, 430, loader_us=6000.0, wait_every=99, edit=recategorised(**habana)))
    meta = {"kernel": "mtia_ccp_events", "gpu_memcpy": "mtia_ccp_events", "cuda_runtime": "mtia_runtime"}
    yield Scenario("mtia_slow_input", group, "Half of each step is in the loader, on MTIA.",
                   make=profiles(1, 431, edit=recategorised(**meta), **SLOW_INPUT),
                   statuses=FOUND_OR_REFUSED, findings=INPUT)
    private = replace(CUDA, runtime="privateuse1_runtime", launch="aclrtLaunchKernelWithConfig", copy="aclrtMemcpyAsync",
                      wait="aclrtSynchronizeStream")
    yield Scenario("npu_launch_bound", group, "An NPU behind privateuse1: kernels of 3 us, operators of 70 us.", statuses=SURE,
                   findings=(May("launch_bound", (0,)), May("gpu_starved", (0,), detail="operator|launching|unknown")),
        make=profiles(1, 432, of={"vendor": private}, run=lambda ranks: tiny(ranks, 20, 200, 3.0, 55.0)))
    unknown = replace(CUDA, runtime="acme_rt", launch="acmeSubmit", copy="acmeMove", wait="acmeFence", kernel="acme_task", memcpy="acme_task")
    yield Scenario("unknown_vendor_slow_of_4", group,
                   "Categories and calls that nobody knows, with devices, streams and correlations: rank 0 is clocked lower.",
                   make=profiles(4, 433, of={"vendor": unknown}, slow={0: 1.4}, model=SMALL), statuses=FOUND_OR_REFUSED | {0},
                   findings=(slow_kernel(0), May("slow_worker", (0,))), never=IDLE_AS_A_FACT)

    def ascend(made, _rank):
        """As torch_npu's trace_view.json has it: no categories; what runs on the device tells its stream as an argument."""
        for one in made["traceEvents"]:
            category = one.pop("cat", "")
            if category in ("kernel", "gpu_memcpy"):
                one["args"] = {"Model Id": 4294967295, "Task Type": "AI_CORE", "Stream Id": one["tid"], "Task Id": one["args"]["correlation"]}
            for key in ("ts", "dur"):
                if key in one:
                    one[key] = str(one[key])
    yield Scenario("ascend_trace_view", group, "Ascend's own profiler: no categories, times as texts; the device is busy.",
                   make=profiles(1, 434, edit=ascend), statuses=UNSURE,
                   never=IDLE_AS_A_FACT)


def exported(world, seed, files=1, **options):
    """Gives what writes Nsight exports: all ranks in one file, or a file a rank."""
    def make(folder):
        ranks = new_ranks(world, seed, **options.get("of", {}))
        train(ranks, Job(**{name: value for name, value in options.items() if name not in ("of", "model")}), options.get("model", Model()))
        if files == 1:
            Export(os.path.join(folder, "job.sqlite"), ranks)
        for rank in ranks if files > 1 else ():
            Export(os.path.join(folder, f"report_rank{rank.rank}.sqlite"), [rank])
    return make


def identity():
    group, apart = "identity", "Processes of one export are programs of their own."
    yield Scenario("nsight_5_processes", group, apart + " All five are healthy.", make=exported(5, 441, model=SMALL), statuses=FINE_OR_UNKNOWN)
    yield Scenario("nsight_8_processes_one_slow", group, apart + " One is clocked lower; nobody compares them, and its device is busy.",
                   make=exported(8, 442, model=SMALL, slow={5: 1.3}), statuses=FINE_OR_UNKNOWN)
    yield Scenario("nsight_4_files_one_slow", group, "A file a rank; rank 1 is clocked lower.", make=exported(4, 443, 4, slow={1: 1.3}, model=SMALL),
                   statuses=SURE,
                   findings=(slow_kernel(1),))
    yield Scenario("nsight_slow_function", group, "One process, 60 % of each step in parse_rows (a range), the device waits.",
                   make=exported(1, 444, host={0: ("parse_rows", 25_000.0)}),
                   statuses=SURE, findings=(May("gpu_starved", (0,)),), says=("parse_rows",))

    def windows(folder):
        for at, (stamp, job) in enumerate((("1729000000111", {}), ("1729000360222", SLOW_INPUT), ("1729000720333", {}))):
            profiles(2, 445 + at, name="worker{}." + stamp + ".pt.trace.json.gz", steps=10, first_step=10 * at, **job)(folder)
    yield Scenario("windows_newest_is_healthy", group,
                   "Three windows of two workers; only the middle one waited for input, and the newest is asked for.", make=windows, statuses=FINE)
    yield Scenario("windows_middle_is_slow", group, "The middle one of three windows, by name.", make=windows, statuses=SURE, findings=INPUT,
                   ask=("diagnose", "--json", "--window", "2", "{folder}"))
    yield Scenario("windows_no_fourth", group, "There is no fourth window.", make=windows, statuses=REFUSED,
                   ask=("diagnose", "--json", "--window", "4", "{folder}"))
    yield Scenario("containers_of_4", group, "Each rank is process 1 with device 0 in its own container; rank 3's loader takes 9 ms more.",
                   statuses=SURE,
                   make=profiles(4, 448, of={"pid": 1, "device": 0}, loader_of={3: 9250.0}, model=SMALL),
                   findings=(May("slow_worker|gpu_starved", (3,)),))

    def merged(folder):
        ranks = train(new_ranks(3, 449, pid=7, device=0), Job(), SMALL)
        save(os.path.join(folder, "merged.json"), trace(ranks[0], False) | {"traceEvents": [one for rank in ranks for one in events(rank)]})
    yield Scenario("merged_of_3_alike", group, "Three containers' events in one file, all of process 7: nobody can tell them apart.", make=merged,
                   statuses=UNSURE)

    def mixed(folder):
        for rank, name in enumerate(("rank-0.json", "rank-1.json.gz", "rank-2.pt.trace.json", "rank-3.pt.trace.json.gz")):
            profiles(4, 450, only={rank}, name=name, slow={1: 1.3}, model=SMALL)(folder)
        for name, text in (("README.md", "# runs\n"), ("nccl.log", "NCCL INFO\n"), ("empty.txt", ""), ("notes.csv", "a,b\n1,2\n")):
            save(os.path.join(folder, name), text)
    yield Scenario("plain_and_gzip_and_others", group, "Profiles in both forms beside files of other kinds; rank 1 is clocked lower.", make=mixed,
                   statuses=SURE,
                   findings=(slow_kernel(1),))

    def claims(made, rank):
        made["distributedInfo"]["rank"] = min(rank, 2)
    yield Scenario("two_that_claim_rank_2", group, "rank-3.json says inside that it is rank 2, and so does rank-2.json.",
                   make=profiles(4, 451, edit=claims, name="rank-{}.json"),
                   statuses=REFUSED, says=("rank-3",))
    yield Scenario("both_forms_of_a_rank", group, "rank-0 is there plain and as gzip: the same rank twice.", statuses=REFUSED | FINE_OR_UNKNOWN,
                   make=lambda folder: [profiles(2, 452, name=name)(folder) for name in ("rank-{}.json", "rank-{}.json.gz")])
    yield Scenario("dumps_beside_profiles", group, "Healthy profiles and dumps of a hang in one folder: two kinds, and one of them tells.",
                   statuses=UNSURE,
                   make=lambda folder: [profiles(2, 453)(folder), dumps(same(2, [all_reduce()] * 9, stops={1: 8}))(folder)],
                   findings=(May("hang", (1,)),),
                   says=("left out|other kind|rank-0|nccl_trace",))


SCENARIOS = [*fields(), *vendors(), *identity()]
