// SPDX-License-Identifier: Apache-2.0
#pragma once

// A two-layer perceptron on the GPU: x (batch, in) -> ReLU -> (batch, out), softmax and cross
// entropy, plain gradient descent. All numbers are float, matrices lie row by row. The data is made
// up: points around one centre a class, the same for the same index.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace mlp {

constexpr int kIn = 16, kHidden = 32, kOut = 4;

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// A number from 0 to 1 that depends on nothing but its arguments (splitmix64).
inline double noise(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = (a * 0x9e3779b97f4a7c15ULL) ^ (b + 0xbf58476d1ce4e5b9ULL);
  for (int i = 0; i < 2; ++i) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}
inline int label_of(std::uint64_t index) {
  return static_cast<int>(noise(index, 1000) * kOut);
}
inline float feature_of(std::uint64_t index, int feature) {
  const int label = label_of(index);
  const double centre =
      noise(static_cast<std::uint64_t>(label), 7 + static_cast<std::uint64_t>(feature));
  return static_cast<float>(centre * 2 - 1 +
                            0.8 * (noise(index, static_cast<std::uint64_t>(feature)) - 0.5));
}

/// One float after the other: weights 1, bias 1, weights 2, bias 2.
struct Sizes {
  static constexpr int w1 = kIn * kHidden, b1 = kHidden, w2 = kHidden * kOut, b2 = kOut;
  static constexpr int total = w1 + b1 + w2 + b2;
};
inline std::vector<float> first_parameters() {
  std::vector<float> values(Sizes::total);
  for (int i = 0; i < Sizes::w1; ++i)
    values[static_cast<std::size_t>(i)] =
        static_cast<float>((noise(5, static_cast<std::uint64_t>(i)) - 0.5) * 0.6);
  for (int i = 0; i < Sizes::w2; ++i)
    values[static_cast<std::size_t>(Sizes::w1 + Sizes::b1 + i)] =
        static_cast<float>((noise(6, static_cast<std::uint64_t>(i)) - 0.5) * 0.6);
  return values;
}

/// y = x * w + b, ReLU if wanted. One thread an element of y.
__global__ void linear(const float* x, const float* w, const float* b, float* y, int rows,
                       int inner, int columns, int is_relu) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= rows * columns) return;
  const int row = i / columns, column = i % columns;
  float sum = b[column];
  for (int k = 0; k < inner; ++k)
    sum = fmaf(x[row * inner + k], w[k * columns + column], sum);
  y[i] = is_relu != 0 && sum < 0 ? 0.0F : sum;
}

/// From logits: the loss of each row, and its derivative divided by `all_rows`. One warp a row.
__global__ void cross_entropy(float* logits, const int* labels, float* losses, int columns,
                              float scale) {
  const int row = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  float* const mine = logits + row * columns;
  float most = lane < columns ? mine[lane] : -1e30F;
  for (int step = 16; step > 0; step /= 2)
    most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, step));
  const float power = lane < columns ? __expf(mine[lane] - most) : 0.0F;
  float sum = power;
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_xor_sync(0xffffffffU, sum, step);
  const int label = labels[row];
  if (lane == label) losses[row] = (most + __logf(sum) - mine[lane]) * scale;
  if (lane < columns) mine[lane] = (power / sum - (lane == label ? 1.0F : 0.0F)) * scale;
}

/// dw = x^T * dy and db = the sum of dy'"'"'s rows. One thread a weight.
__global__ void weight_gradient(const float* x, const float* dy, float* dw, float* db, int rows,
                                int inner, int columns) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= inner * columns) return;
  const int k = i / columns, column = i % columns;
  float sum = 0, bias = 0;
  for (int row = 0; row < rows; ++row) {
    const float d = dy[row * columns + column];
    sum = fmaf(x[row * inner + k], d, sum);
    bias += d;
  }
  dw[i] = sum;
  if (k == 0) db[column] = bias;
}

/// dx = dy * w^T where the ReLU let x through. One thread an element of dx.
__global__ void input_gradient(const float* dy, const float* w, const float* x, float* dx, int rows,
                               int inner, int columns) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= rows * inner) return;
  const int row = i / inner, k = i % inner;
  float sum = 0;
  for (int column = 0; column < columns; ++column)
    sum = fmaf(dy[row * columns + column], w[k * columns + column], sum);
  dx[i] = x[i] > 0 ? sum : 0.0F;
}

__global__ void descend(float* parameters, const float* gradients, int n, float rate) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) parameters[i] -= rate * gradients[i];
}

__global__ void add_up(const float* values, float* sum, int n) {
  __shared__ float partial[256];
  const int thread = static_cast<int>(threadIdx.x);
  float own = 0;
  for (int i = thread; i < n; i += 256)
    own += values[i];
  partial[thread] = own;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (thread < half) partial[thread] += partial[thread + half];
    __syncthreads();
  }
  if (thread == 0) *sum = partial[0];
}

