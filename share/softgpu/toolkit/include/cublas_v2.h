/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KANSOKU_SOFTGPU_CUBLAS_V2_H
#define KANSOKU_SOFTGPU_CUBLAS_V2_H

/* The part of cuBLAS's interface that Kansoku's stand-in libcublas offers, for C and C++. Matrices
 * lie column by column; lda, ldb, ldc are the elements from one column to the next. Matrices are in
 * device memory; alpha and beta are where the handle's pointer mode says. Calls are put on the
 * handle's stream and return at once. */

/* Before 15 clang has no half precision on x86. */
#if defined(__cplusplus) && (!defined(__clang__) || __clang_major__ >= 15)
#include <cuda_fp16.h>
#endif
#include <cuda_runtime_api.h>
#include <library_types.h>
#include <stddef.h>
#include <stdint.h>

#ifndef CUBLASWINAPI
#define CUBLASWINAPI
#endif
#ifndef CUBLASAPI
#define CUBLASAPI
#endif

#define CUBLAS_VER_MAJOR 12
#define CUBLAS_VER_MINOR 4
#define CUBLAS_VER_PATCH 5
#define CUBLAS_VER_BUILD 0
#define CUBLAS_VERSION (CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

struct __half; /* its members may be unknown: pointers alone are needed here */
struct cublasContext;
typedef struct cublasContext* cublasHandle_t;

typedef enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1, /* no driver, no device, or no handle */
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7, /* an argument is out of its range */
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13, /* the driver refused the launch */
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15, /* the log names what is missing */
  CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;

typedef enum {
  CUBLAS_FILL_MODE_LOWER = 0,
  CUBLAS_FILL_MODE_UPPER = 1,
  CUBLAS_FILL_MODE_FULL = 2
} cublasFillMode_t;
typedef enum { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 } cublasDiagType_t;
typedef enum { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 } cublasSideMode_t;
typedef enum {
  CUBLAS_OP_N = 0,
  CUBLAS_OP_T = 1,
  CUBLAS_OP_C = 2, /* of real numbers: as T */
  CUBLAS_OP_HERMITAN = 2,
  CUBLAS_OP_CONJG = 3
} cublasOperation_t;
typedef enum { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 } cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 } cublasAtomicsMode_t;

typedef enum {
  CUBLAS_DEFAULT_MATH = 0,
  CUBLAS_TENSOR_OP_MATH = 1, /* deprecated */
  CUBLAS_PEDANTIC_MATH = 2,
  CUBLAS_TF32_TENSOR_OP_MATH = 3,
  CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 /* a flag beside one of the others */
} cublasMath_t;

typedef enum {
  CUBLAS_GEMM_DFALT = -1,
  CUBLAS_GEMM_DEFAULT = -1,
  CUBLAS_GEMM_ALGO0 = 0,
  CUBLAS_GEMM_ALGO1 = 1,
  CUBLAS_GEMM_ALGO2 = 2,
  CUBLAS_GEMM_ALGO3 = 3,
  CUBLAS_GEMM_ALGO4 = 4,
  CUBLAS_GEMM_ALGO5 = 5,
  CUBLAS_GEMM_ALGO6 = 6,
  CUBLAS_GEMM_ALGO7 = 7,
  CUBLAS_GEMM_ALGO8 = 8,
  CUBLAS_GEMM_ALGO9 = 9,
  CUBLAS_GEMM_ALGO10 = 10,
  CUBLAS_GEMM_ALGO11 = 11,
  CUBLAS_GEMM_ALGO12 = 12,
  CUBLAS_GEMM_ALGO13 = 13,
  CUBLAS_GEMM_ALGO14 = 14,
  CUBLAS_GEMM_ALGO15 = 15,
  CUBLAS_GEMM_ALGO16 = 16,
  CUBLAS_GEMM_ALGO17 = 17,
  CUBLAS_GEMM_ALGO18 = 18,
  CUBLAS_GEMM_ALGO19 = 19,
  CUBLAS_GEMM_ALGO20 = 20,
  CUBLAS_GEMM_ALGO21 = 21,
  CUBLAS_GEMM_ALGO22 = 22,
  CUBLAS_GEMM_ALGO23 = 23,
  CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
  CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
  CUBLAS_GEMM_ALGO0_TENSOR_OP = 100,
  CUBLAS_GEMM_ALGO1_TENSOR_OP = 101,
  CUBLAS_GEMM_ALGO2_TENSOR_OP = 102,
  CUBLAS_GEMM_ALGO3_TENSOR_OP = 103,
  CUBLAS_GEMM_ALGO4_TENSOR_OP = 104,
  CUBLAS_GEMM_ALGO5_TENSOR_OP = 105,
  CUBLAS_GEMM_ALGO6_TENSOR_OP = 106,
  CUBLAS_GEMM_ALGO7_TENSOR_OP = 107,
  CUBLAS_GEMM_ALGO8_TENSOR_OP = 108,
  CUBLAS_GEMM_ALGO9_TENSOR_OP = 109,
  CUBLAS_GEMM_ALGO10_TENSOR_OP = 110,
  CUBLAS_GEMM_ALGO11_TENSOR_OP = 111,
  CUBLAS_GEMM_ALGO12_TENSOR_OP = 112,
  CUBLAS_GEMM_ALGO13_TENSOR_OP = 113,
  CUBLAS_GEMM_ALGO14_TENSOR_OP = 114,
  CUBLAS_GEMM_ALGO15_TENSOR_OP = 115
} cublasGemmAlgo_t;

