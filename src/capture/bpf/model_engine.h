// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "capture/bpf/engine.h"
#include "common/result.h"
#include "wire/model.h"

namespace kansoku::capture::bpf {

/// The loaded BPF program for models in inference: one program for all its places, without returns,
/// that fires in chosen processes only. Destruction detaches everything. Not shared between
/// threads.
class ModelEngine {
 public:
  struct Options {
    std::uint32_t ring_bytes{16U << 20};  // a power of two, at least a page
    bool is_perf{false};                  // one perf event a place, as on kernels before 6.6
  };
  /// Loads the program. kPermission without the rights for it, kUnsupported where this kernel or
  /// build has no uprobes.
  [[nodiscard]] static Result<std::unique_ptr<ModelEngine>> create(const Options& options);
  ~ModelEngine();
  ModelEngine(const ModelEngine&) = delete;
  ModelEngine& operator=(const ModelEngine&) = delete;

  /// Hits in that process count, and its memory is read by these offsets. kLimit beyond 1,024
  /// processes.
  [[nodiscard]] Result<void> set_target(std::int32_t pid, const wire_model_layout& layout);
  void forget_target(std::int32_t pid);

  using Handle = std::uint32_t;  // attached places, to be taken off together; 0 is none
  /// Attaches to one file (as seen from this process) in one process, which is a target, and its
  /// threads. All or nothing. The low byte of a cookie is the wire_model_role.
  [[nodiscard]] Result<Handle> attach(const std::string& path, std::int32_t pid,
                                      std::span<const UprobeSpec> specs);
  void detach(Handle handle);
  [[nodiscard]] std::size_t link_count() const;

  /// Hands every record that waits to `on_record`; returns how many. Does not wait. The receiver
  /// checks sizes and does not trust bytes from the observed process.
  std::size_t drain(const std::function<void(std::span<const std::byte>)>& on_record);
  /// Graphs are told with their tensors again.
  void forget_graphs();

  struct Counters {
    // By role, begins and ends: of places that the kernel emulates, and of those that it steps.
    std::array<std::uint64_t, WIRE_MODEL_ROLES> hits{}, stepped_hits{};
    std::uint64_t ring_full{0}, cut_graphs{0};
  };
  [[nodiscard]] Counters counters() const;

  enum class Place : std::uint8_t { kEmulated, kStepped };
  struct Measured {
    Place place{Place::kEmulated};
    std::uint32_t role{0};  // 0: a program that does nothing
    int rounds{1}, calls{1};
    std::size_t data_bytes{0};  // that are read between two hits
  };
  /// Seconds of one hit on a function of this program whose place the kernel emulates, as those of
  /// ggml's operators, or single-steps. The best round counts, since other load of the machine only
  /// adds to it; the time of reading is subtracted. Blocks; records that wait are dropped.
  [[nodiscard]] Result<double> measure_hit(const Measured& what);
  /// Seconds, measured when the engine was made.
  struct Price {
    double bare{0};      // a program that does nothing, at an emulated place
    double emulated{0};  // an operator there
    double stepped{0};   // at a place that is single-stepped
    // Extra cost, behind any of them, of a program whose data fills its caches.
    double caches{0};
  };
  [[nodiscard]] const Price& price() const;

 private:
  struct Impl;
  explicit ModelEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::capture::bpf
