// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "capture/attacher.h"
#include "capture/bpf/engine.h"
#include "capture/decoder.h"
#include "capture/internal/cuda_governor.h"
#include "capture/internal/host_probes.h"
#include "capture/pack.h"
#include "capture/probe_table.h"
#include "capture/source.h"
#include "common/stat.h"
#include "trace/writer.h"

namespace kansoku::capture {

STAT(capture_missing_symbols, kNotice, kCapture,
     "functions or tracepoints that a pack names and this system lacks; `kansoku record --explain` "
     "lists them");
STAT(capture_failed_attachments, kDataLoss, kCapture,
     "files whose probes could not be attached; the log names them");
STAT(capture_without_end_signals, kNotice, kCapture,
     "senders of termination signals could not be observed");
STAT(capture_without_scheduler, kDataLoss, kCapture, "the scheduler could not be observed");

/// Calls, scheduler, system calls and CPU samples, and begins and ends of processes: records that
/// BPF programs put into the ring.
class BpfSource final : public Source {
 public:
  struct Options {
    std::vector<Pack> packs;
    /// Not empty: these are attached all the time, `packs` during traces only.
    std::vector<Pack> watch_packs;
    std::optional<bpf::AttachMode> attach_mode;  // only this one
    std::vector<std::string> libraries;          // attached before a process maps them
    double cuda_budget{0};  // of a processor, for probes at launch rate; 0: no limit
    std::uint32_t ring_bytes{16U << 20};
    std::function<void(const CallMark&)> on_call;
    std::function<void(const std::string&)> log;
    std::function<void(const std::string&)> detail;  // told of each attached file, and of failures
  };

  /// Loads the programs and attaches the probes that belong to no file. Borrows writer and procfs.
  /// Errors as of Engine::create().
  [[nodiscard]] static Result<std::unique_ptr<BpfSource>> create(trace::Writer& writer,
                                                                 const sys::Procfs& procfs,
                                                                 Options options);

  [[nodiscard]] std::string_view name() const override { return "bpf"; }
  void observe(std::int32_t pid) override;
  void inspect(const Observed& process, BootTime now) override;
  void forget(std::int32_t pid) override { engine_->forget_process(pid); }
  [[nodiscard]] BootTime due() const override { return next_; }
  void poll(const Processes& processes, BootTime now) override;
  void drain() override;
  [[nodiscard]] std::vector<LifecycleEvent> take_lifecycle() override {
    return decoder_.take_lifecycle();
  }
  [[nodiscard]] std::set<std::int32_t> take_communicating() override {
    return decoder_.take_communicating();
  }
  [[nodiscard]] std::vector<GroupSeat> take_seats() override { return decoder_.take_seats(); }
  [[nodiscard]] std::set<std::int32_t> take_neighbours() override {
    return decoder_.take_named_pids();
  }
  void begin_trace(BootTime now) override;
  void end_trace(BootTime now) override;
  void set_enabled(bool enabled) override;
  void add_losses(Losses& out) const override;
  void add_problems(std::vector<std::string>& out) const override;

  [[nodiscard]] bpf::AttachMode mode() const { return engine_->mode(); }
  [[nodiscard]] const std::vector<std::string>& refusals() const { return engine_->refusals(); }
  [[nodiscard]] const std::vector<Attachment>& attachments() const {
    return full_->files.attachments();
  }
  [[nodiscard]] std::size_t probe_count() const { return probes_.size(); }
  /// Calls of CUDA's driver, and the share of the time that was seen.
  [[nodiscard]] const CudaCalls& cuda() const { return decoder_.cuda(); }
  [[nodiscard]] const CudaGovernor& cuda_governor() const { return governor_; }
  /// Records and calls that were lost.
  [[nodiscard]] std::uint64_t lost() const override;

 private:
  /// The probes of some packs.
  struct Attached {
    HostProbes host;
    Attacher files;
  };
  BpfSource(trace::Writer& writer, const sys::Procfs& procfs, Options options,
            std::unique_ptr<bpf::Engine> engine);
  [[nodiscard]] std::unique_ptr<Attached> make_attached(const std::vector<Pack>& packs,
                                                        const AttacherOptions& attaching);
  void attach_lifecycle();
  void set_attached(Attached& attached, bool is_on) const;
  void govern_cuda(BootTime now);
  void set_cuda_entries(bool FunctionProbes::*which, bool is_on);
  void write_cuda(BootTime now);

  const sys::Procfs& procfs_;
  Options options_;
  std::unique_ptr<bpf::Engine> engine_;
  ProbeTable probes_;
  Decoder decoder_;
  std::unique_ptr<Attached> watching_;  // null: there are no watch packs
  std::unique_ptr<Attached> full_;
  bpf::Engine::Handle lifecycle_{0}, end_signals_{0};
  std::uint64_t lifecycle_failed_{0}, signals_failed_{0};
  std::uint64_t told_lost_{0};  // records, so far
  trace::Writer& writer_;
  CudaGovernor governor_;
  bool cuda_on_{true}, naming_on_{true};
  std::uint64_t unnamed_before_{0};
  BootTime naming_looked_at_{};
  bool is_enabled_{true}, is_open_{false};
  BootTime next_{};
};

}  // namespace kansoku::capture