/* The type of alpha and beta: half for 16F, float for 32F..., double for 64F, int32_t for 32I. */
typedef enum {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_16F_PEDANTIC = 65,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_64F_PEDANTIC = 71,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32I_PEDANTIC = 73,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;

typedef cudaDataType cublasDataType_t;

#define cublasCreate cublasCreate_v2
#define cublasDestroy cublasDestroy_v2
#define cublasGetVersion cublasGetVersion_v2
#define cublasSetWorkspace cublasSetWorkspace_v2
#define cublasSetStream cublasSetStream_v2
#define cublasGetStream cublasGetStream_v2
#define cublasSetPointerMode cublasSetPointerMode_v2
#define cublasGetPointerMode cublasGetPointerMode_v2
#define cublasSgemm cublasSgemm_v2
#define cublasDgemm cublasDgemm_v2
#define cublasStrsm cublasStrsm_v2

/* The handle belongs to the context that is current; if none is, to device 0. */
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasCreate_v2(cublasHandle_t* handle);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasDestroy_v2(cublasHandle_t handle);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasGetVersion_v2(cublasHandle_t handle, int* version);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasGetProperty(libraryPropertyType type, int* value);
CUBLASAPI const char* CUBLASWINAPI cublasGetStatusName(cublasStatus_t status);
CUBLASAPI const char* CUBLASWINAPI cublasGetStatusString(cublasStatus_t status);

/* Device memory, aligned to 256 bytes, of `bytes` bytes. The stand-in needs none and leaves it. */
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace,
                                                            size_t bytes);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasSetStream_v2(cublasHandle_t handle,
                                                         cudaStream_t stream);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasGetStream_v2(cublasHandle_t handle,
                                                         cudaStream_t* stream);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasSetPointerMode_v2(cublasHandle_t handle,
                                                              cublasPointerMode_t mode);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasGetPointerMode_v2(cublasHandle_t handle,
                                                              cublasPointerMode_t* mode);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasSetAtomicsMode(cublasHandle_t handle,
                                                           cublasAtomicsMode_t mode);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasGetAtomicsMode(cublasHandle_t handle,
                                                           cublasAtomicsMode_t* mode);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode);

/* C = alpha * op(A) * op(B) + beta * C; op(A) is m x k, op(B) k x n. With beta = 0 C may hold
 * anything. */
#define KANSOKU_CUBLAS_GEMM(name, type)                                                           \
  CUBLASAPI cublasStatus_t CUBLASWINAPI name(                                                     \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,    \
      int k, const type* alpha, const type* a, int lda, const type* b, int ldb, const type* beta, \
      type* c, int ldc)
/* The same for batch_count matrices: arrays in device memory, of pointers to them. */
#define KANSOKU_CUBLAS_GEMM_BATCHED(name, type)                                                 \
  CUBLASAPI cublasStatus_t CUBLASWINAPI name(                                                   \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,  \
      int k, const type* alpha, const type* const a[], int lda, const type* const b[], int ldb, \
      const type* beta, type* const c[], int ldc, int batch_count)
