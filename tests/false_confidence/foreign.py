# SPDX-License-Identifier: Apache-2.0
"""Programs that a rule may not have thought of: other people's servers, unusual loops, ranks that differ by design, odd surroundings."""
from scenario import FINE, FINE_OR_UNKNOWN, NO_JOB, NOT_FINE, Act, May, Scenario, plain, ranks, shell, single

TWO, THREE, FOUR = {"RANKS": "2"}, {"RANKS": "3"}, {"RANKS": "4"}
CROWDED = May("cpu_contention")  # more busy threads than processors: they do wait for each other
LOCK = May("interpreter_lock", (0,))  # two threads that train in one interpreter do wait for its lock
REGULAR, DDP = "{python} {programs}/single.py regular", "{python} {launch} {programs}/ranks.py ddp"


def no_trainings():
    why = "Nothing is trained; what waits or is uneven in it is how such a program works."
    for name in ("many_threads", "renamed_threads", "mutex", "tasks", "web", "web_workers", "database", "pool", "pool_with_ranks", "failing_children",
                 "forks", "zombies", "daemon", "pipeline", "thread_queue", "ping_pong", "signals", "ignores_term", "regression", "seccomp",
                 "lookalike", "exec_chain"):
        yield Scenario(f"foreign_{name}", "no training", why, plain(name))
    for mode in ("spin", "sleep", "vfork", "threads", "trace", "leaderless"):
        yield Scenario(f"c_{mode}", "no training", why, ("{static}" if mode in ("spin", "leaderless") else "{small}", mode, "3"))
    yield Scenario("gzip_pipeline", "no training", why, shell("head -c 60000000 /dev/urandom | gzip | gzip -d | sha256sum"))
    yield Scenario("deleted_binary", "no training", why, shell("cp {small} {folder}/gone && {folder}/gone spin 3 & sleep 1; rm {folder}/gone; wait"))
    yield Scenario("class_idle", "no training", why, ("chrt", "-i", "0", "{small}", "spin", "3"), needs=("chrt",))
    yield Scenario("sqlite_shell", "no training", why, shell(
        "sqlite3 :memory: 'with recursive c(x) as (select 1 union all select x+1 from c where x < 6000000) select sum(x) from c'"),
        needs=("sqlite3",))
    yield Scenario("ranks_without_job", "no training", "Processes that say RANK as a launcher would have it, and sleep.",
                   ("{python}", "{launch}", "{programs}/plain.py", "sleep"), TWO)
    yield Scenario("ranks_of_c", "no training", "The same without an interpreter; one of them ends early, as it should.",
                   shell("RANK=0 WORLD_SIZE=2 {static} spin 4 & RANK=1 WORLD_SIZE=2 {static} spin 1 & wait"))


def inference():
    why = "PyTorch is loaded, and nothing is trained."
    for name in ("import_only", "inference", "inference_server", "tensors"):
        yield Scenario(f"torch_{name}", "inference", why, single(name))
    yield Scenario("torch_inference_loader", "inference", "Input of a tiny model does take most of the time; whether that is a job may be left open.",
                   single("inference_loader"), {}, FINE_OR_UNKNOWN, (May("common_input", (0,)),))


def loops():
    healthy = "One healthy process; its steps differ as its author wants it."
    for name in ("evaluation", "checkpoint", "accumulation", "loader", "logger_thread", "no_optimizer", "forked_evaluation", "paced"):
        yield Scenario(f"loop_{name}", "unusual loops", healthy, single(name), statuses=FINE)
    for name in ("buckets", "random_lengths", "growing_accumulation", "rate_finder", "adversarial", "reinforcement", "closures", "restart", "in_turn",
                 "bursts", "warm_then_idle", "compiled", "second_order", "saliency"):
        yield Scenario(f"loop_{name}", "unusual loops", healthy, single(name), statuses=FINE_OR_UNKNOWN)
    for name in ("two_models", "data_parallel_threads"):
        yield Scenario(f"loop_{name}", "unusual loops", "Threads that train beside each other; that they wait for the interpreter lock may be said.",
                       single(name), {}, FINE_OR_UNKNOWN, (LOCK, CROWDED))
    yield Scenario("loop_loader_worker", "unusual loops", "A cheap worker; whether it keeps up is the machine's.", single("loader_worker"), {}, FINE,
                   (May("common_input", (0,)),))
    yield Scenario("loop_loader_heavy", "unusual loops", "Making the samples takes nearly all of each step: input is to blame, and nobody else.",
                   single("loader_heavy"), {}, NOT_FINE, (May("common_input", (0,)),))


