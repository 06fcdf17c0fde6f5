#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The experiments E1 to E9 of docs/measurements/simulation-experiments.md: runs the examples, writes a report each, prints what they show as Markdown.

  tests/simulate/experiments.py KANSOKU OUTPUT_FOLDER [--data FOLDER] [--quick]

--quick: two replications of short spans, for the tests: that every example runs and that what must hold does. Exit 1 if a claim
fails; without the recordings that E1 to E3 need, those are skipped."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402

EXAMPLES = os.path.join(kit.ROOT, "examples", "simulate")
failed = []  # claims of the experiment that runs


def kansoku(*args):
    done = subprocess.run([OPTIONS.kansoku, "simulate", *args], capture_output=True, text=True)
    kit.expect(done.returncode == 0, f"kansoku simulate {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def out(name):
    return os.path.join(OPTIONS.output, name)


def result(*args):
    return json.loads(kansoku(*args, "--json", "-q"))


def metrics(summary):
    return {m["name"]: m for m in summary["metrics"]}


def claim(text, holds):
    print(f"- {'holds' if holds else '**does not hold**'}: {text}")
    if not holds:
        failed.append(text)


def shown(metric, digits=4):
    half = metric["high"] - metric["mean"]
    return f"{metric['mean']:.{digits}g} ± {half:.2g}"


def sweep(example, name, axes, extra=()):
    args = ["sweep", os.path.join(EXAMPLES, example)]
    for axis in axes:
        args += ["--vary", axis]
    if OPTIONS.quick:
        args += ["-r", "2"]
    return result(*args, *extra, "-o", out(name + ".json"), "--html", out(name + ".html"))


def difference(whole, variant, metric):
    for row in whole["comparisons"]:
        if row["variant"] == variant and row["metric"] == metric:
            return row["difference"]
    return None


def recorded(*names):
    path = os.path.join(OPTIONS.data, *names)
    kit.need(os.path.exists(path), f"no {path} (--data)")
    return path


def e1():
    print("\n## E1: data assets\n")
    table = recorded("pmlb", "all_summary_stats.tsv")
    fit = json.loads(kansoku("fit", table, "--assets", "rows=n_instances,columns=n_features", "--components", "15", "--json",
                             "-o", out("e1.json")))
    open(out("e1_assets.csv"), "w").write(kansoku("synth", out("e1.json"), "--count", "1000"))
    for margin in fit["margins"]:
        print(f"- {margin['name']}: KS {margin['ks']:.3f}, median {margin['median']['source']:.4g} recorded, "
              f"{margin['median']['model']:.4g} model")
    for pair in fit["log_correlations"]:
        print(f"- log correlation of {pair['pair']}: {pair['source']:+.3f} recorded, {pair['model']:+.3f} model")
    claim("log correlations within .05", all(abs(p["source"] - p["model"]) <= .05 for p in fit["log_correlations"]))


def e2_e3():
    print("\n## E2 and E3: durations and arrivals (Philly)\n")
    trace = recorded("philly", "philly_jobs_train.csv.gz")
    fit = json.loads(kansoku("fit", trace, "--from", "2017-09-25", "--json", "-o", out("e2.json"), "--html", out("e2_e3.html")))
    print("| family | AIC | KS | KS unseen, random | KS unseen, later |\n|---|---|---|---|---|")
    for row in fit["duration"]["families"]:
        print(f"| {row['family']} | {row['aic']:.0f} | {row['ks']:.4f} | {row['ks_held_out']:.4f} | {row['ks_held_out_temporal']:.4f} |")
    best = fit["duration"]["families"][0]
    claim(f"unseen KS of the chosen family at most .02 on a random split ({best['ks_held_out']:.4f})", best["ks_held_out"] <= .02)
    print(f"- the two parts of the later split differ by KS {fit['duration']['ks_between_parts']:.3f} themselves")
    hours = fit["hours_of_week"]
    tally = sorted(hours["families"].items(), key=lambda kv: -kv[1])
    print(f"- hours of week by family: {', '.join(f'{k} {v}' for k, v in tally)}; median KS {hours['ks_median']:.3f}")
    claim("exponentiated Weibull first of the three families", tally[0][0] == "exponentiated_weibull")
    kept = fit["arrivals"]["statistics"]
    print(f"- index of dispersion: {kept['index_of_dispersion']['source']:.0f} recorded, {kept['index_of_dispersion']['synthetic']:.0f} drawn; "
          f"not kept within a quarter: {', '.join(k for k, v in kept.items() if not v['kept']) or 'nothing'}")


def e4():
    print("\n## E4: four weeks of operation\n")
    args = ["-r", "2", "--set", "horizon=\"3d\""] if OPTIONS.quick else []
    run = result("run", os.path.join(EXAMPLES, "operations.toml"), *args, "-o", out("e4.json"), "--html", out("e4.html"))
    m = metrics(run)
    for name in ("cluster.training.utilisation", "task.build.train.wait_mean_s", "task.retrain.train.wait_mean_s",
                 "models.fleet.performance_mean", "cluster.training.node_failures"):
        print(f"- {name}: {shown(m[name])}")
    claim("the invariants hold and the report is complete", os.path.getsize(out("e4.html")) > 10_000)


def e5():
    print("\n## E5: capacity against load\n")
    slots, loads = [24, 28, 32, 40], ["0.8", "1.0", "1.2"]
    if OPTIONS.quick:
        slots, loads = [24, 40], ["0.8", "1.2"]
    extra = ["--set", "horizon=\"4d\""] if OPTIONS.quick else []
    whole = sweep("capacity.toml", "e5", ["clusters.training.slots=" + ",".join(map(str, slots)),
                                          "pipelines.build.arrivals.intensity=" + ",".join(loads)], extra)
    print("| slots | " + " | ".join(f"load × {x}" for x in loads) + " |\n|---" * 1 + "|---" * len(loads) + "|")
    waits = {}
    for variant in whole["variants"]:
        m = metrics(variant["summary"])
        waits[(int(variant["set"]["clusters.training.slots"]), variant["set"]["pipelines.build.arrivals.intensity"])] = (
            m["task.build.train.wait_mean_s"], m["cluster.training.utilisation"])
    for s in slots:
        print(f"| {s} | " + " | ".join(f"{shown(waits[s, x][0], 3)} s at {waits[s, x][1]['mean']:.2f}" for x in loads) + " |")
    claim("the wait falls with slots and rises with load",
          all(waits[slots[i], x][0]["mean"] >= waits[slots[i + 1], x][0]["mean"] for i in range(len(slots) - 1) for x in loads) and
          all(waits[s, loads[i]][0]["mean"] <= waits[s, loads[i + 1]][0]["mean"] for i in range(len(loads) - 1) for s in slots))


def e6():
    print("\n## E6: who goes first\n")
    policies = ["fifo", "priority", "shortest", "fair_share", "improvement"]
    extra = ["--set", "horizon=\"20d\""] if OPTIONS.quick else []
    whole = sweep("schedulers.toml", "e6", ["clusters.training.scheduler=" + ",".join(policies)], extra)
    print("| scheduler | performance, fast models | against FIFO | slow models | staleness of slow, days | wait of others, h |\n|---|---|---|---|---|---|")
    for i, variant in enumerate(whole["variants"]):
        m = metrics(variant["summary"])
        d = difference(whole, i, "models.fast.performance_mean")
        against = "" if d is None else f"{d['mean']:+.4f} [{d['low']:+.4f}, {d['high']:+.4f}]"
        print(f"| {policies[i]} | {shown(m['models.fast.performance_mean'])} | {against} | {shown(m['models.slow.performance_mean'])} | "
              f"{m['models.slow.staleness_mean_s']['mean'] / 86400:.2f} | {m['task.other.task0.wait_mean_s']['mean'] / 3600:.2f} |")
    if not OPTIONS.quick:
        d = difference(whole, policies.index("improvement"), "models.fast.performance_mean")
        claim("going by potential improvement deploys better fast models than FIFO (interval above 0)", d["low"] > 0)


def e7():
    print("\n## E7: when to retrain\n")
    triggers = ["never", "periodic", "staleness", "threshold", "cumulative", "cost_aware", "oracle"]
    extra = ["--set", "models.fleet.count=10"] if OPTIONS.quick else []
    whole = sweep("triggers.toml", "e7", ["models.fleet.trigger=" + ",".join(triggers)], extra)
    rows = []
    for i, variant in enumerate(whole["variants"]):
        m = metrics(variant["summary"])
        rows.append((m["models.fleet.loss_hours_avoided_per_unit_hour"]["mean"], triggers[i], m))
    print("Ranked by model quality per slot hour (loss hours avoided per slot hour of retraining):\n")
    print("| trigger | quality per slot hour | mean performance | retrainings | cost |\n|---|---|---|---|---|")
    for _, name, m in sorted(rows, key=lambda row: -row[0]):
        print(f"| {name} | {shown(m['models.fleet.loss_hours_avoided_per_unit_hour'])} | {shown(m['models.fleet.performance_mean'])} | "
              f"{shown(m['models.fleet.retrainings'])} | {shown(m['models.fleet.cost'])} |")
    cost = {name: m["models.fleet.cost"]["mean"] for _, name, m in rows}
    claim("no trigger costs less than the oracle", all(cost["oracle"] <= c for c in cost.values()))
    days = ["1", "5", "20", "60"]
    whole = sweep("triggers.toml", "e7_cooldown", ["models.fleet.loss=0.02,0.05", "models.fleet.cooldown=" + ",".join(f'"{d}d"' for d in days)], extra)
    count = [metrics(v["summary"])["models.fleet.retrainings"]["mean"] for v in whole["variants"]]
    print(f"\nThreshold × cool-down, retrainings: {', '.join(f'{c:.0f}' for c in count)} (loss .02 then .05; {', '.join(days)} days)\n")
    claim("retrainings fall as the cool-down grows", all(count[i] >= count[i + 1] for i in (0, 1, 2, 4, 5, 6)))


def e8():
    print("\n## E8: compression and hardening\n")
    shares = ["0.0", "0.3", "0.5", "0.7", "0.9"]
    whole = sweep("compression.toml", "e8", ["pipelines.build.tasks[1].pruned=" + ",".join(shares)])
    print("| pruned | performance | size, MB | inference, ms |\n|---|---|---|---|")
    values = []
    for share, variant in zip(shares, whole["variants"]):
        m = metrics(variant["summary"])
        row = [m["models.fleet.performance_mean"]["mean"], m["models.fleet.size_bytes_mean"]["mean"] / 1e6,
               m["models.fleet.inference_mean_s"]["mean"] * 1e3]
        values.append(row)
        print(f"| {share} | {row[0]:.4f} | {row[1]:.0f} | {row[2]:.2f} |")
    claim("monotone where the table is", all(a[k] >= b[k] for a, b in zip(values, values[1:]) for k in range(3)))


def e9():
    print("\n## E9: what simulating costs\n")
    days = [5, 10, 20] if OPTIONS.quick else [23, 46, 91, 182, 365]
    for records in (False, True):
        points = []
        for d in days:
            args = ["run", os.path.join(EXAMPLES, "pipelines.toml"), "--set", f"horizon=\"{d}d\"", "--set", "replications=1", "-j", "1"]
            if records:
                args += ["--records", out("e9.csv")]
            best = None
            for _ in range(1 if OPTIONS.quick else 3):
                begin = time.perf_counter()
                run = result(*args)
                took = time.perf_counter() - begin
                best = took if best is None else min(best, took)
            points.append((metrics(run)["pipeline.build.arrived"]["mean"], best))
        n = len(points)
        mx, my = sum(p[0] for p in points) / n, sum(p[1] for p in points) / n
        sxy = sum((x - mx) * (y - my) for x, y in points)
        sxx, syy = sum((x - mx) ** 2 for x, _ in points), sum((y - my) ** 2 for _, y in points)
        print(f"- {'records as CSV' if records else 'no records'}: " +
              ", ".join(f"{x:.0f} pipelines {y:.2f} s" for x, y in points) + f"; R² {sxy * sxy / sxx / syy:.4f}, {sxy / sxx * 1e6:.2f} µs a pipeline")
    if os.path.exists(out("e9.csv")):
        os.remove(out("e9.csv"))


def claims(experiment):
    failed.clear()
    experiment()
    return [f"does not hold: {text}" for text in failed]


def main(report):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kansoku")
    parser.add_argument("output")
    parser.add_argument("--data", default=os.path.join(kit.ROOT, "..", "shared", "data"))
    parser.add_argument("--quick", action="store_true")
    parser.parse_args(namespace=OPTIONS)
    os.makedirs(OPTIONS.output, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="quick-", dir=OPTIONS.output) as own_folder:
        if OPTIONS.quick:  # another run of the same test may be under way
            OPTIONS.output = own_folder
        for experiment in (e1, e2_e3, e4, e5, e6, e7, e8, e9):
            report.part(experiment.__name__.upper(), claims, experiment)
    print(f"\nreports: {OPTIONS.output}")


OPTIONS = argparse.Namespace()
kit.run(main)
