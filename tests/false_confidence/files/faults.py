# SPDX-License-Identifier: Apache-2.0
"""Profiles of jobs with a fault of one rank or of all, of jobs whose cause no event tells, and of jobs with an alarming figure and no fault."""
from files.kineto import profiles, with_runs
from files.timeline import NO_WORKERS, Job, Model, collective, tiny, train
from scenario import FINE, FINE_OR_UNKNOWN, FOUND, May, Scenario

SURE = frozenset({FOUND})
REPORT = ("cuda", "report", "--json", "{folder}")
SMALL = Model(layers=1)
UNSEEN = "unknown|function|operator|synchronisation"  # what a device may be said to wait for where the host shows nothing


def slow(*ranks, **more):
    """These ranks' devices hold the others up."""
    return May("slow_worker|slow_kernel", ranks, **more)


def late(*ranks, **more):
    """The hosts of these ranks hold the others up; no kernel takes longer."""
    return May("slow_worker|asymmetry|gpu_starved", ranks, **more)


def of_one_rank():
    group = "one rank"
    yield Scenario("profile_slow_attention_of_3", group, "One kernel of rank 1 takes 1.6 times as long.", statuses=SURE,
                   make=profiles(3, 41, slow={(1, "attention_backward"): 1.6}), findings=(May("slow_kernel", (1,), detail="flash_bwd"),))
    yield Scenario("profile_clocked_lower_of_16", group, "All kernels of rank 9 take 1.2 times as long, and so do products of each size.",
                   statuses=SURE,
                   make=profiles(16, 42, slow={9: 1.2}, model=SMALL), findings=(May("slow_kernel", (9,), detail="clocked_lower"),))
    yield Scenario("profile_clocked_lower_of_5_two_sizes", group,
                   "All kernels of rank 0 take 1.3 times as long; one kernel does products of two sizes.",
                   statuses=SURE, make=profiles(5, 43, slow={0: 1.3}), findings=(May("slow_kernel", (0,), detail="clocked_lower"),))
    yield Scenario("profile_slow_loader_of_2", group, "Rank 0's loader takes 9 ms of each step more, rank 1 waits.", statuses=SURE,
                   make=profiles(2, 44, loader_of={0: 9250.0}, loader=NO_WORKERS), findings=(late(0),))
    yield Scenario("profile_slow_loader_of_8", group, "Rank 7's loader takes 8 ms of each step more.", statuses=SURE, says=("DataLoader",),
                   make=profiles(8, 45, loader_of={7: 8250.0}, name="rank{}.json.gz"), findings=(late(7),))
    yield Scenario("profile_slow_function_of_6", group, "Rank 4 spends 6.5 ms of each step in augment.", statuses=SURE, says=("augment",),
                   make=profiles(6, 46, host={4: ("augment", 6500.0)}), findings=(late(4),))
    yield Scenario("profile_unseen_host_work_of_4", group,
                   "Rank 3 has nothing in its trace for 7 ms of each step: that it is late shows, why does not.", statuses=SURE,
                   make=profiles(4, 47, host={3: ("", 7000.0)}), findings=(late(3),), never=("loads its data|data loader of rank 3",))
    yield Scenario("profile_two_slow_of_8", group, "Ranks 2 and 5 take 1.35 times as long in all kernels.", statuses=SURE,
                   make=profiles(8, 48, slow={2: 1.35, 5: 1.35}, model=SMALL), findings=(slow(2, 5), slow(2), slow(5)))

    def lag(us):
        return lambda rank: setattr(rank, "operator_us", us if rank.rank == 2 else 7.0)
    behind = "Rank 2's host needs 120 us or more an operator where its peers need 7"
    yield Scenario("profile_slow_host_of_4", group, behind + ", so that its device waits for launches.", statuses=SURE,
                   make=profiles(4, 49, prepare=lag(150.0), model=Model(layers=4, batch=2, sequence=512, width=2048, heads=16), reduce_us=60.0),
                   findings=(late(2), May("launch_bound", (2,))))
    yield Scenario("profile_slow_host_of_4_short_kernels", group, behind + "; kernels are so short that the peers lose 6 %, not 90 %, by launches.",
                   statuses=SURE,
                   make=profiles(4, 49, prepare=lag(120.0), model=Model(layers=6, batch=1, sequence=256, width=1024, heads=16), reduce_us=60.0),
                   findings=(late(2), May("launch_bound")), never=(r'(?s)"ranks": \[\s*0,\s*1,\s*2,\s*3\s*\][^}]*"share": 0\.[89]',))
    yield Scenario("profile_longer_batch_of_4", group,
                   "Rank 3 has 6 sequences where its peers have 4: more work, by grids and shapes, on a device like theirs.",
                   make=profiles(4, 50, models={3: Model(batch=6)}), statuses=frozenset({FOUND, 0, 11}),
                   findings=(May("slow_worker|uneven_work", (3,)), May("slow_kernel", (3,), detail="^(?!clocked)")), never=("its device is slower",))
    yield Scenario("profile_one_checkpoint_of_8", group, "Rank 0 saves once, for 400 ms, and all others wait for it: once is no pattern.",
                   make=profiles(8, 51, model=SMALL, once=((7,), "save_checkpoint", 400_000.0, (0,))), statuses=FINE_OR_UNKNOWN, findings=(late(0),),
                   says=("save_checkpoint",))
    yield Scenario("profile_often_saves_of_4", group, "Rank 0 saves for 30 ms in every third step.",
                   make=profiles(4, 52, steps=21, once=(tuple(range(1, 21, 3)), "save_shard", 30_000.0, (0,))), statuses=FINE_OR_UNKNOWN,
                   findings=(late(0),))


