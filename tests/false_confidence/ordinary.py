# SPDX-License-Identifier: Apache-2.0
"""What users do every day: no jobs, healthy jobs, load beside them, interrupted recordings, two jobs, fragments."""
from scenario import (FINE, FINE_OR_UNKNOWN, NOT_FINE, Act, May, Scenario, model, plain, ranks, shell, single)

TWO = {"RANKS": "2"}
FOUR = {"RANKS": "4"}
BURNERS = May("cpu_contention", evidence="small")  # the load is named by its program
CROWDED = May("cpu_contention")  # more busy ranks than processors: they do wait for each other


def no_jobs():
    why = "Nothing is trained, so there is no job of which anything could be said."
    for name in ("sleep", "spin", "regular", "irregular", "parse", "garbage", "threads", "files", "numbers", "poll", "children"):
        yield Scenario(f"plain_{name}", "no job", why, plain(name))
    texts = {
        "sleep_command": "exec sleep 4",
        "over_at_once": "exit 0",
        "fails_at_once": "exit 3",
        "shell_loop": "for i in $(seq 300000); do :; done",
        "compiler": "for i in 1 2 3 4; do gcc -O2 -o {folder}/out {programs}/small.c -pthread; done",
        "make": "cd {folder} && for i in 1 2 3 4 5 6; do printf 'f%s: ; gcc -c -O2 -o f%s {programs}/small.c\\n' $i $i; done > Makefile"
                " && make -s -j2 f1 f2 f3 f4 f5 f6",
        "git": "cd {root} && for i in 1 2 3; do git log --stat -n 50 > /dev/null; done",
        "archive": "tar -C {root} -cf - src | gzip | gzip -d | tar -tf - > /dev/null",
        "find_and_sort": "find /usr/lib -name '*.so*' | sort | sort -r | uniq -c | wc -l > /dev/null",
        "standard_library": "cd {folder} && cp -r /usr/lib/python3.11/json . && for i in 1 2 3 4 5; do {python} -m compileall -qf json; done",
    }
    for name, text in texts.items():
        yield Scenario(name, "no job", why, shell(text))


def healthy():
    why = "A healthy job with nothing beside it, whose ranks have the same work."
    yield Scenario("healthy_single", "healthy", "One process that trains in even steps.", single("regular"), statuses=FINE)
    yield Scenario("healthy_ddp", "healthy", why, ranks("ddp"), TWO, FINE)
    yield Scenario("healthy_wide", "healthy", why, ranks("ddp"), {**TWO, "WIDTH": "1024"}, FINE)
    yield Scenario("healthy_mlp", "healthy", why, model("mlp"), {**TWO, "SECONDS": "6"}, FINE)
    yield Scenario("healthy_transformer", "healthy", why, model("transformer"), {**TWO, "SECONDS": "6"}, FINE)
    yield Scenario("healthy_crowded", "healthy", "Four ranks on few processors: that they wait for each other may be said.", model("mlp"),
                   {**FOUR, "SECONDS": "6"}, FINE, (CROWDED,))
    yield Scenario("healthy_light", "healthy", "Ranks that mostly sleep, as if a device did the work.", model("mlp"),
                   {**TWO, "SECONDS": "6", "LIGHT": "1"}, FINE)
    yield Scenario("healthy_joined_late", "healthy", why, ranks("ddp"), {**TWO, "SECONDS": "60"}, FINE, attach="command", ready=2,
                   options=("--duration", "4s"))


