/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges and marks of NVTX 3, for programs that are compiled without NVIDIA's headers. At the first
 * call it opens the library that NVTX_INJECTION64_PATH names, calls its
 * InitializeInjectionNvtx2() with a table of functions to fill, and from then on calls what stands
 * there; what is not filled does nothing. There are no names of threads, categories and resources.
 * Source: the protocol of the public headers. */
#pragma once

#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))
enum { NVTX_MESSAGE_TYPE_ASCII = 1, NVTX_MESSAGE_TYPE_UNICODE = 2, NVTX_MESSAGE_TYPE_REGISTERED };
typedef struct softgpu_nvtx_domain* nvtxDomainHandle_t;
typedef struct softgpu_nvtx_string* nvtxStringHandle_t;
typedef uint64_t nvtxRangeId_t;
typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType, reserved0;
  union {
    uint64_t ullValue;
  } payload;
  int32_t messageType;
  union {
    const char* ascii;
    const wchar_t* unicode;
    nvtxStringHandle_t registered;
  } message;
} nvtxEventAttributes_t;

typedef void (*softgpu_nvtx_function)(void);
typedef struct {
  size_t size;
  int (*table)(uint32_t module, softgpu_nvtx_function*** table, unsigned* size);
} softgpu_nvtx_callbacks;

enum { SOFTGPU_NVTX_CORE = 1, SOFTGPU_NVTX_CORE2 = 5, SOFTGPU_NVTX_PLACES = 16 };
static softgpu_nvtx_function softgpu_nvtx_core[SOFTGPU_NVTX_PLACES],
    softgpu_nvtx_core2[SOFTGPU_NVTX_PLACES];
static softgpu_nvtx_function *softgpu_nvtx_core_table[SOFTGPU_NVTX_PLACES + 1],
    *softgpu_nvtx_core2_table[SOFTGPU_NVTX_PLACES + 1];
static int softgpu_nvtx_state; /* 0: no call yet, 1: one opens the library, 2: ready */

static int softgpu_nvtx_table(uint32_t module, softgpu_nvtx_function*** table, unsigned* size) {
  if (module != SOFTGPU_NVTX_CORE && module != SOFTGPU_NVTX_CORE2) return 0;
  *table = module == SOFTGPU_NVTX_CORE ? softgpu_nvtx_core_table : softgpu_nvtx_core2_table;
  *size = SOFTGPU_NVTX_PLACES;
  return 1;
}
static const softgpu_nvtx_callbacks softgpu_nvtx_export = {sizeof(softgpu_nvtx_callbacks),
                                                           softgpu_nvtx_table};
static const void* softgpu_nvtx_get_export(uint32_t id) {
  return id == 1 ? &softgpu_nvtx_export : NULL;
}

static void softgpu_nvtx_start(void) {
  const char* const path = getenv("NVTX_INJECTION64_PATH");
  void* const library = path != NULL ? dlopen(path, RTLD_LAZY) : NULL;
  for (int i = 1; i < SOFTGPU_NVTX_PLACES; ++i) {
    softgpu_nvtx_core_table[i] = &softgpu_nvtx_core[i];
    softgpu_nvtx_core2_table[i] = &softgpu_nvtx_core2[i];
  }
  if (library == NULL) return;
  int (*const initialize)(const void* (*)(uint32_t)) =
      (int (*)(const void* (*)(uint32_t)))(uintptr_t)dlsym(library, "InitializeInjectionNvtx2");
  if (initialize == NULL || initialize(softgpu_nvtx_get_export) == 0) {
    for (int i = 1; i < SOFTGPU_NVTX_PLACES; ++i)
      softgpu_nvtx_core[i] = softgpu_nvtx_core2[i] = NULL;
    dlclose(library);
  }
}

/* The first call of any thread; others wait for it. */
static inline void softgpu_nvtx_once(void) {
  int before = 0;
  if (__atomic_load_n(&softgpu_nvtx_state, __ATOMIC_ACQUIRE) == 2) return;
  if (__atomic_compare_exchange_n(&softgpu_nvtx_state, &before, 1, 0, __ATOMIC_ACQUIRE,
                                  __ATOMIC_ACQUIRE)) {
    softgpu_nvtx_start();
    __atomic_store_n(&softgpu_nvtx_state, 2, __ATOMIC_RELEASE);
    return;
  }
  while (__atomic_load_n(&softgpu_nvtx_state, __ATOMIC_ACQUIRE) != 2)
    sched_yield();
}