/// The network on one device, with the rows of its share of each batch.
class Network {
 public:
  Network(int rows, cudaStream_t stream) : rows_(rows), stream_(stream) {
    allocate(&x_, rows * kIn);
    allocate(&hidden_, rows * kHidden);
    allocate(&logits_, rows * kOut);
    allocate(&losses_, rows);
    allocate(&hidden_gradient_, rows * kHidden);
    allocate(&parameters_, Sizes::total);
    allocate(&gradients_, Sizes::total);
    allocate(&loss_, 1);
    check(cudaMalloc(&labels_, sizeof(int) * static_cast<std::size_t>(rows)), "allocate");
    const std::vector<float> first = first_parameters();
    check(
        cudaMemcpy(parameters_, first.data(), first.size() * sizeof(float), cudaMemcpyHostToDevice),
        "copy parameters");
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network() {
    for (float* const buffer :
         {x_, hidden_, logits_, losses_, hidden_gradient_, parameters_, gradients_, loss_})
      cudaFree(buffer);
    cudaFree(labels_);
  }

  /// Loads rows begin, begin + stride, ... of the data.
  void load(std::uint64_t begin, std::uint64_t stride) {
    std::vector<float> x(static_cast<std::size_t>(rows_ * kIn));
    std::vector<int> labels(static_cast<std::size_t>(rows_));
    for (int row = 0; row < rows_; ++row) {
      const std::uint64_t index = begin + static_cast<std::uint64_t>(row) * stride;
      labels[static_cast<std::size_t>(row)] = label_of(index);
      for (int k = 0; k < kIn; ++k)
        x[static_cast<std::size_t>(row * kIn + k)] = feature_of(index, k);
    }
    check(cudaMemcpyAsync(x_, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice, stream_),
          "copy data");
    check(cudaMemcpyAsync(labels_, labels.data(), labels.size() * sizeof(int),
                          cudaMemcpyHostToDevice, stream_),
          "copy labels");
    check(cudaStreamSynchronize(stream_), "load");
  }

  /// Forward and backward; what each row adds to loss and gradients is divided by `all_rows`.
  void step(int all_rows) {
    float* const w1 = parameters_;
    float* const b1 = w1 + Sizes::w1;
    float* const w2 = b1 + Sizes::b1;
    float* const b2 = w2 + Sizes::w2;
    float* const dw1 = gradients_;
    float* const db1 = dw1 + Sizes::w1;
    float* const dw2 = db1 + Sizes::b1;
    float* const db2 = dw2 + Sizes::w2;
    linear<<<blocks(rows_ * kHidden), 128, 0, stream_>>>(x_, w1, b1, hidden_, rows_, kIn, kHidden,
                                                         1);
    linear<<<blocks(rows_ * kOut), 128, 0, stream_>>>(hidden_, w2, b2, logits_, rows_, kHidden,
                                                      kOut, 0);
    cross_entropy<<<static_cast<unsigned>(rows_), 32, 0, stream_>>>(
        logits_, labels_, losses_, kOut, 1.0F / static_cast<float>(all_rows));
    add_up<<<1, 256, 0, stream_>>>(losses_, loss_, rows_);
    weight_gradient<<<blocks(kHidden * kOut), 128, 0, stream_>>>(hidden_, logits_, dw2, db2, rows_,
                                                                 kHidden, kOut);
    input_gradient<<<blocks(rows_ * kHidden), 128, 0, stream_>>>(
        logits_, w2, hidden_, hidden_gradient_, rows_, kHidden, kOut);
    weight_gradient<<<blocks(kIn * kHidden), 128, 0, stream_>>>(x_, hidden_gradient_, dw1, db1,
                                                                rows_, kIn, kHidden);
    check(cudaPeekAtLastError(), "launch");
  }
  static constexpr int kLaunchesPerStep = 7;
  void update(float rate) {
    descend<<<blocks(Sizes::total), 128, 0, stream_>>>(parameters_, gradients_, Sizes::total, rate);
    check(cudaPeekAtLastError(), "launch");
  }
  float loss() const { return number(loss_); }
  std::vector<float> gradients() const { return numbers(gradients_, Sizes::total); }
  std::vector<float> parameters() const { return numbers(parameters_, Sizes::total); }
  float* device_gradients() const { return gradients_; }
  float* device_parameters() const { return parameters_; }
  float* device_loss() const { return loss_; }

 private:
  static void allocate(float** buffer, int count) {
    check(cudaMalloc(buffer, sizeof(float) * static_cast<std::size_t>(count)), "allocate");
  }
  static unsigned blocks(int threads) { return static_cast<unsigned>((threads + 127) / 128); }
  float number(const float* from) const { return numbers(from, 1)[0]; }
  std::vector<float> numbers(const float* from, int count) const {
    std::vector<float> values(static_cast<std::size_t>(count));
    check(cudaMemcpyAsync(values.data(), from, values.size() * sizeof(float),
                          cudaMemcpyDeviceToHost, stream_),
          "copy back");
    check(cudaStreamSynchronize(stream_), "copy back");
    return values;
  }

  int rows_;
  cudaStream_t stream_;
  float *x_{}, *hidden_{}, *logits_{}, *losses_{}, *hidden_gradient_{}, *parameters_{},
      *gradients_{}, *loss_{};
  int* labels_{};
};

}  // namespace mlp
