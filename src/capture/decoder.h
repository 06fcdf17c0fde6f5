// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/internal/cuda_calls.h"
#include "capture/internal/native_symbols.h"
#include "capture/lifecycle.h"
#include "capture/observed.h"
#include "capture/probe_table.h"
#include "common/stat.h"
#include "trace/writer.h"
#include "wire/ring.h"

namespace kansoku::capture {

STAT(capture_unmatched_ends, kNotice, kCapture,
     "returns of calls that began before the recording or were lost");
STAT(capture_calls_begun_again, kNotice, kCapture,
     "calls that began while an earlier call of the same function had no end yet: an exception "
     "ended that one, or a call hits the probe more than once");
STAT(capture_unread_args, kNotice, kCapture, "arguments in memory that could not be read");
STAT(capture_bad_records, kError, kCapture,
     "ring records of an unknown shape: recorder and BPF programs do not match");
STAT(capture_unnamed_threads, kNotice, kCapture,
     "threads beyond 32,768 on the processors of the job; these have a number but no name");
STAT(capture_groups_over_limit, kNotice, kCapture,
     "process groups beyond 65,536 between two looks, or 4,096 of processes that are not observed "
     "yet: the ranks that they tell were left out");
STAT(capture_open_calls_over_limit, kDataLoss, kCapture,
     "calls nested deeper than 512; the inner ones were left out");

/// The begin of a call or scope, for who listens while nothing is recorded.
struct CallMark {
  std::int32_t pid{0}, tid{0};
  std::string_view name, category;  // borrowed for the call
  BootTime time{};
};

/// Turns ring records into trace events. Keeps per thread which calls are open, so that a lost
/// record spoils one call and not the rest of the track. Single-threaded. The writer and the probe
/// table are borrowed.
class Decoder {
 public:
  Decoder(trace::Writer& writer, const ProbeTable& probes, const sys::Procfs& procfs);

  /// Decodes one record; records of unknown shape are counted. `record` is borrowed for the call.
  void on_record(std::span<const std::byte> record);

  /// Called with each call or scope as it begins; empty: nobody listens.
  void set_on_call(std::function<void(const CallMark&)> on_call) { on_call_ = std::move(on_call); }
  /// Writes the begins of all calls that are open now, with their own times: after the writer was
  /// restarted.
  void reopen_calls();
  /// The probes of windows are put on at `now`: of calls that began before, neither end nor begin
  /// was seen.
  void begin_window(BootTime now) { window_begin_ = now; }
  /// Forgets the open calls of probes of windows, which were taken off: their ends never come.
  void end_window();

  /// Lifecycle events since the last call, in order.
  [[nodiscard]] std::vector<LifecycleEvent> take_lifecycle();
  /// Processes that began a collective, a send or a receive since the last call.
  [[nodiscard]] std::set<std::int32_t> take_communicating() {
    return std::exchange(communicating_, {});
  }
  /// Places of processes in the process groups that calls were seen on since the last call.
  [[nodiscard]] std::vector<GroupSeat> take_seats();
  /// Processes of threads that were named for the first time since the last call.
  [[nodiscard]] std::set<std::int32_t> take_named_pids() { return std::exchange(named_pids_, {}); }

  /// Native frames that no symbol names, so far.
  [[nodiscard]] std::uint64_t unnamed_frames() const { return symbols_.unnamed(); }

  [[nodiscard]] CudaCalls& cuda() { return cuda_; }
  [[nodiscard]] const CudaCalls& cuda() const { return cuda_; }

  struct Counters {
    std::uint64_t records{0}, unmatched_ends{0}, unread_args{0}, bad_records{0}, too_deep{0};
    std::uint64_t unnamed_threads{0}, seats_over_limit{0};
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  struct ProbeNames {
    trace::NameId title{};
    trace::CategoryId category{};
    std::vector<trace::NameId> args;
  };
  struct OpenCall {
    std::uint32_t probe{0};
    bool is_scope{false};
    std::vector<trace::Arg> notes{};  // numbers that arrived during the call
    BootTime begin{};
    trace::NameId name{};
    trace::CategoryId category{};
    std::vector<trace::Arg> args{};  // numbers only
  };
  struct Thread {
    trace::TrackHandle track{};
    std::vector<OpenCall> open;
    std::string stack{};           // of the call that begins next
    std::uint32_t stack_probe{0};  // probe of that stack
  };

  Thread& thread_of(const wire_event& head);
  const ProbeNames& names_of(std::uint32_t probe);
  void on_slice(const wire_slice& record);
  void on_begin(const wire_event& head, std::span<const std::byte> record);
  void on_end(const wire_event& head, std::span<const std::byte> record);
  void on_instant(const wire_event& head, std::span<const std::byte> record);
  void on_scope(const wire_event& head, std::span<const std::byte> record);
  void on_annotation(const wire_event& head, std::span<const std::byte> record, bool at_return);
  void on_switch(const wire_switch& record);
  void on_signal(const wire_switch& record);
  void name_thread(std::uint32_t pid, std::uint32_t tid, std::string_view name);
  void on_stack(const wire_stack& record);
  void on_lifecycle(LifecycleEvent event);
  void forget_threads(const LifecycleEvent& event);
  void push_open(Thread& thread, OpenCall call);
  void collect_args(const wire_event& head, std::span<const std::byte> record, bool at_return);
  void add_derived_args(const ProbeInfo& probe, std::int32_t pid);
  void note_seat(const ProbeInfo& probe, std::int32_t pid);
  void tell_cuda(const wire_event& head, std::span<const std::byte> record);
  void add_cuda_args();
  void on_call_stack(const wire_call_stack& record);
  void add_stack(const wire_event& head);
  [[nodiscard]] const trace::Arg* arg_of(std::string_view name);
  [[nodiscard]] std::optional<std::uint64_t> bytes_of(const ProbeInfo& probe);
  void close_until(Thread& thread, std::size_t depth, BootTime time);

  trace::Writer& writer_;
  const ProbeTable& probes_;
  NativeSymbols symbols_;
  CudaCalls cuda_;
  std::string grid_, block_, stack_;  // scratch of the record in hand
  std::vector<ProbeNames> names_;
  std::map<std::uint64_t, Thread> threads_;  // by pid and tid: those of a process lie together
  std::uint64_t last_thread_key_{0};
  Thread* last_thread_{nullptr};  // of threads_; null once something was erased there
  std::map<std::pair<std::int32_t, std::uint64_t>, std::uint64_t> ordinals_;
  std::map<std::int32_t, std::set<std::uint64_t>>
      scope_enter_ops_;           // per process: operators that open a scope
  std::vector<trace::Arg> args_;  // scratch of the record in hand
  std::set<std::int32_t> communicating_, named_pids_;
  std::map<std::pair<std::int32_t, std::uint64_t>, GroupSeat> seats_;  // by process and group
  std::function<void(const CallMark&)> on_call_;
  std::vector<LifecycleEvent> lifecycle_;
  std::unordered_map<std::uint32_t, std::string> thread_names_;  // written, by tid
  trace::TrackHandle host_track_{};
  BootTime window_begin_{};
  Counters counters_;
};

}  // namespace kansoku::capture
