// SPDX-License-Identifier: Apache-2.0
// End of the stubs of operators that are not compiled in.
#include <cstdio>
#include <cstdlib>

extern "C" [[noreturn]] void kansoku_missing_operator(const char* name) {
  std::fprintf(stderr, "this partial CUDA backend does not contain %s\n", name);
  std::abort();
}
