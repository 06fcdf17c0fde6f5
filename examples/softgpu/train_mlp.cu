// SPDX-License-Identifier: Apache-2.0
// Trains a small classifier and compares every gradient of the first step with one computed in
// double precision on the host.
//   share/softgpu/softgpu-clang -o train_mlp examples/softgpu/train_mlp.cu
//   kansoku run --softgpu -- ./train_mlp [steps]
#include "mlp.h"

namespace {

constexpr int kRows = 64;

/// Loss and gradients of the first batch, in double precision.
double reference(std::vector<double>& gradients) {
  using namespace mlp;
  const std::vector<float> p = first_parameters();
  const auto at = [&](int i) { return static_cast<double>(p[static_cast<std::size_t>(i)]); };
  const int b1 = Sizes::w1, w2 = b1 + Sizes::b1, b2 = w2 + Sizes::w2;
  gradients.assign(Sizes::total, 0);
  const auto add = [&](int i, double value) { gradients[static_cast<std::size_t>(i)] += value; };
  double loss = 0;
  for (int row = 0; row < kRows; ++row) {
    double x[kIn], hidden[kHidden], logits[kOut], d_hidden[kHidden] = {};
    for (int k = 0; k < kIn; ++k)
      x[k] = static_cast<double>(feature_of(static_cast<std::uint64_t>(row), k));
    for (int j = 0; j < kHidden; ++j) {
      double sum = at(b1 + j);
      for (int k = 0; k < kIn; ++k)
        sum += x[k] * at(k * kHidden + j);
      hidden[j] = sum > 0 ? sum : 0;
    }
    double most = -1e300, sum = 0;
    for (int c = 0; c < kOut; ++c) {
      logits[c] = at(b2 + c);
      for (int j = 0; j < kHidden; ++j)
        logits[c] += hidden[j] * at(w2 + j * kOut + c);
      most = std::fmax(most, logits[c]);
    }
    for (int c = 0; c < kOut; ++c)
      sum += std::exp(logits[c] - most);
    const int label = label_of(static_cast<std::uint64_t>(row));
    loss += (most + std::log(sum) - logits[label]) / kRows;
    for (int c = 0; c < kOut; ++c) {
      const double d = (std::exp(logits[c] - most) / sum - (c == label ? 1 : 0)) / kRows;
      add(b2 + c, d);
      for (int j = 0; j < kHidden; ++j) {
        add(w2 + j * kOut + c, d * hidden[j]);
        d_hidden[j] += d * at(w2 + j * kOut + c);
      }
    }
    for (int j = 0; j < kHidden; ++j) {
      if (hidden[j] <= 0) continue;
      add(b1 + j, d_hidden[j]);
      for (int k = 0; k < kIn; ++k)
        add(k * kHidden + j, d_hidden[j] * x[k]);
    }
  }
  return loss;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 30;
  cudaStream_t stream{};
  mlp::check(cudaStreamCreate(&stream), "create a stream");
  mlp::Network network(kRows, stream);
  network.load(0, 1);
  float first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    network.step(kRows);
    last = network.loss();
    if (step == 0) {
      first = last;
      std::vector<double> wanted;
      const double loss = reference(wanted);
      const std::vector<float> got = network.gradients();
      double worst = std::fabs(loss - static_cast<double>(last));
      for (std::size_t i = 0; i < got.size(); ++i)
        worst = std::fmax(worst, std::fabs(wanted[i] - static_cast<double>(got[i])));
      std::printf("first step: loss %.6f, all %zu gradients within %.1e of double precision\n",
                  static_cast<double>(last), got.size(), worst);
      if (!(worst < 1e-6)) return 1;
    }
    network.update(0.5F);
  }
  std::printf("loss %.6f -> %.6f in %d steps\n", static_cast<double>(first),
              static_cast<double>(last), steps);
  return last < first ? 0 : 1;
}
