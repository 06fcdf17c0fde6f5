/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_DEVICE_ATOMICS_H
#define KANSOKU_SOFTGPU_DEVICE_ATOMICS_H

/* Atomic operations on device memory. Each gives the value of before. Without a suffix they order
 * threads of one device, with `_block` those of a block, with `_system` those of all devices and
 * the host. */

/* name, type of the program, type of clang's built-in function, operation and type in its name */
#define KANSOKU_ATOMIC(name, type, native, operation, suffix)                               \
  static __device__ inline type name(type* place, type value) {                             \
    return (type)__nvvm_atom_##operation##_gen_##suffix((native*)place, (native)value);     \
  }                                                                                         \
  static __device__ inline type name##_block(type* place, type value) {                     \
    return (type)__nvvm_atom_cta_##operation##_gen_##suffix((native*)place, (native)value); \
  }                                                                                         \
  static __device__ inline type name##_system(type* place, type value) {                    \
    return (type)__nvvm_atom_sys_##operation##_gen_##suffix((native*)place, (native)value); \
  }
#define KANSOKU_ATOMIC_INTEGERS(name, operation)    \
  KANSOKU_ATOMIC(name, int, int, operation, i)      \
  KANSOKU_ATOMIC(name, unsigned, int, operation, i) \
  KANSOKU_ATOMIC(name, unsigned long long, long long, operation, ll)
#define KANSOKU_ATOMIC_ORDERED(name, operation)             \
  KANSOKU_ATOMIC(name, int, int, operation, i)              \
  KANSOKU_ATOMIC(name, unsigned, unsigned, operation, ui)   \
  KANSOKU_ATOMIC(name, long long, long long, operation, ll) \
  KANSOKU_ATOMIC(name, unsigned long long, unsigned long long, operation, ull)

KANSOKU_ATOMIC_INTEGERS(atomicAdd, add)
KANSOKU_ATOMIC(atomicAdd, float, float, add, f)
KANSOKU_ATOMIC(atomicAdd, double, double, add, d)
KANSOKU_ATOMIC_INTEGERS(atomicExch, xchg)
KANSOKU_ATOMIC_ORDERED(atomicMin, min)
KANSOKU_ATOMIC_ORDERED(atomicMax, max)
KANSOKU_ATOMIC_INTEGERS(atomicAnd, and)
KANSOKU_ATOMIC_INTEGERS(atomicOr, or)
KANSOKU_ATOMIC_INTEGERS(atomicXor, xor)
/* 0 after `value`, and `value` before 0. */
KANSOKU_ATOMIC(atomicInc, unsigned, unsigned, inc, ui)
KANSOKU_ATOMIC(atomicDec, unsigned, unsigned, dec, ui)

#define KANSOKU_ATOMIC_CAS(scope, infix)                                                     \
  static __device__ inline int atomicCAS##scope(int* place, int expected, int value) {       \
    return __nvvm_atom_##infix##cas_gen_i(place, expected, value);                           \
  }                                                                                          \
  static __device__ inline unsigned atomicCAS##scope(unsigned* place, unsigned expected,     \
                                                     unsigned value) {                       \
    return (unsigned)__nvvm_atom_##infix##cas_gen_i((int*)place, (int)expected, (int)value); \
  }                                                                                          \
  static __device__ inline unsigned long long atomicCAS##scope(                              \
      unsigned long long* place, unsigned long long expected, unsigned long long value) {    \
    return (unsigned long long)__nvvm_atom_##infix##cas_gen_ll(                              \
        (long long*)place, (long long)expected, (long long)value);                           \
  }                                                                                          \
  static __device__ inline float atomicExch##scope(float* place, float value) {              \
    return __int_as_float(atomicExch##scope((int*)place, __float_as_int(value)));            \
  }                                                                                          \
  static __device__ inline int atomicSub##scope(int* place, int value) {                     \
    return atomicAdd##scope(place, -value);                                                  \
  }                                                                                          \
  static __device__ inline unsigned atomicSub##scope(unsigned* place, unsigned value) {      \
    return atomicAdd##scope(place, 0U - value);                                              \
  }
KANSOKU_ATOMIC_CAS(, )
KANSOKU_ATOMIC_CAS(_block, cta_)
KANSOKU_ATOMIC_CAS(_system, sys_)
#undef KANSOKU_ATOMIC
#undef KANSOKU_ATOMIC_INTEGERS
#undef KANSOKU_ATOMIC_ORDERED
#undef KANSOKU_ATOMIC_CAS

#endif /* KANSOKU_SOFTGPU_DEVICE_ATOMICS_H */