def distributed():
    alike = "All ranks have the same work in each step; the steps differ."
    for name in ("evaluation", "accumulation", "bucketed_lengths", "local_steps", "late_reduce", "phases", "bursts", "again", "early_end"):
        yield Scenario(f"ranks_{name}", "unusual ranks", alike, ranks(name), TWO,
                       FINE_OR_UNKNOWN if name in ("bucketed_lengths", "phases", "bursts", "again") else FINE)
    yield Scenario("ranks_spawn", "unusual ranks", "Ranks that torch.multiprocessing started; nobody says who is who.",
                   ("{python}", "{programs}/ranks.py", "spawn"), {}, FINE_OR_UNKNOWN)
    yield Scenario("ranks_groups", "unusual ranks", "Two pairs that train apart and share the processors.", ranks("groups"), FOUR, FINE_OR_UNKNOWN, (CROWDED,))
    yield Scenario("ranks_elastic", "unusual ranks", "The last of three ranks leaves in good order, the others train on.", ranks("elastic"), THREE,
                   FINE_OR_UNKNOWN, (CROWDED,))
    yield Scenario("ranks_chief_saves", "unusual ranks", "A long checkpoint at the very end: the others wait for it, and then all is over.",
                   ranks("chief_saves"), TWO, FINE_OR_UNKNOWN)
    yield Scenario("ranks_chief_evaluates", "unusual ranks", "Rank 0 evaluates every tenth step while the other one waits: that may be said of rank 0.",
                   ranks("chief_logs"), TWO, FINE_OR_UNKNOWN, tuple(May(kind, (0,)) for kind in ("asymmetry", "slow_other", "slow_forward")))
    yield Scenario("ranks_join", "unusual ranks", "Rank 0 has fewer batches and shadows the rest; that rank 1 has more work may be said.", ranks("join"), TWO,
                   FINE_OR_UNKNOWN, (May("asymmetry", (1,)), May("uneven_work", (1,))))


def duties():
    """Ranks that are no peers. In a job of two, `asymmetry` says that they differ, which is true; a slow rank is a claim about peers."""
    of_two = (May("asymmetry", (1,)), May("uneven_work", (1,)))
    why = "The ranks have different duties: that the one which computes takes longer may be said of two ranks."
    for name in ("chief", "parameter_server", "one_trains"):
        yield Scenario(f"duty_{name}", "duties", why, ranks(name), TWO, FINE_OR_UNKNOWN, of_two)
    for name in ("chief", "parameter_server"):
        yield Scenario(f"duty_{name}_of_three", "duties", "Rank 0 has no model to train, the others have the same work: nobody is slow.", ranks(name), THREE,
                       FINE_OR_UNKNOWN, (CROWDED,))
    yield Scenario("duty_actors", "duties", "Playing takes as long as it takes: that the slowest is another one each time may be said.", ranks("actors"), THREE,
                   FINE_OR_UNKNOWN, (May("moving_imbalance", ()), CROWDED))
    yield Scenario("duty_pipeline", "duties", "Two equal stages; the last one has no gradient to wait for.", ranks("pipeline"), TWO, FINE_OR_UNKNOWN)
    yield Scenario("duty_pipeline_of_four", "duties", "Four equal stages: each idles while the others compute.", ranks("pipeline"), FOUR, FINE_OR_UNKNOWN,
                   (CROWDED,))
    yield Scenario("duty_uneven_pipeline", "duties", "The second stage has four times the layers: that may be said, of rank 1 only.",
                   ranks("uneven_pipeline"), TWO, FINE_OR_UNKNOWN, (May("stage_imbalance", (1,)), *of_two))
    talks = "Ranks that exchange values and train nothing; nobody is late."
    for name in ("all_reduce_benchmark", "barriers", "ring", "distributed_inference", "store_only", "rpc"):
        yield Scenario(f"talk_{name}", "duties", talks, ranks(name), TWO, FINE_OR_UNKNOWN)
    yield Scenario("talk_idle_ranks", "duties", "Ranks that have met and wait for orders.", ranks("idle_ranks"), TWO, NO_JOB)


