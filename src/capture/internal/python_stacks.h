// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/python/sampler.h"
#include "capture/source.h"
#include "common/result.h"
#include "trace/writer.h"

namespace kansoku::capture {

/// The Python stacks of all processes that have some, at a fixed rate; and with them the page
/// faults of each main thread so far (counter "minor faults at stacks"), where they have changed.
class PythonStacks final : public Source {
 public:
  /// python::Process::attach of a process.
  using Attach = std::function<Result<std::unique_ptr<python::Process>>(std::int32_t pid)>;

  /// Borrows writer and clock. `hz` > 0.
  PythonStacks(trace::Writer& writer, const Clock& clock, std::uint32_t hz, Attach attach,
               std::function<void(const std::string&)> log);

  [[nodiscard]] std::string_view name() const override { return "python_stacks"; }
  void inspect(const Observed& process, BootTime now) override;
  [[nodiscard]] bool has_stacks(std::int32_t pid) const override;
  void renew(std::int32_t pid) override { processes_.erase(pid); }
  void forget(std::int32_t pid) override { processes_.erase(pid); }
  [[nodiscard]] BootTime due() const override;
  void poll(const Processes& processes, BootTime now) override;
  void begin_trace(BootTime now) override;
  void end_trace(BootTime now) override;
  void set_enabled(bool enabled) override { is_enabled_ = enabled; }
  void add_losses(Losses& out) const override;

  /// Samples in the present trace.
  [[nodiscard]] std::uint64_t samples() const { return samples_; }

 private:
  struct Sampled {
    std::unique_ptr<python::Process> python;
    bool is_refused{false};                   // an unknown Python: not tried again until it execs
    std::optional<BootTime> doubted_since{};  // that it is a known one
    std::unordered_map<std::uint64_t, trace::FrameHandle> frames;  // by PyFrame::cache_key
    std::optional<trace::TrackHandle> faults_track{};
    std::optional<std::uint64_t> faults{};  // as written last
  };
  void sample(std::int32_t pid, Sampled& process, BootTime now);
  void write_faults(std::int32_t pid, Sampled& process, std::uint64_t faults, BootTime now);
  void write(std::int32_t pid, Sampled& process, const python::PyStack& stack, BootTime now);

  trace::Writer& writer_;
  Attach attach_;
  const Clock& clock_;
  Nanos every_;
  std::function<void(const std::string&)> log_;
  bool is_enabled_{true}, is_open_{false};
  BootTime next_{};
  std::map<std::int32_t, Sampled> processes_;  // by pid
  std::uint64_t samples_{0}, torn_{0}, truncated_{0}, refused_{0};
  std::vector<python::PyStack> stacks_;        // scratch
  std::vector<trace::FrameHandle> frame_ids_;  // scratch
};

}  // namespace kansoku::capture
