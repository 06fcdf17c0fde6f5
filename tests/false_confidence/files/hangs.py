# SPDX-License-Identifier: Apache-2.0
"""Flight Recorder dumps: jobs that hang, healthy ones whose dumps look odd, versions and members that are missing."""
from files.dumps import (Operation, Player, all_gather, all_reduce, batch, dumps, mesh, mesh_program, of_version_1, reduce_scatter, same, transfer,
                         without,
                         world)
from scenario import FINE, FOUND, NO_JOB, May, Scenario

SURE, REFUSED, UNSURE = frozenset({FOUND}), frozenset({2}), frozenset({0, 2, 11})
FOUND_OR_REFUSED = frozenset({FOUND, 2, 11})
ALL_ARRIVED = May("hang", ())  # every rank is in the operation; nobody is blamed


def hang(*ranks, verdict=""):
    return May("hang", ranks, detail=verdict)


def rounds(count, *operations):
    return list(operations) * count


def ring(ranks, count, **faults):
    """Each sends to the next one and receives from the one before, both at once."""
    return Player({rank: [batch([(rank, (rank + 1) % ranks), ((rank - 1) % ranks, rank)])] * count for rank in range(ranks)}, world(ranks), **faults)


def of_mesh(tensor, pipeline, data, count, **faults):
    groups = mesh(tensor, pipeline, data)
    return Player({rank: mesh_program(groups, rank, count) for rank in range(tensor * pipeline * data)}, groups, **faults)


def stage_of(stages, stage, count):
    """A pipeline without any other communication: it receives, computes and sends."""
    receive, send = transfer(stage - 1, stage, own=stage), transfer(stage, stage + 1, own=stage)
    return rounds(count, *([receive] if stage > 0 else []), *([send] if stage < stages - 1 else []))


def missing():
    group, step = "hangs", [all_gather(16), reduce_scatter(16), all_reduce(elements=4096)]
    yield Scenario("dump_missing_of_16", group, "Rank 11 hands over nothing behind its 24th operation; 15 others wait in the 25th.",
                   make=dumps(same(16, step * 9, stops={11: 24})), statuses=SURE, findings=(hang(11, verdict="missing_rank"),))
    yield Scenario("dump_two_missing_of_12", group, "Ranks 3 and 7 hand over one operation fewer than the others, who wait for both.",
                   make=dumps(same(12, step * 5, stops={3: 14, 7: 14}), as_json=True, name="rank_{}.json"), statuses=SURE,
                   findings=(hang(3, 7, verdict="missing_rank"),))
    yield Scenario("dump_missing_in_a_mesh_of_32", group,
                   "4 x tensor, 2 stages, 4 x data: rank 22 stands still outside of communication, all others wait at last for it.",
                   make=dumps(of_mesh(4, 2, 4, 3, stops={22: 7})), statuses=SURE, findings=(hang(22, verdict="missing_rank"),))
    yield Scenario("dump_missing_in_a_mesh_of_48", group, "2 x tensor, 6 stages, 4 x data: rank 17 stands still; others are up to five stages away.",
                   make=dumps(of_mesh(2, 6, 4, 2, stops={17: 3}), keep=12), statuses=SURE, findings=(hang(17, verdict="missing_rank"),))
    groups = {**world(8), "1": ("EXPERT_PARALLEL_GROUP", (0, 2, 4, 6)), "2": ("EXPERT_PARALLEL_GROUP", (1, 3, 5, 7))}
    apart = Player({rank: rounds(10, all_reduce("2" if rank % 2 else "1")) for rank in range(8)}, groups, stops={4: 6, 1: 8})
    yield Scenario("dump_two_hangs_at_once", group, "Two groups that never meet: in the one rank 4 is missing, in the other rank 1.",
                   make=dumps(apart), statuses=SURE, findings=(hang(1, 4), hang(1), hang(4)))
    yield Scenario("dump_stage_missing", group,
                   "A pipeline of 6 stages; stage 3 stops between receiving and sending, the others wait for it in turn.",
                   make=dumps(Player({rank: stage_of(6, rank, 7) for rank in range(6)}, world(6), stops={3: 9})), statuses=SURE,
                   findings=(hang(3, verdict="missing_rank"),))
    yield Scenario("dump_ring_missing", group, "A ring of 7 with batches; rank 5 issues no seventh one, its neighbours wait for it.",
                   make=dumps(ring(7, 9, stops={5: 6})), statuses=SURE, findings=(hang(5, verdict="missing_rank"),))
    yield Scenario("dump_ahead_and_missing", group, "The hosts run ahead: three operations lie scheduled behind the one in which rank 0 is missing.",
                   make=dumps(same(4, step * 8, stops={0: 13}), ahead=3), statuses=SURE, findings=(hang(0, verdict="missing_rank"),))
    yield Scenario("dump_not_left_by_one_of_8", group, "Seven wait, and rank 6 left no dump: that is all that is seen of it.",
                   make=dumps(same(8, step * 4, stops={6: 10}), only=set(range(8)) - {6}), statuses=SURE, findings=(hang(6, verdict="dead_process"),),
                   says=(r"left no dump",))


