// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/recorder.h"
#include "common/json.h"

namespace kansoku::cli {

/// Figures that `kansoku cuda stat` gives for one process.
struct CudaStat {
  std::int32_t pid{0};
  std::string name;  // of the process
  const capture::outside::Tally* tally{nullptr};
  BootTime end{};  // of the observation
};

/// Facts of the whole observation.
struct CudaStatRun {
  capture::Recorder::CudaView view;
  Nanos elapsed{};
  std::vector<std::string> not_probed;  // entry points, with reasons
  std::size_t rows{0};                  // of tables for people; 0: all
};

/// As text for people, and as JSON of the schema kansoku.cuda.stat/1.
[[nodiscard]] std::string cuda_stat_text(const CudaStat& stat, const CudaStatRun& run);
[[nodiscard]] Json cuda_stat_json(const CudaStat& stat, const CudaStatRun& run);

}  // namespace kansoku::cli
