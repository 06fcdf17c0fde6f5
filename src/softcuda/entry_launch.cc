// SPDX-License-Identifier: Apache-2.0
// Launches and occupancy.
#include <algorithm>

#include "softcuda/internal/images.h"

namespace kansoku::softcuda {
namespace {

constexpr unsigned kAttributesMax = 64;

struct Shape {
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes{0};
  CUstream stream{nullptr};
  bool is_per_thread{false}, is_cooperative{false};
};

CUresult launch(CUfunction handle, const Shape& shape, void** params, void** extra) {
  std::shared_ptr<Context> context;
  KANSOKU_CU_TRY(enter(context));
  std::shared_ptr<Function> function;
  KANSOKU_CU_TRY(find_function(handle, context, function));
  if (function->module->context.lock() != context) return CUDA_ERROR_INVALID_CONTEXT;
  const auto stream = context->find_stream(shape.stream, shape.is_per_thread);
  if (stream == nullptr || stream->context() != context) return CUDA_ERROR_INVALID_HANDLE;
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelLaunch operation;
  operation.handle = handle;
  operation.grid = shape.grid;
  operation.block = shape.block;
  operation.shared_bytes = shape.shared_bytes;
  operation.is_cooperative = shape.is_cooperative;
  KANSOKU_CU_TRY(make_launch(function, operation, params, extra));
  return context->enqueue(stream, std::move(operation), CU_GRAPH_NODE_TYPE_KERNEL);
}

/// Attributes that only say how a launch may be sped up have no effect: kernels of a stream run one
/// after the other, which programmatic serialisation allows. Those that promise something are
/// refused.
CUresult take_attribute(const CUlaunchAttribute& attribute, Shape& shape) {
  constexpr int kAttributeLast = 17;  // of the interface's versions up to 13.0
  switch (static_cast<int>(attribute.id)) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      shape.is_cooperative = attribute.value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      const auto& cluster = attribute.value.clusterDim;
      if (cluster.x <= 1 && cluster.y <= 1 && cluster.z <= 1) return CUDA_SUCCESS;
      log_line("launch: clusters of blocks are not supported by the software device");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      log_line("launch: events within a kernel are not supported by the software device");
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      log_line("launch: nodes that a kernel updates are not supported by the software device");
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return attribute.id < 0 || attribute.id > kAttributeLast ? CUDA_ERROR_INVALID_VALUE
                                                               : CUDA_SUCCESS;
  }
}

CUresult launch_with_config(const CUlaunchConfig* config, CUfunction function, void** params,
                            void** extra, bool is_per_thread) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr) ||
      config->numAttrs > kAttributesMax)
    return CUDA_ERROR_INVALID_VALUE;
  Shape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
              {config->blockDimX, config->blockDimY, config->blockDimZ},
              config->sharedMemBytes,
              config->hStream,
              is_per_thread,
              false};
  for (unsigned i = 0; i < config->numAttrs; ++i)
    KANSOKU_CU_TRY(take_attribute(config->attrs[i], shape));
  return launch(function, shape, params, extra);
}

CUresult active_blocks(int* blocks, CUfunction handle, int block_size, std::size_t shared_bytes) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  std::shared_ptr<Function> function;
  KANSOKU_CU_TRY(find_function(handle, nullptr, function));
  if (blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  const auto bytes =
      static_cast<std::uint32_t>(std::min<std::size_t>(shared_bytes, UINT32_MAX / 2));
  *blocks = static_cast<int>(gpu::exec::resident_blocks_per_sm(
      function->info, static_cast<std::uint32_t>(block_size), bytes));
  return CUDA_SUCCESS;
}

/// The block size with the most resident threads; of equals the largest.
CUresult best_block(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of,
                    std::size_t shared_bytes, int limit) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  std::shared_ptr<Function> function;
  KANSOKU_CU_TRY(find_function(handle, nullptr, function));
  if (grid == nullptr || block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int largest = static_cast<int>(threads_max(function->info));
  if (limit > 0) largest = std::min(largest, limit);
  int best_threads = 0;
  for (int size = (largest + 31) / 32 * 32; size > 0; size -= 32) {
    const int threads = std::min(size, largest);
    int blocks = 0;
    const std::size_t bytes = shared_of != nullptr ? shared_of(threads) : shared_bytes;
    KANSOKU_CU_TRY(active_blocks(&blocks, handle, threads, bytes));
    if (blocks * threads <= best_threads) continue;
    best_threads = blocks * threads;
    *block = threads;
    *grid = blocks * static_cast<int>(gpu::exec::kSmCount);
  }
  return best_threads > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

KANSOKU_STREAM_ENTRY(cuLaunchKernel, _ptsz,
                     (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      CUstream stream, void** params, void** extra),
                     return launch(function,
                                   {{grid_x, grid_y, grid_z},
                                    {block_x, block_y, block_z},
                                    shared_bytes,
                                    stream,
                                    is_per_thread,
                                    false},
                                   params, extra);)
KANSOKU_STREAM_ENTRY(cuLaunchCooperativeKernel, _ptsz,
                     (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                      CUstream stream, void** params),
                     return launch(function,
                                   {{grid_x, grid_y, grid_z},
                                    {block_x, block_y, block_z},
                                    shared_bytes,
                                    stream,
                                    is_per_thread,
                                    true},
                                   params, nullptr);)
KANSOKU_STREAM_ENTRY(cuLaunchKernelEx, _ptsz,
                     (const CUlaunchConfig* config, CUfunction function, void** params,
                      void** extra),
                     return launch_with_config(config, function, params, extra, is_per_thread);)

KANSOKU_ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                          int block_size,
                                                          std::size_t shared_bytes) {
  return active_blocks(blocks, function, block_size, shared_bytes);
}
KANSOKU_ENTRY cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                                   int block_size,
                                                                   std::size_t shared_bytes,
                                                                   unsigned flags) {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  return active_blocks(blocks, function, block_size, shared_bytes);
}
KANSOKU_ENTRY cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction function,
                                               CUoccupancyB2DSize shared_of,
                                               std::size_t shared_bytes, int limit) {
  return best_block(grid, block, function, shared_of, shared_bytes, limit);
}
KANSOKU_ENTRY cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction function,
                                                        CUoccupancyB2DSize shared_of,
                                                        std::size_t shared_bytes, int limit,
                                                        unsigned flags) {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  return best_block(grid, block, function, shared_of, shared_bytes, limit);
}
KANSOKU_ENTRY cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, CUfunction handle,
                                                      int blocks, int block_size) {
  if (runtime() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  std::shared_ptr<Function> function;
  KANSOKU_CU_TRY(find_function(handle, nullptr, function));
  if (bytes == nullptr || blocks <= 0 || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  int possible = 0;
  KANSOKU_CU_TRY(active_blocks(&possible, handle, block_size, 0));
  if (possible < blocks) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t share = gpu::exec::kSharedBytesPerSm / static_cast<std::size_t>(blocks);
  const std::size_t taken =
      std::size_t{gpu::exec::kSharedReservedBytes} + function->info.shared_bytes;
  const std::size_t most = gpu::exec::kSharedBytesMax - function->info.shared_bytes;
  *bytes = share > taken ? std::min(share - taken, most) : 0;
  return CUDA_SUCCESS;
}

}  // namespace kansoku::softcuda
