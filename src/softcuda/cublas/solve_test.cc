// SPDX-License-Identifier: Apache-2.0
// Triangular systems: what comes out is multiplied back in double precision. Whatever must not be
// read is no number: the other triangle, a unit diagonal, the room between columns.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/rng.h"
#include "softcuda/cublas/cublas_for_test.h"

namespace kansoku::softcuda::cublas {
namespace {

constexpr float kSolveNan = std::numeric_limits<float>::quiet_NaN();

struct SolveCase {
  cublasSideMode_t side;
  cublasFillMode_t uplo;
  cublasOperation_t trans;
  cublasDiagType_t diag;
  int m, n;
  float alpha{1};
  int extra{0};        // of the leading dimensions
  int batch_count{0};  // 0: cublasStrsm
  bool is_device_mode{false};
};

std::string name_of_solve(const SolveCase& c) {
  return fmt::format(
      "side {} uplo {} trans {} diag {} m {} n {} alpha {} extra {} batch {} mode {}",
      static_cast<int>(c.side), static_cast<int>(c.uplo), static_cast<int>(c.trans),
      static_cast<int>(c.diag), c.m, c.n, c.alpha, c.extra, c.batch_count, c.is_device_mode);
}
int size_of(const SolveCase& c) {
  return c.side == CUBLAS_SIDE_LEFT ? c.m : c.n;
}

/// Column by column.
struct SolveMatrix {
  int leading{1};
  std::vector<float> values;
  float& at(int row, int column) {
    return values[static_cast<std::size_t>(column) * static_cast<std::size_t>(leading) +
                  static_cast<std::size_t>(row)];
  }
  double at(int row, int column) const {
    return static_cast<double>(const_cast<SolveMatrix&>(*this).at(row, column));
  }
};
SolveMatrix empty_matrix(int rows, int columns, int extra) {
  SolveMatrix matrix{std::max(1, rows + extra), {}};
  matrix.values.assign(static_cast<std::size_t>(matrix.leading) * static_cast<std::size_t>(columns),
                       kSolveNan);
  return matrix;
}

class SolveTest : public CublasTest {
 protected:
  void check(const SolveCase& c);

 private:
  SolveMatrix triangle_of(const SolveCase& c);
  SolveMatrix right_side_of(const SolveCase& c);
  /// From -1 to 1.
  float number() { return static_cast<float>(2 * random_.uniform() - 1); }
  Rng random_{7};
};

SolveMatrix SolveTest::triangle_of(const SolveCase& c) {
  const int size = size_of(c);
  SolveMatrix a = empty_matrix(size, size, c.extra);
  const auto off_diagonal = 1.0F / static_cast<float>(size);  // so that errors do not grow
  for (int j = 0; j < size; ++j) {
    for (int i = 0; i < size; ++i) {
      if (i == j) {
        if (c.diag == CUBLAS_DIAG_NON_UNIT) a.at(i, j) = 1.5F + number() / 2;
      } else if ((i > j) == (c.uplo == CUBLAS_FILL_MODE_LOWER)) {
        a.at(i, j) = off_diagonal * number();
      }
    }
  }
  return a;
}
SolveMatrix SolveTest::right_side_of(const SolveCase& c) {
  SolveMatrix b = empty_matrix(c.m, c.n, c.extra);
  for (int j = 0; j < c.n; ++j) {
    for (int i = 0; i < c.m; ++i)
      b.at(i, j) = number();
  }
  return b;
}

/// Element (i, j) of op(A).
double operand(const SolveCase& c, const SolveMatrix& a, int i, int j) {
  if (c.trans != CUBLAS_OP_N) std::swap(i, j);
  if (i == j) return c.diag == CUBLAS_DIAG_UNIT ? 1 : a.at(i, i);
  return (i > j) == (c.uplo == CUBLAS_FILL_MODE_LOWER) ? a.at(i, j) : 0;
}

/// The farthest that op(A) * X, or X * op(A), is from alpha * B.
double residual(const SolveCase& c, const SolveMatrix& a, const SolveMatrix& b,
                const SolveMatrix& x) {
  double worst = 0;
  for (int j = 0; j < c.n; ++j) {
    for (int i = 0; i < c.m; ++i) {
      double sum = 0;
      for (int p = 0; p < size_of(c); ++p) {
        sum += c.side == CUBLAS_SIDE_LEFT ? operand(c, a, i, p) * x.at(p, j)
                                          : x.at(i, p) * operand(c, a, p, j);
      }
      const double off = std::abs(sum - static_cast<double>(c.alpha) * b.at(i, j));
      if (!(off <= worst)) worst = off;  // no number counts
    }
  }
  return worst;
}

void SolveTest::check(const SolveCase& c) {
  const int count = std::max(c.batch_count, 1);
  std::vector<SolveMatrix> a, b;
  std::vector<float*> a_places, b_places;
  for (int i = 0; i < count; ++i) {
    a.push_back(triangle_of(c));
    b.push_back(right_side_of(c));
    a_places.push_back(stored(a.back().values));
    b_places.push_back(stored(b.back().values));
  }
  const float* alpha = c.is_device_mode ? stored(std::vector<float>{c.alpha}) : &c.alpha;
  ASSERT_EQ(KANSOKU_CUBLAS(cublasSetPointerMode_v2)(
                handle_, c.is_device_mode ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST),
            CUBLAS_STATUS_SUCCESS);
  const std::uint64_t before = launches();
  const int lda = a[0].leading, ldb = b[0].leading;
  if (c.batch_count == 0) {
    EXPECT_CUBLAS(
        0, KANSOKU_CUBLAS(cublasStrsm_v2)(handle_, c.side, c.uplo, c.trans, c.diag, c.m, c.n, alpha,
                                          a_places[0], lda, b_places[0], ldb));
  } else {
    EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasStrsmBatched)(handle_, c.side, c.uplo, c.trans, c.diag,
                                                        c.m, c.n, alpha, stored(a_places), lda,
                                                        stored(b_places), ldb, c.batch_count));
  }
  EXPECT_EQ(launches() - before, 1U) << "the device solves, not the library";
  for (int i = 0; i < count; ++i) {
    const auto nth = static_cast<std::size_t>(i);
    SolveMatrix x = b[nth];
    x.values = read_values(b_places[nth], x.values.size());
    EXPECT_LE(residual(c, a[nth], b[nth], x), 2e-6) << name_of_solve(c);
    for (int j = 0; j < c.n; ++j) {
      for (int row = c.m; row < ldb; ++row)
        ASSERT_TRUE(std::isnan(x.at(row, j))) << name_of_solve(c);
    }
  }
}

