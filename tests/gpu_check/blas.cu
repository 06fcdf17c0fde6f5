// SPDX-License-Identifier: Apache-2.0
// cuBLAS: products of matrices, single and in batches, and a triangular system, against sums of the
// host in double precision; codes for arguments that cannot be.
#include <cublas_v2.h>

#include "device.h"
#include "reference.h"

namespace gpu_check {

namespace {

const char* status_name(int status) {
  return cublasGetStatusName(static_cast<cublasStatus_t>(status));
}
#define EXPECT_BLAS(wanted, call) c.error(#call, (call), (wanted), status_name)

class Handle {
 public:
  explicit Handle(Check& c) {
    c.need("cublasCreate", cublasCreate(&handle_) == CUBLAS_STATUS_SUCCESS);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { cublasDestroy(handle_); }
  operator cublasHandle_t() const { return handle_; }

 private:
  cublasHandle_t handle_{nullptr};
};

constexpr int kM = 37, kN = 29, kK = 53;

std::vector<float> random_matrix(int count, u64 seed) {
  Random random(seed);
  std::vector<float> values;
  for (int i = 0; i < count; ++i)
    values.push_back(float(random.between(-1, 1)));
  return values;
}
// Column by column, as cuBLAS sees matrices: element (row, column) of op(matrix).
double element(const std::vector<float>& matrix, bool is_transposed, int lead, int row,
               int column) {
  return double(matrix[std::size_t(is_transposed ? row * lead + column : column * lead + row)]);
}
struct Product {
  bool transposes_a{false}, transposes_b{false};
  float alpha{1}, beta{0};
  int lda() const { return transposes_a ? kK : kM; }
  int ldb() const { return transposes_b ? kN : kK; }
  cublasOperation_t a() const { return transposes_a ? CUBLAS_OP_T : CUBLAS_OP_N; }
  cublasOperation_t b() const { return transposes_b ? CUBLAS_OP_T : CUBLAS_OP_N; }
};
// The greatest difference of `got` from alpha * op(A) * op(B) + beta * C.
double worst_error(const Product& p, const std::vector<float>& a, const std::vector<float>& b,
                   const std::vector<float>& before, const std::vector<float>& got) {
  double worst = 0;
  for (int row = 0; row < kM; ++row)
    for (int column = 0; column < kN; ++column) {
      double sum = 0;
      for (int k = 0; k < kK; ++k)
        sum += element(a, p.transposes_a, p.lda(), row, k) *
               element(b, p.transposes_b, p.ldb(), k, column);
      const std::size_t at = std::size_t(column * kM + row);
      const double want = double(p.alpha) * sum + (p.beta == 0 ? 0 : double(p.beta) * before[at]);
      const double error = std::fabs(double(got[at]) - want);
      worst = std::isnan(error) ? INFINITY : std::fmax(worst, error);
    }
  return worst;
}
// 53 products below one: each rounding of a sum costs at most 2^-24 of 53.
constexpr double kBound = 53 * 53 * 0x1p-24;

std::vector<u16> narrowed(const std::vector<float>& values, Format format) {
  std::vector<u16> out;
  for (const float value : values)
    out.push_back(round_to(double(value), format));
  return out;
}
std::vector<float> widened(const std::vector<u16>& values, Format format) {
  std::vector<float> out;
  for (const u16 value : values)
    out.push_back(float(widen(value, format)));
  return out;
}

void narrow_product(Check& c, const char* name, Format format, cudaDataType type) {
  const std::vector<u16> a = narrowed(random_matrix(kM * kK, 1), format),
                         b = narrowed(random_matrix(kK * kN, 2), format);
  const Handle handle(c);
  Array<u16> device_a(c, a), device_b(c, b), device_narrow(c, kM * kN);
  Array<float> device_c(c, kM * kN);
  const float one = 1, zero = 0;
  EXPECT_BLAS(CUBLAS_STATUS_SUCCESS,
              cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &one, device_a, type, kM,
                           device_b, type, kK, &zero, device_c, CUDA_R_32F, kM, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT));
  const std::vector<float> wide_a = widened(a, format), wide_b = widened(b, format);
  c.at_most(std::string("error of ") + name + " to f32",
            worst_error({}, wide_a, wide_b, {}, device_c.host()), kBound);
  EXPECT_BLAS(CUBLAS_STATUS_SUCCESS,
              cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &one, device_a, type, kM,
                           device_b, type, kK, &zero, device_narrow, type, kM, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT));
  // One more rounding, of values below 16.
  c.at_most(std::string("error of ") + name + " to itself",
            worst_error({}, wide_a, wide_b, {}, widened(device_narrow.host(), format)),
            kBound + 8 * std::exp2(-format.mantissa));
}

}  // namespace

