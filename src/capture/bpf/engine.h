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
#include "wire/ring.h"

namespace kansoku::capture::bpf {

STAT(ring_dropped_records, kDataLoss, kCapture,
     "the BPF ring was full; raise --ring-bytes or choose fewer probes");
STAT(process_table_full, kDataLoss, kCapture,
     "more processes than the observed-process table holds; some were not recorded");

/// How uprobes are attached. Best first; each step down costs more a hit.
enum class AttachMode : std::uint8_t { kSession, kMulti, kPerf };
[[nodiscard]] std::string_view attach_mode_name(AttachMode mode);  // "session", "multi", "perf"
[[nodiscard]] std::optional<AttachMode> attach_mode_from_name(std::string_view name);

/// One probe of a file. Of a call whose exits are probed (WIRE_COOKIE_CALL) each exit is a spec of
/// its own, all attached without return.
struct UprobeSpec {
  std::uint64_t file_offset{0};
  std::uint64_t semaphore_offset{0};  // file offset of a USDT semaphore, or 0
  std::uint64_t cookie{0};            // probe index and WIRE_COOKIE_* flags
};

/// The loaded BPF programs, their maps and their links. Destruction detaches everything; so does
/// the death of this process, since links live as long as their descriptors. Not shared between
/// threads.
class Engine {
 public:
  struct Options {
    std::uint32_t ring_bytes{16U << 20};  // a power of two, at least a page
    std::optional<AttachMode> forced;     // only this mode, or an error
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

  /// Describes probe `index` (< 8192) before it is attached.
  [[nodiscard]] Result<void> describe_probe(std::uint32_t index, const wire_probe& description);
  [[nodiscard]] Result<void> observe_process(std::int32_t pid);
  void forget_process(std::int32_t pid);

  /// Attaches all `specs` to one file (as seen from this process), in all processes that map it now
  /// or later. Specs with and without return are separate calls. All or nothing. With return, an
  /// exception that leaves such a function ends the process: see find_exits().
  [[nodiscard]] Result<void> attach_uprobes(const std::string& path,
                                            std::span<const UprobeSpec> specs, bool with_return);
  [[nodiscard]] Result<void> attach_syscall(const std::string& name, std::uint64_t cookie);
  [[nodiscard]] Result<void> attach_tracepoint(const std::string& group, const std::string& name,
                                               std::uint64_t cookie);
  /// fork, exec and exit of observed processes; children of observed processes are observed at
  /// once.
  [[nodiscard]] Result<void> attach_lifecycle();
  [[nodiscard]] Result<void> attach_scheduler();
  [[nodiscard]] Result<void> attach_cpu_sampler(std::uint32_t hz);
  /// Detaches all probes, keeps programs and maps.
  void detach_all();
  /// What is attached from here on belongs to this group (0 or 1; 0 at first).
  void use_group(std::size_t group);
  /// Detaches the probes of one group; those of the other never miss a call.
  void detach_group(std::size_t group);
  [[nodiscard]] std::size_t link_count() const;

  /// Hands every record that waits in the ring to `on_record`; returns how many. Does not wait. The
  /// bytes are valid during the call only and come from our own BPF programs, so their size is
  /// checked, not their truth.
  std::size_t drain(const std::function<void(std::span<const std::byte>)>& on_record);

  struct Losses {
    std::uint64_t ring_full{0}, process_table_full{0};
    std::uint64_t calls_too_deep{0};  // more open calls of one thread than the programs remember
  };
  [[nodiscard]] Losses losses() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::capture::bpf
