// SPDX-License-Identifier: Apache-2.0
#include "cuda/abi.h"

namespace kansoku::cuda {

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