/* Matrices that lie stride elements apart. */
#define KANSOKU_CUBLAS_GEMM_STRIDED(name, type)                                                    \
  CUBLASAPI cublasStatus_t CUBLASWINAPI name(                                                      \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,     \
      int k, const type* alpha, const type* a, int lda, long long int stride_a, const type* b,     \
      int ldb, long long int stride_b, const type* beta, type* c, int ldc, long long int stride_c, \
      int batch_count)

KANSOKU_CUBLAS_GEMM(cublasSgemm_v2, float);
KANSOKU_CUBLAS_GEMM(cublasDgemm_v2, double);
KANSOKU_CUBLAS_GEMM(cublasHgemm, struct __half);
KANSOKU_CUBLAS_GEMM_BATCHED(cublasSgemmBatched, float);
KANSOKU_CUBLAS_GEMM_BATCHED(cublasDgemmBatched, double);
KANSOKU_CUBLAS_GEMM_BATCHED(cublasHgemmBatched, struct __half);
KANSOKU_CUBLAS_GEMM_STRIDED(cublasSgemmStridedBatched, float);
KANSOKU_CUBLAS_GEMM_STRIDED(cublasDgemmStridedBatched, double);
KANSOKU_CUBLAS_GEMM_STRIDED(cublasHgemmStridedBatched, struct __half);
#undef KANSOKU_CUBLAS_GEMM
#undef KANSOKU_CUBLAS_GEMM_BATCHED
#undef KANSOKU_CUBLAS_GEMM_STRIDED

/* By type; A and B have the same. Supported, as A and B -> C:
 *   32F...: 32F -> 32F; with 32F and 32F_PEDANTIC also 16F -> 16F, 32F; 16BF -> 16BF, 32F; 8I ->
 * 32F 16F: 16F -> 16F (sums are in single precision)   64F: 64F -> 64F   32I: 8I -> 32I The choice
 * of an algorithm has no effect. */
CUBLASAPI cublasStatus_t CUBLASWINAPI
cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
             int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
             const void* b, cudaDataType b_type, int ldb, const void* beta, void* c,
             cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasGemmBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* const a[], cudaDataType a_type, int lda, const void* const b[],
    cudaDataType b_type, int ldb, const void* beta, void* const c[], cudaDataType c_type, int ldc,
    int batch_count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void* alpha, const void* a, cudaDataType a_type, int lda, long long int stride_a,
    const void* b, cudaDataType b_type, int ldb, long long int stride_b, const void* beta, void* c,
    cudaDataType c_type, int ldc, long long int stride_c, int batch_count,
    cublasComputeType_t compute, cublasGemmAlgo_t algorithm);

/* op(A) * X = alpha * B (left) or X * op(A) = alpha * B (right) with a triangle A; X replaces B,
 * which is m x n. */
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasStrsm_v2(cublasHandle_t handle, cublasSideMode_t side,
                                                     cublasFillMode_t uplo, cublasOperation_t trans,
                                                     cublasDiagType_t diag, int m, int n,
                                                     const float* alpha, const float* a, int lda,
                                                     float* b, int ldb);
CUBLASAPI cublasStatus_t CUBLASWINAPI
cublasStrsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                   cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const float* alpha,
                   const float* const a[], int lda, float* const b[], int ldb, int batch_count);

#ifdef __cplusplus
} /* extern "C" */

/* Programs from before cuBLAS 11 name the compute type by a data type. */
static inline cublasComputeType_t kansokuCublasComputeType(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
      return CUBLAS_COMPUTE_16F;
    case CUDA_R_64F:
      return CUBLAS_COMPUTE_64F;
    case CUDA_R_32I:
      return CUBLAS_COMPUTE_32I;
    case CUDA_R_32F:
      return CUBLAS_COMPUTE_32F;
    default:
      return static_cast<cublasComputeType_t>(0); /* none: the call refuses it */
  }
}
static inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int lda, const void* b, cudaDataType b_type, int ldb,
                                          const void* beta, void* c, cudaDataType c_type, int ldc,
                                          cudaDataType compute, cublasGemmAlgo_t algorithm) {
  return cublasGemmEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta,
                      c, c_type, ldc, kansokuCublasComputeType(compute), algorithm);
}
#endif

#endif /* KANSOKU_SOFTGPU_CUBLAS_V2_H */
