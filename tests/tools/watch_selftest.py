#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The judgement of the watch evaluation on made-up incidents and features: what counts as found, as false, and who is blamed."""
import contextlib
import json
import math
import os
import random
import select
import subprocess
import sys
import tempfile
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "watch")]
import kit  # noqa: E402,F401
import alarm  # noqa: E402
import faults  # noqa: E402
from harness import host  # noqa: E402
import score  # noqa: E402
import session  # noqa: E402
import soak  # noqa: E402
from guard import Guard  # noqa: E402

try:
    import baselines
    import sklearn  # noqa: F401
except ImportError:
    baselines = None


def fault(begin_s, end_s, ranks=(1,), kind="cpu_quota"):
    return {"kind": kind, "job": "ddp", "dose": 2, "ranks": list(ranks), "begin_s": begin_s, "end_s": end_s}


def incident(begin_s, end_s, first_s=None, ranks=(1,), kind="resource_contention"):
    return {"begin_s": begin_s, "end_s": end_s, "first_s": begin_s + 3 if first_s is None else first_s, "ranks": list(ranks), "kind": kind,
            "pids": [], "job": "a"}


def line(arrived_s, begin_s, end_s, identity="1", ranks=(), job="a"):
    return {"arrived_s": arrived_s, "incident": {"schema": "kansoku.watch_incident/1", "id": identity, "job": job, "kind": "unknown",
                                                 "begin_ns": str(int(begin_s * 1e9)), "end_ns": str(int(end_s * 1e9)),
                                                 "ranks": list(ranks), "pids": [7]}}


class Found(unittest.TestCase):
    def one(self, planted, told):
        return score.judge([planted], [told])[0]

    def test_an_overlapping_one_is_found_and_its_delay_counts_from_the_begin(self):
        answer = self.one(fault(100, 120), incident(102, 118, 104.5))
        self.assertTrue(answer["found"])
        self.assertAlmostEqual(answer["delay_s"], 4.5)

    def test_ten_seconds_after_the_end_are_the_last(self):
        self.assertTrue(self.one(fault(100, 120), incident(130, 140))["found"])
        self.assertFalse(self.one(fault(100, 120), incident(130.1, 140))["found"])

    def test_one_left_open_from_before_is_no_answer(self):
        answer = self.one(fault(100, 120), incident(90, math.inf, 93))
        self.assertFalse(answer["found"])
        self.assertTrue(answer["touched"])

    def test_a_window_may_begin_before_the_fault_but_not_be_told_before(self):
        self.assertTrue(self.one(fault(100, 120), incident(98.5, 110, 103))["found"])
        self.assertFalse(self.one(fault(100, 120), incident(98.5, 110, 99))["found"])

    def test_a_fault_that_was_not_planted_is_not_judged(self):
        self.assertEqual(score.judge([{"kind": "link_rate", "begin_s": 1, "not_run": "no tc"}], []), [])


class False_(unittest.TestCase):
    def test_fifteen_seconds_after_the_end_are_grace(self):
        told = [incident(134, 140), incident(136, 140), incident(80, 99)]
        self.assertEqual(score.false_alarms([fault(100, 120)], told), told[1:])

    def test_precision_and_recall(self):
        planted = [fault(100, 120), fault(200, 220)]
        told = [incident(101, 110), incident(300, 310), incident(105, 125)]
        summary = score.summarise(score.judge(planted, told), 3, len(score.false_alarms(planted, told)), 8640.0)
        self.assertEqual((summary["recall"], summary["found"]), (0.5, 1))
        self.assertAlmostEqual(summary["precision"], 2 / 3)
        self.assertAlmostEqual(summary["f1"], 2 * 0.5 * (2 / 3) / (0.5 + 2 / 3))
        self.assertAlmostEqual(summary["false_per_day"], 10)

    def test_nothing_told_has_no_precision_and_no_f1(self):
        summary = score.summarise(score.judge([fault(1, 2)], []), 0, 0, 1.0)
        self.assertEqual((summary["recall"], summary["precision"], summary["f1"], summary["delay_p95_s"]), (0, None, None, None))


