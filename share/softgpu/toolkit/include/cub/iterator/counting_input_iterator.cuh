/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "../util_type.cuh"

namespace cub {

/* Iterators of which item i is: begin + i; always `value`; function(in[i]). */
template <class T>
struct CountingInputIterator {
  T begin;
  __host__ __device__ inline explicit CountingInputIterator(T first) : begin(first) {}
  __host__ __device__ inline T operator*() const { return begin; }
  template <class Distance>
  __host__ __device__ inline T operator[](Distance i) const {
    return begin + static_cast<T>(i);
  }
  template <class Distance>
  __host__ __device__ inline CountingInputIterator operator+(Distance i) const {
    return CountingInputIterator(begin + static_cast<T>(i));
  }
};
template <class T>
struct ConstantInputIterator {
  T value;
  __host__ __device__ inline explicit ConstantInputIterator(T item) : value(item) {}
  __host__ __device__ inline T operator*() const { return value; }
  template <class Distance>
  __host__ __device__ inline T operator[](Distance) const {
    return value;
  }
  template <class Distance>
  __host__ __device__ inline ConstantInputIterator operator+(Distance) const {
    return *this;
  }
};
template <class T, class Function, class In>
struct TransformInputIterator {
  In in;
  Function function;
  __host__ __device__ inline TransformInputIterator(In items, Function f)
      : in(items), function(f) {}
  __host__ __device__ inline T operator*() const { return function(*in); }
  template <class Distance>
  __host__ __device__ inline T operator[](Distance i) const {
    return function(in[i]);
  }
  template <class Distance>
  __host__ __device__ inline TransformInputIterator operator+(Distance i) const {
    return TransformInputIterator(in + i, function);
  }
};

} /* namespace cub */
