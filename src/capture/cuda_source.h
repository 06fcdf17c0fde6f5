// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capture/cuda/channel.h"
#include "capture/device_clock.h"
#include "capture/internal/cuda_ranges.h"
#include "capture/internal/native_symbols.h"
#include "capture/source.h"
#include "common/time.h"
#include "sys/procfs.h"

namespace kansoku::capture {

STAT(cuda_unfinished, kNotice, kCapture,
     "GPU operations that were not complete when the recording or their process ended");
STAT(cuda_not_covered, kDataLoss, kCapture,
     "processes that use CUDA without Kansoku's library; start them with `kansoku run --cuda`");
STAT(cuda_busy, kDataLoss, kCapture,
     "processes whose CUDA library another recorder holds; they were not recorded");

STAT(cuda_ranges_elsewhere, kNotice, kCapture,
     "processes whose NVTX ranges go to another tool, which NVTX_INJECTION64_PATH names");
STAT(cuda_ranges_left_out, kNotice, kCapture,
     "NVTX ranges, or operations within them, beyond what a recording can show on device time");

struct CudaSourceOptions {
  cuda::Mode mode{cuda::Mode::kEvery};
  std::uint32_t every_n{0};  // of kSampled; 0: as the library's budget allows
};

/// GPU work with device times, from the library inside the processes (capture/cuda): slices on a
/// track for each stream, and the calls that made them on their threads' tracks, linked by a flow.
/// Switches the library on while a trace is open, by a lease, so that the death of the recorder
/// switches it off. Counts the processes that it cannot see into. Borrows writer, clock and procfs.
class CudaSource final : public Source {
 public:
  CudaSource(trace::Writer& writer, const Clock& clock, const sys::Procfs& procfs,
             CudaSourceOptions options);
  ~CudaSource() override;

  [[nodiscard]] std::string_view name() const override { return "cuda"; }
  void inspect(const Observed& process, BootTime now) override;
  void renew(std::int32_t pid) override;
  void forget(std::int32_t pid) override;
  [[nodiscard]] BootTime due() const override;
  void poll(const Processes& processes, BootTime now) override;
  void drain() override;
  void begin_trace(BootTime now) override;
  void end_trace(BootTime now) override;
  void set_enabled(bool enabled) override;
  void add_losses(Losses& out) const override;
  void add_problems(std::vector<std::string>& out) const override;

 private:
  /// The event clock of a context, and its own word on itself.
  struct ContextClock {
    explicit ContextClock(const std::string& name) : clock(name) {}
    DeviceClock clock;
    std::uint32_t readings{0};
    std::int64_t first_boot_ns{0}, first_device_ns{0};
    Nanos worst{},
        recent{};  // the largest error of a time that was mapped: at all, since the last counter
    trace::TrackHandle error{};
    bool is_error_declared{false};
  };
  struct DeviceTime {
    BootTime time{};
    Nanos error{};  // 0: on no clock of time
  };
  struct Stream {
    trace::TrackHandle track{};
    std::string name;
    std::uint32_t number{0};
    std::int32_t device{-1};
    DeviceTime end;  // of the last record that was written
  };
  /// A track for slices that may lap over those of the ones before it.
  struct Lane {
    trace::TrackHandle track{};
    NestedSlices slices;
  };
  struct Kernel {
    trace::NameId name{};
    trace::NameId chain{};                         // of a chain that it begins
    std::string full_name;                         // "" if it is no other than the short one
    std::uint32_t registers{0}, static_shared{0};  // registers 0: not known
  };
  struct Watched {
    std::int32_t pid{0};
    std::uint64_t image{1};  // which program of this process number; its correlations begin anew
    std::unique_ptr<cuda::Channel> channel;
    trace::TrackHandle track{};
    std::map<std::uint32_t, ContextClock> clocks;                       // by context
    std::map<std::pair<std::uint32_t, std::uint32_t>, Stream> streams;  // by index and generation
    /// Ends of the nodes of a stream's last graph, by branch: branches of it run side by side, and
    /// slices of one track do not overlap. The first branch is on the stream's own track.
    struct Branches {
      std::uint32_t correlation{0};
      BootTime from{}, to{};  // of the graph
      std::vector<BootTime> ends;
      std::vector<trace::TrackHandle> tracks;
    };
    std::map<std::uint32_t, Branches> branches;  // by stream
    std::map<std::uint32_t, trace::TrackHandle> threads;
    // State of NVTX ranges.
    bool has_ranges{false};
    CudaRanges ranges;
    std::vector<Lane> range_lanes;                        // of the process
    std::map<std::uint32_t, NestedSlices> thread_ranges;  // by thread
    std::map<std::uint32_t, trace::NameId> range_names;
    std::map<std::uint32_t, Kernel> kernels;
    std::deque<std::pair<wire_cuda_record, std::uint32_t>> held;  // until the clock is known
    trace::TrackHandle memory{};
    std::map<std::uint64_t, std::uint64_t> allocations;  // bytes by pointer
    std::uint64_t live_bytes{0};
    std::map<std::int64_t, std::string> stacks;  // of allocations, by number
    bool is_memory_declared{false};
  };
  enum class Axis : std::uint8_t { kNotYet, kBoot, kDevice };