class Ranks(unittest.TestCase):
    def said(self, culprits, named):
        return score.rank_answer(fault(1, 2, culprits), incident(1, 2, ranks=named))

    def test_a_subset_is_right_a_stranger_is_wrong(self):
        self.assertEqual([self.said([0, 2], named) for named in ([0], [0, 2], [0, 1], [])], ["right", "right", "wrong", "none"])

    def test_without_a_culprit_nobody_is_judged(self):
        self.assertIsNone(self.said([], [3]))


class Incidents(unittest.TestCase):
    def test_changes_of_one_are_one_told_first_with_its_last_form(self):
        (one,) = score.incidents_of([line(105, 101, 0), line(130, 101, 125, ranks=[2])])
        self.assertEqual((one["first_s"], one["end_s"], one["ranks"]), (105, 125, [2]))

    def test_an_open_one_has_no_end(self):
        self.assertEqual(score.incidents_of([line(105, 101, 0)])[0]["end_s"], math.inf)

    def test_strangers_are_told_by_job_and_pid(self):
        both = score.incidents_of([line(1, 1, 2, "1", job="a"), line(1, 1, 2, "2", job="b")])
        ours, strangers = score.of_job(both, {"a"}, [8])
        self.assertEqual(([one["job"] for one in ours], [one["job"] for one in strangers]), (["a"], ["b"]))
        self.assertEqual(len(score.of_job(both, set(), [7])[0]), 2)


