# SPDX-License-Identifier: Apache-2.0
"""More than one thing at once: two faults, a fault beside a figure that only alarms, hangs whose first symptom is not their cause."""
from files.dumps import Operation, Player, all_gather, all_reduce, batch, dumps, mesh, mesh_program, same, transfer, world
from files.hangs import ALL_ARRIVED, hang, rounds
from files.kineto import profiles, with_runs
from files.timeline import NO_WORKERS, WORKERS, Job, Model, train
from scenario import FINE, FINE_OR_UNKNOWN, FOUND, May, Scenario

GROUP, SURE, SMALL, EVERYONE = "mixtures", frozenset({FOUND}), Model(layers=1), tuple(range(4))
INPUT = May("common_input", EVERYONE)


def late(*ranks):
    return May("slow_worker|gpu_starved|asymmetry", ranks)


def profiles_of_two_faults():
    yield Scenario("mixed_loader_and_kernel", GROUP, "Rank 1's loader takes 8 ms more, and on rank 3 attention takes twice as long (1.4 ms).",
                   statuses=SURE,
                   findings=(late(1), May("slow_kernel", (3,), detail="flash")), make=profiles(5, 601, model=SMALL, loader_of={1: 8250.0},
                                                                          slow={(3, "attention_backward"): 2.0}))
    yield Scenario("mixed_input_and_clock", GROUP, "All wait 9 ms for input, and rank 2 is clocked lower: both are true.", statuses=SURE,
                   findings=(INPUT, May("gpu_starved", EVERYONE), May("slow_kernel|slow_worker", (2,))), says=("common_input", "slow_kernel"),
        make=profiles(4, 602, model=SMALL, loader_us=9000.0, loader=NO_WORKERS, slow={2: 1.3}))
    yield Scenario("mixed_network_and_loader", GROUP, "Reductions take 60 % of each step for all, and rank 0's loader takes 9 ms more.",
                   statuses=SURE, findings=(late(0),),
                   make=profiles(4, 603, model=SMALL, reduce_us=15_000.0, loader_of={0: 9250.0}))
    yield Scenario("mixed_turns", GROUP, "Each step another rank of four has 12 ms of its own to do: all are late in turn, none is slow.",
                   statuses=FINE_OR_UNKNOWN,
                   findings=(May("moving_imbalance", ()), May("gpu_starved", EVERYONE, detail="function")),
                   make=profiles(4, 604, run=lambda ranks: [train(ranks, Job(steps=1, first_step=step, host={step % 4: ("evaluate", 12_000.0)}),
                                                                  SMALL)
                                                                             for step in range(24)]))
    yield Scenario("mixed_warm_up", GROUP, "The first two steps take 20 times as long, on all ranks, in compile_graph: then all is well.",
                   statuses=FINE_OR_UNKNOWN,
                   make=profiles(4, 605, model=SMALL, steps=16, once=((0, 1), "compile_graph", 180_000.0, None)), says=("compile_graph",))
    yield Scenario("mixed_slow_half_of_the_time", GROUP, "Rank 2's loader is slow by 9 ms in the first half only.", statuses=FINE_OR_UNKNOWN,
                   findings=(late(2),),
                   make=profiles(4, 606, run=with_runs(lambda ranks: train(ranks, Job(steps=10, loader_of={2: 9250.0}), SMALL),
                              lambda ranks: train(ranks, Job(steps=10, first_step=12), SMALL))))
    yield Scenario("mixed_moe_hot_expert", GROUP,
                   "An all-to-all in each step; rank 2's products take 1.5 times as long, as its expert has more tokens, at equal grids.",
                   statuses=SURE,
                   findings=(May("slow_kernel|slow_worker", (2,)),),
                   make=profiles(4, 607, exchange_us=1200.0, slow={(2, "product"): 1.5}, model=SMALL))
    yield Scenario("mixed_evaluation_of_rank_0", GROUP, "Rank 0 alone evaluates for 200 ms behind the last step: nobody waits for it any more.",
                   statuses=FINE_OR_UNKNOWN,
                   make=profiles(4, 608, run=with_runs(lambda ranks: train(ranks, Job(), SMALL), lambda ranks: ranks[0].busy("evaluate", 200_000.0))),
                   says=("evaluate",))
    yield Scenario("mixed_loader_hidden_on_all_but_one", GROUP,
                   "The loader takes 5 ms beside queued work everywhere; rank 1's takes 14 ms, more than is queued.", statuses=SURE,
                   findings=(late(1),), make=profiles(4, 609, loader_us=5000.0, loader_of={1: 30_000.0}, wait_every=99, steps=16, loader=WORKERS))


