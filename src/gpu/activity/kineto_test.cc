// SPDX-License-Identifier: Apache-2.0
#include "gpu/activity/kineto.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/json.h"
#include "gpu/activity/activity.h"
#include "gpu/activity/recording_for_test.h"
#include "trace/import/chrome.h"

namespace kansoku::gpu::activity {
namespace {

using testing::HasSubstr;

struct Written {
  KinetoCounts counts;
  std::string text;
  Json json;
};

Written written(const trace::Trace& trace, const KinetoOptions& options = {}) {
  MemorySink sink;
  const auto counts = write_kineto(trace, options, sink);
  EXPECT_TRUE(counts.has_value());
  auto json = Json::parse(sink.data());
  EXPECT_TRUE(json.has_value());
  return {*counts, sink.data(), std::move(*json)};
}

/// Operations as lines: what must survive a round trip.
std::string ops_of(const trace::Trace& trace) {
  const auto work = read_device_work(trace);
  EXPECT_TRUE(work.has_value());
  std::string out;
  for (const Op& op : work->ops) {
    const Stream& stream = work->streams[op.stream];
    out += fmt::format("{} {} {}..{} stream {} device {} correlation {} launched {}\n",
                       op_class_name(op.what), trace.str(trace.slices.name[op.slice]),
                       op.time.begin_ns, op.time.end_ns, stream.number,
                       work->devices[stream.device].ordinal, op.correlation.value_or(0),
                       op.call == kNoIndex ? -1 : work->calls[op.call].time.begin_ns);
  }
  return out;
}

trace::Trace imported(const std::string& text) {
  trace::Trace trace;
  EXPECT_TRUE(trace::import::import_chrome(as_bytes(text), "x.json", {}, trace).has_value());
  return trace;
}

void one_of_each(Recording& r) {
  r.process(100, 3, 8);
  r.host(100, 100, "cpu_op", "aten::mm", {5.001, 30}, {{"Input Dims", "[[2, 3], [3, 4]]"}});
  r.kernel(100, 7, "gemm \"quoted\" \\ \x01", {10, 15}, {20.123, 40.456},
           {{"grid", "4,2,1"}, {"block", "128,1,1"}, {"registers", 40}, {"shared_bytes", 1024}});
  r.kernel(100, 8, "ncclDevKernel_AllReduce_Sum(x)", {33, 38}, {45, 60});
  r.call(100, "cudaMemcpyAsync", {50, 55}, {{"correlation", 500}});
  r.op(100, 7, "gpu_memcpy", "Memcpy HtoD", {70, 80}, 500, {{"bytes", 100}, {"pageable", 1}});
  r.op(100, 7, "gpu_memset", "Memset", {80, 81}, 501, {{"bytes", 8}});
  r.call(100, "cuGraphLaunch", {82, 83}, {{"correlation", 502}});
  r.op(100, 7, "cuda_graph", "graph", {90, 95}, 502);
  r.op(100, 7, "gpu_host_function", "callback", {96, 97}, 503);
  r.memory(100, 50, 4096);
}

TEST(KinetoTest, DeviceSlicesSurviveARoundTrip) {
  const trace::Trace trace = recording_of(one_of_each);
  const Written out = written(trace);
  EXPECT_EQ(out.counts.device_count, 6U);
  EXPECT_EQ(out.counts.flow_count, 4U);
  EXPECT_EQ(out.counts.left_out_count, 0U);
  EXPECT_EQ(ops_of(imported(out.text)), ops_of(trace));
}

TEST(KinetoTest, FiguresSurviveARoundTrip) {
  const trace::Trace trace = recording_of(one_of_each);
  const auto report = report_of(trace, {});
  const auto again = report_of(imported(written(trace).text), {});
  ASSERT_TRUE(report.has_value() && again.has_value());
  const Json before = to_json(*report, 100), after = to_json(*again, 100);
  for (const char* key : {"devices", "kernels", "copies", "gemms", "operators"})
    EXPECT_EQ(before.at(key).dump(), after.at(key).dump()) << key;
}

TEST(KinetoTest, FieldsHaveTheProfilersNames) {
  const Written out = written(recording_of(one_of_each));
  EXPECT_EQ(out.json.at("distributedInfo").at("rank").as_int(), 3);
  EXPECT_EQ(out.json.at("distributedInfo").at("world_size").as_int(), 8);
  std::map<std::string, int> phases;
  bool has_kernel = false, has_call = false;
  const Json events = out.json.at("traceEvents");
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Json event = events.at(i);
    ++phases[event.at("ph").as_string()];
    const Json args = event.at("args");
    if (event.at("cat").as_string() == "kernel" && args.at("correlation").as_int() == 1) {
      has_kernel = true;
      EXPECT_EQ(event.at("pid").as_int(-1), 0);
      EXPECT_EQ(event.at("tid").as_int(), 7);
      EXPECT_NEAR(event.at("dur").as_double(), 20.333, 1e-9);
      EXPECT_EQ(args.at("stream").as_int(), 7);
      EXPECT_EQ(args.at("device").as_int(-1), 0);
      EXPECT_EQ(args.at("registers per thread").as_int(), 40);
      EXPECT_EQ(args.at("shared memory").as_int(), 1024);
      EXPECT_EQ(args.at("grid").dump(), "[4,2,1]");
      EXPECT_EQ(event.at("name").as_string(), "gemm \"quoted\" \\ \x01");
    }
    if (event.at("name").as_string() == "cudaLaunchKernel") {
      has_call = true;
      EXPECT_EQ(event.at("cat").as_string(), "cuda_runtime");
      EXPECT_FALSE(args.contains("stream"));  // else it would be an operation of the device
      EXPECT_TRUE(args.contains("launch stream"));
    }
    if (event.at("cat").as_string() == "gpu_host_function") {
      EXPECT_FALSE(args.contains("stream"));
    }
    if (event.at("cat").as_string() == "cpu_op") {
      EXPECT_EQ(args.at("Input Dims").dump(), "[[2,3],[3,4]]");
    }
  }
  EXPECT_TRUE(has_kernel);
  EXPECT_TRUE(has_call);
  EXPECT_EQ(phases["s"], 4);
  EXPECT_EQ(phases["f"], 4);
  EXPECT_EQ(phases["C"], 1);
}

TEST(KinetoTest, OneFileARank) {
  const trace::Trace trace = recording_of([](Recording& r) {
    for (const std::int32_t rank : {0, 1}) {
      r.process(100 + rank, rank, 2);
      r.kernel(100 + rank, 7, fmt::format("kernel_{}", rank), {1, 2}, {5, 6});
    }
  });
  MemorySink sink;
  const auto both = write_kineto(trace, {}, sink);
  ASSERT_FALSE(both.has_value());
  EXPECT_EQ(both.error().code, Code::kUnsupported);
  EXPECT_THAT(both.error().hint, HasSubstr("--rank 0"));
  EXPECT_EQ(sink.data(), "");
  const auto none = write_kineto(trace, {.rank = 5}, sink);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Code::kNotFound);
  const Written one = written(trace, {.rank = 1});
  EXPECT_EQ(one.counts.device_count, 1U);
  EXPECT_THAT(one.text, HasSubstr("kernel_1"));
  EXPECT_THAT(one.text, testing::Not(HasSubstr("kernel_0")));
}

