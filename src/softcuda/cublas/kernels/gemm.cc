// SPDX-License-Identifier: Apache-2.0
// Matrix products, compiled to PTX once for each KANSOKU_ELEMENT. They are made for the
// interpreter: a warp is a block, values that all lanes share are nearly free, and so are addresses
// that are affine in the lane; a load costs as much as two multiplications, so each one serves
// several.
#include "softcuda/cublas/kernels/arguments.h"
#include "softcuda/cublas/kernels/device.h"

namespace kansoku::softcuda::cublas::device {
namespace {

struct BFloat {
  unsigned short bits;
};
template <class To, class From>
inline To converted(From value) {
  return static_cast<To>(value);
}
template <>
inline float converted(BFloat value) {
  return __builtin_bit_cast(float, static_cast<unsigned>(value.bits) << 16);
}
template <>
inline BFloat converted(float value) {
  const auto bits = __builtin_bit_cast(unsigned, value);
  if (value != value) return {0x7fff};
  return {static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

inline float multiplied(float a, float b, float c) {
  return __nvvm_fma_rn_f(a, b, c);
}
inline double multiplied(double a, double b, double c) {
  return __nvvm_fma_rn_d(a, b, c);
}
inline int multiplied(int a, int b, int c) {
  return a * b + c;
}

// In: elements of A and B. Sum: of their products. Factor: alpha and beta. Output, Other: of C.
struct F32 {
  using In = float;
  using Sum = float;
  using Output = float;
  using Other = float;
};
struct F64 {
  using In = double;
  using Sum = double;
  using Output = double;
  using Other = double;
};
struct F16 {
  using In = _Float16;
  using Sum = float;
  using Output = _Float16;
  using Other = float;
};
struct BF16 {
  using In = BFloat;
  using Sum = float;
  using Output = BFloat;
  using Other = float;
};
struct S8 {
  using In = signed char;
  using Sum = int;
  using Output = int;
  using Other = float;
};

using Element = KANSOKU_ELEMENT;
using In = Element::In;
using Sum = Element::Sum;
typedef Sum FourSums __attribute__((ext_vector_type(4)));

/// alpha or beta, in the type in which C is computed.
template <class Factor>
inline Factor factor_of(const GemmArguments& arguments, const void* at, double value) {
  if (at == nullptr) return static_cast<Factor>(value);
  switch (arguments.scale) {
    case Scale::kF16:
      return static_cast<Factor>(*static_cast<const _Float16*>(at));
    case Scale::kF32:
      return static_cast<Factor>(*static_cast<const float*>(at));
    case Scale::kF64:
      return static_cast<Factor>(*static_cast<const double*>(at));
    case Scale::kS32:
      return static_cast<Factor>(*static_cast<const int*>(at));
  }
  return 0;
}

template <class Pointer>
inline Pointer matrix_of(Pointer one, const void* array, Stride stride, const GemmArguments& args) {
  const Stride batch = args.batch_begin + block_y();
  if (args.is_array != 0) return static_cast<const Pointer*>(array)[batch];
  return one + batch * stride;
}

/// One warp's part of the work.
struct Task {
  const In* a;
  const In* b;
  int tile_row, tile_column;
  int depth;  // 0 if alpha is: then A and B are not read
};
inline Task task_of(const GemmArguments& args) {
  Task task;
  task.a = matrix_of(static_cast<const In*>(args.a), args.a, args.a_batch, args);
  task.b = matrix_of(static_cast<const In*>(args.b), args.b, args.b_batch, args);
  task.tile_column = block_x() / args.row_tiles;
  task.tile_row = block_x() - task.tile_column * args.row_tiles;
  task.depth = args.depth;
  if (factor_of<double>(args, args.alpha_at, args.alpha) == 0) {
    asm volatile("" ::: "memory");  // a branch, not a selection: see least
    task.depth = 0;
  }
  return task;
}

/// Writes elements of C. With beta = 0 what was there does not count, not even if it is no number.
template <class Output, class Factor>
struct Writer {
  explicit Writer(const GemmArguments& args)
      : c(matrix_of(static_cast<Output*>(args.c), args.c, args.c_batch, args)),
        alpha(factor_of<Factor>(args, args.alpha_at, args.alpha)),
        beta(factor_of<Factor>(args, args.beta_at, args.beta)) {}
  void write(const GemmArguments& args, int row, int column, Sum sum) const {
    Output* const place = c + row * args.c_row + column * args.c_column;
    Factor value = alpha * static_cast<Factor>(sum);
    if (beta != 0) value += beta * converted<Factor>(*place);
    *place = converted<Output>(value);
  }
  Output* c;
  Factor alpha, beta;
};

/// Calls body with the writer of the launch.
template <class Body>
inline void with_writer(const GemmArguments& args, const Body& body) {
  if constexpr (__is_same(Element::Output, Element::Other)) {
    body(Writer<Element::Output, Sum>(args));
  } else if (args.is_other_output != 0) {
    body(Writer<Element::Other, float>(args));
  } else {
    body(Writer<Element::Output, Sum>(args));
  }
}

/// A lane has `groups` rows, 32 apart. Columns of B go through shared memory, as sums, so that four
/// of their values come with one load.
template <int groups, int columns>
struct RowTile {
  alignas(16) Sum b[columns][kLanes];
  Sum sums[groups][columns][kLanes];
};

/// The row of the first lane of a group: the last groups of a matrix overlap, so that addresses
/// stay affine.
inline int first_row(const GemmArguments& args, int wanted) {
  return least(wanted, args.rows - kLanes);
}

template <int groups, int columns>
inline void add_depths(const In* (&a)[groups], const GemmArguments& args,
                       const KANSOKU_SHARED_SPACE RowTile<groups, columns>& tile, int count,
                       Sum (&sums)[groups][columns]) {
  int p = 0;
#pragma unroll 1
  for (; p + 4 <= count; p += 4) {
    Sum values[groups][4];
#pragma unroll
    for (int g = 0; g < groups; ++g) {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        values[g][q] = converted<Sum>(*a[g]);
        a[g] += args.a_depth;
      }
    }
#pragma unroll
    for (int j = 0; j < columns; ++j) {
      const FourSums b = *reinterpret_cast<const KANSOKU_SHARED_SPACE FourSums*>(&tile.b[j][p]);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int g = 0; g < groups; ++g)
          sums[g][j] = multiplied(values[g][q], b[q], sums[g][j]);
      }
    }
  }
#pragma unroll 1
  for (; p < count; ++p) {
    Sum values[groups];
#pragma unroll
    for (int g = 0; g < groups; ++g) {
      values[g] = converted<Sum>(*a[g]);
      a[g] += args.a_depth;
    }
#pragma unroll
    for (int j = 0; j < columns; ++j) {
#pragma unroll
      for (int g = 0; g < groups; ++g)
        sums[g][j] = multiplied(values[g], tile.b[j][p], sums[g][j]);
    }
  }
}

template <int groups, int columns>
inline void multiply_rows(const GemmArguments& args) {
  KANSOKU_SHARED RowTile<groups, columns> tile;
  const Task task = task_of(args);
  const int row = task.tile_row * groups * kLanes,
            column = args.column_begin + task.tile_column * columns;
  Sum sums[groups][columns] = {};
  const In* a[groups];
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    if (args.rows >= kLanes) {
      a[g] = task.a + (first_row(args, row + g * kLanes) + lane()) * args.a_row;
    } else {
      asm volatile("" ::: "memory");
      a[g] = task.a + least(lane(), args.rows - 1) * args.a_row;
    }
  }
#pragma unroll 1
  for (int begin = 0; begin < task.depth; begin += kLanes) {
    const int count = least(kLanes, task.depth - begin);
    meet();
    if (lane() < count) {
      const In* const b = task.b + (begin + lane()) * args.b_depth;
#pragma unroll
      for (int j = 0; j < columns; ++j)
        tile.b[j][lane()] = converted<Sum>(b[least(column + j, args.columns - 1) * args.b_column]);
    }
    meet();
    add_depths<groups, columns>(a, args, tile, count, sums);
  }
  // Through shared memory, so that the code that writes is there once and not for every sum.
#pragma unroll
  for (int g = 0; g < groups; ++g) {
#pragma unroll
    for (int j = 0; j < columns; ++j)
      tile.sums[g][j][lane()] = sums[g][j];
  }
  meet();
  with_writer(args, [&](const auto& writer) {
    const int count = least(columns, args.columns - column);
#pragma unroll 1
    for (int g = 0; g < groups; ++g) {
      const int wanted = row + g * kLanes;
      int mine = lane();
      if (args.rows >= kLanes) {
        asm volatile("" ::: "memory");
        mine += first_row(args, wanted);
      }
      // Not those that the group before has.
      if (mine < wanted || mine >= args.rows) continue;
#pragma unroll 1
      for (int j = 0; j < count; ++j)
        writer.write(args, mine, column + j, tile.sums[g][j][lane()]);
    }
  });
}

