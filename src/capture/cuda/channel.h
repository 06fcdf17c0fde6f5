// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "common/time.h"
#include "sys/procfs.h"
#include "wire/cuda.h"

namespace kansoku::capture::cuda {

STAT(cuda_ring_full, kDataLoss, kCapture,
     "the ring of a CUDA process was full; operations have no record");
STAT(cuda_untimed_no_event, kDataLoss, kCapture,
     "GPU operations without times: more of them were unfinished than there are events");
STAT(cuda_untimed_legacy, kDataLoss, kCapture,
     "GPU operations without times: several threads work, and streams wait for the legacy default "
     "stream, where an event would delay them");
STAT(cuda_untimed_programmatic, kDataLoss, kCapture,
     "GPU operations without times: of chains of programmatic launches whose begin or end is not "
     "known");
STAT(
    cuda_chains_parted, kNotice, kCapture,
    "programmatic launches that an event of the library kept from overlapping with the one before: "
    "where none had been expected, and behind each 256th of a chain");
STAT(cuda_interleaved, kDataLoss, kCapture,
     "GPU operations without times: two threads used one stream at the same moment");
STAT(cuda_negative_times, kNotice, kCapture,
     "GPU operations whose end event lies before their begin event; passed on as measured");
STAT(cuda_event_errors, kDataLoss, kCapture, "events of the library that the driver refused");
STAT(cuda_over_limit, kDataLoss, kCapture,
     "more streams, threads, contexts, kernels or names than the library has room for");
STAT(cuda_lost_context, kDataLoss, kCapture,
     "GPU operations whose context was destroyed before their times were read");
STAT(
    cuda_graphs_excluded, kNotice, kCapture,
    "CUDA graphs whose nodes have no times: with memory of their own, conditions or other contents "
    "that cannot be instantiated twice");
STAT(cuda_graphs_over_budget, kNotice, kCapture,
     "CUDA graphs whose nodes have no times: the program makes so many that second executables "
     "would "
     "cost more than a hundredth of its time");
STAT(
    cuda_graph_untimed, kNotice, kCapture,
    "launches of CUDA graphs whose nodes have no times: the one before was not read yet, or ran on "
    "another stream");
STAT(cuda_ranges_lost, kDataLoss, kCapture,
     "NVTX ranges that are not in the recording: begun before it, or with too many others open");
STAT(cuda_ranges_unnamed, kDataLoss, kCapture,
     "NVTX ranges without their name or domain: more different ones than there is room for");
STAT(cuda_stacks_lost, kNotice, kCapture,
     "allocations of GPU memory without the stack that made them: they came too fast, or from too "
     "many places");
STAT(cuda_odd_records, kDataLoss, kCapture,
     "records in a CUDA process's memory that make no sense, or were never completed");

/// Mode of the library in the process.
enum class Mode : std::uint8_t { kDormant = 0, kSampled = 1, kEvery = 2 };

/// Totals of one entry point of the driver's interface, since the process began; only calls made
/// while the library was switched on count.
struct EntryTotals {
  std::string name;
  std::uint32_t what{0};  // enum wire_cuda_class
  std::uint64_t calls{0}, failed{0}, captured{0}, bytes{0};
  /// Operations of streams that ran or will run; a call of a batch is several, one without bytes
  /// none.
  std::uint64_t operations{0};
};

/// How long timed operations of one kind took on the device, since the process began.
struct Durations {
  std::uint64_t count{0}, total_ns{0}, longest_ns{0};
  std::vector<std::uint64_t> buckets;
  std::uint64_t largest{0};  // power of two of the largest one's threads or bytes
  /// At most so many ns for a `share` (0..1) of them; the buckets' width makes it up to 1.5 times
  /// too large. 0 without any.
  [[nodiscard]] double at_most_ns(double share) const;
  /// Those since `earlier` was read; of a process that began anew, all.
  [[nodiscard]] Durations since(const Durations& earlier) const;
};

struct KernelInfo {
  std::string name;  // as the module has it, mangled; "" = not known
  std::uint64_t handle{0}, launches{0}, captured{0};
  std::uint32_t registers{0}, static_shared{0};        // registers 0: neither is known
  std::array<std::uint16_t, WIRE_CUDA_SITES> sites{};  // stacks of its first launches: see stack()
};

/// An executable graph: contents of one launch of it.
struct GraphInfo {
  std::uint64_t handle{0}, launches{0};
  std::uint32_t kernels{0}, copies{0}, sets{0}, others{0};
  std::vector<std::uint16_t> nodes;  // kernels' indices, of the first WIRE_CUDA_GRAPH_KERNELS
};

struct StreamInfo {
  std::uint32_t index{0}, generation{0};
  std::uint64_t handle{0};
  std::uint32_t context{0};
  std::uint8_t kind{0};  // of enum wire_cuda_record_flag: PER_THREAD, LEGACY
  std::uint64_t submitted{0}, completed{0};
  /// The oldest operation that is not complete; 0: none waits.
  std::uint64_t waiting_since_ns{0};
  std::uint32_t correlation{0}, tid{0}, done_correlation{0}, kernel{0};
  std::uint8_t what{0};
  bool is_begun{false};  // its predecessors are done
  std::uint64_t detail{0}, host_functions{0}, done_ns{0};
  /// All operations, timed or not; those known to be complete; and the number of the oldest timed
  /// one that is not, or of the last one before an event of the library's own.
  std::uint32_t operations{0}, known_done{0}, oldest{0};
  bool is_mark{false};
  std::uint32_t at_kernel{WIRE_CUDA_NO_KERNEL};  // of a graph that runs for long
  /// Operations from known_done to the oldest, both included: words of wire_cuda_recent. The first
  /// `suspects_unknown` of them were forgotten.
  std::vector<std::uint32_t> suspects;
  std::uint32_t suspects_unknown{0};
  std::vector<std::uint32_t> behind;  // operations submitted after the oldest, likewise
  std::uint32_t behind_unknown{0};
};

/// A thread that waits in a call of the driver.
struct Waiter {
  std::uint64_t since_ns{0};
  std::uint32_t tid{0};
  std::string entry;
};

struct ContextInfo {
  std::uint64_t handle{0};
  std::int32_t device{-1};
  bool is_used{false};
  /// Resources of one multiprocessor of the device; major 0: not known.
  std::uint32_t major{0}, threads{0}, blocks{0}, registers{0}, shared_bytes{0};
  /// When its default stream last completed work, or had none left; 0: not known yet.
  std::uint64_t default_done_ns{0};
};

/// The memory that libkansoku_cuda shares from within one process. Everything read there is the
/// process's word: bounded and checked, never trusted. One recorder at a time holds it, by a lease
/// that it renews; without one the library falls dormant by itself. Single-threaded.
class Channel {
 public:
  /// Look: reads, and leaves the lease to whom it belongs; nothing of drain() and request() then.
  /// Watch: holds it until somebody records.
  enum class Access : std::uint8_t { kRecord, kLook, kWatch };
  /// kNotFound: the process has no such library, or has not begun with CUDA; kUnsupported: another
  /// version; kUnavailable: another recorder holds it; kPermission. Does not switch it on.
  [[nodiscard]] static Result<std::unique_ptr<Channel>> open(const sys::Procfs& procfs,
                                                             std::int32_t pid,
                                                             Access access = Access::kRecord);
  /// On the memory itself, for tests. `memory` is of wire_cuda's size and outlives the channel.
  [[nodiscard]] static Result<std::unique_ptr<Channel>> on(wire_cuda* memory);
  ~Channel();  // gives it up: the library falls dormant
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// False for who looks, and once a recorder has taken it over from a watcher: nothing is written
  /// then.
  [[nodiscard]] bool is_held() const;
  /// Holds it from now on; false: another one does, and goes on with it. Not to look.
  [[nodiscard]] bool take_over(Access access);
  /// Hands out ranges of NVTX, too, while the library is switched on; off at first.
  void want_ranges(bool are_wanted);
  /// Asks for a mode until `until`. `every_n` 0: the library keeps its own budget.
  void request(Mode mode, std::uint32_t every_n, BootTime until);
  [[nodiscard]] Mode mode() const;  // that it is in now

