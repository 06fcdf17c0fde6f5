// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "softcuda/telemetry/observed.h"

namespace kansoku::softcuda {

/// A record of observed launches.
struct LaunchesSeen {
  struct Count {
    std::uint64_t warps{0}, threads{0};
  };
  struct Hazard {
    std::string kind, text;
    std::uint64_t launch{0};
    std::uint32_t line{0};
  };
  struct Class {
    std::string name;
    Count count;
  };
  struct Line {
    std::string kernel;
    std::uint32_t line{0};
    Count count;
  };
  std::uint64_t launches{0}, hazard_count{0}, lines_left_out{0};
  std::vector<Hazard> hazards;
  std::optional<ObservedProfile> profile;  // none if not asked for
  std::vector<Class> classes;
  std::vector<Line> lines;
};

/// Has launches of a device observed by the software driver that this process has loaded. The
/// library must stay loaded. One thread; only one at a time of a device.
class LaunchObserver {
 public:
  /// `library`: dlopen's handle. kUnavailable if it cannot observe: a GPU's driver, or one of an
  /// older Kansoku.
  [[nodiscard]] static Result<LaunchObserver> open(void* library, int device);
  /// Launches that begin from now on. `what`: of kObserve...; after cuInit.
  [[nodiscard]] Result<void> begin(std::uint32_t what) const;
  /// No more; gives the record of those that have ended. kCorrupt if the library contradicts
  /// itself.
  [[nodiscard]] Result<LaunchesSeen> end() const;

 private:
  LaunchObserver(ObserveFunction* observe, ObservedFunction* observed, int device)
      : observe_(observe), observed_(observed), device_(device) {}
  [[nodiscard]] Result<void> check(int code) const;
  template <class Item>
  [[nodiscard]] Result<std::vector<Item>> items(ObservedSection section) const;

  ObserveFunction* observe_;
  ObservedFunction* observed_;
  int device_;
};

}  // namespace kansoku::softcuda
