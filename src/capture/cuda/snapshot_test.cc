// SPDX-License-Identifier: Apache-2.0
#include "capture/cuda/snapshot.h"

#include <gtest/gtest.h>

namespace kansoku::capture::cuda {
namespace {

Durations durations(std::uint64_t count, std::uint64_t mean_ns) {
  return {count, count * mean_ns, mean_ns, std::vector<std::uint64_t>(WIRE_CUDA_BUCKETS, 0), 0};
}

Snapshot at(double seconds, std::uint64_t launches, Durations timed) {
  Snapshot out;
  out.at_ns = static_cast<std::uint64_t>(seconds * 1e9);
  out.kernels[0].info.launches = launches;
  out.kernels[0].durations = std::move(timed);
  out.entries.push_back({"cuMemcpyHtoD_v2", WIRE_CUDA_COPY, launches, 0, 0, launches * 1000});
  return out;
}

TEST(DeviceRates, AddUpOverOperationsThatWereNotTimed) {
  const DeviceRates rates =
      device_rates(at(1, 100, durations(10, 1000)), at(3, 1100, durations(20, 2000)));
  EXPECT_DOUBLE_EQ(rates.kernels_per_s, 500);
  // Ten more took 30 us together.
  EXPECT_DOUBLE_EQ(rates.kernel_mean_s.value(), 3e-6);
  EXPECT_DOUBLE_EQ(rates.busy_share.value(), 1000 * 3e-6 / 2);
  EXPECT_DOUBLE_EQ(rates.copied_bytes_per_s, 500'000);
}

TEST(DeviceRates, TakeAKernelsPastWhereNoneWasTimed) {
  const DeviceRates rates =
      device_rates(at(1, 100, durations(10, 1000)), at(2, 200, durations(10, 1000)));
  EXPECT_DOUBLE_EQ(rates.kernel_mean_s.value(), 1e-6);
}

TEST(DeviceRates, AreUnknownWithoutAnyTime) {
  const DeviceRates rates = device_rates(at(1, 100, {}), at(2, 200, {}));
  EXPECT_FALSE(rates.kernel_mean_s);
  EXPECT_FALSE(rates.busy_share);
  EXPECT_DOUBLE_EQ(rates.kernels_per_s, 100);
}

TEST(DeviceRates, CountGraphsAsBusy) {
  Snapshot before = at(1, 0, {}), after = at(2, 0, {});
  before.entries.push_back({"cuGraphLaunch", WIRE_CUDA_GRAPH_LAUNCH, 5, 0, 0, 0});
  after.entries.push_back({"cuGraphLaunch", WIRE_CUDA_GRAPH_LAUNCH, 15, 0, 0, 0});
  before.classes[WIRE_CUDA_GRAPH_LAUNCH] = durations(1, 10'000'000);
  after.classes[WIRE_CUDA_GRAPH_LAUNCH] = durations(2, 15'000'000);  // the second took 20 ms
  EXPECT_DOUBLE_EQ(device_rates(before, after).busy_share.value(), 0.2);
}

TEST(Frame, CountsKernelsOfGraphs) {
  Snapshot before = at(1, 10, durations(10, 1000)), after = at(2, 10, durations(30, 1000));
  GraphInfo graph;
  graph.nodes = {0, 0, 0};  // thrice in one launch
  before.graphs.push_back({graph, {}});
  graph.launches = 50;
  after.graphs.push_back({graph, {}});
  const Frame frame = frame_between(before, after);
  ASSERT_EQ(frame.kernels.size(), 1U);
  EXPECT_DOUBLE_EQ(frame.kernels[0].calls_per_s, 150);
  EXPECT_DOUBLE_EQ(frame.kernels[0].device_share.value(), 150e-6);
}

TEST(Silent, OnlyWhileAwake) {
  Snapshot snapshot;
  snapshot.at_ns = 10'000'000'000;
  snapshot.state.poller_ns = 1;
  EXPECT_FALSE(is_silent(snapshot));
  snapshot.state.mode = WIRE_CUDA_SAMPLED;
  EXPECT_TRUE(is_silent(snapshot));
  snapshot.state.poller_ns = snapshot.at_ns - 900'000'000;
  EXPECT_FALSE(is_silent(snapshot));
}

}  // namespace
}  // namespace kansoku::capture::cuda