  /// Hands out complete records in their order, each with its enum wire_cuda_class (0: a reading of
  /// a context's clock, WIRE_CUDA_CLOCK, the library's own work, WIRE_CUDA_OWN, or a range,
  /// WIRE_CUDA_RANGE, with its indices checked), at
  /// most `count_max`; returns how many.
  std::size_t drain(const std::function<void(const wire_cuda_record&, std::uint32_t what)>& take,
                    std::size_t count_max);
  /// Passes over all records that there are: whoever wants totals alone keeps room for further
  /// ones.
  void skip_records();

  [[nodiscard]] wire_cuda_state state() const;
  [[nodiscard]] std::vector<EntryTotals> entries() const;
  [[nodiscard]] const std::string& entry_name(std::uint64_t index) const;  // "" if there is none
  [[nodiscard]] std::optional<KernelInfo> kernel(std::uint32_t index) const;
  /// Printable; "" for an index without one.
  [[nodiscard]] std::string range_name(std::uint32_t index) const;
  [[nodiscard]] std::string range_domain(std::uint32_t index) const;
  /// Return addresses, innermost first, by the number in an allocation's record or a kernel's site;
  /// empty: none.
  [[nodiscard]] std::vector<std::uint64_t> stack(std::int64_t number) const;
  [[nodiscard]] std::uint32_t kernel_count() const;
  [[nodiscard]] Durations kernel_durations(std::uint32_t index) const;
  [[nodiscard]] Durations graph_durations(std::uint32_t index) const;  // launched as a whole
  [[nodiscard]] Durations class_durations(std::uint32_t what) const;   // of other operations than
                                                                       // kernels
  [[nodiscard]] std::vector<GraphInfo> graphs() const;
  [[nodiscard]] std::optional<GraphInfo> graph(std::uint64_t index) const;
  [[nodiscard]] std::optional<StreamInfo> stream(std::uint32_t index) const;
  [[nodiscard]] std::vector<StreamInfo> streams() const;  // those in use
  [[nodiscard]] std::vector<Waiter> waiters() const;
  [[nodiscard]] ContextInfo context(std::uint32_t index) const;
  [[nodiscard]] std::string driver_path() const;
  /// False once the process has become another program, or has ended: its memory is a remnant.
  [[nodiscard]] bool is_still_there() const;
  void add_losses(Losses& out) const;