def mismatched():
    group, step = "hangs", [all_gather(8), all_reduce()]
    odd = {rank: [*step * 6, reduce_scatter(8) if rank == 5 else all_reduce(), *step] for rank in range(8)}
    yield Scenario("dump_another_call", group, "Rank 5 of 8 reduces and scatters where all others reduce.", make=dumps(Player(odd, world(8))),
                   statuses=SURE, findings=(hang(5, verdict="mismatched_collective"),))
    odd = {rank: [*step * 6, all_reduce(elements=8191 if rank == 2 else 8192), *step] for rank in range(6)}
    yield Scenario("dump_another_size", group, "Rank 2 of 6 reduces 8,191 elements, the others 8,192.",
                   make=dumps(Player(odd, world(6)), as_json=True),
                   statuses=SURE, findings=(hang(2, verdict="mismatched_collective"),))
    crossed = {**world(2), "1": ("A", (0, 1)), "2": ("B", (0, 1))}
    orders = Player({rank: [*rounds(8, all_reduce("1"), all_reduce("2")),
                            *(all_reduce(name) for name in ("12" if rank == 0 else "21"))] for rank in range(2)},
                    crossed)
    yield Scenario("dump_groups_in_another_order", group,
                   "Rank 0 reduces in group A and then in B, rank 1 in B and then in A: each waits for the other.",
                   make=dumps(orders), statuses=SURE, findings=(hang(0, 1, verdict="deadlock"),))
    circle = {rank: [*[all_reduce()] * 5, transfer((rank - 1) % 5, rank, own=rank), transfer(rank, (rank + 1) % 5, own=rank)] for rank in range(5)}
    yield Scenario("dump_circle_of_receives", group, "Five ranks receive from the one before them before they send: a circle.",
                   make=dumps(Player(circle, world(5))),
                   statuses=SURE, findings=(hang(0, 1, 2, 3, 4, verdict="deadlock"),))


def devices():
    group, step = "hangs", [all_reduce(), all_gather(12)]
    yield Scenario("dump_stuck_device_of_12", group,
                   "11 ranks are behind the 15th operation, rank 9's device is still in it, with more scheduled behind.",
                   make=dumps(same(12, step * 10, stuck={9: 14}), ahead=2), statuses=SURE, findings=(hang(9, verdict="stuck_device"),))
    yield Scenario("dump_stuck_device_in_a_mesh", group,
                   "2 x tensor, 2 stages, 4 x data: the device of rank 10 stands still in a reduction that its tensor peer completed.",
                   make=dumps(of_mesh(2, 2, 4, 3, stuck={10: 2}), ahead=1), statuses=SURE, findings=(hang(10, verdict="stuck_device"),))


