// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/internal/stub_names.h"
#include "capture/lifecycle.h"
#include "capture/outside/tally.h"
#include "capture/probe_table.h"
#include "common/stat.h"
#include "wire/ring.h"

namespace kansoku::capture {

STAT(capture_cuda_unnamed_launches, kNotice, kCapture,
     "launches of kernels without a name: the program ran before the recording and nothing told "
     "which kernel a handle is");
STAT(capture_cuda_unknown_graphs, kNotice, kCapture,
     "launches of CUDA graphs that were made before the recording, or in ways that do not tell "
     "their kernels");
STAT(capture_cuda_names_dropped, kNotice, kCapture,
     "names of kernels that were given up, because records were lost or their module ended");
STAT(capture_cuda_ends_unseen, kNotice, kCapture,
     "CUDA calls whose return was not seen: the thread ended in them, or the record was lost");

/// Feeds the calls of probes of category "cuda" to one Tally a process. Borrows the probe table and
/// procfs. Single-threaded.
class CudaCalls {
 public:
  static constexpr std::size_t kOpenMax = 64;  // calls of one thread inside each other

  CudaCalls(const ProbeTable& probes, const sys::Procfs& procfs)
      : probes_(probes), stub_names_(procfs) {}

  /// Launch that a record begins.
  struct Shown {
    const outside::Kernel* kernel{nullptr};
    bool is_captured{false};
    outside::Call call;
  };
  /// A record of a call: begin, end or instant; of other probes it is left alone. `text`: of the
  /// record, if it has one.
  void on_record(const wire_event& head, const __u64* args, std::optional<std::string_view> text);
  /// Launch of the last record, if it began a call of CUDA; null: it did not.
  [[nodiscard]] const Shown* shown() const { return has_shown_ ? &shown_ : nullptr; }

  /// The probes of the table are on at `now`.
  void note_probes(BootTime now);
  void on_lifecycle(const LifecycleEvent& event);
  /// After each look at the ring.
  void settle();
  /// Records of any process were lost.
  void on_loss();
  /// Probes were off for a while.
  void on_gap();

  /// By pid; those that have ended, too.
  [[nodiscard]] const std::map<std::int32_t, std::unique_ptr<outside::Tally>>& tallies() const {
    return tallies_;
  }
  [[nodiscard]] std::uint64_t unseen_ends() const { return unseen_ends_; }
  /// Hits of the probes at launch rate, all processes together.
  [[nodiscard]] std::uint64_t launch_hits() const { return launch_hits_; }
  /// Hits of the probes that a program gets until its kernels have names, and whether they do: for
  /// a while no launch was seen of one without.
  [[nodiscard]] std::uint64_t naming_hits() const { return naming_hits_; }
  [[nodiscard]] std::uint64_t unnamed_launches() const { return unnamed_; }

 private:
  struct Probe {
    const outside::Entry* entry{nullptr};  // null: not of CUDA
    bool per_thread{false};
    std::vector<std::optional<outside::Key>> keys;  // of its captures
  };
  struct Open {
    std::uint32_t probe{0};
    outside::Call call;
  };
  const Probe& probe_of(std::uint32_t number);
  outside::Tally& tally_of(const wire_event& head);
  void read(const wire_event& head, const Probe& probe, const __u64* args,
            std::optional<std::string_view> text, bool at_end, outside::Call& call) const;
  void on_end(const wire_event& head, const Probe& probe, const __u64* args,
              std::optional<std::string_view> text);

  const ProbeTable& probes_;
  StubNames stub_names_;
  std::vector<Probe> known_;
  std::map<std::int32_t, std::unique_ptr<outside::Tally>> tallies_;
  std::map<std::int32_t, std::size_t> probes_at_start_;  // of processes that began in sight
  std::vector<std::pair<BootTime, std::size_t>> noted_;  // how many probes were on, and when
  std::map<std::uint64_t, std::vector<Open>> open_;      // by pid and tid
  Shown shown_;
  bool has_shown_{false};
  std::uint64_t unseen_ends_{0}, launch_hits_{0}, naming_hits_{0}, unnamed_{0};
};

}  // namespace kansoku::capture
