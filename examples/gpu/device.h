// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compiler interface of these examples' device code: clang 19's NVPTX builtins, so that no toolkit
// is necessary. Compile with make_ptx.sh.

#define KERNEL extern "C" [[clang::nvptx_kernel]]
#define SHARED [[clang::loader_uninitialized]] static __attribute__((address_space(3)))

namespace device {

inline int thread_x() {
  return __nvvm_read_ptx_sreg_tid_x();
}
inline int thread_y() {
  return __nvvm_read_ptx_sreg_tid_y();
}
inline int block_x() {
  return __nvvm_read_ptx_sreg_ctaid_x();
}
inline int block_y() {
  return __nvvm_read_ptx_sreg_ctaid_y();
}
inline int block_size_x() {
  return __nvvm_read_ptx_sreg_ntid_x();
}
inline int grid_size_x() {
  return __nvvm_read_ptx_sreg_nctaid_x();
}
inline int global_x() {
  return block_x() * block_size_x() + thread_x();
}
inline void barrier() {
  __syncthreads();
}

inline float shuffle_xor(float value, int lane) {
  return __nvvm_shfl_sync_bfly_f32(-1, value, lane, 31);
}
inline float fma(float a, float b, float c) {
  return __nvvm_fma_rn_f(a, b, c);
}
inline float square_root(float a) {
  return __nvvm_sqrt_rn_f(a);
}
inline float larger(float a, float b) {
  return a > b ? a : b;
}
/// e to the power of a: by powers of two, a few units in the last place off.
inline float exponential(float a) {
  return __nvvm_ex2_approx_f(a * 1.44269504F);
}

/// Sum, or maximum, of the 32 lanes of a warp, in all of them.
inline float warp_sum(float value) {
  for (int lane = 16; lane > 0; lane /= 2)
    value += shuffle_xor(value, lane);
  return value;
}
inline float warp_max(float value) {
  for (int lane = 16; lane > 0; lane /= 2)
    value = larger(value, shuffle_xor(value, lane));
  return value;
}

}  // namespace device