TEST(KinetoTest, AHostWithTheNumberOfADeviceKeepsApartFromIt) {
  const trace::Trace trace = recording_of([](Recording& r) {
    r.kernel(0, 7, "k", {1, 2}, {5, 6});
  });
  const Written out = written(trace);
  EXPECT_EQ(ops_of(imported(out.text)), ops_of(trace));
}

TEST(KinetoTest, TwoProcessesOnOneDeviceKeepTheirStreamsApart) {
  const trace::Trace trace = recording_of([](Recording& r) {
    r.kernel(100, 7, "a", {1, 2}, {5, 60});
    r.kernel(200, 7, "b", {1, 2}, {5, 60});
  });
  const Written out = written(trace);
  EXPECT_EQ(out.counts.device_count, 2U);
  EXPECT_EQ(out.counts.moved_count, 1U);
  const auto work = read_device_work(imported(out.text));
  ASSERT_TRUE(work.has_value());
  EXPECT_EQ(work->streams.size(), 2U);
}

/// Remembers how large its pieces were; fails after some.
class PieceSink final : public ByteSink {
 public:
  explicit PieceSink(std::size_t pieces_max = SIZE_MAX) : pieces_max_(pieces_max) {}
  [[nodiscard]] Result<void> append(ByteSpan bytes) override {
    if (sizes.size() >= pieces_max_) return Error{Code::kLimit, "disk full"};
    sizes.push_back(bytes.size());
    return {};
  }
  std::vector<std::size_t> sizes;

 private:
  std::size_t pieces_max_;
};

TEST(KinetoTest, WritesInPiecesAndStopsAtTheFirstThatFails) {
  const trace::Trace trace = recording_of([](Recording& r) {
    for (int i = 0; i < 5000; ++i)
      r.kernel(100, 7, "kernel", {10.0 * i, 10.0 * i + 2}, {10.0 * i + 3, 10.0 * i + 9});
  });
  PieceSink sink;
  ASSERT_TRUE(write_kineto(trace, {}, sink).has_value());
  EXPECT_GT(sink.sizes.size(), 8U);
  EXPECT_LT(*std::max_element(sink.sizes.begin(), sink.sizes.end()), std::size_t{260} << 10);
  for (std::size_t pieces = 0; pieces < sink.sizes.size(); ++pieces) {
    PieceSink full(pieces);
    const auto failed = write_kineto(trace, {}, full);
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().code, Code::kLimit);
    EXPECT_EQ(full.sizes.size(), pieces);
  }
}

TEST(KinetoTest, OpenCallsStayOpen) {
  const trace::Trace trace = recording_of([](Recording& r) {
    r.kernel(100, 7, "k", {1, 2}, {5, 6});
    r.call(100, "cudaDeviceSynchronize", {10, -1});
  });
  const trace::Trace again = imported(written(trace).text);
  const auto work = read_device_work(again);
  ASSERT_TRUE(work.has_value());
  ASSERT_EQ(work->calls.size(), 2U);
  EXPECT_TRUE(work->calls[1].is_open);
}

TEST(KinetoTest, OperationsStandWhereTheReportHasThem) {
  const trace::Trace trace = recording_of([](Recording& r) {
    for (int i = 0; i < 200; ++i) {  // 150 us too late
      const double us = 1000.0 * i;
      r.kernel(100, 7, "a", {us, us + 5}, {us + 160, us + 950});
      r.call(100, "cuStreamSynchronize", {us + 10, us + 800});
    }
    r.meta("kansoku.clock.cuda.100.0", "error_ns=200000");
    r.device_clock();
    r.kernel(100, 8, "b", {6, 7}, {20, 30});
  });
  const Written made = written(trace);
  EXPECT_EQ(made.counts.device_count, 200U);
  EXPECT_EQ(made.counts.left_out_count, 1U);
  const std::string ops = ops_of(imported(made.text));
  EXPECT_EQ(ops, ops_of(trace));
  const std::int64_t base_ns = ns_for_test(0);
  EXPECT_THAT(ops, HasSubstr(fmt::format("{}..{} stream 7", base_ns + 10'000, base_ns + 800'000)));
}

}  // namespace
}  // namespace kansoku::gpu::activity
