// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/internal/reduction.h"

#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/check.h"
#include "softcuda/nccl/internal/half.h"

namespace kansoku::softcuda::nccl {
namespace {

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return value != value;
  return false;
}

// How an element is stored (Stored) and combined (Wide).

template <class T>
struct Plain {
  using Stored = T;
  using Wide = T;
  static Wide widen(Stored value) { return value; }
  static Stored narrow(Wide value) {
    // A NaN's payload depends on the order of operands, which is the compiler's choice.
    if constexpr (std::is_same_v<T, float>) {
      return is_nan(value) ? std::bit_cast<float>(0x7fffffffU) : value;
    } else if constexpr (std::is_same_v<T, double>) {
      return is_nan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
    } else {
      return value;
    }
  }
};
struct Half {
  using Stored = std::uint16_t;
  using Wide = float;
  static Wide widen(Stored value) { return float_from_half(value); }
  static Stored narrow(Wide value) { return half_from_float(value); }
};
struct Bfloat {
  using Stored = std::uint16_t;
  using Wide = float;
  static Wide widen(Stored value) { return float_from_bfloat(value); }
  static Stored narrow(Wide value) { return bfloat_from_float(value); }
};

template <class T, bool = std::is_integral_v<T>>
struct Arithmetic {
  using Type = T;
};
template <class T>
struct Arithmetic<T, true> {
  using Type = std::make_unsigned_t<T>;  // wraps round
};

template <ncclRedOp_t op, class T>
T apply(T a, T b) {
  using U = typename Arithmetic<T>::Type;
  if constexpr (op == ncclSum) return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  if constexpr (op == ncclProd) return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  if constexpr (op == ncclMax) return (a < b) || is_nan(a) ? b : a;
  if constexpr (op == ncclMin) return (b < a) || is_nan(a) ? b : a;
}

/// Quotient, of integers towards zero; `divisor` may be more than T can hold.
template <class T>
T divided(T value, int divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return value / static_cast<T>(divisor);
  } else {
    using Widest = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<T>(static_cast<Widest>(value) / static_cast<Widest>(divisor));
  }
}

template <class T>
T element_at(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put_at(std::byte* to, std::size_t i, T value) {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

template <class E>
void load_elements(std::byte* wide, const std::byte* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    put_at(wide, i, E::widen(element_at<typename E::Stored>(from, i)));
}

template <class E, ncclRedOp_t op>
void combine_elements(std::byte* wide, const std::byte* from, std::size_t count) {
  using Wide = typename E::Wide;
  for (std::size_t i = 0; i < count; ++i) {
    put_at(wide, i,
           apply<op, Wide>(element_at<Wide>(wide, i),
                           E::widen(element_at<typename E::Stored>(from, i))));
  }
}

template <class E>
void store_elements(std::byte* to, const std::byte* wide, std::size_t count, int divisor) {
  using Wide = typename E::Wide;
  if (divisor == 1) {
    for (std::size_t i = 0; i < count; ++i)
      put_at(to, i, E::narrow(element_at<Wide>(wide, i)));
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    put_at(to, i, E::narrow(divided(element_at<Wide>(wide, i), divisor)));
}

struct TypeInfo {
  std::size_t bytes;
  std::string_view name;
};
constexpr std::array<TypeInfo, kDataTypeCount> kTypes{{{1, "int8"},
                                                       {1, "uint8"},
                                                       {4, "int32"},
                                                       {4, "uint32"},
                                                       {8, "int64"},
                                                       {8, "uint64"},
                                                       {2, "float16"},
                                                       {4, "float32"},
                                                       {8, "float64"},
                                                       {2, "bfloat16"}}};

}  // namespace

bool is_known(ncclDataType_t type) {
  return type >= 0 && type < kDataTypeCount;
}

bool is_known(ncclRedOp_t op) {
  return op >= 0 && op < kRedOpCount;
}

std::size_t bytes_of(ncclDataType_t type) {
  return kTypes[static_cast<std::size_t>(type)].bytes;
}

std::string_view name_of(ncclDataType_t type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

struct Reduction::Kernels {
  using Combine = void (*)(std::byte*, const std::byte*, std::size_t);
  std::size_t wide_bytes;
  Combine load;
  std::array<Combine, kRedOpCount> combine;
  void (*store)(std::byte*, const std::byte*, std::size_t, int);
};

template <class E>
constexpr Reduction::Kernels Reduction::kernels_of() {
  return {
      sizeof(typename E::Wide),
      load_elements<E>,
      {combine_elements<E, ncclSum>, combine_elements<E, ncclProd>, combine_elements<E, ncclMax>,
       combine_elements<E, ncclMin>, combine_elements<E, ncclSum>},
      store_elements<E>};
}

Reduction::Reduction(ncclDataType_t type, ncclRedOp_t op, int ranks)
    : kernels_([type]() -> const Kernels& {
        static constexpr std::array<Kernels, kDataTypeCount> kAll{
            kernels_of<Plain<std::int8_t>>(),
            kernels_of<Plain<std::uint8_t>>(),
            kernels_of<Plain<std::int32_t>>(),
            kernels_of<Plain<std::uint32_t>>(),
            kernels_of<Plain<std::int64_t>>(),
            kernels_of<Plain<std::uint64_t>>(),
            kernels_of<Half>(),
            kernels_of<Plain<float>>(),
            kernels_of<Plain<double>>(),
            kernels_of<Bfloat>()};
        CHECK(is_known(type));
        return kAll[static_cast<std::size_t>(type)];
      }()),
      op_(op),
      divisor_(op == ncclAvg ? ranks : 1) {
  CHECK(is_known(op) && ranks >= 1);
}

std::size_t Reduction::wide_bytes() const {
  return kernels_.wide_bytes;
}

void Reduction::load(std::byte* wide, const std::byte* from, std::size_t count) const {
  kernels_.load(wide, from, count);
}

void Reduction::combine(std::byte* wide, const std::byte* from, std::size_t count) const {
  kernels_.combine[static_cast<std::size_t>(op_)](wide, from, count);
}

void Reduction::store(std::byte* to, const std::byte* wide, std::size_t count) const {
  kernels_.store(to, wide, count, divisor_);
}

}  // namespace kansoku::softcuda::nccl
