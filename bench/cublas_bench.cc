// SPDX-License-Identifier: Apache-2.0
// Products of matrices by the software GPU's libcublas on one worker, by shape, transposes and
// type: bench_cublas FOLDER [ROUNDS]. FOLDER holds libcuda.so.1 and libcublas.so.12. Processor
// time; the first line is the time until a first product is done, in which the kernels are loaded.
#include <cublas_v2.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "bench_util.h"
#include "common/parse.h"

namespace kansoku::bench {
namespace {

constexpr std::size_t kMatrixBytes = std::size_t{64} << 20;
constexpr double kSampleGflop = 0.05;  // a sample is as many calls as make this many

struct Shape {
  int m, n, k;
};
constexpr Shape kShapes[] = {{512, 512, 512}, {1024, 32, 1024}, {4096, 9, 1024},
                             {64, 64, 64},    {16, 16, 256},    {33, 513, 64}};
struct Type {
  const char* name;
  cudaDataType ab, c;
};
constexpr Type kTypes[] = {{"f32", CUDA_R_32F, CUDA_R_32F},
                           {"f16", CUDA_R_16F, CUDA_R_16F},
                           {"bf16", CUDA_R_16BF, CUDA_R_16BF},
                           {"s8", CUDA_R_8I, CUDA_R_32F}};
constexpr cublasOperation_t kOrders[][2] = {
    {CUBLAS_OP_N, CUBLAS_OP_N}, {CUBLAS_OP_T, CUBLAS_OP_N}, {CUBLAS_OP_N, CUBLAS_OP_T}};

using GemmEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int,
                                  int, const void*, const void*, cudaDataType, int, const void*,
                                  cudaDataType, int, const void*, void*, cudaDataType, int,
                                  cublasComputeType_t, cublasGemmAlgo_t);

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// The library with a handle and three matrices on the device.
class Bench {
 public:
  bool open(const std::string& folder) {
    driver_ = dlopen((folder + "/libcuda.so.1").c_str(), RTLD_NOW);
    cublas_ =
        driver_ == nullptr ? nullptr : dlopen((folder + "/libcublas.so.12").c_str(), RTLD_NOW);
    if (cublas_ == nullptr) return false;
    void* context = nullptr;
    bool is_right = drive("cuInit", 0U) && drive("cuDevicePrimaryCtxRetain", &context, 0) &&
                    drive("cuCtxSetCurrent", context);
    for (void*& matrix : matrices_) {
      // 0x3a: ordinary numbers in every type.
      is_right = is_right && drive("cuMemAlloc_v2", &matrix, kMatrixBytes) &&
                 drive("cuMemsetD8_v2", matrix, static_cast<unsigned char>(0x3a), kMatrixBytes);
    }
    const auto create =
        reinterpret_cast<cublasStatus_t (*)(cublasHandle_t*)>(dlsym(cublas_, "cublasCreate_v2"));
    gemm_ = reinterpret_cast<GemmEx>(dlsym(cublas_, "cublasGemmEx"));
    return is_right && create(&handle_) == CUBLAS_STATUS_SUCCESS;
  }
  /// Seconds of one product; below 0 if it failed.
  double sample(const Shape& shape, const Type& type, const cublasOperation_t (&order)[2],
                int calls) {
    const float one = 1, zero = 0;
    const double begin = processor_seconds();
    for (int i = 0; i < calls; ++i) {
      const auto status =
          gemm_(handle_, order[0], order[1], shape.m, shape.n, shape.k, &one, matrices_[0], type.ab,
                order[0] == CUBLAS_OP_N ? shape.m : shape.k, matrices_[1], type.ab,
                order[1] == CUBLAS_OP_N ? shape.k : shape.n, &zero, matrices_[2], type.c, shape.m,
                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
      if (status != CUBLAS_STATUS_SUCCESS) return -1;
    }
    if (!drive("cuCtxSynchronize")) return -1;
    return (processor_seconds() - begin) / calls;
  }

 private:
  template <class... Args>
  bool drive(const char* name, Args... args) {
    return reinterpret_cast<int (*)(Args...)>(dlsym(driver_, name))(args...) == 0;
  }
  void *driver_{nullptr}, *cublas_{nullptr};
  void* matrices_[3]{};
  cublasHandle_t handle_{nullptr};
  GemmEx gemm_{nullptr};
};

}  // namespace
}  // namespace kansoku::bench

int main(int argc, char** argv) {
  using namespace kansoku;
  const auto rounds = argc > 2 ? parse_int<int>(argv[2]) : 5;
  if (argc < 2 || argc > 3 || !rounds || *rounds <= 0) {
    fmt::print(stderr, "usage: bench_cublas FOLDER [ROUNDS]\n");
    return 2;
  }
  setenv("KANSOKU_SOFTGPU_WORKERS", "1", 1);
  bench::Bench bench;
  if (!bench.open(argv[1])) {
    fmt::print(stderr, "bench_cublas: no libraries of the software GPU in {}\n", argv[1]);
    return 1;
  }
  const double first = bench.sample({1, 1, 1}, bench::kTypes[0], bench::kOrders[1], 1);
  fmt::print("bench cublas first_product_ms={:.1f}\n", first * 1e3);
  for (const auto& shape : bench::kShapes) {
    for (const auto& order : bench::kOrders) {
      for (const auto& type : bench::kTypes) {
        const double gflop = 2e-9 * shape.m * shape.n * shape.k;
        const int calls = static_cast<int>(std::max(1.0, bench::kSampleGflop / gflop));
        std::vector<double> seconds;
        for (int round = 0; round < *rounds; ++round)
          seconds.push_back(bench.sample(shape, type, order, calls));
        std::sort(seconds.begin(), seconds.end());
        if (seconds.front() < 0) return 1;
        fmt::print(
            "bench cublas m={} n={} k={} order={}{} type={} rounds={} gflops={:.2f} "
            "best={:.2f}\n",
            shape.m, shape.n, shape.k, order[0] == CUBLAS_OP_N ? 'N' : 'T',
            order[1] == CUBLAS_OP_N ? 'N' : 'T', type.name, *rounds, gflop / stats::median(seconds),
            gflop / seconds.front());
      }
    }
  }
  return 0;
}
