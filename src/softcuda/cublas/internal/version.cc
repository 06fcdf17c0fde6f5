// SPDX-License-Identifier: Apache-2.0
#include "softcuda/cublas/internal/version.h"

namespace kansoku::softcuda::cublas {

const Version kVersion{KANSOKU_CUBLAS_VERSION};

}  // namespace kansoku::softcuda::cublas
