/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels by handle. The library is there from the process's first call, so every handle's name is
 * known from the call that made it; a handle whose module was unloaded is forgotten, since the
 * driver may give it out again. Learning takes a lock (it is rare), looking up does not. */
#include <string.h>

#include "capture/shim/internal/shim.h"

#define TABLE_SLOTS (1U << 17)
static struct {
  _Atomic uint64_t handle; /* 0: never used */
  _Atomic uint32_t index;  /* WIRE_CUDA_NO_KERNEL: forgotten */
} table[TABLE_SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned table_used;
static _Atomic uint8_t is_collective[WIRE_CUDA_KERNELS_MAX];

static unsigned slot_of(uint64_t handle) {
  return (unsigned)((handle * 0x9e3779b97f4a7c15ULL) >> 47); /* 17 bits */
}

uint32_t kansoku_kernel_index(uint64_t handle) {
  if (handle == 0) return WIRE_CUDA_NO_KERNEL;
  for (unsigned i = 0; i < TABLE_SLOTS; ++i) {
    const unsigned at = (slot_of(handle) + i) % TABLE_SLOTS;
    const uint64_t found = atomic_load_explicit(&table[at].handle, memory_order_acquire);
    if (found == handle) return atomic_load_explicit(&table[at].index, memory_order_acquire);
    if (found == 0) return WIRE_CUDA_NO_KERNEL;
  }
  return WIRE_CUDA_NO_KERNEL;
}

int kansoku_is_collective(uint32_t kernel) {
  return kernel < WIRE_CUDA_KERNELS_MAX &&
         atomic_load_explicit(&is_collective[kernel], memory_order_relaxed) != 0;
}

uint32_t kansoku_text(const char* text) {
  struct wire_cuda* const shared = kansoku.shared;
  const size_t bytes = strlen(text) + 1;
  if (bytes > WIRE_CUDA_NAMES_BYTES - shared->names_used) {
    KANSOKU_LOSE(names_over_limit);
    return 0;
  }
  const uint32_t at = (uint32_t)shared->names_used;
  memcpy(shared->names + at, text, bytes);
  atomic_store((_Atomic uint64_t*)&shared->names_used, at + bytes);
  return at;
}

/* Under the lock. */
static void bind(uint64_t handle, uint32_t index) {
  for (unsigned i = 0; i < TABLE_SLOTS; ++i) {
    const unsigned at = (slot_of(handle) + i) % TABLE_SLOTS;
    const uint64_t found = atomic_load(&table[at].handle);
    if (found != 0 && found != handle) continue;
    if (found == 0 && ++table_used > TABLE_SLOTS / 2) {
      --table_used;
      KANSOKU_LOSE(kernels_over_limit);
      return;
    }
    atomic_store(&table[at].index, index);
    atomic_store_explicit(&table[at].handle, handle, memory_order_release);
    return;
  }
}

/* Under the lock. */
static void add(uint64_t handle, uint64_t module, const char* name, int is_kernel) {
  struct wire_cuda* const shared = kansoku.shared;
  const uint32_t known = kansoku_kernel_index(handle);
  if (known != WIRE_CUDA_NO_KERNEL && shared->kernels[known].module == module &&
      strcmp(shared->names + shared->kernels[known].name, name) == 0)
    return;
  const uint64_t index = shared->kernel_count;
  if (index >= WIRE_CUDA_KERNELS_MAX) {
    KANSOKU_LOSE(kernels_over_limit);
    bind(handle, WIRE_CUDA_NO_KERNEL);
    return;
  }
  struct wire_cuda_kernel* const kernel = &shared->kernels[index];
  kernel->handle = handle;
  kernel->module = module;
  kernel->is_kernel = (uint16_t)is_kernel;
  kernel->name = kansoku_text(name);
  atomic_store(&is_collective[index], strstr(name, "nccl") != NULL);
  atomic_store((_Atomic uint64_t*)&shared->kernel_count, index + 1);
  bind(handle, (uint32_t)index);
}

void kansoku_learn(uint64_t handle, uint64_t module, const char* name, int is_kernel) {
  if (kansoku.shared == NULL || handle == 0 || name == NULL) return;
  pthread_mutex_lock(&lock);
  add(handle, module, name, is_kernel);
  pthread_mutex_unlock(&lock);
}

static uint32_t attribute(const struct wire_cuda_kernel* kernel, uint64_t handle, CUdevice device,
                          CUfunction_attribute which) {
  int value = 0;
  if (kernel->is_kernel && handle == kernel->handle) {
    if (kansoku_driver.kernel_attribute == NULL ||
        kansoku_driver.kernel_attribute(&value, which, (CUkernel)(uintptr_t)handle, device) !=
            CUDA_SUCCESS)
      return 0;
  } else if (kansoku_driver.function_attribute == NULL ||
             kansoku_driver.function_attribute(&value, which, (CUfunction)(uintptr_t)handle) !=
                 CUDA_SUCCESS) {
    return 0;
  }
  return value > 0 ? (uint32_t)value : 0;
}

/* After a first launch of the kernel: to ask earlier could make a lazy driver load it. */
void kansoku_learn_attributes(uint32_t index, uint64_t handle, CUdevice device) {
  static _Atomic uint8_t asked[WIRE_CUDA_KERNELS_MAX];
  if (index >= WIRE_CUDA_KERNELS_MAX || atomic_load_explicit(&asked[index], memory_order_relaxed) ||
      atomic_exchange(&asked[index], 1))
    return;
  struct wire_cuda_kernel* const kernel = &kansoku.shared->kernels[index];
  kernel->static_shared = attribute(kernel, handle, device, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  kernel->local_bytes = attribute(kernel, handle, device, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  const uint32_t registers = attribute(kernel, handle, device, CU_FUNC_ATTRIBUTE_NUM_REGS);
  atomic_store((_Atomic uint16_t*)&kernel->registers, (uint16_t)registers);
}

/* The function of a kernel in the present context: another handle, the same code. */
void kansoku_learn_same(uint64_t function, uint64_t kernel) {
  if (kansoku.shared == NULL || function == 0) return;
  pthread_mutex_lock(&lock);
  const uint32_t index = kansoku_kernel_index(kernel);
  bind(function, index);
  pthread_mutex_unlock(&lock);
}

void kansoku_learn_functions(const CUfunction* functions, unsigned count, CUmodule module) {
  const char* name = NULL;
  for (unsigned i = 0; functions != NULL && i < count; ++i)
    if (functions[i] != NULL && kansoku_driver.function_name != NULL &&
        kansoku_driver.function_name(&name, functions[i]) == CUDA_SUCCESS)
      kansoku_learn((uintptr_t)functions[i], (uintptr_t)module, name, 0);
}

void kansoku_learn_kernels(const CUkernel* kernels, unsigned count, CUlibrary library) {
  const char* name = NULL;
  for (unsigned i = 0; kernels != NULL && i < count; ++i)
    if (kernels[i] != NULL && kansoku_driver.kernel_name != NULL &&
        kansoku_driver.kernel_name(&name, kernels[i]) == CUDA_SUCCESS)
      kansoku_learn((uintptr_t)kernels[i], (uintptr_t)library, name, 1);
}

void kansoku_forget_module(uint64_t module) {
  if (kansoku.shared == NULL) return;
  pthread_mutex_lock(&lock);
  for (unsigned i = 0; i < TABLE_SLOTS; ++i) {
    const uint32_t index = atomic_load(&table[i].index);
    if (atomic_load(&table[i].handle) != 0 && index < WIRE_CUDA_KERNELS_MAX &&
        kansoku.shared->kernels[index].module == module)
      atomic_store(&table[i].index, WIRE_CUDA_NO_KERNEL);
  }
  pthread_mutex_unlock(&lock);
}
