// SPDX-License-Identifier: Apache-2.0
#include "cli/cuda/live.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "detect/feature.h"
#include "sys/clock.h"
#include "sys/kernel_name.h"

namespace kansoku::cli {
namespace {

using capture::cuda::Durations;
using capture::cuda::Stuck;

/// By enum wire_cuda_class.
constexpr std::array<const char*, WIRE_CUDA_CLASSES> kClassNames{
    "?",    "kernel",      "graph", "copy",  "set",    "host function", "value", "allocation",
    "free", "synchronise", "query", "event", "module", "look-up",       "object"};

const char* class_name(std::uint32_t what) {
  return what < kClassNames.size() ? kClassNames[what] : "?";
}

bool is_stream_operation(std::uint32_t what) {
  return what >= WIRE_CUDA_LAUNCH && what <= WIRE_CUDA_VALUE;
}

std::string short_name(const capture::cuda::KernelInfo& kernel) {
  return kernel.name.empty() ? fmt::format("function@{:#x}", kernel.handle)
                             : sys::short_kernel_name(kernel.name);
}

CudaRow row_of(const std::string& name, const std::string& full_name, double calls,
               const Durations& timed, double seconds) {
  CudaRow row{name, full_name == name ? "" : full_name, calls / seconds, {}, {}, {}, timed.count,
              0};
  if (timed.count == 0) return row;
  const double mean_ns = static_cast<double>(timed.total_ns) / static_cast<double>(timed.count);
  row.mean_us = mean_ns * 1e-3;
  row.p99_us = timed.at_most_ns(0.99) * 1e-3;
  row.device_share = mean_ns * calls * 1e-9 / seconds;
  return row;
}

void sort_by_share(std::vector<CudaRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const CudaRow& a, const CudaRow& b) {
    const double left = a.device_share.value_or(-1), right = b.device_share.value_or(-1);
    return left != right ? left > right : a.calls_per_s > b.calls_per_s;
  });
}

struct ClassTotals {
  std::uint64_t calls{0}, failed{0}, bytes{0};
};
std::map<std::uint32_t, ClassTotals> totals_of(const CudaSnapshot& snapshot) {
  std::map<std::uint32_t, ClassTotals> out;
  for (const capture::cuda::EntryTotals& entry : snapshot.entries) {
    ClassTotals& to = out[entry.what];
    to.calls += entry.calls - std::min(entry.calls, entry.failed + entry.captured);
    to.failed += entry.failed;
    to.bytes += entry.bytes;
  }
  return out;
}

double difference(std::uint64_t after, std::uint64_t before) {
  return after > before ? static_cast<double>(after - before) : 0;
}

void add_kernels(const CudaSnapshot& before, const CudaSnapshot& after, CudaFrame& out) {
  for (const auto& [index, kernel] : after.kernels) {
    const auto old = before.kernels.find(index);
    const bool is_new = old == before.kernels.end();
    const double calls = difference(kernel.info.launches, is_new ? 0 : old->second.info.launches);
    if (calls == 0) continue;
    const Durations timed =
        is_new ? kernel.durations : kernel.durations.since(old->second.durations);
    out.kernels.push_back(
        row_of(short_name(kernel.info), kernel.info.name, calls, timed, out.seconds));
  }
  sort_by_share(out.kernels);
}

void add_others(const CudaSnapshot& before, const CudaSnapshot& after, CudaFrame& out) {
  const auto old = totals_of(before);
  for (const auto& [what, totals] : totals_of(after)) {
    const auto found = old.find(what);
    const ClassTotals earlier = found == old.end() ? ClassTotals{} : found->second;
    const double calls = difference(totals.calls, earlier.calls);
    out.failed_per_s += difference(totals.failed, earlier.failed) / out.seconds;
    if (what == WIRE_CUDA_LAUNCH) out.launches_per_s = calls / out.seconds;
    if (what == WIRE_CUDA_LAUNCH || calls == 0) continue;
    const auto timed = after.classes.find(what);
    const auto timed_before = before.classes.find(what);
    Durations durations;
    if (timed != after.classes.end())
      durations = timed_before == before.classes.end() ? timed->second
                                                       : timed->second.since(timed_before->second);
    CudaRow row = row_of(class_name(what), class_name(what), calls, durations, out.seconds);
    row.bytes_per_s = difference(totals.bytes, earlier.bytes) / out.seconds;
    if (!is_stream_operation(what)) row.device_share.reset();
    out.others.push_back(std::move(row));
  }
  sort_by_share(out.others);
}

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

