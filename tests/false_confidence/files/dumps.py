# SPDX-License-Identifier: Apache-2.0
"""A model of ranks that communicate, and what PyTorch's Flight Recorder would dump of them.

Each rank has a program: operations one after the other. It comes behind one when all that take part are in it. What is left is the dump.
"""
import json
import os
import pickle
from collections import Counter, namedtuple

BEGIN_NS, EVERY_NS = 1_729_500_000_000_000_000, 17_000_000
TRACE = "nccl_trace_rank_{}"
UNEQUAL = ("alltoall_base",)  # collectives whose sizes may differ between ranks
# `transfers`: (from, to) by number within the group; none: a collective. `inputs`, `outputs`: sizes. `is_batch`: of batch_isend_irecv.
Operation = namedtuple("Operation", "name group inputs outputs transfers is_batch dtype", defaults=((), False, "BFloat16"))


def world(ranks):
    return {"0": ("default_pg", tuple(range(ranks)))}


def mesh(tensor, pipeline, data):
    """The groups of Megatron's order of ranks: tensor parallel ones are neighbours, pipeline stages are farthest apart."""
    def rank(stage, replica, part):
        return (stage * data + replica) * tensor + part
    groups = world(tensor * pipeline * data)
    def add(description, ranks):
        if len(ranks) > 1:
            groups[str(len(groups))] = (description, tuple(ranks))
    for stage in range(pipeline):
        for replica in range(data):
            add("TENSOR_MODEL_PARALLEL_GROUP", [rank(stage, replica, part) for part in range(tensor)])
        for part in range(tensor):
            add("DATA_PARALLEL_GROUP", [rank(stage, replica, part) for replica in range(data)])
    for replica in range(data):
        for part in range(tensor):
            add("PIPELINE_MODEL_PARALLEL_GROUP", [rank(stage, replica, part) for stage in range(pipeline)])
    return groups


def group_of(groups, rank, word):
    return next((name for name, (description, ranks) in groups.items() if description.startswith(word) and rank in ranks), None)


def all_reduce(group="0", elements=1 << 20, dtype="BFloat16"):
    return Operation("all_reduce", group, ((elements,),), ((elements,),), dtype=dtype)


def all_gather(members, group="0", elements=4096):
    return Operation("_all_gather_base", group, ((elements,),), ((elements * members,),))


def reduce_scatter(members, group="0", elements=4096):
    return Operation("_reduce_scatter_base", group, ((elements * members,),), ((elements,),))


def transfer(source, target, group="0", own=0, sizes=(1, 2048, 5120)):
    name = f"send {source}->{target}" if own == source else f"recv {target}<-{source}"
    return Operation(name, group, (sizes,), (sizes,), ((source, target),))


def batch(transfers, group="0", sizes=(1, 4096, 1024)):
    return Operation("coalesced", group, (sizes,), (sizes,), tuple(transfers), True)


def mesh_program(groups, rank, rounds, micro_batches=2):
    """Forward passes of a pipeline with tensor parallel layers; then gradients are reduced."""
    tensor, data, pipeline = (group_of(groups, rank, word) for word in ("TENSOR", "DATA", "PIPELINE"))
    stages = groups[pipeline][1] if pipeline else (rank,)
    stage, program = stages.index(rank), []
    for _ in range(rounds):
        for _ in range(micro_batches):
            if stage > 0:
                program.append(transfer(stage - 1, stage, pipeline, stage))
            program += [all_reduce(tensor, 2048 * 5120)] * 2 if tensor else []
            if stage < len(stages) - 1:
                program.append(transfer(stage, stage + 1, pipeline, stage))
        program += [all_reduce(data, 1 << 22, "Float")] if data else []
    return program


class Player:
    """Lets the ranks run as far as they come. `stops`: {rank: operations that it hands over}; `stuck`: {rank: the operation in which its device
    stands still}."""

    def __init__(self, programs, groups, stops=None, stuck=None):
        self.programs, self.groups, self.stuck = programs, groups, stuck or {}
        self.stops = {**(stops or {}), **{rank: at + 1 for rank, at in self.stuck.items()}}
        self.at = {rank: 0 for rank in programs}

        # By rank: the number of each operation within its group, or between two of its ranks; and where that number is in the program.
        self.numbers, self.places = {rank: {} for rank in programs}, {rank: {} for rank in programs}

    def play(self):
        """Once: a player that has been played stays where it is."""
        for rank, program in self.programs.items() if not any(self.numbers.values()) else ():
            counts = Counter()
            for at, one in enumerate(program):
                for pair in one.transfers or (None,):
                    counts[one.group, pair] += 1
                    self.numbers[rank][at, pair] = counts[one.group, pair]
                    self.places[rank][one.group, pair, counts[one.group, pair]] = at
        while any([self.advance(rank) for rank in self.programs]):
            pass

    def end(self, rank):
        """How many operations its program hands over."""
        return min(len(self.programs[rank]), self.stops.get(rank, 1 << 30))

    def is_in(self, other, mine, number, pair):
        """Whether `other` has come as far as its end of this operation."""
        at = self.places[other].get((mine.group, pair, number))
        if at is None or at > self.at[other] or at >= self.end(other):
            return False
        theirs = self.programs[other][at]
        return bool(pair) or theirs.name == mine.name and (mine.name in UNEQUAL or theirs.inputs == mine.inputs)

    def advance(self, rank):
        """Brings a rank behind its operation; whether all that take part are in it."""
        at = self.at[rank]
        if at >= self.end(rank):
            return False
        mine = self.programs[rank][at]
        members = self.groups[mine.group][1]
        needed = [(members[end], pair) for pair in mine.transfers for end in pair] or [(member, None) for member in members]
        if not all(self.is_in(other, mine, self.numbers[rank][at, pair], pair) for other, pair in needed):
            return False
        self.at[rank] += 1
        return True

    def progress(self, rank):
        """How many operations are completed, as its device has it."""
        return self.stuck.get(rank, self.at[rank])


