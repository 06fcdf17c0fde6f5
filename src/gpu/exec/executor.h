// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"
#include "common/time.h"
#include "gpu/exec/program.h"

namespace kansoku::gpu::exec {

/// What ended a kernel before its end.
struct Fault {
  enum class Kind : std::uint8_t {
    kOutOfBounds,
    kMisaligned,
    kTrap,
    kDeadlock,
    kTimeout,
    kBarrierDivergence,
    kBadWarpMask,
    kStackOverflow,
  };
  Kind kind{Kind::kTrap};
  std::string kernel;
  std::uint32_t line{0};  // of the PTX text
  std::array<std::uint32_t, 3> block{}, thread{};
  std::uint64_t address{0};  // of memory faults
  std::uint32_t bytes{0};
  bool is_store{false};

  /// "out-of-bounds store of 4 bytes at 0x...: kernel k, ptx line 12, block (0, 0, 0), thread ...".
  [[nodiscard]] std::string text() const;
};
/// "out-of-bounds"; any thread.
[[nodiscard]] std::string_view fault_name(Fault::Kind kind);

struct LaunchOptions {
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::uint32_t dynamic_shared_bytes{0};
  std::span<const std::byte> params;     // laid out as KernelInfo says
  std::uint32_t workers{1};              // threads that run blocks; 1: same order every time
  std::uint32_t local_bytes{64 * 1024};  // of a thread, for calls and arrays
  std::uint32_t sm_count{16};
  Nanos time_limit{0};          // 0: none
  const Clock* clock{nullptr};  // must be given with a limit
  /// Where vprintf writes; from several workers at once, but never torn. Empty: nowhere.
  std::function<void(std::string_view text)> print;
};

/// Runs one kernel to its end on the calling thread and `workers` - 1 others. The ranges of the
/// program's memory must not change meanwhile. A fault of the kernel is a value, an impossible
/// launch (block too large, wrong parameter size, too much shared memory) an error of code kLimit.
[[nodiscard]] Result<std::optional<Fault>> launch(const Program& program, std::size_t kernel,
                                                  const Memory& memory,
                                                  const LaunchOptions& options);

}  // namespace kansoku::gpu::exec