#define SOFTGPU_NVTX(result, name, core, id, none, parameters, arguments) \
  static inline result name parameters {                                  \
    softgpu_nvtx_once();                                                  \
    result(*const function) parameters = (result(*) parameters)core[id];  \
    return function != NULL ? function arguments : (none);                \
  }
#define SOFTGPU_NVTX_VOID(name, core, id, parameters, arguments)     \
  static inline void name parameters {                               \
    softgpu_nvtx_once();                                             \
    void(*const function) parameters = (void(*) parameters)core[id]; \
    if (function != NULL) function arguments;                        \
  }
SOFTGPU_NVTX_VOID(nvtxMarkEx, softgpu_nvtx_core, 1, (const nvtxEventAttributes_t* event), (event))
SOFTGPU_NVTX_VOID(nvtxMarkA, softgpu_nvtx_core, 2, (const char* text), (text))
SOFTGPU_NVTX_VOID(nvtxMarkW, softgpu_nvtx_core, 3, (const wchar_t* text), (text))
SOFTGPU_NVTX(nvtxRangeId_t, nvtxRangeStartEx, softgpu_nvtx_core, 4, 0,
             (const nvtxEventAttributes_t* event), (event))
SOFTGPU_NVTX(nvtxRangeId_t, nvtxRangeStartA, softgpu_nvtx_core, 5, 0, (const char* text), (text))
SOFTGPU_NVTX(nvtxRangeId_t, nvtxRangeStartW, softgpu_nvtx_core, 6, 0, (const wchar_t* text), (text))
SOFTGPU_NVTX_VOID(nvtxRangeEnd, softgpu_nvtx_core, 7, (nvtxRangeId_t id), (id))
SOFTGPU_NVTX(int, nvtxRangePushEx, softgpu_nvtx_core, 8, -2, (const nvtxEventAttributes_t* event),
             (event))
SOFTGPU_NVTX(int, nvtxRangePushA, softgpu_nvtx_core, 9, -2, (const char* text), (text))
SOFTGPU_NVTX(int, nvtxRangePushW, softgpu_nvtx_core, 10, -2, (const wchar_t* text), (text))
SOFTGPU_NVTX(int, nvtxRangePop, softgpu_nvtx_core, 11, -2, (void), ())
SOFTGPU_NVTX_VOID(nvtxDomainMarkEx, softgpu_nvtx_core2, 1,
                  (nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event), (domain, event))
SOFTGPU_NVTX(nvtxRangeId_t, nvtxDomainRangeStartEx, softgpu_nvtx_core2, 2, 0,
             (nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event), (domain, event))
SOFTGPU_NVTX_VOID(nvtxDomainRangeEnd, softgpu_nvtx_core2, 3,
                  (nvtxDomainHandle_t domain, nvtxRangeId_t id), (domain, id))
SOFTGPU_NVTX(int, nvtxDomainRangePushEx, softgpu_nvtx_core2, 4, -2,
             (nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event), (domain, event))
SOFTGPU_NVTX(int, nvtxDomainRangePop, softgpu_nvtx_core2, 5, -2, (nvtxDomainHandle_t domain),
             (domain))
SOFTGPU_NVTX(nvtxStringHandle_t, nvtxDomainRegisterStringA, softgpu_nvtx_core2, 10, NULL,
             (nvtxDomainHandle_t domain, const char* text), (domain, text))
SOFTGPU_NVTX(nvtxStringHandle_t, nvtxDomainRegisterStringW, softgpu_nvtx_core2, 11, NULL,
             (nvtxDomainHandle_t domain, const wchar_t* text), (domain, text))
SOFTGPU_NVTX(nvtxDomainHandle_t, nvtxDomainCreateA, softgpu_nvtx_core2, 12, NULL,
             (const char* text), (text))
SOFTGPU_NVTX(nvtxDomainHandle_t, nvtxDomainCreateW, softgpu_nvtx_core2, 13, NULL,
             (const wchar_t* text), (text))
SOFTGPU_NVTX_VOID(nvtxDomainDestroy, softgpu_nvtx_core2, 14, (nvtxDomainHandle_t domain), (domain))
#undef SOFTGPU_NVTX
#undef SOFTGPU_NVTX_VOID

#define nvtxMark nvtxMarkA
#define nvtxRangeStart nvtxRangeStartA
#define nvtxRangePush nvtxRangePushA
#define nvtxDomainCreate nvtxDomainCreateA
#define nvtxDomainRegisterString nvtxDomainRegisterStringA