def of_all():
    group, everyone = "all ranks", tuple(range(8))
    yield Scenario("profile_slow_network_of_8", group, "Reductions take 4 times as long for all: nobody is to blame, and the network is not seen.",
                   make=profiles(8, 61, reduce_us=4200.0), statuses=FINE_OR_UNKNOWN, says=("communication runs",))
    yield Scenario("profile_healthy_of_16", group, "16 ranks that have the same work.", make=profiles(16, 62, model=SMALL), statuses=FINE)
    yield Scenario("profile_slow_input_of_8", group, "All ranks wait 9 ms of each step for a batch.", statuses=SURE, says=("DataLoader",),
                   make=profiles(8, 63, loader_us=9000.0, loader=NO_WORKERS),
                   findings=(May("common_input", everyone), May("gpu_starved", detail="loader")))
    yield Scenario("profile_input_hidden", group,
                   "The loader takes 5 ms of each step, while the device still has work of the step before: nothing is lost.",
                   make=profiles(1, 64, steps=16, loader_us=5000.0, wait_every=99), statuses=FINE_OR_UNKNOWN)
    yield Scenario("profile_launch_bound", group, "Kernels of 2 us, a call of 11 us and an operator of 52 us each.", statuses=SURE,
                   findings=(May("launch_bound", (0,)),),
                   make=profiles(1, 65, run=lambda ranks: tiny(ranks, 18, 220, 2.0, 38.0, 11.0)))
    yield Scenario("report_launch_bound", group, "The same, of the devices' report.", statuses=SURE, findings=(May("launch_bound", (0,)),),
                   ask=REPORT,
                   make=profiles(1, 66, run=lambda ranks: tiny(ranks, 24, 160, 4.0, 60.0, 9.0)))

    def pageable(ranks):
        for rank in ranks:
            for step in range(14):
                begin = rank.now
                rank.copy("HtoD (Pageable -> Device)", 40_000_000, 4.0, blocking=True)
                for _ in range(14):
                    rank.launch("aten::mm", "product", *rank.model.product(8192, 4096, 4096), dims=([8192, 4096], [4096, 4096]))
                rank.read_loss()
                rank.end_step(step, begin)
    yield Scenario("profile_pageable_copies", group, "10 of 18 ms are copies from pageable memory with nothing beside them.", statuses=SURE,
                   make=profiles(1, 67, run=pageable), findings=(May("copy_bound", (0,), detail="pageable|blocking"),))

    def reading(ranks):
        for rank in ranks:
            for step in range(10):
                begin = rank.now
                for _ in range(30):
                    rank.launch("aten::mm", "product", 260.0, dims=([2048, 4096], [4096, 4096]))
                    rank.read_loss()
                    rank.now += 190.0
                rank.end_step(step, begin)
    yield Scenario("profile_reads_each_value", group,
                   "The program reads a value behind each product and then computes: the device is idle nearly half the time.",
                   make=profiles(1, 68, run=reading), statuses=SURE, findings=(May("gpu_starved", (0,), detail=UNSEEN),))


