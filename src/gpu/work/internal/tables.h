// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gpu/work/internal/host_slices.h"
#include "gpu/work/work.h"

namespace kansoku::gpu::work {

/// Kernels by name, longest first. Without device times: launches that name their kernel, counts
/// only.
[[nodiscard]] std::vector<KernelRow> kernel_rows(const Input& in);
[[nodiscard]] std::vector<CopyRow> copy_rows(const Input& in);
[[nodiscard]] std::vector<CollectiveRow> collective_rows(const Input& in);
/// Matrix products by shape; those without a linked kernel are left out.
[[nodiscard]] std::vector<GemmRow> gemm_rows(const Input& in);
[[nodiscard]] std::vector<OperatorRow> operator_rows(const Input& in);

}  // namespace kansoku::gpu::work
