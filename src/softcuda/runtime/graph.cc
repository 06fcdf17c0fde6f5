// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs whose parameters differ from the driver's.
#include "softcuda/runtime/internal/state.h"

using namespace kansoku::cudart;  // NOLINT(google-build-using-namespace)

namespace {

cudaError_t kernel_node_of(const cudaKernelNodeParams* from, CUDA_KERNEL_NODE_PARAMS& to) {
  KANSOKU_CUDART_TRY(enter());
  if (from == nullptr) return noted(cudaErrorInvalidValue);
  to = {};
  KANSOKU_CUDART_TRY(enter_kernel(from->func, to.func));
  to.gridDimX = from->gridDim.x;
  to.gridDimY = from->gridDim.y;
  to.gridDimZ = from->gridDim.z;
  to.blockDimX = from->blockDim.x;
  to.blockDimY = from->blockDim.y;
  to.blockDimZ = from->blockDim.z;
  to.sharedMemBytes = from->sharedMemBytes;
  to.kernelParams = from->kernelParams;
  to.extra = from->extra;
  return cudaSuccess;
}

CUmemorytype memory_type(bool is_host, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

}  // namespace

extern "C" {

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, std::size_t count,
                                   const cudaKernelNodeParams* parameters) {
  CUDA_KERNEL_NODE_PARAMS its;
  if (const cudaError_t error = kernel_node_of(parameters, its); error != cudaSuccess) return error;
  return noted(driver().cuGraphAddKernelNode_v2(node, graph, dependencies, count, &its));
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) {
  CUDA_KERNEL_NODE_PARAMS its;
  if (const cudaError_t error = kernel_node_of(parameters, its); error != cudaSuccess) return error;
  return noted(driver().cuGraphExecKernelNodeSetParams_v2(executable, node, &its));
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* dependencies, std::size_t count,
                                     void* to, const void* from, std::size_t bytes,
                                     cudaMemcpyKind kind) {
  KANSOKU_CUDART_TRY(enter());
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return noted(cudaErrorInvalidMemcpyDirection);
  CUDA_MEMCPY3D shape{};
  shape.srcMemoryType =
      memory_type(kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice, kind);
  shape.srcHost = from;
  shape.srcDevice = as(from);
  shape.srcPitch = bytes;
  shape.dstMemoryType =
      memory_type(kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost, kind);
  shape.dstHost = to;
  shape.dstDevice = as(to);
  shape.dstPitch = bytes;
  shape.WidthInBytes = bytes;
  shape.Height = 1;
  shape.Depth = 1;
  return noted(
      driver().cuGraphAddMemcpyNode(node, graph, dependencies, count, &shape, current_context()));
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* dependencies, std::size_t count,
                                   const cudaMemsetParams* parameters) {
  KANSOKU_CUDART_TRY(enter());
  if (parameters == nullptr) return noted(cudaErrorInvalidValue);
  const CUDA_MEMSET_NODE_PARAMS its{as(parameters->dst),     parameters->pitch, parameters->value,
                                    parameters->elementSize, parameters->width, parameters->height};
  return noted(
      driver().cuGraphAddMemsetNode(node, graph, dependencies, count, &its, current_context()));
}

}  // extern "C"
