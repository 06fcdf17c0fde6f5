// SPDX-License-Identifier: Apache-2.0
// Products against double precision: shapes that fill no tile, all transposes and types, both
// pointer modes, all kinds of batches. Whatever must not be read is no number.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/rng.h"
#include "softcuda/cublas/cublas_for_test.h"
#include "softcuda/cublas/internal/tiles.h"

namespace kansoku::softcuda::cublas {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Types {
  cudaDataType ab, c, scale;
  cublasComputeType_t compute;
  double epsilon;  // half a unit of C; sums add some of single or double precision
};
constexpr Types kF32{CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 6e-8};
constexpr Types kF64{CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 1.2e-16};
constexpr Types kAllTypes[] = {
    kF32,
    kF64,
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, 6e-8},
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 6e-8},
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_16F, 6e-8},
    {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_16BF, 6e-8},
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4.9e-4},
    {CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 6e-8},
    {CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F, 4.9e-4},
    {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 3.92e-3},
    {CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 6e-8},
    {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, 0},
    {CUDA_R_8I, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 6e-8},
};

enum class Way { kEx, kTyped };  // cublasGemmEx or cublasSgemm and the like
enum class Batch { kOne, kArray, kStrided };

struct Case {
  int m, n, k;
  cublasOperation_t transa{CUBLAS_OP_N}, transb{CUBLAS_OP_N};
  double alpha{1}, beta{0};
  Types types{kF32};
  Way way{Way::kEx};
  Batch batch{Batch::kOne};
  int batch_count{1};
  int extra{0};  // of the leading dimensions
  bool is_device_mode{false};
};

std::string name_of(const Case& c) {
  return fmt::format(
      "m {} n {} k {} trans {}{} alpha {} beta {} types {} {} compute {} way {} "
      "batch {} x {} extra {} device mode {}",
      c.m, c.n, c.k, static_cast<int>(c.transa), static_cast<int>(c.transb), c.alpha, c.beta,
      static_cast<int>(c.types.ab), static_cast<int>(c.types.c), static_cast<int>(c.types.compute),
      static_cast<int>(c.way), static_cast<int>(c.batch), c.batch_count, c.extra, c.is_device_mode);
}

/// Column by column; what lies between the columns is no number.
struct Matrix {
  cudaDataType type{};
  int rows{0}, columns{0}, leading{1};
  std::vector<std::byte> bytes;
  double at(int row, int column) const {
    return decode(
        type, bytes.data() + (static_cast<std::size_t>(column) * static_cast<std::size_t>(leading) +
                              static_cast<std::size_t>(row)) *
                                 bytes_of(type));
  }
};
Matrix random_matrix(cudaDataType type, int rows, int columns, int extra, Rng& random,
                     bool is_nan = false) {
  Matrix matrix{type, rows, columns, std::max(1, rows + extra), {}};
  const double scale = type == CUDA_R_8I ? 127 : type == CUDA_R_32I ? 1000 : 1;
  const auto leading = static_cast<std::size_t>(matrix.leading);
  const std::size_t count = leading * static_cast<std::size_t>(columns);
  matrix.bytes.resize(count * bytes_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_element = i % leading < static_cast<std::size_t>(rows) && !is_nan;
    encode(type, is_element ? scale * (2 * random.uniform() - 1) : kNan,
           matrix.bytes.data() + i * bytes_of(type));
  }
  return matrix;
}

class GemmTest : public CublasTest {
 protected:
  void check(const Case& c);

 private:
  struct Operands {
    std::vector<Matrix> a, b, c;
    // In device memory: with Batch::kArray arrays of pointers; of c also the matrices.
    const void *a_place{nullptr}, *b_place{nullptr};
    void* c_place{nullptr};
    std::vector<void*> c_matrices;
    long long stride_a{0}, stride_b{0}, stride_c{0};
  };
  Operands operands_of(const Case& c);
  void* place(const std::vector<Matrix>& matrices, Batch batch, long long& stride,
              std::vector<void*>* each);
  int call(const Case& c, const Operands& o, const void* alpha, const void* beta);
  int call_typed(const Case& c, const Operands& o, const void* alpha, const void* beta);
  Rng random_{42};
};