CudaSnapshot snapshot_of(const capture::cuda::Channel& channel) {
  CudaSnapshot out;
  out.at_ns = static_cast<std::uint64_t>(sys::RealClock().now().time_since_epoch().count());
  out.state = channel.state();
  out.entries = channel.entries();
  out.streams = channel.streams();
  out.waiters = channel.waiters();
  const std::uint32_t count = channel.kernel_count();
  for (std::uint32_t i = 0; i < count; ++i) {
    auto info = channel.kernel(i);
    if (info && info->launches + info->captured > 0)
      out.kernels[i] = {std::move(*info), channel.kernel_durations(i)};
  }
  for (std::uint32_t what = WIRE_CUDA_GRAPH_LAUNCH; what <= WIRE_CUDA_VALUE; ++what)
    out.classes[what] = channel.class_durations(what);
  return out;
}

std::string operation_name(const CudaSnapshot& snapshot, const capture::cuda::Suspect& operation) {
  if (operation.what == WIRE_CUDA_EVENT) return "wait for an event";
  if (operation.what != WIRE_CUDA_LAUNCH) return class_name(operation.what);
  const auto found = snapshot.kernels.find(operation.kernel);
  return found == snapshot.kernels.end() ? std::string("kernel ?")
                                         : "kernel " + short_name(found->second.info);
}

std::string suspects_text(const CudaSnapshot& snapshot, const Stuck& stuck) {
  if (stuck.suspects.size() == 1 && stuck.forgotten == 0)
    return operation_name(snapshot, stuck.suspects[0]);
  std::vector<std::string> names;
  for (const capture::cuda::Suspect& one : stuck.suspects) {
    std::string name = operation_name(snapshot, one);
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  }
  constexpr std::size_t kNamesShown = 6;
  const std::size_t more = names.size() > kNamesShown ? names.size() - kNamesShown : 0;
  names.resize(names.size() - more);
  return fmt::format("one of {} operations ({}{})", stuck.suspects.size() + stuck.forgotten,
                     fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::vector<Stuck> stuck_in(const CudaSnapshot& snapshot) {
  const auto history = [&](std::uint32_t what,
                           std::uint32_t kernel) -> std::optional<capture::cuda::History> {
    const Durations* durations = nullptr;
    if (what == WIRE_CUDA_LAUNCH) {
      const auto found = snapshot.kernels.find(kernel);
      if (found != snapshot.kernels.end()) durations = &found->second.durations;
    } else if (const auto found = snapshot.classes.find(what); found != snapshot.classes.end()) {
      durations = &found->second;
    }
    if (durations == nullptr) return std::nullopt;
    return capture::cuda::History{durations->count, durations->at_most_ns(0.99)};
  };
  std::uint64_t waiting_since_ns = 0;
  for (const capture::cuda::Waiter& waiter : snapshot.waiters)
    if (waiting_since_ns == 0 || waiter.since_ns < waiting_since_ns)
      waiting_since_ns = waiter.since_ns;
  return capture::cuda::find_stuck(snapshot.streams, snapshot.at_ns, history, waiting_since_ns);
}

CudaFrame frame_between(const CudaSnapshot& before, const CudaSnapshot& after) {
  CudaFrame out;
  out.now_ns = after.at_ns;
  out.seconds = std::max(1e-3, 1e-9 * static_cast<double>(after.at_ns - before.at_ns));
  out.mode = after.state.mode <= WIRE_CUDA_EVERY
                 ? static_cast<capture::cuda::Mode>(after.state.mode)
                 : capture::cuda::Mode::kDormant;
  out.every_n = out.mode == capture::cuda::Mode::kSampled ? after.state.every_n : 1;
  out.poller_share =
      difference(after.state.poller_cpu_ns, before.state.poller_cpu_ns) * 1e-9 / out.seconds;
  if (const double sampled = difference(after.state.sampled, before.state.sampled); sampled > 0) {
    out.own_ns = difference(after.state.own_ns, before.state.own_ns) / sampled;
    out.events_ns = difference(after.state.event_ns, before.state.event_ns) / sampled;
  }
  add_kernels(before, after, out);
  add_others(before, after, out);
  out.waiters = after.waiters;
  out.stuck = stuck_in(after);
  return out;
}

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