 private:
  explicit Channel(wire_cuda* memory, bool is_mapped);
  [[nodiscard]] std::string text(std::uint32_t offset) const;
  [[nodiscard]] bool is_sound(const wire_cuda_record& record) const;

  wire_cuda* memory_;
  bool is_mapped_;          // and unmapped at the end
  std::string mapping_;     // its path below /proc; "": on the memory itself
  std::uint64_t inode_{0};  // inode of that file
  std::uint64_t owner_{0};
  std::uint64_t tail_{0};        // records taken; the memory holds a copy
  std::uint64_t blocked_at_{0};  // a record that was not complete, and since when
  std::int64_t blocked_since_ns_{0};
  std::uint64_t odd_{0};
  std::vector<std::uint32_t> classes_;  // of the entries
  std::vector<std::string> names_;      // likewise, read once: the process may change them
};

/// The number outside of a container of a thread that has `own_tid` inside, where the process has
/// its own namespace; `own_tid` if the thread has ended.
[[nodiscard]] std::int32_t tid_outside(const sys::Procfs& procfs, std::int32_t pid,
                                       std::int32_t own_tid);

/// Library and driver that the process has mapped: for advice if open() finds none.
struct Coverage {
  bool has_cuda{false};     // any libcuda.so is mapped
  bool has_library{false};  // ours is, and was called as the driver, or no driver is there
  std::string driver_path;  // of the driver that is mapped, as the process sees it
};
[[nodiscard]] Coverage coverage_of(const sys::Procfs& procfs, std::int32_t pid);

}  // namespace kansoku::capture::cuda
