// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gpu/activity/device_work.h"

namespace kansoku::gpu::activity {

/// The class of a device operation by its slice's category; nothing for other slices. Kernels that
/// are collectives: trace/collective_kernels.h.
[[nodiscard]] std::optional<OpClass> op_class_of(std::string_view category);

/// True if a category holds calls of CUDA on host threads.
[[nodiscard]] bool is_cuda_category(std::string_view category);

/// True if a category may hold calls of another device's runtime: "xpu_runtime", or one that nobody
/// here has seen. Such a call is one if an operation points to it.
[[nodiscard]] bool is_foreign_category(std::string_view category);

/// True if a category holds operators of a framework (aten::addmm).
[[nodiscard]] bool is_operator_category(std::string_view category);
/// Ranges that the program itself named: NVTX, annotations of a profiler.
[[nodiscard]] bool is_range_category(std::string_view category);
/// True if Kansoku says it of the recording, or derived it from it: no observation of the job.
[[nodiscard]] bool is_own_category(std::string_view category);

/// True if a stream's track of this name lies on a clock of the device's own.
[[nodiscard]] bool is_device_clock(std::string_view track);

struct CallKind {
  CallClass what{CallClass::kOther};
  bool is_blocking{false};
};
/// Kind of a function of CUDA, by its name in either interface, versions' suffixes included.
[[nodiscard]] CallKind call_kind_of(std::string_view function);

/// "HtoD", "DtoH", "DtoD", ... of the name of a copy ("Memcpy HtoD (Pageable -> Device)"); "".
[[nodiscard]] std::string_view copy_kind_of(std::string_view name);

/// Bytes of an element by its type's name in any tool's spelling; 0 if it is not known.
[[nodiscard]] std::uint32_t type_bytes_of(std::string_view type);

/// The word of a collective without its tool's spelling: "allreduce" for "all_reduce",
/// "_allgather_base", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)"; "" for none.
[[nodiscard]] std::string collective_of(std::string_view name);

}  // namespace kansoku::gpu::activity
