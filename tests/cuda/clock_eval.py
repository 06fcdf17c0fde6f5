#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clock_eval.py KANSOKU PLANNED OUT MINUTES [SKEW]: the map of the event clock to the boot clock, over a long time.

A program launches kernels now and then on the software device, whose event clock is set apart by SKEW [offset_us=-123456.789,drift_ppm=50]. The
executor writes when each event was reached and each kernel ran, on the boot clock, read at that moment; the recorder knows neither these nor the
skew. Each recorded begin and end is held against the event that it comes from: the deviation may be no larger than the error that the recording
states for the times of that moment (its counter "error of device times"), and each recorded kernel has to contain the executor's within it."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import kit  # noqa: E402
from recorded import clock_maps, events_around, read_operations, read_recording, record, stated_errors  # noqa: E402

SHARES = (0.5, 0.9, 0.99, 1)


def percentiles(values):
    values = sorted(values)
    return ", ".join(f"{'max' if share == 1 else f'p{share * 100:.0f}'} {values[min(len(values) - 1, int(share * len(values)))] / 1e3:.1f}" for share in SHARES)


def main(report):
    kansoku, planned, out, minutes, *skews = kit.words(__doc__, 4, 5)
    seconds, skew = float(minutes) * 60, (skews or ["offset_us=-123456.789,drift_ppm=50"])[0]
    os.makedirs(out, exist_ok=True)
    trace, log = record(kansoku, out, "clock", [planned, "ticks", os.path.join(out, "ticks.txt"), str(seconds)],
                        {"KANSOKU_SOFTGPU_EVENT_CLOCK": skew, "KANSOKU_SOFTGPU_FAULT": "kernel=tick:1+:slow=1ms"})
    operations = read_operations(log)
    around = events_around(operations)
    kernels = sorted((one for one in operations if one.what == "kernel"), key=lambda one: one.host_begin)
    recording = read_recording(trace)
    seen = sorted((one for one in recording.slices if one.category == "kernel"), key=lambda one: one.begin)
    (clock,) = clock_maps(recording.metadata)
    stated_at = stated_errors(recording)
    if len(seen) != len(kernels) or clock["restarts"] != "0":
        raise kit.Wrong(f"{len(kernels)} kernels by the executor, {len(seen)} recorded; {clock}")
    begins, ends, errors, shares, outside = [], [], [], [], 0
    for one, ran in zip(seen, kernels):
        before, after = around(ran)
        stated = stated_at(one.order)
        begins.append(abs(one.begin - before.host_begin))
        ends.append(abs(one.end - after.host_begin))
        errors.append(stated)
        shares.append(max(begins[-1], ends[-1]) / stated)
        outside += one.begin > ran.host_begin + stated or one.end < ran.host_end - stated
    lasted = (kernels[-1].host_end - kernels[0].host_begin) / 1e9
    drift = [word for word in skew.split(",") if word.startswith("drift_ppm=")]
    print(f"{len(kernels)} kernels over {lasted:.1f} s, {skew}: the clock moved by {lasted * float(drift[0][10:]) if drift else 0:.0f} us")
    print(f"begins off by us: {percentiles(begins)}\nends off by us: {percentiles(ends)}")
    print(f"stated error us: {percentiles(errors)}; worst_error_ns={clock['worst_error_ns']}; {outside} kernels not contained")
    beyond, worst = sum(share > 1 for share in shares), max(range(len(shares)), key=lambda i: shares[i])
    print(f"largest share of the stated error: {100 * shares[worst]:.1f} %, {max(begins[worst], ends[worst]) / 1e3:.1f} of {errors[worst] / 1e3:.1f} us, "
          f"{(kernels[worst].host_begin - kernels[0].host_begin) / 1e9:.1f} s after the first kernel; {beyond} kernels beyond it")
    report.judge("clock", beyond + outside)


kit.run(main)
