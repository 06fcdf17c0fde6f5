// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capture/llm/source.h"
#include "common/result.h"
#include "common/time.h"
#include "sys/procfs.h"

namespace kansoku::capture::llm {

/// Looks at models without a recorder, window by window: each window is a trace of its own, in
/// memory. The governor's account goes on from window to window, so that a level which costs more
/// than the budget is on in some windows only. Not shared between threads.
class Live {
 public:
  /// Fails as bpf::ModelEngine. Borrows clock and procfs. `options.probes`: as of SourceOptions.
  [[nodiscard]] static Result<std::unique_ptr<Live>> create(const Clock& clock,
                                                            const sys::Procfs& procfs,
                                                            SourceOptions options,
                                                            const std::vector<std::int32_t>& pids);
  ~Live();
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  /// A trace of the time from now on, of that length or until `should_stop`; blocks meanwhile.
  /// Processes that have ended are left out; kNotFound if none is left. `wait`: sleeps until then.
  [[nodiscard]] Result<std::string> window(Nanos length, const std::function<bool()>& should_stop,
                                           const std::function<void(BootTime)>& wait);
  /// Problems, one line each: a process and the part of it that cannot be seen.
  [[nodiscard]] std::vector<std::string> problems() const;

 private:
  struct Impl;
  explicit Live(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kansoku::capture::llm
