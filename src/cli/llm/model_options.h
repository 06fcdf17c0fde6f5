// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/record/session.h"
#include "common/result.h"

namespace CLI {
class App;
}

namespace kansoku::cli {

/// Options that all ways of looking at a model share: whom, how closely, at what cost.
struct ModelArguments {
  std::string level{"operator"}, budget{"1%"};
  void declare(CLI::App& app);
  /// Sets level, budget and packs. kUnsupported for what makes no sense.
  [[nodiscard]] Result<void> apply(SessionOptions& out) const;
};

/// The processes of this machine that run llama.cpp or ggml, ascending: they map one of its
/// libraries, or are one of its programs.
[[nodiscard]] std::vector<std::int32_t> find_model_processes(const sys::Procfs& procfs);

}  // namespace kansoku::cli
