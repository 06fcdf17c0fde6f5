// SPDX-License-Identifier: Apache-2.0
#include "cli/cuda/live.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>

#include "detect/feature.h"

namespace kansoku::cli {
namespace {

using capture::cuda::Stuck;

std::string number_or_dash(const std::optional<double>& value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : std::string("-");
}

std::string seconds_text(double seconds) {
  return fmt::format("{:.1f} s", seconds);
}

void add_stuck_text(const CudaFrame& frame, const CudaSnapshot& snapshot, Lines& out) {
  for (const Stuck& one : frame.stuck)
    out.push_back(fmt::format(
        "  ! {}: {} on stream {} for {} (thread {})", capture::cuda::stuck_kind_name(one.kind),
        suspects_text(snapshot, one), one.stream.index, seconds_text(one.seconds), one.stream.tid));
}

Json row_json(const CudaRow& row) {
  Json out = Json::object();
  out.set("name", row.name);
  if (!row.full_name.empty()) out.set("full_name", row.full_name);
  out.set("calls_per_s", row.calls_per_s);
  if (row.bytes_per_s > 0) out.set("bytes_per_s", row.bytes_per_s);
  out.set("timed", row.timed);
  out.set("device_share", row.device_share ? Json(*row.device_share) : Json());
  out.set("mean_us", row.mean_us ? Json(*row.mean_us) : Json());
  out.set("p99_us", row.p99_us ? Json(*row.p99_us) : Json());
  return out;
}

const char* mode_name(capture::cuda::Mode mode) {
  constexpr std::array kNames{"dormant", "sampled", "every"};
  return kNames[static_cast<std::size_t>(mode)];
}

}  // namespace

Lines frame_text(const CudaFrame& frame, const CudaSnapshot& snapshot, std::size_t rows_max) {
  Lines out;
  const std::string timed = frame.mode == capture::cuda::Mode::kSampled
                                ? fmt::format("one operation in {} timed", frame.every_n)
                                : "every operation timed";
  out.push_back(fmt::format(
      "{:.0f} launches/s, {:.0f} errors/s, {}; own cost: {} ns + {} ns of "
      "events a timed operation, thread {:.2f} % of a core",
      frame.launches_per_s, frame.failed_per_s, timed, number_or_dash(frame.own_ns, "{:.0f}"),
      number_or_dash(frame.events_ns, "{:.0f}"), 100 * frame.poller_share));
  for (const capture::cuda::Waiter& waiter : frame.waiters) {
    const double seconds = waiter.since_ns < frame.now_ns
                               ? 1e-9 * static_cast<double>(frame.now_ns - waiter.since_ns)
                               : 0;
    if (seconds >= 1)
      out.push_back(fmt::format("  thread {} waits in {} for {}", waiter.tid, waiter.entry,
                                seconds_text(seconds)));
  }
  add_stuck_text(frame, snapshot, out);
  out.push_back(fmt::format("{:>8} {:>11} {:>10} {:>10}  {}", "DEVICE", "CALLS/S", "MEAN us",
                            "P99 us", "KERNEL"));
  const auto add_row = [&](const CudaRow& row) {
    const std::string share =
        row.device_share ? fmt::format("{:.1f} %", 100 * *row.device_share) : std::string("-");
    out.push_back(fmt::format(
        "{:>8} {:>11.0f} {:>10} {:>10}  {}{}", share, row.calls_per_s,
        number_or_dash(row.mean_us, "{:.1f}"), number_or_dash(row.p99_us, "{:.1f}"), row.name,
        row.bytes_per_s > 0 ? ", " + detect::format_value(row.bytes_per_s, "bytes/s") : ""));
  };
  for (std::size_t i = 0; i < frame.kernels.size() && i < rows_max; ++i)
    add_row(frame.kernels[i]);
  if (frame.kernels.size() > rows_max) {
    CudaRow rest{"(other kernels)", "", 0, {}, {}, {}, 0, 0};
    for (std::size_t i = rows_max; i < frame.kernels.size(); ++i) {
      rest.calls_per_s += frame.kernels[i].calls_per_s;
      if (frame.kernels[i].device_share)
        rest.device_share = rest.device_share.value_or(0) + *frame.kernels[i].device_share;
    }
    add_row(rest);
  }
  out.push_back(fmt::format("{:>8} {:>11} {:>10} {:>10}  {}", "", "", "", "", "OTHER CALLS"));
  for (const CudaRow& row : frame.others)
    add_row(row);
  return out;
}

Json frame_json(const CudaFrame& frame, const CudaSnapshot& snapshot) {
  Json kernels = Json::array(), others = Json::array(), waiting = Json::array(),
       stuck = Json::array();
  for (const CudaRow& row : frame.kernels)
    kernels.push(row_json(row));
  for (const CudaRow& row : frame.others)
    others.push(row_json(row));
  for (const capture::cuda::Waiter& waiter : frame.waiters) {
    const double seconds = waiter.since_ns < frame.now_ns
                               ? 1e-9 * static_cast<double>(frame.now_ns - waiter.since_ns)
                               : 0;
    waiting.push(
        Json::object().set("thread", waiter.tid).set("call", waiter.entry).set("seconds", seconds));
  }
  for (const Stuck& one : frame.stuck)
    stuck.push(Json::object()
                   .set("kind", capture::cuda::stuck_kind_name(one.kind))
                   .set("operation", suspects_text(snapshot, one))
                   .set("stream", one.stream.index)
                   .set("thread", one.stream.tid)
                   .set("seconds", one.seconds)
                   .set("deadline_s", one.deadline_s));
  return Json::object()
      .set("seconds", frame.seconds)
      .set("mode", mode_name(frame.mode))
      .set("every_n", frame.every_n)
      .set("launches_per_s", frame.launches_per_s)
      .set("errors_per_s", frame.failed_per_s)
      .set("kernels", std::move(kernels))
      .set("others", std::move(others))
      .set("waiting", std::move(waiting))
      .set("stuck", std::move(stuck))
      .set("cost", Json::object()
                       .set("own_ns", frame.own_ns ? Json(*frame.own_ns) : Json())
                       .set("events_ns", frame.events_ns ? Json(*frame.events_ns) : Json())
                       .set("thread_share", frame.poller_share));
}

}  // namespace kansoku::cli
