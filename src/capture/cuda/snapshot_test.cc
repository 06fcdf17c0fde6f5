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

StreamInfo stream_at(std::uint32_t index, std::uint64_t done_ns, std::uint8_t kind = 0) {
  StreamInfo out;
  out.index = index;
  out.done_ns = done_ns;
  out.kind = kind;
  return out;
}

TEST(UnseenBefore, IsNothingWhereTheLibraryWasAwakeFromTheStartOrSleeps) {
  Snapshot snapshot = at(100, 0, {});
  snapshot.state.mode = WIRE_CUDA_EVERY;
  EXPECT_FALSE(unseen_before(snapshot));
  snapshot.state.awake_ns = 90'000'000'000;
  EXPECT_TRUE(unseen_before(snapshot)) << "nothing was seen to end";
  snapshot.state.mode = WIRE_CUDA_DORMANT;
  EXPECT_FALSE(unseen_before(snapshot)) << "that is said otherwise";
}

TEST(UnseenBefore, EndsOnceAllStreamsFinishedSomethingSince) {
  Snapshot snapshot = at(100, 0, {});
  snapshot.state.mode = WIRE_CUDA_SAMPLED;
  snapshot.state.awake_ns = 90'000'000'000;
  snapshot.state.streams_live = 2;
  snapshot.streams = {stream_at(0, 95'000'000'000), stream_at(1, 80'000'000'000)};
  snapshot.contexts[0].default_done_ns = 91'000'000'000;
  const auto why = unseen_before(snapshot);
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("awoke 10.0 s ago"), std::string::npos) << *why;
  EXPECT_NE(why->find("1 of 2 streams"), std::string::npos) << *why;
  snapshot.streams[1].done_ns = 91'000'000'000;
  EXPECT_FALSE(unseen_before(snapshot));
  snapshot.contexts[0].default_done_ns = 89'000'000'000;  // of an earlier time awake
  EXPECT_TRUE(unseen_before(snapshot)) << "the default stream may have been used before";
  // The default stream is none that the process made, and not among those that are counted.
  snapshot.streams = {stream_at(0, 95'000'000'000, WIRE_CUDA_LEGACY)};
  snapshot.contexts[0].default_done_ns = 95'000'000'000;
  EXPECT_TRUE(unseen_before(snapshot));
  snapshot.state.streams_live = 0;
  EXPECT_FALSE(unseen_before(snapshot));
}

TEST(UnseenBefore, EndsWithAWaitForAllOfTheOnlyContext) {
  Snapshot snapshot = at(100, 0, {});
  snapshot.state.mode = WIRE_CUDA_EVERY;
  snapshot.state.awake_ns = 90'000'000'000;
  snapshot.state.streams_live = 40;  // a pool of which few are used
  snapshot.streams = {stream_at(0, 1)};
  snapshot.state.whole_done_ns = 89'000'000'000;  // it began before
  EXPECT_TRUE(unseen_before(snapshot));
  snapshot.state.whole_done_ns = 91'000'000'000;
  EXPECT_FALSE(unseen_before(snapshot));
  snapshot.state.devices_used = 2;  // of which one was used since
  EXPECT_TRUE(unseen_before(snapshot));
  snapshot.state.devices_used = 1;
  snapshot.streams.push_back(stream_at(1, 1));
  snapshot.streams.back().context = 1;
  EXPECT_TRUE(unseen_before(snapshot)) << "of another context nothing is known";
}

}  // namespace
}  // namespace kansoku::capture::cuda
