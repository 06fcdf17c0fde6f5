// SPDX-License-Identifier: Apache-2.0
// Lane loops for x86-64-v2: see lane_ops.h for what this file may include.
#include "gpu/exec/internal/ops/fused_ops.h"
#include "gpu/exec/internal/ops/matrix_ops.h"
#include "gpu/exec/internal/ops/memory_ops.h"

namespace kansoku::gpu::exec {

void list_forms_v2(const FormSink& sink) {
  const Lister list(sink);
  list_forms(list);
  list_memory_forms(list);
}

void list_products_v2(const MatrixSink& sink) {
  list_products(sink);
}

FusedHandlers fused_v2() {
  return fused_handlers();
}

}  // namespace kansoku::gpu::exec
