// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gpu/activity/activity.h"
#include "trace/model.h"
#include "trace/writer.h"

namespace kansoku::gpu::activity {

/// Writes calls and device operations as Kansoku records them. Times are microseconds after the
/// begin of the recording.
class Recording {
 public:
  using Value = std::variant<std::int64_t, std::string>;
  using Args = std::vector<std::pair<std::string, Value>>;
  struct Span {
    double begin_us{0}, end_us{0};
  };

  explicit Recording(trace::Writer& writer) : writer_(writer) {}

  void process(std::int32_t pid, std::int32_t rank, std::int32_t world_size);
  /// A slice on a thread; `end_us` < 0: it never ends.
  void host(std::int32_t pid, std::int32_t tid, std::string_view category, std::string_view name,
            Span span, const Args& args = {}, std::uint64_t flow = 0);
  /// A call of CUDA on the thread that has the number of its process.
  void call(std::int32_t pid, std::string_view name, Span span, const Args& args = {}) {
    host(pid, pid, "cuda", name, span, args);
  }
  /// An operation of stream `stream` on device 0; a correlation of 0 leaves the argument out.
  void op(std::int32_t pid, std::int64_t stream, std::string_view category, std::string_view name,
          Span span, std::uint64_t correlation, Args args = {}, std::uint64_t flow = 0);
  /// A launch call and its kernel.
  void kernel(std::int32_t pid, std::int64_t stream, std::string_view name, Span call, Span device,
              Args args = {});
  void memory(std::int32_t pid, double at_us, double bytes);
  /// Device times are on an axis of their own from here on.
  void device_clock() { clock_name_ = ", device clock"; }
  void meta(std::string_view key, std::string_view value);
  trace::Writer& writer() { return writer_; }

 private:
  void slice(trace::TrackHandle track, std::string_view category, std::string_view name, Span span,
             const Args& args, std::uint64_t flow);
  trace::Writer& writer_;
  std::map<std::int32_t, trace::TrackHandle> processes_, memories_;
  std::map<std::pair<std::int32_t, std::int64_t>, trace::TrackHandle> streams_;
  std::uint64_t next_correlation_{1};
  std::string clock_name_;
};

/// The recording that `fill` writes, read back. Aborts if it cannot be read.
[[nodiscard]] trace::Trace recording_of(const std::function<void(Recording&)>& fill);

/// The report of it; steps are those of process 100 if given.
[[nodiscard]] WorkReport report_for_test(const std::function<void(Recording&)>& fill,
                                         const std::vector<Recording::Span>& steps = {});

/// Nanoseconds of the recording's clock.
[[nodiscard]] std::int64_t ns_for_test(double us);

}  // namespace kansoku::gpu::activity