  void attach(const Observed& process, BootTime now);
  void follow_exec(const Processes& processes, BootTime now);
  void read(Watched& process, bool is_last);
  void take(Watched& process, const wire_cuda_record& record, std::uint32_t what);
  void read_clock(Watched& process, const wire_cuda_record& record);
  [[nodiscard]] Axis axis_of(const Watched& process, std::uint32_t context, bool is_last) const;
  void write_held(Watched& process, bool is_last);
  trace::NameId add_launch_args(Watched& process, const wire_cuda_record& record,
                                std::vector<trace::Arg>& args, std::array<std::string, 2>& shape);
  trace::NameId add_memory_args(const wire_cuda_record& record, std::uint32_t what,
                                std::vector<trace::Arg>& args);
  void add_graph_args(const Watched& process, const wire_cuda_record& record,
                      std::vector<trace::Arg>& args);
  void write_errors(Watched& process, BootTime now);
  void write_operation(Watched& process, const wire_cuda_record& record, std::uint32_t what,
                       Axis axis);
  void write_call(Watched& process, const wire_cuda_record& record, std::uint32_t what,
                  std::uint64_t flow);
  static void note_operation(Watched& process, const wire_cuda_record& record, std::uint32_t what,
                             const Stream& on, BootTime begin);
  void write_range(Watched& process, const wire_cuda_record& record);
  void write_own(Watched& process, const wire_cuda_record& record);
  trace::TrackHandle range_track(Watched& process, std::uint32_t tid, BootTime begin, BootTime end,
                                 bool is_thread);
  trace::NameId range_name(Watched& process, std::uint32_t index);
  void write_projection(Watched& process);
  const std::string& stack_text(Watched& process, std::int64_t number);
  void count_memory(Watched& process, const wire_cuda_record& record, std::uint32_t what);
  [[nodiscard]] static DeviceTime device_time(const Watched& process, std::uint32_t context,
                                              std::int64_t device_ns, Axis axis);
  static void count_error(Watched& process, std::uint32_t context, Nanos error);
  trace::TrackHandle node_track(Watched& process, const wire_cuda_record& record, Axis axis,
                                BootTime begin, BootTime end);
  Stream& stream_of(Watched& process, std::uint32_t stream, Axis axis);
  trace::TrackHandle thread_track(Watched& process, std::uint32_t own_tid);
  const Kernel& kernel(Watched& process, std::uint32_t index);
  void request(Watched& process, BootTime now) const;
  void close(Watched& process, BootTime now);
  void write_devices(const Watched& process, BootTime now);
  void write_totals(const Watched& process, BootTime now);

  trace::Writer& writer_;
  const Clock& clock_;
  const sys::Procfs& procfs_;
  NativeSymbols symbols_;
  CudaSourceOptions options_;
  bool is_open_{false}, is_enabled_{true};
  BootTime next_{}, now_{};
  std::map<std::int32_t, Watched> processes_;        // by pid
  std::map<std::int32_t, std::uint64_t> images_;     // programs seen so far, by pid
  std::map<std::int32_t, BootTime> renewed_;         // became other programs; looked for until
  std::map<std::int32_t, std::string> not_covered_;  // why, by pid
  Losses gone_;                                      // of processes that ended
  std::uint64_t gone_not_covered_{0};                // likewise
  std::vector<std::string> gone_problems_;           // likewise
  std::uint64_t unfinished_{0}, busy_{0}, odd_{0}, ranges_left_out_{0}, ranges_elsewhere_{0};
  std::map<std::string_view, trace::NameId> names_;
};

}  // namespace kansoku::capture
