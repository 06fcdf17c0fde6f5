// SPDX-License-Identifier: Apache-2.0
#include "cuda/abi.h"

namespace kansoku::cuda {

#define KANSOKU_ABI_SIZE(type, bytes) static_assert(sizeof(type) == (bytes));
#define KANSOKU_ABI_MEMBER(type, member, at) static_assert(offsetof(type, member) == (at));
#include "cuda/interface/layout.inc"
#undef KANSOKU_ABI_SIZE
#undef KANSOKU_ABI_MEMBER

const char* error_name(CUresult code) {
  switch (code) {
#define KANSOKU_CUDA_X(name, number, text) \
  case name:                               \
    return #name;
    KANSOKU_CUDA_ERRORS(KANSOKU_CUDA_X)
#undef KANSOKU_CUDA_X
  }
  return nullptr;
}

const char* error_text(CUresult code) {
  switch (code) {
#define KANSOKU_CUDA_X(name, number, text) \
  case name:                               \
    return text;
    KANSOKU_CUDA_ERRORS(KANSOKU_CUDA_X)
#undef KANSOKU_CUDA_X
  }
  return nullptr;
}

}  // namespace kansoku::cuda