def unseen():
    group, alone = "unseen causes", "One rank's profile of a job: why its peers let it wait is not in it."
    nothing = "For most of each step the host shows nothing at all: the device waits, nobody knows for what."
    yield Scenario("profile_nothing_on_the_host", group, nothing, make=profiles(1, 71, steps=9, host={0: ("", 26_000.0)}), statuses=SURE,
                   findings=(May("gpu_starved", (0,), detail=UNSEEN),), never=("launch_bound", "common_input"))
    yield Scenario("report_nothing_on_the_host", group, nothing, make=profiles(1, 72, steps=15, host={0: ("", 11_000.0)}), statuses=SURE, ask=REPORT,
                   findings=(May("gpu_starved", (0,), detail=UNSEEN),))
    yield Scenario("profile_rank_3_of_16_waits", group, alone, make=profiles(16, 73, only={3}, reduce_us=9000.0, model=SMALL),
                   statuses=FINE_OR_UNKNOWN,
                   says=("communication runs",))
    yield Scenario("profile_victim_alone", group, "Rank 1 of 4 waits for rank 2, whose file is not there.", statuses=FINE_OR_UNKNOWN,
                   make=profiles(4, 74, only={1}, host={2: ("augment", 15_000.0)}), never=("augment",))

    def on_processors(loader_us):
        def run(ranks):
            for rank in ranks:
                for step in range(14):
                    begin = rank.now
                    rank.busy(NO_WORKERS, loader_us)
                    for name in ("aten::addmm", "aten::relu", "aten::mm", "aten::threshold_backward") * 6:
                        rank.add("operator", name, rank.now, 900.0, rank.thread, external=step, dims=([256, 1024], [1024, 1024]))
                        rank.now += 912.0
                    rank.end_step(step, begin)
        return run
    no_devices = ("gpu_starved", "launch_bound", "device is idle")
    yield Scenario("profile_of_processors", group, "Trained on processors: no device is idle, as there is none.",
                   make=profiles(1, 75, run=on_processors(180.0)),
                   statuses=FINE_OR_UNKNOWN, never=no_devices)
    yield Scenario("profile_of_processors_slow_input", group, "The same, with half of each step in the loader.",
                   make=profiles(1, 76, run=on_processors(22_000.0)),
                   statuses=frozenset({FOUND, 11}), findings=(May("common_input", (0,)),), never=no_devices[:2])

    def devices_alone(made, _rank):
        made["traceEvents"] = [one for one in made["traceEvents"] if one.get("cat") not in ("cuda_runtime", "cpu_op", "user_annotation")]
    yield Scenario("profile_of_devices_alone", group, "Kernels without host events, 60 % idle: that is seen, the cause is not.",
                   statuses=FINE_OR_UNKNOWN,
                   make=profiles(1, 77, host={0: ("", 26_000.0)}, edit=devices_alone), findings=(May("gpu_starved", (0,), detail="unknown"),))
    yield Scenario("profile_three_steps", group, "Three steps, 40 % of them in the loader: too few to be sure of, and true.",
                   statuses=FINE_OR_UNKNOWN,
                   make=profiles(1, 78, steps=3, loader_us=12_000.0, loader=NO_WORKERS),
                   findings=(May("common_input", (0,)), May("gpu_starved", (0,), detail="loader")))

    def one_kernel(ranks):
        ranks[0].launch("aten::mm", "product", 900.0)
        ranks[0].now += 700_000.0
        ranks[0].launch("aten::mm", "product", 900.0)
    yield Scenario("profile_two_kernels", group, "Two kernels in 0.7 s: nothing repeats, so nothing is a pattern.",
                   make=profiles(1, 79, run=one_kernel), statuses=FINE_OR_UNKNOWN)


