// SPDX-License-Identifier: Apache-2.0
// Another library with the driver's names, as an interposer is. Whoever calls it gets 999.
#define OTHER(name)                                       \
  __attribute__((visibility("default"))) int name(void) { \
    return 999;                                           \
  }
OTHER(cuInit)
OTHER(cuMemAlloc_v2)
OTHER(cuLaunchKernel)
OTHER(cuTexRefCreate)
OTHER(cuGetProcAddress)
OTHER(cuGetProcAddress_v2)
