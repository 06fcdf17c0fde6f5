// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "simulate/workload/workload.h"

namespace kansoku::simulate::internal {

/// Jobs as columns: {"submit_ns": [...], "gpus": [...], ...}. A column in which every job has the
/// default is left out; name and graph have none (they index tables that a model does not keep).
[[nodiscard]] Json jobs_to_json(const std::vector<Job>& jobs);

/// The inverse. kCorrupt names the key: unknown, columns of different length, a value out of
/// range, a group or type beyond the counts. Times may be in any order.
[[nodiscard]] Result<std::vector<Job>> jobs_from_json(const Json& untrusted, std::string_view path,
                                                      std::size_t group_count,
                                                      std::size_t gpu_type_count);

}  // namespace kansoku::simulate::internal
