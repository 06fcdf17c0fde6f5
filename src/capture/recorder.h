// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture/attacher.h"
#include "capture/bpf/engine.h"
#include "capture/decoder.h"
#include "capture/outside/tally.h"
#include "capture/pack.h"
#include "capture/source.h"
#include "common/bytes.h"
#include "common/time.h"
#include "sys/procfs.h"

namespace kansoku::capture {

STAT(capture_without_bpf, kDataLoss, kCapture,
     "no eBPF: only Python stacks were recorded, without calls, collectives and scheduler");
STAT(capture_processes_over_limit, kDataLoss, kCapture,
     "more processes than the limit of 4,096; the rest was not read");
STAT(capture_neighbours_over_limit, kNotice, kCapture,
     "more than 4,096 processes beside the observed ones; the jobs of the rest are unknown");

/// State of a recording, for the status line.
struct RecordStatus {
  Nanos elapsed{};
  std::uint64_t events{0}, bytes{0}, lost{0}, python_samples{0};
  std::vector<std::int32_t> ranks;  // seen so far, ascending
  std::size_t process_count{0};     // observed and alive
  std::size_t probe_count{0};
  std::string bpf;  // attach mode, or why there is none
};

struct RecorderOptions {
  std::vector<Pack> packs;                     // probes to attach
  std::optional<bpf::AttachMode> attach_mode;  // only this one; otherwise the best that works
  std::vector<std::string> libraries{};        // attached before a process maps them
  double cuda_budget{
      0};  // of a processor, for probes at launch rate; above it they are on in slices
  std::uint32_t ring_bytes{16U << 20};
  std::uint32_t python_hz{0};  // 0 = as the packs say
  bool use_bpf{true};          // false: Python stacks only
  /// Not empty: watch. These packs are attached all the time and written nowhere; `packs` and
  /// Python stacks join them between begin_window() and end_window().
  std::vector<Pack> watch_packs;
  /// Told each call of a probe, and each scope, as it is read from the ring.
  std::function<void(const CallMark&)> on_call;
  std::vector<SourceMaker> sources;             // more than those that the packs ask for
  std::map<std::string, std::string> metadata;  // more facts for the trace, by key
  std::function<void(const std::string&)>
      log;  // lifecycle and warnings, one line each; may be empty
  std::function<void(const std::string&)>
      detail;  // told of each attached file, and of failures; those also in problems()
};

/// Records processes into a trace. One thread does it all: drains the ring, samples Python stacks,
/// follows forks, attaches to libraries as they are mapped, flushes at least each second. The
/// observed processes are never stopped or written to. Sink, clock and procfs are borrowed.
class Recorder {
 public:
  /// Loads and attaches the probes that belong to no file. Without BPF rights the recorder still
  /// works (Python stacks only) and the trace names the missing parts; only a forced attach mode
  /// that fails is an error.
  [[nodiscard]] static Result<std::unique_ptr<Recorder>> create(ByteSink& sink, const Clock& clock,
                                                                const sys::Procfs& procfs,
                                                                RecorderOptions options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Observes a process and everything it will start; with `with_children` also all that run below
  /// it now.
  [[nodiscard]] Result<void> observe(std::int32_t pid, bool with_children);

  /// The same for several with all that run below them, together; those that are gone are left out.
  void observe_trees(std::span<const std::int32_t> pids);

  /// Called about every 500 ms and at the end; false ends the recording.
  using OnStatus = std::function<bool(const RecordStatus&)>;
  /// Records until `on_status` says stop, `should_stop` is true, `duration` (0 = none) is over, or
  /// every observed process is gone. A write error ends it cleanly and comes back; everything
  /// flushed before is readable. A window that is open then stays open. Blocks.
  [[nodiscard]] Result<void> run(Nanos duration, const std::function<bool()>& should_stop,
                                 const OnStatus& on_status);
  /// Opens a window of a watching recorder: all observed processes get the full set of probes at
  /// once, and everything goes to `sink` (borrowed until end_window()) as a trace of its own, which
  /// begins with the calls that are open now.
  [[nodiscard]] Result<void> begin_window(ByteSink& sink);
  /// Closes it: the full set is detached, waiting records of the ring are written, the sink let go.
  /// A write error of the window comes back.
  [[nodiscard]] Result<void> end_window();
  /// The observed processes that stand for a rank, by pid.
  [[nodiscard]] std::map<std::int32_t, Place> ranks() const;

  /// One more fact for the trace that is open, by key.
  void add_metadata(std::string_view key, const std::string& value);

  /// The observed processes are asked to end by a signal that came to the recorder: their calls
  /// from now on say nothing about them. The first time counts.
  void note_stop(int signal);

  /// Switches all probes and the Python sampler off or on again during a recording (used to measure
  /// their cost).
  void set_probes_enabled(bool enabled);

  /// Calls of CUDA's driver, by process, and the way they were seen.
  struct CudaView {
    const std::map<std::int32_t, std::unique_ptr<outside::Tally>>* tallies{nullptr};  // null: none
    double share_seen{1};   // of the time, of launches
    double hit_seconds{0};  // cost of a hit, about
    std::uint64_t hits{0};  // of probes at launch rate
    std::uint64_t naming_hits{0};
    Nanos ends_of_second{};  // the slice of each second in which launches have ends
    bool has_ends{false};    // of launches, in slices
    std::uint64_t lost{0};   // records
  };
  [[nodiscard]] CudaView cuda() const;

  /// Why there are Python stacks only; nothing: eBPF works, or was not asked for.
  [[nodiscard]] const std::optional<Error>& bpf_error() const;
  [[nodiscard]] const std::vector<Attachment>& attachments() const;
  /// Things that could not be found or attached, one line each.
  [[nodiscard]] std::vector<std::string> problems() const;

 private:
  struct Impl;
  explicit Recorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::capture
