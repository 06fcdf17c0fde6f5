// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gpu/activity/activity.h"
#include "gpu/activity/internal/host_slices.h"

namespace kansoku::gpu::activity {

/// Kernels by name, longest first. Without device times: launches that name their kernel, counts
/// only.
[[nodiscard]] std::vector<KernelRow> kernel_rows(const Input& in);
[[nodiscard]] std::vector<CopyRow> copy_rows(const Input& in);
[[nodiscard]] std::vector<CollectiveRow> collective_rows(const Input& in);
/// Matrix products by shape; those without a linked kernel are left out.
[[nodiscard]] std::vector<GemmRow> gemm_rows(const Input& in);
[[nodiscard]] std::vector<OperatorRow> operator_rows(const Input& in);
/// Ranges that the program or its profiler named, longest on the device first.
[[nodiscard]] std::vector<RangeRow> range_rows(const Input& in);

}  // namespace kansoku::gpu::activity