TEST_F(SolveTest, EveryTriangleAndSide) {
  for (const auto side : {CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT}) {
    for (const auto uplo : {CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER}) {
      for (const auto trans : {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C}) {
        for (const auto diag : {CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT}) {
          for (const int batch_count : {0, 3}) {
            SolveCase c{side, uplo, trans, diag, 21, 35, 0.5F, 2, batch_count};
            check(c);
            std::swap(c.m, c.n);
            c.is_device_mode = true;
            check(c);
          }
        }
      }
    }
  }
}

TEST_F(SolveTest, Sizes) {
  for (const int m : {1, 2, 7, 8, 9, 16, 33, 64}) {
    for (const int n : {1, 5, 32, 33, 70}) {
      check({CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, m, n});
      check({CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, m, n, 1,
             0, 2});
    }
  }
}

TEST_F(SolveTest, AlphaZeroClearsAndReadsNothing) {
  auto* const a = stored(std::vector<float>(9, kSolveNan));
  auto* const b = stored(std::vector<float>(6, kSolveNan));
  const float zero = 0;
  EXPECT_CUBLAS(0, KANSOKU_CUBLAS(cublasStrsm_v2)(handle_, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER,
                                                  CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, 3, 2, &zero, a,
                                                  3, b, 3));
  EXPECT_EQ(read_values(b, 6), std::vector<float>(6));
}

TEST_F(SolveTest, RefusesWhatIsOutOfRange) {
  const auto call = [this](int side, int uplo, int trans, int diag, int m, int n,
                           const float* alpha, int lda, int ldb) {
    return static_cast<int>(KANSOKU_CUBLAS(cublasStrsm_v2)(
        handle_, static_cast<cublasSideMode_t>(side), static_cast<cublasFillMode_t>(uplo),
        static_cast<cublasOperation_t>(trans), static_cast<cublasDiagType_t>(diag), m, n, alpha,
        nullptr, lda, nullptr, ldb));
  };
  const float one = 1;
  const int invalid = CUBLAS_STATUS_INVALID_VALUE;
  const std::uint64_t before = launches();
  EXPECT_EQ(call(0, 0, 0, 0, -1, 1, &one, 1, 1), invalid);
  EXPECT_EQ(call(0, 0, 0, 0, 1, -1, &one, 1, 1), invalid);
  EXPECT_EQ(call(2, 0, 0, 0, 1, 1, &one, 1, 1), invalid);
  EXPECT_EQ(call(0, 2, 0, 0, 1, 1, &one, 1, 1), invalid);
  EXPECT_EQ(call(0, 0, 3, 0, 1, 1, &one, 1, 1), invalid);
  EXPECT_EQ(call(0, 0, 0, 2, 1, 1, &one, 1, 1), invalid);
  EXPECT_EQ(call(0, 0, 0, 0, 1, 1, nullptr, 1, 1), invalid);
  EXPECT_EQ(call(0, 0, 0, 0, 4, 2, &one, 3, 4), invalid);  // left: A is m x m
  EXPECT_EQ(call(1, 0, 0, 0, 2, 4, &one, 3, 2), invalid);  // right: n x n
  EXPECT_EQ(call(0, 0, 0, 0, 4, 2, &one, 4, 3), invalid);
  EXPECT_EQ(call(0, 0, 0, 0, 0, 2, &one, 1, 1), 0);  // nothing to do
  EXPECT_EQ(call(0, 0, 0, 0, 2, 0, &one, 2, 2), 0);
  EXPECT_EQ(launches(), before);
}

}  // namespace
}  // namespace kansoku::softcuda::cublas