GPU_CHECK_BODY(blas, sgemm) {
  const std::vector<float> a = random_matrix(kM * kK, 1), b = random_matrix(kK * kN, 2),
                           before = random_matrix(kM * kN, 3);
  const Handle handle(c);
  Array<float> device_a(c, a), device_b(c, b), device_c(c, before);
  for (const bool transposes_a : {false, true})
    for (const bool transposes_b : {false, true}) {
      const Product p{transposes_a, transposes_b, 0.5F, -2.0F};
      device_c.set(before);
      EXPECT_BLAS(CUBLAS_STATUS_SUCCESS,
                  cublasSgemm(handle, p.a(), p.b(), kM, kN, kK, &p.alpha, device_a, p.lda(),
                              device_b, p.ldb(), &p.beta, device_c, kM));
      c.at_most("greatest error", worst_error(p, a, b, before, device_c.host()), kBound);
    }
}

GPU_CHECK_BODY(blas, beta_of_zero_reads_nothing) {
  const std::vector<float> a = random_matrix(kM * kK, 1), b = random_matrix(kK * kN, 2);
  const Handle handle(c);
  Array<float> device_a(c, a), device_b(c, b);
  Array<float> device_c(c, std::vector<float>(kM * kN, std::nanf("")));
  const Product p;
  EXPECT_BLAS(CUBLAS_STATUS_SUCCESS,
              cublasSgemm(handle, p.a(), p.b(), kM, kN, kK, &p.alpha, device_a, kM, device_b, kK,
                          &p.beta, device_c, kM));
  c.at_most("greatest error over NaNs", worst_error(p, a, b, {}, device_c.host()), kBound);
}

GPU_CHECK_BODY(blas, gemm_ex_f16) {
  narrow_product(c, "f16", kHalf, CUDA_R_16F);
}
GPU_CHECK_BODY(blas, gemm_ex_bf16) {
  narrow_product(c, "bf16", kBfloat, CUDA_R_16BF);
}

GPU_CHECK_BODY(blas, batches) {
  constexpr int kCount = 3;
  const Handle handle(c);
  const Product p;
  std::vector<std::vector<float>> as, bs;
  std::vector<float> all_a, all_b;
  for (u64 i = 0; i < kCount; ++i) {
    as.push_back(random_matrix(kM * kK, 10 + i));
    bs.push_back(random_matrix(kK * kN, 20 + i));
    all_a.insert(all_a.end(), as[i].begin(), as[i].end());
    all_b.insert(all_b.end(), bs[i].begin(), bs[i].end());
  }
  Array<float> device_a(c, all_a), device_b(c, all_b), device_c(c, kCount * kM * kN);
  const auto expect = [&](const char* name) {
    const std::vector<float> got = device_c.host();
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto begin = got.begin() + std::ptrdiff_t(i * kM * kN);
      c.at_most(name, worst_error(p, as[i], bs[i], {}, {begin, begin + kM * kN}), kBound);
    }
  };
  EXPECT_BLAS(
      CUBLAS_STATUS_SUCCESS,
      cublasSgemmStridedBatched(handle, p.a(), p.b(), kM, kN, kK, &p.alpha, device_a, kM, kM * kK,
                                device_b, kK, kK * kN, &p.beta, device_c, kM, kM * kN, kCount));
  expect("error by strides");
  device_c.set(std::vector<float>(kCount * kM * kN));
  std::vector<const float*> pointers_a, pointers_b;
  std::vector<float*> pointers_c;
  for (int i = 0; i < kCount; ++i) {
    pointers_a.push_back(device_a + i * kM * kK);
    pointers_b.push_back(device_b + i * kK * kN);
    pointers_c.push_back(device_c + i * kM * kN);
  }
  Array<const float*> array_a(c, pointers_a), array_b(c, pointers_b);
  Array<float*> array_c(c, pointers_c);
  EXPECT_BLAS(CUBLAS_STATUS_SUCCESS,
              cublasSgemmBatched(handle, p.a(), p.b(), kM, kN, kK, &p.alpha, array_a, kM, array_b,
                                 kK, &p.beta, array_c, kM, kCount));
  expect("error by pointers");
}

