// SPDX-License-Identifier: Apache-2.0
#include "detect/feature.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <string>
#include <tuple>
#include <vector>

namespace kansoku::detect {
namespace {

constexpr std::array<std::string_view, 7> kLayerNames{"python",    "torch", "cuda", "collective",
                                                      "inference", "gpu",   "host"};

using enum Layer;
using enum Scale;
using enum Use;

// clang-format off
constexpr std::array kFeatures{
    Feature{"gc_share", "ratio", kPython, kLinear, kModelled, .02, 1, "time in Python's garbage collector over time"},
    Feature{"step_rate", "1/s", kTorch, kLog, kModelled, .2, -1, "training steps (backward passes of the autograd engine) a second"},
    Feature{"step_mean", "s", kTorch, kLog, kModelled, 1e-3, 1, "mean time from one backward pass to the next"},
    Feature{"step_max", "s", kTorch, kLog, kModelled, 2e-3, 1, "longest time from one backward pass to the next"},
    Feature{"backward_mean", "s", kTorch, kLog, kModelled, 1e-3, 1, "mean time in backward, waiting for peers included"},
    Feature{"forward_mean", "s", kTorch, kLog, kModelled, 1e-3, 1, "mean time outside backward in a step: input, forward, optimizer"},
    Feature{"input_share", "ratio", kTorch, kLinear, kModelled, .03, 1, "time waiting for the data loader over time"},
    Feature{"optimizer_share", "ratio", kTorch, kLinear, kModelled, .03, 1, "time in optimizer steps over time"},
    Feature{"launch_rate", "1/s", kCuda, kLog, kModelled, 5, -1, "kernel launches a second"},
    Feature{"launch_mean", "s", kCuda, kLog, kModelled, 5e-6, 1, "mean time of a launch call"},
    Feature{"sync_share", "ratio", kCuda, kLinear, kModelled, .03, 1, "time waiting for the device over time, summed over threads"},
    Feature{"sync_mean", "s", kCuda, kLog, kModelled, 1e-4, 1, "mean time of a wait for the device"},
    Feature{"copy_share", "ratio", kCuda, kLinear, kModelled, .03, 1, "time in copy calls over time, summed over threads"},
    Feature{"alloc_rate", "1/s", kCuda, kLog, kModelled, 1, 0, "allocations and frees of device memory a second"},
    Feature{"kernel_share", "ratio", kCuda, kLinear, kModelled, .05, -1, "device time of kernels and graphs over time, by the times of one in N"},
    Feature{"kernel_mean", "s", kCuda, kLog, kModelled, 1e-6, 1, "mean time of a kernel on the device"},
    Feature{"copy_bytes", "bytes/s", kCuda, kLog, kModelled, 1e4, 0, "bytes of copies from, to and on the device"},
    Feature{"collective_rate", "1/s", kCollective, kLog, kModelled, .5, -1, "collectives a second"},
    Feature{"collective_mean", "s", kCollective, kLog, kModelled, 1e-4, 1, "mean time of a collective"},
    Feature{"collective_p99", "s", kCollective, kLog, kModelled, 1e-3, 1, "99th percentile of a collective's time"},
    Feature{"collective_share", "ratio", kCollective, kLinear, kModelled, .05, 1, "time in collectives over time, summed over threads"},
    Feature{"collective_bytes", "bytes/s", kCollective, kLog, kModelled, 1e3, 0, "payload of collectives"},
    Feature{"decode_rate", "1/s", kInference, kLog, kModelled, .5, -1, "llama_decode calls a second"},
    Feature{"decode_mean", "s", kInference, kLog, kModelled, 1e-5, 1, "mean time of a llama_decode call"},
    Feature{"decode_p99", "s", kInference, kLog, kModelled, 5e-5, 1, "99th percentile of a llama_decode call"},
    Feature{"graph_mean", "s", kInference, kLog, kModelled, 1e-5, 1, "mean time of a graph of ggml on the processor"},
    Feature{"graph_share", "ratio", kInference, kLinear, kModelled, .03, 0, "time in graphs of ggml over time, summed over callers"},
    Feature{"gpu_utilization", "ratio", kGpu, kLinear, kModelled, .05, -1, "share of time in which a kernel ran on the device"},
    Feature{"gpu_process_utilization", "ratio", kGpu, kLinear, kModelled, .05, -1, "the same, of this process"},
    Feature{"gpu_memory_used", "bytes", kGpu, kLog, kShown, 1e6, 0, "memory in use on the device"},
    Feature{"gpu_process_memory", "bytes", kGpu, kLog, kGrowth, 1e6, 1, "memory of this process on the device"},
    Feature{"gpu_process_growth", "bytes/s", kGpu, kLog, kModelled, 5e4, 1, "by how much it rose above the highest of the last half minute"},
    Feature{"gpu_memory_room", "bytes", kGpu, kLog, kShown, 1e6, -1, "memory that is left on the device"},
    Feature{"gpu_sm_clock", "hertz", kGpu, kLinear, kModelled, 2e7, -1, "clock of the multiprocessors"},
    Feature{"gpu_memory_clock", "hertz", kGpu, kLinear, kModelled, 2e7, -1, "clock of the device's memory"},
    Feature{"gpu_power", "watts", kGpu, kLinear, kModelled, 5, 0, "power drawn by the device"},
    Feature{"gpu_temperature", "celsius", kGpu, kLinear, kModelled, 2, 1, "temperature of the device"},
    Feature{"gpu_throttled", "ratio", kGpu, kLinear, kModelled, .02, 1, "share of looks at which heat or hardware held the clock down"},
    Feature{"gpu_ecc_errors", "1/s", kGpu, kLinear, kModelled, .1, 1, "memory errors of the device, corrected and not, a second"},
    Feature{"gpu_xid", "1/s", kGpu, kLinear, kEvent, .1, 1, "XID errors reported by the driver a second"},
    Feature{"gpu_pcie_bytes", "bytes/s", kGpu, kLog, kModelled, 1e6, 0, "traffic over PCIe, both directions"},
    Feature{"gpu_pcie_replays", "1/s", kGpu, kLinear, kModelled, .1, 1, "PCIe replays a second"},
    Feature{"gpu_nvlink_bytes", "bytes/s", kGpu, kLog, kModelled, 1e6, 0, "traffic over NVLink, both directions"},
    Feature{"cpu_cores", "ratio", kHost, kLog, kModelled, .02, 0, "processor time over time: 1 is one core"},
    Feature{"cpu_wait", "ratio", kHost, kLog, kModelled, .05, 1, "time in which threads could run and had no processor, over time"},
    Feature{"switches", "1/s", kHost, kLog, kModelled, 20, 0, "context switches a second that a thread asked for"},
    Feature{"preemptions", "1/s", kHost, kLog, kModelled, 20, 0, "context switches a second that took a thread off its processor"},
    Feature{"minor_faults", "1/s", kHost, kLog, kModelled, 100, 0, "page faults a second served from memory"},
    Feature{"faults_per_step", "", kHost, kLog, kModelled, 50, 1, "page faults served from memory, a training step"},
    Feature{"system_share", "ratio", kHost, kLinear, kModelled, .05, 1, "processor time in the kernel over time: 1 is one core"},
    Feature{"major_faults", "1/s", kHost, kLog, kModelled, 2, 1, "page faults a second that needed the disk"},
    Feature{"stopped_share", "ratio", kHost, kLinear, kModelled, .02, 1, "time in which the process was stopped by a signal over time"},
    Feature{"disk_wait", "ratio", kHost, kLinear, kModelled, .5, 1, "threads in uninterruptible sleep, mean over the window's looks"},
    Feature{"resident_bytes", "bytes", kHost, kLog, kGrowth, 1e6, 1, "resident memory"},
    Feature{"resident_growth", "bytes/s", kHost, kLog, kModelled, 5e4, 1, "by how much it rose above the highest of the last half minute"},
    Feature{"memory_room", "bytes", kHost, kLog, kShown, 1e6, -1, "memory that is left until the limit of the host or of a control group"},
    Feature{"read_bytes", "bytes/s", kHost, kLog, kModelled, 1e4, 0, "read from block devices"},
    Feature{"write_bytes", "bytes/s", kHost, kLog, kModelled, 1e4, 0, "written to block devices"},
    Feature{"block_latency", "s", kHost, kLog, kModelled, 5e-4, 1, "mean time of a block request of this process"},
    Feature{"tcp_bytes", "bytes/s", kHost, kLog, kModelled, 1e4, 0, "acknowledged and received over TCP by this process"},
    Feature{"tcp_rtt", "s", kHost, kLog, kModelled, 2e-4, 1, "smoothed round-trip time, mean over connections with traffic"},
    Feature{"tcp_retransmits", "1/s", kHost, kLog, kModelled, 1, 1, "TCP segments sent again a second"},
    Feature{"throttled_share", "ratio", kHost, kLinear, kModelled, .02, 1, "time held back by the processor quota of the control group over time"},
    Feature{"psi_cpu", "ratio", kHost, kLinear, kModelled, .05, 1, "share of time in which some task of the host waited for a processor"},
    Feature{"psi_io", "ratio", kHost, kLinear, kModelled, .05, 1, "share of time in which some task of the host waited for I/O"},
    Feature{"psi_memory", "ratio", kHost, kLinear, kModelled, .02, 1, "share of time in which some task of the host waited for memory"},
    Feature{"thread_count", "", kHost, kLog, kShown, 1, 0, "threads of the process"},
};
// clang-format on

}  // namespace

std::string_view layer_name(Layer layer) {
  return kLayerNames.at(static_cast<std::size_t>(layer));
}

std::optional<Layer> layer_from_name(std::string_view name) {
  const auto found = std::find(kLayerNames.begin(), kLayerNames.end(), name);
  if (found == kLayerNames.end()) return std::nullopt;
  return static_cast<Layer>(found - kLayerNames.begin());
}

namespace {

std::vector<Feature>& all_features() {
  static std::vector<Feature> features(kFeatures.begin(), kFeatures.end());
  return features;
}

bool operator==(const Feature& a, const Feature& b) {
  return std::tie(a.name, a.unit, a.layer, a.scale, a.use, a.floor, a.worse, a.meaning) ==
         std::tie(b.name, b.unit, b.layer, b.scale, b.use, b.floor, b.worse, b.meaning);
}

}  // namespace

std::span<const Feature> known_features() {
  return all_features();
}

Result<void> add_feature(const Feature& feature) {
  static std::deque<std::string> texts;
  std::vector<Feature>& all = all_features();
  if (const int known = feature_index(feature.name); known >= 0) {
    if (all[static_cast<std::size_t>(known)] == feature) return {};
    return Error{Code::kCorrupt,
                 fmt::format("add feature {}: one of that name is there", feature.name)};
  }
  if (all.size() >= kFeaturesMax)
    return Error{Code::kLimit,
                 fmt::format("add feature {}: more than {}", feature.name, kFeaturesMax)};
  Feature owned = feature;
  for (std::string_view* text : {&owned.name, &owned.unit, &owned.meaning})
    *text = texts.emplace_back(*text);
  all.push_back(owned);
  return {};
}

int feature_index(std::string_view name) {
  const std::vector<Feature>& all = all_features();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Feature& feature) { return feature.name == name; });
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