void* GemmTest::place(const std::vector<Matrix>& matrices, Batch batch, long long& stride,
                      std::vector<void*>* each) {
  std::vector<void*> pointers;
  if (batch == Batch::kArray) {
    for (const Matrix& matrix : matrices)
      pointers.push_back(stored(matrix.bytes));
    if (each != nullptr) *each = pointers;
    return stored(pointers);
  }
  const std::size_t bytes = matrices[0].bytes.size(), element = bytes_of(matrices[0].type);
  constexpr std::size_t kApart = 24;  // elements between the matrices
  std::vector<std::byte> all;
  for (const Matrix& matrix : matrices) {
    all.insert(all.end(), matrix.bytes.begin(), matrix.bytes.end());
    if (&matrix != &matrices.back()) all.resize(all.size() + kApart * element);
  }
  stride = static_cast<long long>(bytes / element) + static_cast<long long>(kApart);
  auto* const begin = static_cast<std::byte*>(stored(all));
  for (std::size_t i = 0; each != nullptr && i < matrices.size(); ++i)
    each->push_back(begin + i * (bytes + kApart * element));
  return begin;
}

GemmTest::Operands GemmTest::operands_of(const Case& c) {
  Operands o;
  const bool is_a_plain = c.transa == CUBLAS_OP_N, is_b_plain = c.transb == CUBLAS_OP_N;
  for (int i = 0; i < c.batch_count; ++i) {
    o.a.push_back(random_matrix(c.types.ab, is_a_plain ? c.m : c.k, is_a_plain ? c.k : c.m, c.extra,
                                random_, c.alpha == 0));
    o.b.push_back(random_matrix(c.types.ab, is_b_plain ? c.k : c.n, is_b_plain ? c.n : c.k, c.extra,
                                random_, c.alpha == 0));
    o.c.push_back(random_matrix(c.types.c, c.m, c.n, c.extra, random_, c.beta == 0));
  }
  o.a_place = place(o.a, c.batch, o.stride_a, nullptr);
  o.b_place = place(o.b, c.batch, o.stride_b, nullptr);
  o.c_place = place(o.c, c.batch, o.stride_c, &o.c_matrices);
  return o;
}

/// The header has a second function of that name, for older programs.
auto gemm_ex() {
  using Function = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int,
                                      int, int, const void*, const void*, cudaDataType, int,
                                      const void*, cudaDataType, int, const void*, void*,
                                      cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
  return reinterpret_cast<Function>(cublas_symbol("cublasGemmEx"));
}

