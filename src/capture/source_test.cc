// SPDX-License-Identifier: Apache-2.0
#include "capture/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "capture/device_clock.h"
#include "capture/recorder.h"
#include "sys/clock.h"
#include "sys/process.h"
#include "trace/reader.h"

namespace kansoku::capture {
namespace {

using ::testing::StartsWith;

STAT(lost_beats_for_test, kDataLoss, kCapture, "nobody listened");

/// A whole source, as its author has to write it: one class, with its losses and its clock.
class Beats final : public Source {
 public:
  Beats(trace::Writer& writer, std::vector<std::int32_t>& forgotten)
      : writer_(writer), forgotten_(forgotten) {}
  void forget(std::int32_t pid) override { forgotten_.push_back(pid); }
  [[nodiscard]] std::string_view name() const override { return "beats"; }
  [[nodiscard]] BootTime due() const override { return is_open_ ? next_ : BootTime::max(); }
  void poll(const Processes& processes, BootTime now) override {
    next_ = now + std::chrono::milliseconds{1};
    const std::int64_t device_ns = 7'000 + now.time_since_epoch().count();  // as a device tells it
    clock_.add(device_ns, now, now + Nanos{10});
    for (const auto& [pid, process] : processes)
      writer_.instant(process.track, clock_.to_boot(device_ns)->time, writer_.name("beat"),
                      writer_.category("beats"));
  }
  void begin_trace(BootTime now) override {
    is_open_ = true;
    next_ = now;
  }
  void end_trace(BootTime now) override {
    is_open_ = false;
    clock_.write(writer_, now);
  }
  void set_enabled(bool /*enabled*/) override {}
  void add_losses(Losses& out) const override { out.add(lost_beats_for_test, 3); }
  void add_problems(std::vector<std::string>& out) const override {
    out.emplace_back("beats: none at night");
  }

 private:
  trace::Writer& writer_;
  std::vector<std::int32_t>& forgotten_;
  DeviceClock clock_{"beats"};
  bool is_open_{false};
  BootTime next_{};
};

TEST(Source, IsAskedWhenItWantsAndItsLossesAndCostAreWritten) {
  MemorySink sink;
  const sys::RealClock clock;
  const sys::Procfs procfs;
  RecorderOptions options;
  options.use_bpf = false;
  std::vector<std::int32_t> forgotten;
  options.sources.emplace_back(
      [&](trace::Writer& writer) { return std::make_unique<Beats>(writer, forgotten); });
  const auto recorder = Recorder::create(sink, clock, procfs, std::move(options));
  ASSERT_TRUE(recorder.has_value()) << recorder.error().what;
  ASSERT_TRUE((*recorder)->observe(::getpid(), false).has_value());
  ASSERT_TRUE((*recorder)
                  ->run(
                      std::chrono::milliseconds{20}, [] { return false; }, nullptr)
                  .has_value());
  const auto trace = trace::read_trace(as_bytes(sink.data()));
  ASSERT_TRUE(trace.has_value()) << trace.error().what;
  EXPECT_GT(trace->instants.size(), 0U);
  ASSERT_TRUE(trace->losses.contains("lost_beats_for_test"));
  EXPECT_EQ(trace->losses.at("lost_beats_for_test").count, 3U);
  EXPECT_THAT(trace->metadata.at("kansoku.source.beats"), StartsWith("cpu_s="));
  EXPECT_THAT(trace->metadata.at("kansoku.clock.beats"), StartsWith("offset_ns=-69"));
  EXPECT_THAT((*recorder)->problems(), ::testing::Contains("beats: none at night"));
}

TEST(Losses, OfOneCounterAreAddedUp) {
  Losses losses;
  losses.add(lost_beats_for_test, 3);
  losses.add(lost_beats_for_test, 4);
  ASSERT_EQ(losses.all().size(), 1U);
  EXPECT_EQ(losses.all()[0].total, 7U);
  EXPECT_EQ(losses.all()[0].stat, &lost_beats_for_test);
}

}  // namespace
}  // namespace kansoku::capture
