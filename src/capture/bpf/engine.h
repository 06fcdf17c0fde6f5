// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/stat.h"
#include "wire/totals.h"

namespace kansoku::capture::bpf {

STAT(ring_dropped_records, kDataLoss, kCapture,
     "the BPF ring was full; raise --ring-bytes or choose fewer probes");
STAT(process_table_full, kDataLoss, kCapture,
     "more processes than the observed-process table holds; some were not recorded");
STAT(totals_full, kDataLoss, kCapture,
     "more processes and probes than the table of totals holds; some calls were not counted");

/// How uprobes are attached. Best first; each step down costs more a hit.
enum class AttachMode : std::uint8_t { kSession, kMulti, kPerf };
[[nodiscard]] std::string_view attach_mode_name(AttachMode mode);  // "session", "multi", "perf"
[[nodiscard]] std::optional<AttachMode> attach_mode_from_name(std::string_view name);

/// One probe of a file. If a call's exits are probed (WIRE_COOKIE_CALL), each exit is a spec of its
/// own, all attached without return.
struct UprobeSpec {
  std::uint64_t file_offset{0};
  std::uint64_t semaphore_offset{0};  // file offset of a USDT semaphore, or 0
  std::uint64_t cookie{0};            // probe index and WIRE_COOKIE_* flags
};

/// Totals of one probe in one process.
struct ProbeTotal {
  std::uint32_t tgid{0};   // 0: the host
  std::uint32_t probe{0};  // or WIRE_TOTAL_BLOCK, WIRE_TOTAL_STOPS
  wire_total_kind kind{WIRE_TOTAL_CALL};
  const wire_total* total{nullptr};  // borrowed for the call
};

/// The loaded BPF programs, their maps and their links. Calls of a probe become records in a ring,
/// totals in a map (so that reading them costs the same whatever their rate), or both: its
/// description says which. Destruction detaches everything; so does the death of this process,
/// since links live as long as their descriptors. Not shared between threads.
class Engine {
 public:
  static constexpr std::uint32_t kProbesMax = WIRE_PROBES_MAX;

  struct Options {
    std::uint32_t ring_bytes{16U << 20};  // a power of two, at least a page
    std::optional<AttachMode> forced{};   // only this mode, or an error
    bool has_totals{true};                // false: no memory for them, nothing of them works
    bool all_execs{false};                // records tell of every exec of the host
  };

  /// Loads the programs and finds the best attach mode by attaching to a function of this program.
  /// kPermission without the rights for it, kUnsupported if a forced mode does not work on this
  /// kernel.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> create(const Options& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] AttachMode mode() const;
  /// Why better modes were refused, one line each; empty if the best works.
  [[nodiscard]] const std::vector<std::string>& refusals() const;

  /// Describes probe `index` (< kProbesMax), before it is attached or while it is. One that was
  /// never described does nothing.
  [[nodiscard]] Result<void> describe_probe(std::uint32_t index, const wire_probe& description);
  [[nodiscard]] Result<void> observe_process(std::int32_t pid);
  void forget_process(std::int32_t pid);

  /// Attached programs, to be taken off together; 0 is none.
  using Handle = std::uint32_t;
  /// Attaches all `specs` to one file (as seen from this process), in all processes that map it now
  /// or later. Specs with and without return are separate calls. All or nothing. With return, an
  /// exception that leaves such a function ends the process: see find_exits().
  [[nodiscard]] Result<Handle> attach_uprobes(const std::string& path,
                                              std::span<const UprobeSpec> specs, bool with_return);
  [[nodiscard]] Result<Handle> attach_syscall(const std::string& name, std::uint64_t cookie);
  [[nodiscard]] Result<Handle> attach_tracepoint(const std::string& group, const std::string& name,
                                                 std::uint64_t cookie);
  /// fork, exec and exit of observed processes; children of observed processes are observed at
  /// once.
  [[nodiscard]] Result<Handle> attach_lifecycle();
  /// Signals by which somebody asks an observed process to end.
  [[nodiscard]] Result<Handle> attach_end_signals();
  [[nodiscard]] Result<Handle> attach_scheduler();
  [[nodiscard]] Result<Handle> attach_cpu_sampler(std::uint32_t hz);
  /// Totals of WIRE_TOTAL_BLOCK and of WIRE_TOTAL_STOPS.
  [[nodiscard]] Result<Handle> attach_block_layer();
  [[nodiscard]] Result<Handle> attach_signals();
  void detach(Handle handle);
  /// Detaches everything, keeps programs and maps.
  void detach_all();
  [[nodiscard]] std::size_t link_count() const;

  /// Hands every record that waits in the ring to `on_record`; returns how many. Does not wait. The
  /// bytes are valid during the call only and come from our own BPF programs, so their size is
  /// checked, not their truth.
  std::size_t drain(const std::function<void(std::span<const std::byte>)>& on_record);
  /// Hands over every total there is; those for which `keep` says false are deleted. One or a few
  /// system calls. The bytes come from our own programs.
  [[nodiscard]] Result<void> read_totals(const std::function<bool(const ProbeTotal&)>& keep);
  /// Hands over every thread of the observed processes, whatever their number, by one walk of the
  /// kernel's tasks.
  [[nodiscard]] Result<void> read_threads(const std::function<void(const wire_thread&)>& on_thread);

  struct Counters {
    std::uint64_t ring_full{0}, process_table_full{0};
    std::uint64_t calls_too_deep{0};  // more open calls of one thread than the programs remember
    std::uint64_t totals_full{0};
    std::uint64_t hits{0};  // begins that the totals were told of
    // Calls that began at the place of one of the same probe whose end was not seen.
    std::uint64_t begun_again{0};
  };
  [[nodiscard]] Counters counters() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Upper edge of a bucket of wire_total, in ns; the last one's is infinite.
[[nodiscard]] double bucket_upper_ns(std::uint32_t bucket);
/// The duration below which a `share` of the calls of a histogram lies, in ns, by interpolation in
/// its bucket; 0 without calls. `buckets`: WIRE_BUCKETS counts.
[[nodiscard]] double bucket_quantile_ns(std::span<const std::uint32_t> buckets, double share);

}  // namespace kansoku::capture::bpf