/// The lanes go along the depth; at the end each adds up the parts of one element of C.
template <int rows, int columns>
inline void multiply_dots(const GemmArguments& args) {
  // One more than lanes: as GPUs like it.
  KANSOKU_SHARED Sum parts[rows * columns][kLanes + 1];
  const Task task = task_of(args);
  const int row = task.tile_row * rows, column = args.column_begin + task.tile_column * columns;
  Sum sums[rows][columns] = {};
  const auto add = [&](int at) {
    Sum values[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r)
      values[r] = converted<Sum>(task.a[least(row + r, args.rows - 1) * args.a_row + at]);
#pragma unroll
    for (int j = 0; j < columns; ++j) {
      const Sum b =
          converted<Sum>(task.b[least(column + j, args.columns - 1) * args.b_column + at]);
#pragma unroll
      for (int r = 0; r < rows; ++r)
        sums[r][j] = multiplied(values[r], b, sums[r][j]);
    }
  };
  int begin = 0;
#pragma unroll 1
  for (; begin + kLanes <= task.depth; begin += kLanes)
    add(begin + lane());
  if (begin + lane() < task.depth) add(begin + lane());
#pragma unroll
  for (int r = 0; r < rows; ++r) {
#pragma unroll
    for (int j = 0; j < columns; ++j)
      parts[j * rows + r][lane()] = sums[r][j];
  }
  meet();
  with_writer(args, [&](const auto& writer) {
#pragma unroll 1
    for (int begin = 0; begin < rows * columns; begin += kLanes) {
      const int mine = begin + lane();
      if (mine >= rows * columns) return;
      Sum sum = parts[mine][0];
#pragma unroll
      for (int i = 1; i < kLanes; ++i)
        sum += parts[mine][i];
      const int my_row = row + mine % rows, my_column = column + mine / rows;
      if (my_row < args.rows && my_column < args.columns)
        writer.write(args, my_row, my_column, sum);
    }
  });
}

}  // namespace
}  // namespace kansoku::softcuda::cublas::device

#define KANSOKU_ROWS(groups, columns)                                             \
  KANSOKU_KERNEL void kansoku_gemm_rows_##groups##x##columns(                     \
      kansoku::softcuda::cublas::GemmArguments arguments) {                       \
    kansoku::softcuda::cublas::device::multiply_rows<groups, columns>(arguments); \
  }
#define KANSOKU_DOTS(rows, columns)                                             \
  KANSOKU_KERNEL void kansoku_gemm_dots_##rows##x##columns(                     \
      kansoku::softcuda::cublas::GemmArguments arguments) {                     \
    kansoku::softcuda::cublas::device::multiply_dots<rows, columns>(arguments); \
  }
KANSOKU_GEMM_TILES(KANSOKU_ROWS, KANSOKU_DOTS)