def ranks_that_differ_by_design():
    work = May("slow_worker|uneven_work|stage_imbalance|asymmetry", (3,))
    yield Scenario("mixed_a_layer_more", GROUP, "Rank 3 of 4 has three layers where its peers have two: more calls, and none takes longer.",
                   statuses=frozenset({0, FOUND, 11}), make=profiles(4, 611, models={3: Model(layers=3)}), findings=(work,),
                   never=("its device is slower", '"slow_kernel"'))
    yield Scenario("mixed_shorter_sequences", GROUP, "Rank 3 of 4 has half the sequence length: the others have more work, and no slower devices.",
                   statuses=frozenset({0, FOUND, 11}), make=profiles(4, 612, models={3: Model(sequence=1024)}),
                   findings=(May("slow_worker|uneven_work|asymmetry", (0, 1, 2)),), never=("its device is slower", '"slow_kernel"'))
    yield Scenario("mixed_wider_on_two_of_6", GROUP,
                   "Ranks 4 and 5 hold a model of 1.25 times the width, as shapes and grids say: neither waits for the other.",
                   statuses=frozenset({0, FOUND, 11}),
                   make=profiles(6, 613, model=SMALL, models={rank: Model(layers=1, width=5120, heads=40) for rank in (4, 5)}),
                   findings=(May("slow_worker|uneven_work", (4, 5)), May("slow_worker|uneven_work", (4,)), May("slow_worker|uneven_work", (5,))),
                   never=("its device is slower", '"slow_kernel"', r'(?s)"victims": \[[^\]]*\b[45]\b'))
    lengths = (2048, 1024, 3072, 1536)
    yield Scenario("mixed_lengths_by_step", GROUP, "All ranks have sequences of the same length in a step, another one in the next.",
                   statuses=FINE_OR_UNKNOWN, make=profiles(
        4, 614, run=lambda ranks: [train(ranks, Job(steps=1, first_step=step), Model(layers=1, sequence=lengths[step % 4])) for step in range(20)]))
    yield Scenario("mixed_lengths_by_rank_and_step", GROUP,
                   "Each rank has the same lengths over four steps, in another order: they wait for each other in turn.",
                   statuses=FINE_OR_UNKNOWN, findings=(May("moving_imbalance", ()),), never=('"slow_kernel"',),
                   make=profiles(4, 615, run=lambda ranks: [train(
                       ranks, Job(steps=1, first_step=step), SMALL, {rank: Model(layers=1, sequence=lengths[(step + rank) % 4]) for rank in range(4)})
                       for step in range(20)]))


def hangs_with_a_further_symptom():
    step = [all_gather(8), all_reduce()]
    early = {rank: rounds(10, *step)[:13 if rank == 6 else 20] for rank in range(8)}
    yield Scenario("mixed_ended_early", GROUP, "Rank 6 has run out of batches and ended its program in good order; the others wait for it.",
                   statuses=SURE, findings=(hang(6),),
                   make=dumps(Player(early, world(8))))
    typed = {rank: [*rounds(6, *step), all_reduce(dtype="Float" if rank == 3 else "BFloat16")] for rank in range(8)}
    yield Scenario("mixed_types", GROUP,
                   "In the pending reduction of equal sizes rank 3's elements are of another type: that may be said, nobody else blamed.",
                   statuses=frozenset({0, FOUND, 11}), findings=(hang(3, verdict="mismatched_collective"), ALL_ARRIVED),
                   make=dumps(Player(typed, world(8), stuck={rank: 12 for rank in range(8)})))
    groups = mesh(2, 2, 4)
    programs = {rank: mesh_program(groups, rank, 3) for rank in range(16)}
    programs[5] = [*programs[5][:4], all_gather(2, programs[5][4].group), *programs[5][5:]]
    yield Scenario("mixed_mesh_other_call", GROUP,
                   "2 x tensor, 2 stages, 4 x data: ranks 4 and 5 are in different calls of one group; 14 others wait for them.",
                   statuses=SURE, findings=tuple(hang(*ranks, verdict="mismatched_collective") for ranks in ((4,), (5,), (4, 5))),
                   make=dumps(Player(programs, groups)))
    sends = {0: [*[all_reduce()] * 5, transfer(0, 1, own=0)], 1: [*[all_reduce()] * 5], 2: [*[all_reduce()] * 5]}
    yield Scenario("mixed_send_to_nobody", GROUP, "Rank 0 sends to rank 1, which never receives; rank 2 has nothing to do with it.", statuses=SURE,
                   findings=(hang(1),),
                   make=dumps(Player(sends, world(3))))
    both = {rank: rounds(6, all_reduce()) + [batch([(rank, rank ^ 1), (rank ^ 1, rank)])] * 3 for rank in range(6)}
    yield Scenario("mixed_pair_of_6", GROUP, "Pairs exchange; rank 3 stops, so only rank 2 waits: the other pairs are over.", statuses=SURE,
                   findings=(hang(3),),
                   make=dumps(Player(both, world(6), stops={3: 7})))
    yield Scenario("mixed_stuck_and_missing", GROUP, "Rank 2's device stands still in the 9th operation; rank 5 never hands over the 10th.",
                   statuses=SURE,
                   findings=(hang(2, verdict="stuck_device"), hang(2, 5), hang(5)),
                   make=dumps(same(6, [all_reduce()] * 14, stuck={2: 8}, stops={5: 9}), ahead=1))
    split = Operation("broadcast", "0", ((4096,),), ((4096,),))
    yield Scenario("mixed_broadcast_missing", GROUP, "A broadcast of rank 0, which completed on the sender; rank 4 never came.", statuses=SURE,
                   findings=(hang(4),),
                   make=dumps(same(5, [all_reduce()] * 4 + [split, all_reduce()], stops={4: 4})))
    yield Scenario("mixed_over_with_unequal_numbers", GROUP, "All is over; a group of two did more operations than the world.", statuses=FINE,
                   make=dumps(Player(
        {rank: rounds(4, all_reduce(), *([all_reduce("1")] * 5 if rank < 2 else [])) for rank in range(4)}, {**world(4), "1": ("pair", (0, 1))})))


SCENARIOS = [*profiles_of_two_faults(), *ranks_that_differ_by_design(), *hangs_with_a_further_symptom()]