def under_load():
    why = "The job is healthy; only that programs beside it take its processors is true."
    burner = ("{small}", "spin", "60")
    jobs = {"single": (single("regular"), {}), "ddp": (ranks("ddp"), TWO), "mlp": (model("mlp"), {**TWO, "SECONDS": "6"}),
            "transformer": (model("transformer"), {**TWO, "SECONDS": "6"})}
    for name, (command, env) in jobs.items():
        yield Scenario(f"load_{name}_two", "under load", why, command, env, FINE, (BURNERS,), beside=(burner,) * 2)
    yield Scenario("load_ddp_one", "under load", why, *jobs["ddp"], FINE, (BURNERS,), beside=(burner,))
    yield Scenario("load_ddp_four", "under load", why, *jobs["ddp"], FINE, (BURNERS,), beside=(burner,) * 4)
    yield Scenario("load_ddp_nice", "under load", why, *jobs["ddp"], FINE, (BURNERS,), beside=(("nice", "-n", "10", *burner),) * 2)
    yield Scenario("load_ddp_idle", "under load", "Programs of class idle run only where nobody else wants to.", *jobs["ddp"], FINE, (BURNERS,),
                   beside=(("chrt", "-i", "0", *burner),) * 2, needs=("chrt",))
    yield Scenario("load_ddp_short", "under load", "The load ends half way; what it took before is true.", *jobs["ddp"], FINE, (BURNERS,),
                   beside=(("{small}", "spin", "5"),) * 2)
    yield Scenario("load_mlp_pinned", "under load", "One processor is taken, the other one is free; so one rank may wait more.", *jobs["mlp"], FINE,
                   (BURNERS,), beside=(("taskset", "-c", "0", *burner),), needs=("taskset",))
    yield Scenario("load_files", "under load", "A disk that others sync is not the job's.", *jobs["ddp"], FINE, (May("cpu_contention", evidence="python"),),
                   beside=(plain("files"),))


def interrupted():
    ended = "A recording or a job that a user ends has no culprit."
    for signal in ("TERM", "INT"):
        yield Scenario(f"recorder_{signal.lower()}_ddp", "interrupted", ended, ranks("ddp"), TWO, FINE_OR_UNKNOWN, acts=(Act(signal, "recorder"),))
        yield Scenario(f"recorder_{signal.lower()}_single", "interrupted", ended, single("regular"), {}, FINE_OR_UNKNOWN,
                       acts=(Act(signal, "recorder"),))
    yield Scenario("recorder_killed_ddp", "interrupted", "Only the recorder is gone; the job runs on.", ranks("ddp"), TWO, FINE_OR_UNKNOWN,
                   acts=(Act("KILL", "recorder"),))
    yield Scenario("recorder_killed_crowded", "interrupted", "Only the recorder is gone; the job runs on.", ranks("ddp"), FOUR, FINE_OR_UNKNOWN,
                   (CROWDED,), acts=(Act("KILL", "recorder"),))
    yield Scenario("recorder_killed_at_import", "interrupted", "The recorder is gone before the first step.", ranks("ddp"), TWO,
                   frozenset({2, 11}), acts=(Act("KILL", "recorder", "started", 2),))
    yield Scenario("recorder_stopped", "interrupted", "The recorder itself stands still for a second; the job does not.", ranks("ddp"), TWO,
                   FINE_OR_UNKNOWN, acts=(Act("STOP", "recorder"), Act("CONT", "recorder", after_s=1.0)))
    yield Scenario("ranks_term", "interrupted", ended, ranks("ddp"), TWO, FINE_OR_UNKNOWN, acts=(Act("TERM", "ranks"),))
    yield Scenario("ranks_killed", "interrupted", ended, ranks("ddp"), TWO, FINE_OR_UNKNOWN, acts=(Act("KILL", "ranks"),))
    yield Scenario("ranks_int_attached", "interrupted", ended, ranks("ddp"), {**TWO, "SECONDS": "30"}, FINE_OR_UNKNOWN, attach="command", ready=2,
                   options=("--duration", "20s"), acts=(Act("INT", "ranks", "ready", 2, 4.0),))
    yield Scenario("rank_killed", "interrupted", "Rank 1 was killed alone: that is true, and nothing else is.", ranks("ddp"), TWO, NOT_FINE,
                   (May("stopped", (1,)),), acts=(Act("KILL", "rank 1"),))
    yield Scenario("rank_stopped", "interrupted", "Rank 1 stands still until the end of the recording.", ranks("ddp"), {**TWO, "SECONDS": "30"}, NOT_FINE,
                   (May("stopped", (1,)), May("hang", (1,))), attach="command", ready=2, options=("--duration", "8s"),
                   acts=(Act("STOP", "rank 1", "ready", 2, 4.0),))
    yield Scenario("single_killed", "interrupted", "The only process was killed: that may be said, of nobody else.", single("regular"), {}, FINE_OR_UNKNOWN,
                   (May("stopped", (0,)),), acts=(Act("KILL", "STARTED"),))
    yield Scenario("single_fails", "interrupted", "The only process ends with an error: that may be said.", single("fails"), {}, FINE_OR_UNKNOWN,
                   (May("stopped", (0,)),))
    yield Scenario("size_limit", "interrupted", "The file is full; the job is healthy.", ranks("ddp"), TWO, FINE_OR_UNKNOWN,
                   options=("--max-size", "300k"))
    yield Scenario("then_kill", "interrupted", ended, ranks("ddp"), {**TWO, "SECONDS": "20"}, FINE_OR_UNKNOWN,
                   options=("--duration", "7s", "--then", "kill"))
    yield Scenario("then_leave", "interrupted", "The recording is over, the job is not.", ranks("ddp"), {**TWO, "SECONDS": "20"}, FINE_OR_UNKNOWN,
                   options=("--duration", "7s", "--then", "leave"))


