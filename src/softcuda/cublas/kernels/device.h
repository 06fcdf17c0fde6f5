// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compiler interface of the kernels: clang 19's NVPTX builtins, so that no toolkit is necessary.

#ifdef __NVPTX__
#define KANSOKU_KERNEL extern "C" [[clang::nvptx_kernel]]
#define KANSOKU_SHARED_SPACE __attribute__((address_space(3)))
#define KANSOKU_SHARED [[clang::loader_uninitialized]] static KANSOKU_SHARED_SPACE
#else  // for tools that read this header on the host
int __nvvm_read_ptx_sreg_tid_x();
int __nvvm_read_ptx_sreg_ctaid_x();
int __nvvm_read_ptx_sreg_ctaid_y();
void __nvvm_bar_warp_sync(unsigned);
int __builtin_elementwise_min(int, int);
#endif

namespace kansoku::softcuda::cublas::device {

inline constexpr int kLanes = 32;

/// Blocks are single warps.
inline int lane() {
  return __nvvm_read_ptx_sreg_tid_x();
}
inline int block_x() {
  return __nvvm_read_ptx_sreg_ctaid_x();
}
inline int block_y() {
  return __nvvm_read_ptx_sreg_ctaid_y();
}
/// Barrier of a warp: after it, every lane sees the others' writes to shared memory.
inline void meet() {
  __nvvm_bar_warp_sync(~0U);
}
/// As an instruction of its own: the interpreter keeps the result of min uniform where a selection
/// between two values would make 32 of it.
inline int least(int a, int b) {
  return __builtin_elementwise_min(a, b);
}

}  // namespace kansoku::softcuda::cublas::device