GPU_CHECK_BODY(blas, triangular_system) {
  constexpr int kSize = 24, kRight = 5;
  std::vector<float> a = random_matrix(kSize * kSize, 31), b = random_matrix(kSize * kRight, 32);
  for (int i = 0; i < kSize; ++i)
    a[std::size_t(i * kSize + i)] = 8 + float(i % 3);  // well conditioned
  const Handle handle(c);
  Array<float> device_a(c, a), device_b(c, b);
  const float alpha = 2;
  EXPECT_BLAS(CUBLAS_STATUS_SUCCESS, cublasStrsm(handle, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER,
                                                 CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, kSize, kRight,
                                                 &alpha, device_a, kSize, device_b, kSize));
  const std::vector<float> got = device_b.host();
  double worst = 0;
  for (int column = 0; column < kRight; ++column) {
    std::vector<double> x(kSize);
    for (int row = 0; row < kSize; ++row) {
      double rest = 2 * double(b[std::size_t(column * kSize + row)]);
      for (int k = 0; k < row; ++k)
        rest -= double(a[std::size_t(k * kSize + row)]) * x[std::size_t(k)];
      x[std::size_t(row)] = rest / double(a[std::size_t(row * kSize + row)]);
      const double error =
          std::fabs(double(got[std::size_t(column * kSize + row)]) - x[std::size_t(row)]);
      worst = std::isnan(error) ? INFINITY : std::fmax(worst, error);
    }
  }
  c.at_most("greatest error", worst, 1e-5);
}

GPU_CHECK_BODY(blas, arguments) {
  const Handle handle(c);
  Array<float> matrix(c, 16);
  const float one = 1, zero = 0;
  EXPECT_BLAS(CUBLAS_STATUS_INVALID_VALUE,
              cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, -1, 4, 4, &one, matrix, 4, matrix, 4,
                          &zero, matrix, 4));
  EXPECT_BLAS(CUBLAS_STATUS_INVALID_VALUE,
              cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, matrix, 3, matrix, 4,
                          &zero, matrix, 4));
  EXPECT_BLAS(CUBLAS_STATUS_NOT_INITIALIZED,
              cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, matrix, 4, matrix, 4,
                          &zero, matrix, 4));
}

GPU_CHECK_BODY(blas, order_in_a_stream) {
  const std::vector<float> a = random_matrix(kM * kK, 1), b = random_matrix(kK * kN, 2);
  const Handle handle(c);
  cudaStream_t stream;
  NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Array<float> device_a(c, a), device_b(c, kK * kN), device_c(c, kM * kN);
  NEED(cudaDeviceSynchronize());
  c.need("cublasSetStream", cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  float* pinned = nullptr;
  NEED(cudaHostAlloc(reinterpret_cast<void**>(&pinned), kK * kN * sizeof(float),
                     cudaHostAllocDefault));
  std::copy(b.begin(), b.end(), pinned);
  NEED(cudaMemcpyAsync(device_b, pinned, kK * kN * sizeof(float), cudaMemcpyHostToDevice, stream));
  const Product p;
  EXPECT_BLAS(CUBLAS_STATUS_SUCCESS,
              cublasSgemm(handle, p.a(), p.b(), kM, kN, kK, &p.alpha, device_a, kM, device_b, kK,
                          &p.beta, device_c, kM));
  NEED(cudaStreamSynchronize(stream));
  c.at_most("greatest error", worst_error(p, a, b, {}, device_c.host()), kBound);
  NEED(cudaFreeHost(pinned));
  NEED(cudaStreamDestroy(stream));
}

}  // namespace gpu_check