class Alarm(unittest.TestCase):
    HEALTHY = [(list(range(1000)), [alarm.CLEAR * (i % 250 == 0) for i in range(1000)])]
    RULE = alarm.Counts(3, 6, True)

    def alarms(self, *flags, rule=RULE):
        return len(alarm.incidents({0: (list(range(len(flags))), flags)}, rule))

    def test_tail_of_the_counts(self):
        self.assertAlmostEqual(alarm.upper_share(2, 3, 0.5, 0), 0.5)
        self.assertEqual(alarm.upper_share(0, 3, 0.2, 0), 1)
        for k in range(1, 6):  # the beta distribution with both parameters 1 is the uniform one
            self.assertAlmostEqual(alarm.upper_share(k, 5, 0.5, 1 / 3), (6 - k) / 6)

    def test_correlation_is_none_of_flags_far_apart_and_large_of_whole_windows(self):
        self.assertEqual(alarm.correlation_of(self.HEALTHY), 0)
        windows = [(list(range(1000)), [i // 5 % 10 == 0 for i in range(1000)])]
        self.assertEqual(alarm.correlation_of(windows), alarm.CORRELATION_MAX)

    def test_the_budget_sets_the_counts(self):
        # p0 = 4.5 / 1001, alpha = 0.05 / 86400 / 2 = 2.9e-7: of five, C(5,4) p0^4 = 2.0e-9 and C(5,3) p0^3 = 9e-7.
        self.assertEqual(alarm.needed(self.HEALTHY, 1), (4, 6, True))
        self.assertEqual(alarm.needed(self.HEALTHY, 1, 10), (3, 6, True))
        hardly = [(times, [alarm.FLAGGED * (flag > 0) for flag in flags]) for times, flags in self.HEALTHY]
        self.assertEqual(alarm.needed(hardly, 1), (3, 6, True))  # what is hardly odd in health leaves what is clearly so rare

    def test_far_seconds_that_health_has_are_not_trusted(self):
        self.assertFalse(alarm.needed([(list(range(1000)), [alarm.FAR * (i % 100 == 0) for i in range(1000)])], 1).trusts_far)
        self.assertFalse(alarm.needed([(list(range(100)), [0] * 100)], 1).trusts_far)  # too few to know

    def test_how_far_out_counts(self):
        one, two, far = alarm.FLAGGED, alarm.CLEAR, alarm.FAR
        self.assertEqual(self.alarms(one, one, one, one), 0)
        self.assertEqual(self.alarms(one, one, one, one, one), 1)
        self.assertEqual(self.alarms(two, one, two, one), 0)
        self.assertEqual(self.alarms(two, one, two, 0, two), 1)
        self.assertEqual(self.alarms(far, 0, far), 0)
        self.assertEqual(self.alarms(far, far), 1)
        self.assertEqual(self.alarms(far, far, rule=self.RULE._replace(trusts_far=False)), 0)

    def test_flags_that_come_in_bursts_need_more(self):
        burst = [(list(range(1000)), [alarm.CLEAR * (500 <= i < 504) for i in range(1000)])]
        self.assertEqual(alarm.needed(burst, 1).short, 5)

    def test_a_point_is_no_alarm_a_share_is_one_and_names_its_rank(self):
        times = list(range(100))
        quiet, loud = [i == 10 for i in times], [alarm.CLEAR * (40 <= i < 50) for i in times]
        told = alarm.incidents({0: (times, quiet), 1: (times, loud), 2: (times, quiet)}, self.RULE)
        self.assertEqual(len(told), 1)
        self.assertEqual((told[0]["begin_s"], told[0]["first_s"], told[0]["end_s"], told[0]["ranks"]), (40, 42, 49, [1]))

    def test_what_comes_slowly_is_found_by_the_long_span(self):
        times = list(range(60))
        told = alarm.incidents({0: (times, [i % 4 == 0 for i in times])}, self.RULE)
        self.assertEqual([(one["begin_s"], one["first_s"]) for one in told], [(0, 20)])

    def test_one_that_is_back_soon_is_the_same_and_later_another(self):
        times = list(range(120))
        for begin, count in ((35, 1), (60, 2)):
            loud = [10 <= i < 20 or begin <= i < begin + 10 for i in times]
            self.assertEqual(len(alarm.incidents({0: (times, loud)}, self.RULE)), count)

    def test_all_ranks_at_once_name_nobody(self):
        times = list(range(20))
        self.assertEqual(alarm.incidents({rank: (times, [True] * 20) for rank in range(4)}, alarm.Counts(4, 6, True))[0]["ranks"], [])


@unittest.skipIf(baselines is None, "python3-sklearn is missing")
class Baselines(unittest.TestCase):
    def rows(self, folder, seconds, seed, wild=()):
        """Two ranks, two noisy features and one that is never there; `wild`: seconds in which rank 1 is far out."""
        rng, path = random.Random(seed), os.path.join(folder, f"{seed}.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("time_s,job,rank,pid,step_mean,cpu_cores,gpu_power\n")
            for second in range(seconds):
                for rank in range(2):
                    far = 5 if rank == 1 and second in wild else 0
                    file.write(f"{1000 + second}.0,a,{rank},{70 + rank},{0.1 + 0.01 * rng.gauss(far, 1):.4f},{rng.gauss(1 + far, 0.1):.4f},\n")
                file.write(f"{1000 + second}.0,b,0,99,1,1,1\n")
            file.write("2000.0,a,0,70,0.1")  # cut off
        return baselines.read_rows(path, {70, 71})

    def test_both_find_the_far_rank_and_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            clean, jobs = self.rows(folder, 900, 1)
            watched, _ = self.rows(folder, 300, 2, range(200, 220))
            self.assertEqual((jobs, len(clean.times), clean.features), ({"a"}, 1800, ["step_mean", "cpu_cores", "gpu_power"]))
            for method in baselines.methods():
                told = baselines.Calibrated(method, clean).incidents(watched)
                self.assertEqual([one["ranks"] for one in told], [[1]], method.name)
                self.assertTrue(1200 <= told[0]["first_s"] <= 1208, method.name)

    def test_too_few_clean_rows_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            clean, _ = self.rows(folder, 20, 1)
            with self.assertRaises(ValueError):
                baselines.Calibrated(baselines.Thresholds(), clean)


class Undoing(unittest.TestCase):
    def test_it_happens_when_asked_for_and_when_the_runner_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            asked, left = os.path.join(folder, "asked"), os.path.join(folder, "left")
            runner = f"""import sys, time
sys.path[:0] = {[TESTS, os.path.join(TESTS, 'watch')]!r}
from harness import host
from guard import Guard
guard = Guard()
guard.undo(guard.callback(host.write_file, {asked!r}, "undone"))
guard.callback(host.write_file, {left!r}, "undone")
print("ready", guard.process.pid, flush=True)
time.sleep(36000)  # allowed: it lives until it is killed
"""
            process = subprocess.Popen([sys.executable, "-c", runner], stdout=subprocess.PIPE, text=True)
            guard = os.pidfd_open(int(process.stdout.readline().split()[1]))
            self.assertTrue(os.path.exists(asked))
            self.assertFalse(os.path.exists(left))
            process.kill()
            process.communicate()
            self.assertTrue(select.select([guard], [], [], 600)[0], "the guard has not ended")
            os.close(guard)
            self.assertTrue(os.path.exists(left))

    def test_only_known_functions_are_taken(self):
        with Guard() as guard:
            self.assertRaises(ValueError, guard.callback, os.unlink, "x")

    def test_a_stranger_with_the_same_pid_is_spared(self):
        with subprocess.Popen(["sleep", "36000"]) as process:  # allowed: the process that is ended
            host.end_process(process.pid, host.start_ticks(process.pid) + 1)
            self.assertIsNone(process.poll())
            host.end_process(process.pid, host.start_ticks(process.pid))
            process.wait()


class StubJob:
    NAME, world, cores = "ddp", 4, [0, 1, 0, 1]

    def __init__(self, guard):
        self.guard = guard

    def check(self):
        pass

    def steps(self):
        return []


class Session(unittest.TestCase):
    def test_each_fault_of_the_plan_is_undone_and_written_down(self):
        """One that this machine cannot do is said to be so, and the next one comes."""
        def impossible(_job, _ranks, _dose):
            raise host.Impossible("no such thing here")

        with tempfile.TemporaryDirectory() as folder, Guard() as guard:
            mark = os.path.join(folder, "mark")
            kinds = {"marks": faults.Kind("marks", lambda job, _ranks, dose: [job.guard.callback(host.write_file, mark, f"undone {dose}")],
                                          "core", (2,), "", ("ddp",), ()),
                     "cannot": faults.Kind("cannot", impossible, "link", (1,), "", ("ddp",), ())}
            known, session.KINDS = session.KINDS, kinds
            try:
                with open(os.devnull, "w", encoding="ascii") as nowhere, contextlib.redirect_stdout(nowhere):
                    session.run_faults(StubJob(guard), None, [("cannot", 1), ("marks", 2)], random.Random(1), 0, None, folder, 0)
            finally:
                session.KINDS = known
            with open(os.path.join(folder, "truth.jsonl"), encoding="utf-8") as file:
                cannot, marks = map(json.loads, file)
            with open(mark, encoding="ascii") as file:
                self.assertEqual(file.read(), "undone 2")
        self.assertEqual((cannot["not_run"], cannot["ranks"]), ("no such thing here", []))
        self.assertIn(marks["ranks"], ([0, 2], [1, 3]))
        self.assertLessEqual(marks["begin_s"], marks["end_s"])

    def test_lines_of_the_agent_are_stamped_and_what_is_no_json_is_kept_apart(self):
        self.assertEqual(session.read_incident(b'{"id": "1"}'), {"incident": {"id": "1"}})
        self.assertEqual(session.read_incident(b'{"id'), {"unreadable": '{"id'})
        self.assertEqual(score.incidents_of([{"arrived_s": 1, "unreadable": "x"}]), [])


class Cost(unittest.TestCase):
    def test_pairs_compare_neighbouring_windows(self):
        ends = [0.1 * i for i in range(101)] + [10 + 0.2 * i for i in range(1, 51)]  # steps of 100 ms, then of 200 ms
        windows = [(False, 0.05, 9.95), (True, 10.05, 19.95), (True, 11, 19), (False, 1, 9), (True, 0, 0.3), (False, 1, 9)]
        changes = kit.pair_changes(windows, ends)
        self.assertEqual(len(changes), 2)  # the third pair has a window with too few steps
        for change in changes:
            self.assertAlmostEqual(change, 1.0)

    def test_the_interval_holds_the_median(self):
        middle, low, high = kit.median_interval([0.01 * i for i in range(101)])
        self.assertTrue(low < middle == 0.5 < high)
        self.assertEqual(kit.median_interval([3.0] * 9), (3.0, 3.0, 3.0))

    def test_mean_of_steps_within(self):
        self.assertEqual(session.mean_step_ms([1.0, 1.1, 1.2, 1.3, 5.0], 1.05, 1.35), 100.0)
        self.assertIsNone(session.mean_step_ms([1.0, 2.0], 0, 3))


class Soak(unittest.TestCase):
    def samples(self):
        """The first hour grows by 36 MB, the second by nothing."""
        return [{"time_s": 60.0 * i, "resident_bytes": 1e6 * (50 + 0.6 * min(i, 60)), "processes": i, "jobs": 1,
                 **{name: 7 for name in soak.MEASURES if name != "resident_bytes"}} for i in range(121)]

    def test_slopes_of_both_hours(self):
        first, second = soak.halves(self.samples())
        self.assertAlmostEqual(soak.slope_per_hour(first, "resident_bytes") / 1e6, 36.0)
        self.assertAlmostEqual(soak.slope_per_hour(second, "resident_bytes"), 0.0, delta=1.0)
        self.assertIn("| resident MB | 67.70 | 36.00 | 86.00 | 0.00 | 86.00 |", soak.report(self.samples()))

    def test_too_few_samples_are_no_soak(self):
        self.assertEqual(soak.report(self.samples()[:3]), "soak: not run yet")

    def test_a_process_can_be_sampled(self):
        seen = soak.sample(os.getpid())
        self.assertEqual(set(soak.MEASURES) - set(seen), set())
        self.assertGreater(seen["resident_bytes"], 1 << 20)


class Table(unittest.TestCase):
    def test_every_fault_says_what_an_incident_may_call_it(self):
        kinds = {"latency_spike", "hardware_fault", "communication_inefficiency", "resource_contention", "input_starvation",
                 "memory_growth"}
        self.assertGreaterEqual(len(faults.KINDS), 12)
        for kind in faults.KINDS.values():
            self.assertTrue(kind.kinds and set(kind.kinds) <= kinds, kind.name)
            self.assertIn(kind.victims, ("one", "core", "link", "all"), kind.name)

    def test_it_prints_what_is_done_and_what_is_not(self):
        with tempfile.TemporaryDirectory() as root:
            folder = os.path.join(root, "faults-ddp-1")
            os.mkdir(folder)
            facts = {"part": "faults-ddp-1", "begin_s": 0, "end_s": 1000, "pids": [7], "ranks": [7]}
            for name, lines in (("part.json", [facts]), ("truth.jsonl", [fault(100, 120)]), ("arrivals.jsonl", [line(104, 101, 121)])):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.writelines(json.dumps(one) + "\n" for one in lines)
            text = subprocess.run([sys.executable, os.path.join(TESTS, "watch/run.py"), "table", "--root", root], capture_output=True,
                                  text=True, check=True).stdout
        self.assertIn("| kansoku | 1 of 1 | 1.00 | 1.00 | 1.00 | 4.0 s |", text)
        self.assertIn("faults-ddp-2: not run yet", text)
        self.assertIn("faults-ddp-1: features", text)


if __name__ == "__main__":
    unittest.main()