int GemmTest::call(const Case& c, const Operands& o, const void* alpha, const void* beta) {
  if (c.way == Way::kTyped) return call_typed(c, o, alpha, beta);
  const int lda = o.a[0].leading, ldb = o.b[0].leading, ldc = o.c[0].leading;
  const Types& t = c.types;
  switch (c.batch) {
    case Batch::kOne:
      return gemm_ex()(handle_, c.transa, c.transb, c.m, c.n, c.k, alpha, o.a_place, t.ab, lda,
                       o.b_place, t.ab, ldb, beta, o.c_place, t.c, ldc, t.compute,
                       CUBLAS_GEMM_DEFAULT);
    case Batch::kArray:
      return KANSOKU_CUBLAS(cublasGemmBatchedEx)(
          handle_, c.transa, c.transb, c.m, c.n, c.k, alpha,
          static_cast<const void* const*>(o.a_place), t.ab, lda,
          static_cast<const void* const*>(o.b_place), t.ab, ldb, beta,
          static_cast<void* const*>(o.c_place), t.c, ldc, c.batch_count, t.compute,
          CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    case Batch::kStrided:
      return KANSOKU_CUBLAS(cublasGemmStridedBatchedEx)(
          handle_, c.transa, c.transb, c.m, c.n, c.k, alpha, o.a_place, t.ab, lda, o.stride_a,
          o.b_place, t.ab, ldb, o.stride_b, beta, o.c_place, t.c, ldc, o.stride_c, c.batch_count,
          t.compute, CUBLAS_GEMM_ALGO3);
  }
  return -1;
}

/// cublas<letter>gemm[Batched|StridedBatched].
template <class T, class One, class Array, class Strided>
int call_as(const Case& c, cublasHandle_t handle, const void* a, int lda, long long stride_a,
            const void* b, int ldb, long long stride_b, void* to, int ldc, long long stride_c,
            const T* alpha, const T* beta, One one, Array array, Strided strided) {
  switch (c.batch) {
    case Batch::kOne:
      return one(handle, c.transa, c.transb, c.m, c.n, c.k, alpha, static_cast<const T*>(a), lda,
                 static_cast<const T*>(b), ldb, beta, static_cast<T*>(to), ldc);
    case Batch::kArray:
      return array(handle, c.transa, c.transb, c.m, c.n, c.k, alpha,
                   static_cast<const T* const*>(a), lda, static_cast<const T* const*>(b), ldb, beta,
                   static_cast<T* const*>(to), ldc, c.batch_count);
    case Batch::kStrided:
      return strided(handle, c.transa, c.transb, c.m, c.n, c.k, alpha, static_cast<const T*>(a),
                     lda, stride_a, static_cast<const T*>(b), ldb, stride_b, beta,
                     static_cast<T*>(to), ldc, stride_c, c.batch_count);
  }
  return -1;
}

int GemmTest::call_typed(const Case& c, const Operands& o, const void* alpha, const void* beta) {
  const auto with = [&](auto type, auto one, auto array, auto strided) {
    using T = std::remove_pointer_t<decltype(type)>;
    return call_as<T>(c, handle_, o.a_place, o.a[0].leading, o.stride_a, o.b_place, o.b[0].leading,
                      o.stride_b, o.c_place, o.c[0].leading, o.stride_c,
                      static_cast<const T*>(alpha), static_cast<const T*>(beta), one, array,
                      strided);
  };
  switch (c.types.ab) {
    case CUDA_R_32F:
      return with(static_cast<float*>(nullptr), KANSOKU_CUBLAS(cublasSgemm_v2),
                  KANSOKU_CUBLAS(cublasSgemmBatched), KANSOKU_CUBLAS(cublasSgemmStridedBatched));
    case CUDA_R_64F:
      return with(static_cast<double*>(nullptr), KANSOKU_CUBLAS(cublasDgemm_v2),
                  KANSOKU_CUBLAS(cublasDgemmBatched), KANSOKU_CUBLAS(cublasDgemmStridedBatched));
    default:
      return with(static_cast<__half*>(nullptr), KANSOKU_CUBLAS(cublasHgemm),
                  KANSOKU_CUBLAS(cublasHgemmBatched), KANSOKU_CUBLAS(cublasHgemmStridedBatched));
  }
}

/// Counts elements of one result that are wrong, and says the first.
int wrong_elements(const Case& c, const Matrix& a, const Matrix& b, const Matrix& before,
                   const Matrix& after) {
  const bool is_double = c.types.ab == CUDA_R_64F;
  int wrong = 0;
  for (int j = 0; j < c.n; ++j) {
    for (int i = 0; i < c.m; ++i) {
      double sum = 0, size = 0;
      for (int p = 0; p < c.k && c.alpha != 0; ++p) {
        const double product = (c.transa == CUBLAS_OP_N ? a.at(i, p) : a.at(p, i)) *
                               (c.transb == CUBLAS_OP_N ? b.at(p, j) : b.at(j, p));
        sum += product;
        size += std::abs(product);
      }
      const double old = c.beta == 0 ? 0 : c.beta * before.at(i, j);
      const double want = c.alpha * sum + old, got = after.at(i, j);
      // A sum of k products in any order, then two roundings.
      const double unit = c.types.epsilon == 0 ? 0 : is_double ? 1.2e-16 : 6e-8;
      const double bound = c.types.epsilon * std::abs(want) +
                           unit * ((c.k + 4) * std::abs(c.alpha) * size + 4 * std::abs(old));
      if (std::abs(got - want) <= bound) continue;
      if (wrong++ == 0)
        ADD_FAILURE() << name_of(c) << ": (" << i << ", " << j << ") is " << got << ", not " << want
                      << " within " << bound;
    }
  }
  return wrong;
}

/// True if the bytes between the columns of C stay.
bool is_same_between_columns(const Matrix& before, const Matrix& after) {
  const std::size_t element = bytes_of(before.type);
  for (std::size_t i = 0; i < before.bytes.size(); ++i) {
    const auto row = static_cast<int>(i / element % static_cast<std::size_t>(before.leading));
    if (row >= before.rows && before.bytes[i] != after.bytes[i]) return false;
  }
  return true;
}

void GemmTest::check(const Case& c) {
  const Operands o = operands_of(c);
  std::vector<std::byte> scales(2 * sizeof(double));
  encode(c.types.scale, c.alpha, scales.data());
  encode(c.types.scale, c.beta, scales.data() + sizeof(double));
  const auto* at = scales.data();
  if (c.is_device_mode) at = static_cast<const std::byte*>(stored(scales));
  ASSERT_EQ(KANSOKU_CUBLAS(cublasSetPointerMode_v2)(
                handle_, c.is_device_mode ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST),
            CUBLAS_STATUS_SUCCESS);
  const std::uint64_t before = launches();
  ASSERT_EQ(call(c, o, at, at + sizeof(double)), 0) << name_of(c);
  const bool is_empty = c.m == 0 || c.n == 0 || c.batch_count == 0;
  // The device computes, not the library.
  const std::uint64_t made = launches() - before;
  EXPECT_TRUE(is_empty ? made == 0 : made == 1 || made == 2) << made << ": " << name_of(c);
  for (std::size_t i = 0; i < o.c.size(); ++i) {
    Matrix after = o.c[i];
    after.bytes = read(o.c_matrices[i], after.bytes.size());
    EXPECT_EQ(wrong_elements(c, o.a[i], o.b[i], o.c[i], after), 0) << name_of(c);
    EXPECT_TRUE(is_same_between_columns(o.c[i], after)) << name_of(c);
  }
}

constexpr cublasOperation_t kOperations[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};

TEST_F(GemmTest, AllTransposesAndTypes) {
  for (const Types& types : kAllTypes) {
    for (const auto transa : kOperations) {
      for (const auto transb : kOperations) {
        Case c{37, 11, 45, transa, transb};
        c.types = types;
        c.extra = 3;
        check(c);
        c.alpha = types.scale == CUDA_R_32I ? -3 : 0.75;
        c.beta = types.scale == CUDA_R_32I ? 5 : -1.5;
        check(c);
      }
    }
  }
}

TEST_F(GemmTest, SizesAroundTheTiles) {
  for (const int m : {1, 2, 7, 31, 32, 33, 64, 130, 257}) {
    for (const int n : {1, 2, 3, 8, 9, 17, 40}) {
      for (const int k : {1, 3, 31, 33, 64}) {
        for (const auto& [transa, transb] :
             {std::pair(CUBLAS_OP_N, CUBLAS_OP_N), std::pair(CUBLAS_OP_T, CUBLAS_OP_N),
              std::pair(CUBLAS_OP_N, CUBLAS_OP_T)})
          check({m, n, k, transa, transb, 1, k == 33 ? 0.5 : 0.0});
      }
    }
  }
}

// One at least for every tile, in one of the orders below.
struct Shape {
  int m, n, k;
};
constexpr Shape kShapes[] = {{300, 64, 70},  {300, 40, 70}, {40, 300, 70}, {200, 8, 70},
                             {200, 4, 70},   {200, 2, 70},  {33, 9, 70},   {40, 2, 70},
                             {3, 2, 300},    {20, 20, 300}, {20, 2, 300},  {8, 8, 300},
                             {20, 32, 3000}, {16, 8, 300},  {64, 64, 70}};

TEST_F(GemmTest, EachKernelOfEachType) {
  for (const Types& types : kAllTypes) {
    for (const auto& [m, n, k] : kShapes) {
      for (const auto transa : {CUBLAS_OP_N, CUBLAS_OP_T}) {
        Case c{m, n, k, transa, CUBLAS_OP_N};
        c.types = types;
        check(c);
      }
    }
  }
}

TEST(Tiles, AreAllChosenInTheseTests) {
  std::set<std::string> chosen, all;
  bool is_split = false;
#define KANSOKU_ROWS(groups, columns) all.insert("kansoku_gemm_rows_" #groups "x" #columns);
#define KANSOKU_DOTS(rows, columns) all.insert("kansoku_gemm_dots_" #rows "x" #columns);
  KANSOKU_GEMM_TILES(KANSOKU_ROWS, KANSOKU_DOTS)
#undef KANSOKU_ROWS
#undef KANSOKU_DOTS
  for (const auto& [m, n, k] : kShapes) {
    for (const bool is_transposed : {false, true}) {
      GemmArguments problem{};
      problem.rows = m;
      problem.columns = n;
      problem.depth = k;
      problem.a_row = is_transposed ? k : 1;
      problem.a_depth = is_transposed ? 1 : m;
      problem.b_depth = 1;
      problem.b_column = k;
      const Plan plan = plan_for(problem, 1);
      for (int i = 0; i < plan.part_count; ++i)
        chosen.insert(plan.parts[i].tile->name);
      is_split = is_split || plan.part_count == 2;
    }
  }
  EXPECT_TRUE(is_split);
  EXPECT_EQ(chosen, all);
}

TEST_F(GemmTest, NothingToMultiply) {
  for (const Types& types : {kF32, kF64, kAllTypes[8]}) {
    Case c{35, 9, 0};
    c.types = types;
    check(c);  // C = 0, though it held no number
    c.beta = 0.5;
    check(c);
    c.k = 20;
    c.alpha = 0;  // A and B hold no number
    check(c);
    c.beta = 0;
    check(c);
    c.is_device_mode = true;
    check(c);
    c.m = 0;
    c.extra = 1;
    check(c);
  }
}

TEST_F(GemmTest, PointerModes) {
  for (const Types& types : kAllTypes) {
    Case c{33, 5, 12, CUBLAS_OP_T, CUBLAS_OP_N, 2, -3};
    c.types = types;
    c.is_device_mode = true;
    check(c);
    c.is_device_mode = false;
    check(c);
  }
}

TEST_F(GemmTest, Batches) {
  for (const Types& types : kAllTypes) {
    for (const auto batch : {Batch::kArray, Batch::kStrided}) {
      Case c{19, 6, 40, CUBLAS_OP_T, CUBLAS_OP_N, 1, 2};
      c.types = types;
      c.batch = batch;
      c.batch_count = 5;
      c.extra = 1;
      check(c);
      c.transa = CUBLAS_OP_N;
      c.m = 70;
      c.is_device_mode = true;
      check(c);
    }
  }
}

TEST_F(GemmTest, TypedFunctions) {
  for (const Types& types : {kF32, kF64, kAllTypes[8]}) {
    for (const auto batch : {Batch::kOne, Batch::kArray, Batch::kStrided}) {
      Case c{41, 10, 33, CUBLAS_OP_T, CUBLAS_OP_N, 0.5, 0.25};
      c.types = types;
      c.way = Way::kTyped;
      c.batch = batch;
      c.batch_count = batch == Batch::kOne ? 1 : 3;
      c.extra = 2;
      check(c);
      c.transb = CUBLAS_OP_T;
      c.is_device_mode = true;
      check(c);
    }
  }
}

TEST_F(GemmTest, OverlappingBatchesOfTheInputs) {
  // Stride 0: one A for all.
  const std::vector<float> a{1, 2, 3, 4}, b{1, 0, 0, 1, 2, 0, 0, 2};
  const auto *const device_a = stored(a), *const device_b = stored(b);
  auto* const device_c = stored(std::vector<float>(8));
  const float one = 1, zero = 0;
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasSgemmStridedBatched)(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2,
                                                             2, 2, &one, device_a, 2, 0, device_b,
                                                             2, 4, &zero, device_c, 2, 4, 2));
  EXPECT_EQ(read_values(device_c, 8), (std::vector<float>{1, 2, 3, 4, 2, 4, 6, 8}));
}

