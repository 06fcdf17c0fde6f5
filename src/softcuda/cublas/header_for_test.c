// SPDX-License-Identifier: Apache-2.0
// The header as a program in C meets it.
#include <cublas_v2.h>

_Static_assert(CUBLAS_COMPUTE_32F_FAST_TF32 == 77 && CUBLAS_OP_C == 2, "numbers of the interface");

cublasStatus_t create_in_c(cublasStatus_t (*create)(cublasHandle_t*),
                           cublasStatus_t (*destroy)(cublasHandle_t));
cublasStatus_t create_in_c(cublasStatus_t (*create)(cublasHandle_t*),
                           cublasStatus_t (*destroy)(cublasHandle_t)) {
  cublasHandle_t handle = NULL;
  const cublasStatus_t status = create(&handle);
  return status == CUBLAS_STATUS_SUCCESS ? destroy(handle) : status;
}
