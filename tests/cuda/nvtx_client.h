/* SPDX-License-Identifier: Apache-2.0 */
/* As much of the client's side of NVTX 3 as the tests need, where its headers are not installed: at
 * the first call it opens the library that NVTX_INJECTION64_PATH names, calls its
 * InitializeInjectionNvtx2() with a table of functions to fill, and from then on calls what stands
 * there; what is not filled does nothing. Source: the protocol of the public headers. */
#pragma once

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))
enum { NVTX_MESSAGE_TYPE_ASCII = 1, NVTX_MESSAGE_TYPE_UNICODE = 2, NVTX_MESSAGE_TYPE_REGISTERED };
typedef struct client_domain* nvtxDomainHandle_t;
typedef struct client_string* nvtxStringHandle_t;
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

typedef void (*client_function)(void);
typedef struct {
  size_t size;
  int (*table)(uint32_t module, client_function*** table, unsigned* size);
} client_callbacks;

enum { CLIENT_CORE = 1, CLIENT_CORE2 = 5, CLIENT_PLACES = 16 };
static client_function client_core[CLIENT_PLACES], client_core2[CLIENT_PLACES];
static client_function *client_core_table[CLIENT_PLACES + 1],
    *client_core2_table[CLIENT_PLACES + 1];
static int client_is_ready;

static int client_table(uint32_t module, client_function*** table, unsigned* size) {
  if (module != CLIENT_CORE && module != CLIENT_CORE2) return 0;
  *table = module == CLIENT_CORE ? client_core_table : client_core2_table;
  *size = CLIENT_PLACES;
  return 1;
}
static const client_callbacks client_export = {sizeof(client_callbacks), client_table};
static const void* client_get_export(uint32_t id) {
  return id == 1 ? &client_export : NULL;
}

static void client_start(void) {
  const char* const path = getenv("NVTX_INJECTION64_PATH");
  void* const library = path != NULL ? dlopen(path, RTLD_LAZY) : NULL;
  client_is_ready = 1;
  for (int i = 1; i < CLIENT_PLACES; ++i) {
    client_core_table[i] = &client_core[i];
    client_core2_table[i] = &client_core2[i];
  }
  if (library == NULL) return;
  int (*const initialize)(const void* (*)(uint32_t)) =
      (int (*)(const void* (*)(uint32_t)))(uintptr_t)dlsym(library, "InitializeInjectionNvtx2");
  if (initialize == NULL || initialize(client_get_export) == 0) {
    for (int i = 1; i < CLIENT_PLACES; ++i)
      client_core[i] = client_core2[i] = NULL;
    dlclose(library);
  }
}

#define CLIENT(result, name, core, id, none, parameters, arguments)      \
  static inline result name parameters {                                 \
    if (!client_is_ready) client_start();                                \
    result(*const function) parameters = (result(*) parameters)core[id]; \
    return function != NULL ? function arguments : (none);               \
  }
#define CLIENT_VOID(name, core, id, parameters, arguments)           \
  static inline void name parameters {                               \
    if (!client_is_ready) client_start();                            \
    void(*const function) parameters = (void(*) parameters)core[id]; \
    if (function != NULL) function arguments;                        \
  }
CLIENT_VOID(nvtxMarkEx, client_core, 1, (const nvtxEventAttributes_t* event), (event))
CLIENT_VOID(nvtxMarkA, client_core, 2, (const char* text), (text))
CLIENT_VOID(nvtxMarkW, client_core, 3, (const wchar_t* text), (text))
CLIENT(nvtxRangeId_t, nvtxRangeStartEx, client_core, 4, 0, (const nvtxEventAttributes_t* event),
       (event))
CLIENT(nvtxRangeId_t, nvtxRangeStartA, client_core, 5, 0, (const char* text), (text))
CLIENT(nvtxRangeId_t, nvtxRangeStartW, client_core, 6, 0, (const wchar_t* text), (text))
CLIENT_VOID(nvtxRangeEnd, client_core, 7, (nvtxRangeId_t id), (id))
CLIENT(int, nvtxRangePushEx, client_core, 8, -2, (const nvtxEventAttributes_t* event), (event))
CLIENT(int, nvtxRangePushA, client_core, 9, -2, (const char* text), (text))
CLIENT(int, nvtxRangePushW, client_core, 10, -2, (const wchar_t* text), (text))
CLIENT(int, nvtxRangePop, client_core, 11, -2, (void), ())
CLIENT_VOID(nvtxDomainMarkEx, client_core2, 1,
            (nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event), (domain, event))
CLIENT(nvtxRangeId_t, nvtxDomainRangeStartEx, client_core2, 2, 0,
       (nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event), (domain, event))
CLIENT_VOID(nvtxDomainRangeEnd, client_core2, 3, (nvtxDomainHandle_t domain, nvtxRangeId_t id),
            (domain, id))
CLIENT(int, nvtxDomainRangePushEx, client_core2, 4, -2,
       (nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event), (domain, event))
CLIENT(int, nvtxDomainRangePop, client_core2, 5, -2, (nvtxDomainHandle_t domain), (domain))
CLIENT(nvtxStringHandle_t, nvtxDomainRegisterStringA, client_core2, 10, NULL,
       (nvtxDomainHandle_t domain, const char* text), (domain, text))
CLIENT(nvtxStringHandle_t, nvtxDomainRegisterStringW, client_core2, 11, NULL,
       (nvtxDomainHandle_t domain, const wchar_t* text), (domain, text))
CLIENT(nvtxDomainHandle_t, nvtxDomainCreateA, client_core2, 12, NULL, (const char* text), (text))
CLIENT(nvtxDomainHandle_t, nvtxDomainCreateW, client_core2, 13, NULL, (const wchar_t* text), (text))
CLIENT_VOID(nvtxDomainDestroy, client_core2, 14, (nvtxDomainHandle_t domain), (domain))
