// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/pack.h"
#include "cli/record/session.h"
#include "common/result.h"
#include "sys/procfs.h"

namespace CLI {
class App;
}

namespace kansoku::cli {

/// Options that all ways of looking at a model share: targets, level, budget.
struct ModelArguments {
  std::string level{"operator"}, budget{"1%"};
  void declare(CLI::App& app);
  /// Sets level, budget and packs. kUnsupported for a combination that makes no sense.
  [[nodiscard]] Result<void> apply(SessionOptions& out) const;
};

/// The probes of models in inference, of the packs that `session` names.
[[nodiscard]] Result<std::vector<capture::FunctionProbes>> model_probes(
    const SessionOptions& session);
/// The processes of this machine that run a model in inference, ascending: they run code of a file
/// that one of the probes is about.
[[nodiscard]] std::vector<std::int32_t> find_model_processes(
    const sys::Procfs& procfs, const std::vector<capture::FunctionProbes>& probes);

}  // namespace kansoku::cli