def surroundings():
    why = "A healthy training; what is odd is only around it."
    for name, env in {"banana": {"RANK": "banana"}, "of_nothing": {"RANK": "99", "WORLD_SIZE": "2"}, "empty": {"RANK": "", "WORLD_SIZE": ""},
                      "negative": {"RANK": "-1", "WORLD_SIZE": "-1"}, "local_only": {"LOCAL_RANK": "3"},
                      "huge": {"RANK": "18446744073709551616", "WORLD_SIZE": "1"}, "first_of_two": {"RANK": "0", "WORLD_SIZE": "2"}}.items():
        yield Scenario(f"rank_{name}", "surroundings", "One healthy process whose environment says something odd; no other rank is missing from it.",
                       single("regular"), env, FINE_OR_UNKNOWN)
    yield Scenario("same_rank_twice", "surroundings", "Two healthy processes that both say RANK=0: jobs of their own.",
                   shell(f"RANK=0 WORLD_SIZE=1 {REGULAR} & RANK=0 WORLD_SIZE=1 {REGULAR} & wait"), {}, FINE_OR_UNKNOWN, (CROWDED,))
    odd = {
        "pid_namespace": "unshare -p -f --mount-proc " + REGULAR,
        "network_namespace": f"unshare -n sh -c 'ip link set lo up && exec {DDP}'",
        "mount_namespace": "unshare -m -u -i " + REGULAR,
        "user_namespace": "unshare -U -r " + REGULAR,
        "exec_chain_to_training": f"exec setsid nohup env A=1 nice -n 1 timeout 60 {REGULAR}",
        "deleted_interpreter": "cp -L {python} {folder}/gone && {folder}/gone {programs}/single.py regular & sleep 2; rm {folder}/gone; wait",
        "odd_path": "mkdir '{folder}/a b\n→' && cp {programs}/*.py '{folder}/a b\n→' && {python} '{folder}/a b\n→/single.py' regular",
        "standard_input": "{python} - regular < {programs}/single.py",
        "few_files": "ulimit -n 64; " + REGULAR,
        "terminal": f"script -qec '{REGULAR}' /dev/null",
        "under_strace": f"strace -f -o /dev/null -e trace=openat {REGULAR}",
    }
    for name, text in odd.items():
        yield Scenario(name, "surroundings", why, shell(text), {"PYTHONPATH": "{programs}"} if name == "standard_input" else {},
                       FINE_OR_UNKNOWN if name in ("user_namespace", "under_strace", "standard_input") else FINE,
                       needs=("unshare", "ip") if "namespace" in name else ("strace",) if "strace" in name else ("script",) if name == "terminal" else ())
    yield Scenario("odd_name", "surroundings", why, ("/bin/bash", "-c", "exec -a $'tr\\nain \"x\" \\xff {' " + REGULAR), {}, FINE)
    yield Scenario("timed_out", "surroundings", "The user's `timeout` ends the training: nobody is to blame.",
                   ("timeout", "5", *single("regular")), {"SECONDS": "60"}, FINE_OR_UNKNOWN)
    yield Scenario("very_nice", "surroundings", why, ("nice", "-n", "19", *single("regular")), {}, FINE)
    yield Scenario("real_time", "surroundings", why, ("chrt", "-f", "1", *single("regular")), {}, FINE, needs=("chrt",))
    yield Scenario("halted_single", "surroundings", "The user stops the process for a second and lets it go on: that may be said.", single("regular"), {},
                   FINE_OR_UNKNOWN, (May("stopped", (0,)),), acts=(Act("STOP", "STARTED"), Act("CONT", "STARTED", after_s=1.0)))
    yield Scenario("halted_rank", "surroundings", "The user stops rank 1 for a second and lets it go on: that may be said of rank 1.", ranks("ddp"), TWO,
                   FINE_OR_UNKNOWN, tuple(May(kind, (1,)) for kind in ("stopped", "hang", "asymmetry", "slow_other")),
                   acts=(Act("STOP", "rank 1"), Act("CONT", "rank 1", after_s=1.0)))
    yield Scenario("halted_together", "surroundings", "The user stops all ranks for a second and lets them go on: nobody stands out.", ranks("ddp"), TWO,
                   FINE_OR_UNKNOWN, acts=(Act("STOP", "ranks"), Act("CONT", "ranks", after_s=1.0)))
    yield Scenario("own_interpreter", "surroundings", "The training runs in a child of a shell loop that begins it anew.",
                   shell(f"for i in 1 2 3; do {REGULAR}; done"), {"SECONDS": "1"}, FINE_OR_UNKNOWN)


SCENARIOS = [*no_trainings(), *inference(), *loops(), *distributed(), *duties(), *surroundings()]