def entry_of(player, rank, at, record, state, shift_ns):
    operation = player.programs[rank][at]
    created = BEGIN_NS + at * EVERY_NS + rank * 30_000 + shift_ns
    pair = operation.transfers[0] if operation.transfers else None
    number = player.numbers[rank][at, pair]
    description = player.groups[operation.group][0]
    made = {
        "frames": [{"name": operation.name.split(" ")[0], "filename": "/opt/conda/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
                    "line": 2831},
                   {"name": "train_step", "filename": "/opt/job/pretrain.py", "line": 412}],
        "record_id": record, "pg_id": int(operation.group), "process_group": (operation.group, description),
        "collective_seq_id": 0 if pair else number, "p2p_seq_id": number if pair else 0, "op_id": record + 1,
        "profiling_name": "nccl:" + operation.name, "time_created_ns": created,
        "input_sizes": operation.inputs, "input_dtypes": [operation.dtype] * len(operation.inputs),
        "output_sizes": operation.outputs, "output_dtypes": [operation.dtype] * len(operation.outputs), "state": state,
        "time_discovered_started_ns": None if state == "scheduled" else created + 2_000_000,
        "time_discovered_completed_ns": created + 8_000_000 if state == "completed" else None,
        "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": bool(pair)}
    return made | ({"duration_ms": 4.25} if state == "completed" else {})


def entries(player, rank, ahead=0, keep=2000, shift_ns=0):
    """`ahead`: so many operations the host has enqueued behind the one that is pending; `keep`: what the ring buffer holds."""
    done, end = player.progress(rank), player.end(rank)
    if rank in player.stuck:
        end = min(len(player.programs[rank]), done + 1 + ahead)
    made = []
    for at in range(min(end, done + 1 + ahead)):
        state = "completed" if at < done else "started" if at == done else "scheduled"
        operation = player.programs[rank][at]
        if operation.is_batch:
            members = player.groups[operation.group][1]
            for pair in operation.transfers:
                one = transfer(*pair, operation.group, members.index(rank))
                inner = entry_of(player, rank, at, len(made), "scheduled", shift_ns)
                made.append(inner | {"profiling_name": "nccl:" + one.name, "retired": False})
        made.append(entry_of(player, rank, at, len(made), state, shift_ns))
    return made[-keep:]


def status_of(groups, made):
    """`pg_status`, as far as the entries tell."""
    def last(name, states):
        of_group = [one for one in made if one["process_group"][0] == name and not one["is_p2p"]]
        return max([one["collective_seq_id"] for one in of_group if one["state"] in states] or [-1])
    return {name: {"last_enqueued_collective": last(name, ("scheduled", "started", "completed")),
                   "last_started_collective": last(name, ("started", "completed")), "last_completed_collective": last(name, ("completed",))}
            for name in groups}


def dump(groups, rank, made, version="2.9"):
    own = {name: of for name, of in groups.items() if rank in of[1]}
    return {"version": version, "pg_config": {name: {"name": name, "desc": text, "ranks": str(list(ranks))} for name, (text, ranks) in own.items()},
            "pg_status": status_of(own, made), "nccl_comm_state": {}, "entries": made}


def save(path, content, as_json=False):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else json.dumps(content).encode() if as_json else pickle.dumps(content, protocol=2))


def dumps(player, name=TRACE, as_json=False, version="2.9", only=None, edit=None, raw=None, **options):
    """Gives what writes a dump a rank. `edit`: changes (dump, rank) in place; `raw`: the bytes, given those and the rank; `only`: ranks whose
    dumps are there."""
    def make(folder):
        player.play()
        for rank in player.programs:
            if only is not None and rank not in only:
                continue
            made = dump(player.groups, rank, entries(player, rank, **options), version)
            if edit:
                edit(made, rank)
            content = json.dumps(made).encode() if as_json else pickle.dumps(made, protocol=2)
            save(os.path.join(folder, name.format(rank)), raw(content, rank) if raw else content)
    return make


def same(ranks, operations, groups=None, **faults):
    """All ranks have this program."""
    return Player({rank: operations for rank in range(ranks)}, groups or world(ranks), **faults)


def of_version_1(made, _rank):
    """An edit: as dumps were up to PyTorch 2.3."""
    for one in made["entries"]:
        one["seq_id"], one["id"] = one["collective_seq_id"], one["record_id"]
        one["process_group"] = list(one["process_group"])
        for name in ("collective_seq_id", "p2p_seq_id", "op_id", "record_id", "is_p2p", "timeout_ms", "input_dtypes", "output_dtypes"):
            del one[name]
    del made["pg_status"], made["nccl_comm_state"]


def without(*names, ranks=None):
    """An edit: these members are in no entry (of these ranks)."""
    def edit(made, rank):
        for one in made["entries"] if ranks is None or rank in ranks else ():
            for name in names:
                one.pop(name, None)
    return edit