def two_jobs():
    why = "Two healthy jobs have nothing to do with each other; that they wait for processors may be said."
    job = "{python} {launch} {programs}/ranks.py ddp"
    alone = "{python} {programs}/single.py"
    yield Scenario("two_ddp", "two jobs", why, shell(f"{job} & {job} & wait"), TWO, FINE, (CROWDED,))
    yield Scenario("two_unlike_ddp", "two jobs", why, shell(f"{job} & WIDTH=1024 {job} & wait"), TWO, FINE, (CROWDED,))
    yield Scenario("two_in_turn", "two jobs", "The second job begins where the first one ended.", shell(f"{job}; {job}"), {**TWO, "SECONDS": "3"}, FINE)
    yield Scenario("two_single", "two jobs", why, shell(f"{alone} regular & {alone} regular & wait"), {}, FINE, (CROWDED,))
    yield Scenario("training_and_inference", "two jobs", why, shell(f"{alone} regular & {alone} inference_server & wait"), {}, FINE_OR_UNKNOWN,
                   (CROWDED,))
    yield Scenario("training_and_web", "two jobs", why, shell(f"{job} & {{python}} {{programs}}/plain.py web & wait"), TWO, FINE_OR_UNKNOWN, (CROWDED,))
    yield Scenario("ddp_and_single", "two jobs", why, shell(f"{job} & {alone} regular & wait"), TWO, FINE, (CROWDED,))


def fragments():
    why = "The rest of the file is missing; the job was healthy to its end."
    for percent in (30, 60, 90):
        yield Scenario(f"cut_ddp_{percent}", "fragments", why, ranks("ddp"), TWO, FINE_OR_UNKNOWN, keep=(0, percent / 100))
        yield Scenario(f"cut_crowded_{percent}", "fragments", why, model("mlp"), {**FOUR, "SECONDS": "6"}, FINE_OR_UNKNOWN, (CROWDED,),
                       keep=(0, percent / 100))
    yield Scenario("cut_single_60", "fragments", why, single("regular"), {}, FINE_OR_UNKNOWN, keep=(0, 0.6))
    yield Scenario("cut_empty", "fragments", "There is nothing in the file.", ranks("ddp"), TWO, frozenset({2, 11}), keep=(0, 0))
    yield Scenario("cut_tail", "fragments", "The first half of the file is missing.", ranks("ddp"), TWO, frozenset({0, 2, 11}), keep=(0.5, 1))
    yield Scenario("before_first_step", "fragments", "The recording ends before the first step.", ranks("ddp"), {**TWO, "SECONDS": "3"},
                   frozenset({11}), options=("--duration", "1s"))
    yield Scenario("three_seconds", "fragments", "The recording ends within the first steps, or before them.", ranks("ddp"), {**TWO, "SECONDS": "4"},
                   FINE_OR_UNKNOWN, options=("--duration", "3s"))
    yield Scenario("one_second_in_the_middle", "fragments", "A second from the middle of a healthy job.", ranks("ddp"), {**TWO, "SECONDS": "60"},
                   FINE_OR_UNKNOWN, attach="command", ready=2, options=("--duration", "1s"))
    for rank in (0, 1):
        yield Scenario(f"only_rank_{rank}", "fragments", "Only one of two healthy ranks is in the recording; the other one is not missing from the job.",
                       ranks("ddp"), {**TWO, "SECONDS": "60"}, FINE_OR_UNKNOWN, attach=f"rank {rank}", ready=2, options=("--duration", "4s"))


SCENARIOS = [*no_jobs(), *healthy(), *under_load(), *interrupted(), *two_jobs(), *fragments()]