def silence():
    group = "alarming figures"
    for share, us, steps in ((40, 11_500.0, 12), (60, 26_000.0, 10), (80, 69_000.0, 9), (95, 330_000.0, 8)):
        why = f"The device is idle for {share} % of each step, while the host tokenizes."
        found = May("gpu_starved|slow_worker", (0,))
        job = {"host": {0: ("tokenize", us)}, "steps": steps}
        yield Scenario(f"profile_idle_{share}", group, why, make=profiles(1, 80 + share, **job), statuses=SURE, findings=(found,), says=("tokenize",))
        yield Scenario(f"report_idle_{share}", group, why, make=profiles(1, 81 + share, **job), statuses=SURE, findings=(found,), says=("tokenize",),
                       ask=REPORT)

    def before(ranks):
        for rank in ranks:
            rank.busy("torch_compile", 1_300_000.0)

    def behind(ranks):
        for rank in ranks:
            rank.busy("save_model", 900_000.0)
    for name, runs, word in (("before", (before, train), "torch_compile"), ("behind", (train, behind), "save_model")):
        for world in (1, 4):
            yield Scenario(f"profile_gap_{name}_of_{world}", group,
                           "A long time without device work outside of the steps: no fault of them, and not to be kept silent.",
                           make=profiles(world, 201 + world, run=with_runs(*runs)), statuses=FINE_OR_UNKNOWN, says=(word,))
    yield Scenario("profile_gap_in_the_middle", group, "One validation on the host for 0.7 s between healthy steps: told, and no pattern.",
                   says=("validate",),
                   make=profiles(1, 205, steps=16, once=((9,), "validate", 700_000.0, None)), statuses=FINE_OR_UNKNOWN)
    yield Scenario("profile_gap_in_the_middle_of_6", group, "The same on six ranks at once: nobody is late.", says=("validate",),
                   make=profiles(6, 206, steps=16, model=SMALL, once=((4,), "validate", 500_000.0, None)), statuses=FINE_OR_UNKNOWN)
    for share, us, ranks in ((30, 4300.0, 4), (55, 11_000.0, 2), (80, 36_000.0, 4)):
        yield Scenario(f"profile_exposed_{share}", group, f"Reductions with nothing beside them take {share} % of each step, on all ranks alike.",
                       make=profiles(ranks, 300 + share, reduce_us=us), statuses=FINE_OR_UNKNOWN, says=("communication runs",))
    yield Scenario("profile_exchange", group, "An all-to-all in the middle of each step, a third of it: experts do that.",
                   says=("communication runs",),
                   make=profiles(4, 307, exchange_us=9000.0), statuses=FINE_OR_UNKNOWN)

    def graphs(pause_us):
        def run(ranks):
            for rank in ranks:
                for step in range(120):
                    begin = rank.now
                    rank.graph(("norm", "product", "attention", "activation") * 4, 130.0)
                    rank.wait()
                    rank.busy("sample_token" if pause_us > 1000 else "", pause_us)
                    rank.end_step(step, begin)
        return run
    yield Scenario("profile_graphs", group, "A graph a token and 60 us to choose it: 3 % idle.", make=profiles(1, 308, run=graphs(60.0)),
                   statuses=FINE)
    yield Scenario("profile_graphs_half_idle", group, "A graph a token, and 2 ms on the host to choose it.",
                   make=profiles(1, 309, run=graphs(2000.0)),
                   statuses=SURE, findings=(May("gpu_starved", (0,)),), says=("sample_token",), never=("launch_bound",))
    yield Scenario("profile_waits_for_nobody", group, "A job of one that calls a barrier a step: no peer, no blame.", statuses=FINE_OR_UNKNOWN,
                   make=profiles(1, 310, run=lambda ranks: [(train(ranks, Job(steps=1, first_step=step)), collective(ranks, "all_reduce", 20.0, 1))
                                                            for step in range(12)]))


SCENARIOS = [*of_one_rank(), *of_all(), *unseen(), *silence()]