TEST_F(GemmTest, MoreBatchesThanAGridHas) {
  constexpr int kCount = 65537;
  std::vector<float> a(kCount), b(kCount, 3);
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = static_cast<float>(i % 1000);
  auto* const c = stored(std::vector<float>(kCount));
  const float one = 1, zero = 0;
  const std::uint64_t before = launches();
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasSgemmStridedBatched)(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1,
                                                             1, 1, &one, stored(a), 1, 1, stored(b),
                                                             1, 1, &zero, c, 1, 1, kCount));
  EXPECT_EQ(launches() - before, 2U);
  const auto got = read_values(c, kCount);
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(got[i], 3 * a[i]) << i;
}

TEST_F(GemmTest, HalvesOverflowToInfinityAndKeepNan) {
  std::vector<std::byte> big(2), nan(2);
  encode(CUDA_R_16F, 60000, big.data());
  encode(CUDA_R_16F, kNan, nan.data());
  const std::uint16_t two = 0x4000, zero = 0;
  for (const auto& [value, bits] : {std::pair(big, 0x7c00), std::pair(nan, 0x7fff)}) {
    auto* const c = stored(std::vector<std::uint16_t>{0});
    const auto* const a = static_cast<const __half*>(stored(value));
    EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasHgemm)(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1,
                                                 reinterpret_cast<const __half*>(&two), a, 1,
                                                 static_cast<const __half*>(stored(big)), 1,
                                                 reinterpret_cast<const __half*>(&zero),
                                                 reinterpret_cast<__half*>(c), 1));
    EXPECT_EQ(read_values(c, 1)[0], bits);
  }
}

TEST_F(GemmTest, TiesRoundToEven) {
  // alpha * 1 * 1, half a unit above an even and above an odd number.
  for (const auto& [type, unit] :
       {std::pair(CUDA_R_16F, std::ldexp(1.0, -10)), std::pair(CUDA_R_16BF, std::ldexp(1.0, -7))}) {
    std::vector<std::byte> one(2);
    encode(type, 1, one.data());
    const void* const ones = stored(one);
    for (const auto& [halves, want] : {std::pair(1, 0), std::pair(3, 2)}) {
      const auto alpha = static_cast<float>(1 + halves * unit / 2), beta = 0.0F;
      void* const c = allocate(2);
      EXPECT_CUBLAS(
          0, gemm_ex()(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, ones, type, 1, ones,
                       type, 1, &beta, c, type, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
      EXPECT_EQ(decode(type, read(c, 2).data()), 1 + want * unit) << halves;
    }
  }
}

}  // namespace
}  // namespace kansoku::softcuda::cublas