namespace {

struct Step {
  double from, divisor;
  std::string_view unit;
};

std::string in_steps(double value, std::span<const Step> steps) {
  const double size = std::fabs(value);
  for (const Step& step : steps) {
    if (size >= step.from) return fmt::format("{:.3g} {}", value / step.divisor, step.unit);
  }
  return fmt::format("{:.3g} {}", value / steps.back().divisor, steps.back().unit);
}

constexpr std::array kSeconds{Step{1, 1, "s"}, Step{1e-3, 1e-3, "ms"}, Step{0, 1e-6, "us"}};
constexpr std::array kBytes{Step{1e9, 1e9, "GB"}, Step{1e6, 1e6, "MB"}, Step{1e3, 1e3, "kB"},
                            Step{0, 1, "B"}};
constexpr std::array kHertz{Step{1e9, 1e9, "GHz"}, Step{1e6, 1e6, "MHz"}, Step{0, 1, "Hz"}};

}  // namespace

std::string format_value(double value, std::string_view unit) {
  if (!std::isfinite(value)) return "unknown";
  if (unit == "s") return value == 0 ? "0 s" : in_steps(value, kSeconds);
  if (unit == "bytes") return in_steps(value, kBytes);
  if (unit == "bytes/s") return in_steps(value, kBytes) + "/s";
  if (unit == "hertz") return in_steps(value, kHertz);
  if (unit == "ratio") return fmt::format("{:.3g} %", value * 100);
  if (unit == "celsius") return fmt::format("{:.0f} C", value);
  if (unit == "watts") return fmt::format("{:.3g} W", value);
  if (unit == "1/s") return fmt::format("{:.3g}/s", value);
  return unit.empty() ? fmt::format("{:.4g}", value) : fmt::format("{:.4g} {}", value, unit);
}

}  // namespace kansoku::detect
