/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_DEVICE_SPACES_H
#define KANSOKU_SOFTGPU_DEVICE_SPACES_H

/* Generic pointers and addresses within a state space; clang's intrinsics stand on these. */

static __device__ inline size_t __cvta_generic_to_shared(const void* pointer) {
  return (size_t)(__attribute__((address_space(3))) const void*)pointer;
}
static __device__ inline size_t __cvta_generic_to_global(const void* pointer) {
  return (size_t)(__attribute__((address_space(1))) const void*)pointer;
}
static __device__ inline void* __cvta_shared_to_generic(size_t address) {
  return (void*)(__attribute__((address_space(3))) void*)address;
}
static __device__ inline void* __cvta_global_to_generic(size_t address) {
  return (void*)(__attribute__((address_space(1))) void*)address;
}
static __device__ inline bool __isGlobal(const void* pointer) {
  return __nvvm_isspacep_global(pointer);
}
static __device__ inline bool __isShared(const void* pointer) {
  return __nvvm_isspacep_shared(pointer);
}
static __device__ inline bool __isLocal(const void* pointer) {
  return __nvvm_isspacep_local(pointer);
}

#endif /* KANSOKU_SOFTGPU_DEVICE_SPACES_H */