def healthy():
    group, fully = "hangs", [all_gather(24), reduce_scatter(24)]
    yield Scenario("dump_all_in_one_of_32", group, "Taken while all 32 ranks are in one all-gather: nobody is missing.",
                   make=dumps(same(32, fully * 4, stuck={rank: 7 for rank in range(32)})), statuses=frozenset({0, 11}), findings=(ALL_ARRIVED,))
    uneven = {rank: [*[all_reduce()] * 6, Operation("alltoall_base", "0", ((512 + 64 * rank,),), ((800 - 32 * rank,),))] for rank in range(6)}
    yield Scenario("dump_uneven_all_to_all", group, "All six are in an all-to-all with splits of their own: sizes that differ are right there.",
                   make=dumps(Player(uneven, world(6), stuck={rank: 6 for rank in range(6)})), statuses=frozenset({0, 11}), findings=(ALL_ARRIVED,))
    long = same(24, fully * 30)
    yield Scenario("dump_wrapped_of_24", group, "All is over; each ring buffer holds another number of entries.", statuses=FINE,
                   make=lambda folder: [dumps(long, only={rank}, keep=5 + 2 * rank)(folder) for rank in range(24)])

    def lag(made, rank):
        """The watchdog that writes states lags behind; what it has retired is over."""
        for one in made["entries"][-1 - rank % 3:]:
            one.update(state="started", time_discovered_completed_ns=None, retired=True)
    yield Scenario("dump_retired_but_started", group, "Entries are retired while their state still says started: they are over.",
                   make=dumps(same(6, [all_reduce()] * 25), edit=lag, version="2.4"), statuses=FINE)
    yield Scenario("dump_ring_of_6_over", group, "Sends and receives of batches stay scheduled for ever; their coalesced entries are completed.",
                   make=dumps(ring(6, 20), version="2.7"), statuses=FINE)
    yield Scenario("dump_mesh_of_16_over", group, "2 x tensor, 4 stages, 2 x data: every operation is completed.", make=dumps(of_mesh(2, 4, 2, 4)),
                   statuses=FINE)
    yield Scenario("dump_one_of_9_not_copied", group, "All is over; rank 4's dump was not copied. That is no hang.",
                   make=dumps(same(9, [all_reduce()] * 12), only=set(range(9)) - {4}), statuses=FINE)

    def at_moments(folder):
        for rank, count in enumerate((61, 64, 64, 70, 73)):
            dumps(same(5, [all_reduce()] * count, stuck={one: count - 1 for one in range(5)}), only={rank})(folder)
    yield Scenario("dump_moments_of_5", group,
                   "Dumped one after the other, each in the middle of an operation: the older ones were met by peers that are farther.",
                   make=at_moments, statuses=UNSURE, findings=(ALL_ARRIVED,))
    groups = {**world(6), "1": ("loaders", (0, 3)), "2": ("savers", (1, 2, 4, 5))}
    some = {rank: [*[all_reduce()] * 4, *rounds(5, all_reduce("1" if rank % 3 == 0 else "2")), all_reduce()] for rank in range(6)}
    yield Scenario("dump_groups_of_some", group, "Groups with some of the ranks, all over: who is in no group is missing in none.",
                   make=dumps(Player(some, groups)),
                   statuses=FINE)


def versions():
    group, step = "missing fields", [all_gather(6), all_reduce()]
    stopped = same(6, step * 8, stops={5: 12})
    yield Scenario("dump_1_2_missing", group, "A dump of version 1.2, as PyTorch 2.3 wrote it: rank 5 is missing.", findings=(hang(5),),
                   make=dumps(stopped, version="1.2", edit=of_version_1), statuses=FOUND_OR_REFUSED)
    yield Scenario("dump_2_12_with_more", group, "A later 2.x, whose entries and head have members that nobody knows yet; all is over.",
                   statuses=FINE,
                   make=dumps(same(6, step * 8), version="2.12", as_json=True, edit=lambda made, rank: (
                       made.update(fleet={"site": ["a", {"b": None}]}), [one.update(tags=[{"x": 1}], priority=None) for one in made["entries"]])))
    yield Scenario("dump_7_0", group, "A version whose meaning nobody knows; rank 1 seems to be missing.", statuses=REFUSED, says=(r"7\.0",),
                   make=dumps(same(3, step * 4, stops={1: 5}), version="7.0"))
    yield Scenario("dump_without_times", group, "No time, no stack and no timeout: that rank 5 is missing shows all the same, since when does not.",
                   make=dumps(stopped, edit=without("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns", "duration_ms",
                                                    "timeout_ms", "frames")),
                   statuses=FOUND_OR_REFUSED, findings=(hang(5),), never=(r"\bfor \d+\.\d s\b", r'"cost_ms_per_step": \d'))
    yield Scenario("dump_one_without_state", group,
                   "Rank 1's entries have no state; rank 5 is missing, and rank 1 may be as well for all that is known.",
                   make=dumps(stopped, edit=without("state", "retired", "time_discovered_completed_ns", ranks={1})),
                   statuses=FOUND_OR_REFUSED, findings=(hang(5), hang(1, 5)), says=("state|rank 1|rank_1",))

    def no_configuration(made, _rank):
        del made["pg_config"], made["pg_status"]
    yield Scenario("dump_without_groups", group,
                   "2 x tensor and 4 x data without pg_config: the groups' names are in the entries, and rank 6 is missing.",
                   make=dumps(of_mesh(2, 1, 4, 3, stops={6: 7}), edit=no_configuration), statuses=FOUND_OR_REFUSED, findings=(hang(6),))
    yield Scenario("dump_without_sizes", group, "No sizes and no types: whether calls differ cannot be known; rank 5 is missing.",
                   findings=(hang(5),),
                   make=dumps(stopped, edit=without("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")), statuses=FOUND_OR_REFUSED,
                   never=("mismatched_collective",))
    yield Scenario("dump_empty", group, "Recorders that were on and saw no operation: nobody waits.", statuses=UNSURE | NO_JOB,
                   make=dumps(same(4, [])))


SCENARIOS = [*missing(), *mismatched(), *devices(), *healthy(), *versions()]
