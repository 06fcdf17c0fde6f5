// SPDX-License-Identifier: Apache-2.0
#include "agent/window_source.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "agent/call_source.h"
#include "agent/device_source.h"
#include "agent/host_source.h"
#include "detect/feature.h"
#include "sys/fd.h"
#include "sys/wait_for_test.h"

namespace kansoku::agent {
namespace {

const std::vector<capture::Pack>& packs() {
  static const auto chosen = capture::select_packs(
      capture::load_packs({KANSOKU_SOURCE_DIR "/share/probes"}).value(), "watch");
  return *chosen;
}
const capture::MetricTable& metrics() {
  static const capture::MetricTable table(packs());
  return table;
}

/// Rows as an agent makes them, of devices that the test tells of.
class Maker {
 public:
  explicit Maker(const std::vector<MetricFeature>& rules) : calls_(rules) {}
  std::vector<FeatureRow> make(const capture::WatchWindow& window,
                               const std::vector<capture::nvml::DeviceSample>& devices = {}) {
    std::vector<FeatureRow> rows = rows_of(window);
    calls_.fill(window, true, rows);
    devices_.fill(window, devices, rows);
    return rows;
  }
  [[nodiscard]] const std::vector<OrphanedErrors>& orphaned_errors() const {
    return devices_.orphaned_errors();
  }

 private:
  CallSource calls_;
  DeviceFeatures devices_;
};
Maker watch_maker() {
  return Maker(metric_features(packs(), metrics()).value());
}

capture::WatchWindow one_process(double window_s = 2) {
  capture::WatchWindow window;
  window.begin = boot_time(1'000'000'000);
  window.end = window.begin + Nanos{static_cast<std::int64_t>(window_s * 1e9)};
  capture::ProcessWindow process;
  process.process.pid = 7;
  process.process.name = "prog";
  process.place.rank = 3;
  process.place.role = capture::Role::kRank;
  process.place.job = "job";
  window.processes.push_back(std::move(process));
  return window;
}

capture::MetricWindow& metric(capture::WatchWindow& window, std::string_view name) {
  window.processes[0].metrics.resize(metrics().size());
  auto& calls = window.processes[0].metrics.at(*metrics().index(name));
  calls.is_known = true;
  return calls;
}

double value(const std::vector<FeatureRow>& rows, std::string_view feature) {
  return rows.at(0).window.values.at(static_cast<std::size_t>(detect::feature_index(feature)));
}

TEST(FeatureRows, WhatAProcessNeverDidIsMissing) {
  const auto window = one_process();
  const auto rows = watch_maker().make(window);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].job, "job");
  EXPECT_EQ(rows[0].window.rank, 3);
  for (const char* feature : {"step_rate", "collective_share", "cpu_cores", "gpu_power", "psi_cpu"})
    EXPECT_TRUE(std::isnan(value(rows, feature))) << feature;
  EXPECT_EQ(value(rows, "stopped_share"), 0);
}

TEST(FeatureRows, CallsBecomeRatesMeansAndShares) {
  auto window = one_process(2);
  metric(window, "collective") = {.is_known = true,
                                  .count = 10,
                                  .bytes = 4000,
                                  .sum_s = 0.5,
                                  .busy_s = 0.6,
                                  .p99_s = 0.09,
                                  .max_s = 0.1,
                                  .open_s = 0};
  const auto rows = watch_maker().make(window);
  EXPECT_DOUBLE_EQ(value(rows, "collective_rate"), 5);
  EXPECT_DOUBLE_EQ(value(rows, "collective_bytes"), 2000);
  EXPECT_DOUBLE_EQ(value(rows, "collective_mean"), 0.05);
  EXPECT_DOUBLE_EQ(value(rows, "collective_p99"), 0.09);
  EXPECT_DOUBLE_EQ(value(rows, "collective_share"), 0.3);
}

TEST(FeatureRows, BeingStoppedIsWhatSignalsSayOrWhatALookSaw) {
  auto window = one_process(2);
  window.processes[0].is_stopped = true;
  EXPECT_EQ(value(watch_maker().make(window), "stopped_share"), 1);
  metric(window, "stop") = {.is_known = true, .busy_s = 0.5};
  EXPECT_EQ(value(watch_maker().make(window), "stopped_share"), 0.25);
  metric(window, "stop").busy_s = 2.5;  // it began before the window
  EXPECT_EQ(value(watch_maker().make(window), "stopped_share"), 1);
  metric(window, "block") = {.is_known = true, .count = 4, .sum_s = 0.02};
  EXPECT_EQ(value(watch_maker().make(window), "block_latency"), 0.005);
}

TEST(FeatureRows, TimeInTheKernelIsOverTimeAndFaultsAreOfAStep) {
  auto window = one_process(2);
  window.processes[0].has_threads = true;
  window.processes[0].minor_faults = 5000;
  window.processes[0].system_s = 0.5;
  auto rows = watch_maker().make(window);
  EXPECT_DOUBLE_EQ(value(rows, "system_share"), 0.25);
  EXPECT_TRUE(std::isnan(value(rows, "faults_per_step"))) << "a program without steps";
  metric(window, "step") = {.is_known = true, .count = 20};
  EXPECT_DOUBLE_EQ(value(watch_maker().make(window), "faults_per_step"), 250);
}

TEST(FeatureRows, FaultsOfALongStepAreToldWhenItEnds) {
  auto maker = watch_maker();
  auto window = one_process(1);
  window.processes[0].has_threads = true;
  metric(window, "step") = {.is_known = true, .count = 1};
  static_cast<void>(maker.make(window));
  for (const std::uint64_t faults : {300U, 40U}) {
    window.processes[0].minor_faults = faults;
    metric(window, "step").count = 0;
    EXPECT_TRUE(std::isnan(value(maker.make(window), "faults_per_step")));
  }
  window.processes[0].minor_faults = 60;
  metric(window, "step").count = 1;
  EXPECT_DOUBLE_EQ(value(maker.make(window), "faults_per_step"), 400);
  EXPECT_DOUBLE_EQ(value(maker.make(window), "faults_per_step"), 60);
}

TEST(FeatureRows, AStandingCallIsNotMissing) {
  auto window = one_process(1);
  metric(window, "step") = {.is_known = true, .busy_s = 1, .open_s = 4};
  metric(window, "step_interval") = {.is_known = true, .open_s = 5};
  const auto rows = watch_maker().make(window);
  EXPECT_EQ(value(rows, "step_rate"), 0);
  EXPECT_EQ(value(rows, "backward_mean"), 4);
  EXPECT_EQ(value(rows, "step_max"), 5);
  EXPECT_TRUE(std::isnan(value(rows, "forward_mean")));
}

/// Figures of `read_at`; process 7 holds 1,000 bytes of it.
capture::nvml::DeviceSample used_device(BootTime read_at) {
  capture::nvml::DeviceSample out;
  out.read_at = read_at;
  capture::nvml::ProcessFigures use;
  use.pid = 7;
  use.memory_bytes = 1000;
  out.figures.processes.emplace().push_back(use);
  return out;
}

TEST(FeatureRows, DevicesThatAProcessUsesCount) {
  auto window = one_process(1);
  capture::nvml::DeviceSample mine = used_device(window.end);
  mine.figures.sm_clock_hz = 1.4e9;
  mine.figures.power_watts = 100;
  mine.figures.throttle_reasons = 0x1 | 0x4;  // idle, below the power limit
  mine.figures.ecc_corrected = 5;
  capture::nvml::DeviceSample other = mine;
  other.index = 1;
  other.figures.power_watts = 300;
  other.figures.processes->front().pid = 8;
  capture::nvml::ProcessFigures idle;  // listed, but nothing of it is there
  idle.pid = 7;
  idle.memory_bytes = 0;
  other.figures.processes->push_back(idle);
  Maker maker = watch_maker();
  auto rows = maker.make(window, {mine, other});
  EXPECT_EQ(value(rows, "gpu_power"), 100);
  EXPECT_EQ(value(rows, "gpu_process_memory"), 1000);
  EXPECT_EQ(value(rows, "gpu_throttled"), 0) << "idle is no fault";
  EXPECT_TRUE(std::isnan(value(rows, "gpu_ecc_errors"))) << "one look gives no rate";
  mine.figures.ecc_corrected = 9;
  *mine.read_at += std::chrono::seconds{1};
  mine.figures.throttle_reasons = 0x20;
  rows = maker.make(window, {mine, other});
  EXPECT_EQ(value(rows, "gpu_ecc_errors"), 4);
  EXPECT_EQ(value(rows, "gpu_throttled"), 1);
  mine.figures.ecc_corrected = 2;  // the driver was loaded anew
  *mine.read_at += std::chrono::seconds{1};
  EXPECT_TRUE(std::isnan(value(maker.make(window, {mine}), "gpu_ecc_errors")));
}

// Devices are asked less often when watching costs too much.
TEST(FeatureRows, RatesOfADeviceAreOverTheTimeBetweenItsFigures) {
  auto window = one_process(1);
  capture::nvml::DeviceSample device = used_device(window.end);
  device.figures.ecc_corrected = 10;
  Maker maker = watch_maker();
  static_cast<void>(maker.make(window, {device}));
  for (int i = 0; i < 3; ++i) {
    const auto rows = maker.make(window, {device});
    EXPECT_TRUE(std::isnan(value(rows, "gpu_ecc_errors"))) << "the figures of before";
    EXPECT_TRUE(std::isnan(value(rows, "gpu_process_growth")));
  }
  *device.read_at += std::chrono::seconds{4};
  device.figures.ecc_corrected = 30;
  device.figures.processes->front().memory_bytes = 1800;
  const auto rows = maker.make(window, {device});
  EXPECT_EQ(value(rows, "gpu_ecc_errors"), 5);
  EXPECT_EQ(value(rows, "gpu_process_growth"), 200);
}

TEST(FeatureRows, MemoryThatComesBackIsNoGrowth) {
  auto window = one_process(1);
  capture::nvml::DeviceSample device = used_device(window.end);
  Maker maker = watch_maker();
  const auto growth = [&](std::uint64_t bytes) {
    *device.read_at += std::chrono::seconds{1};
    device.figures.processes->front().memory_bytes = bytes;
    return value(maker.make(window, {device}), "gpu_process_growth");
  };
  EXPECT_TRUE(std::isnan(growth(1000)));
  EXPECT_EQ(growth(400), 0);
  EXPECT_EQ(growth(900), 0);
  EXPECT_EQ(growth(1050), 50);
}

TEST(FeatureRows, ADeviceThatIsLostHasNoFiguresAndThatItIsLostIsAnError) {
  auto window = one_process(1);
  capture::nvml::DeviceSample device = used_device(window.end);
  device.figures.power_watts = 100;
  Maker maker = watch_maker();
  EXPECT_EQ(value(maker.make(window, {device}), "gpu_power"), 100);
  EXPECT_EQ(value(maker.make(window, {device}), "gpu_xid"), 0);
  device.is_lost = true;
  auto rows = maker.make(window, {device});
  EXPECT_TRUE(std::isnan(value(rows, "gpu_power"))) << "the last figures are old";
  EXPECT_EQ(value(rows, "gpu_xid"), 1);
  EXPECT_EQ(value(maker.make(window, {device}), "gpu_xid"), 0) << "it is told once";
  device.xid_count = 2;
  EXPECT_EQ(value(maker.make(window, {device}), "gpu_xid"), 2);
}

TEST(FeatureRows, AnErrorThatEndedItsProcessIsKnownToBeOfIt) {
  auto window = one_process(1);
  capture::nvml::DeviceSample device = used_device(window.end);
  device.index = 2;
  Maker maker = watch_maker();
  static_cast<void>(maker.make(window, {device}));
  auto hit = device;
  hit.xid_count = 1;
  hit.last_xid = 31;
  EXPECT_EQ(value(maker.make(window, {hit}), "gpu_xid"), 1);
  EXPECT_TRUE(maker.orphaned_errors().empty()) << "it is in the row";
  const capture::WatchWindow nobody{window.begin, window.end, {}};
  hit.figures.processes->clear();
  hit.xid_count = 3;
  static_cast<void>(maker.make(nobody, {hit}));
  ASSERT_EQ(maker.orphaned_errors().size(), 1U);
  const OrphanedErrors& errors = maker.orphaned_errors()[0];
  EXPECT_EQ(errors.device, 2U);
  EXPECT_EQ(errors.count, 2U);
  EXPECT_EQ(errors.last_xid, 31U);
  ASSERT_EQ(errors.users.size(), 1U);
  EXPECT_EQ(errors.users[0].job, "job");
  EXPECT_EQ(errors.users[0].rank, 3);
  EXPECT_EQ(errors.users[0].pid, 7);
  for (int i = 0; i < 20; ++i)
    static_cast<void>(maker.make(nobody, {hit}));
  hit.xid_count = 4;
  static_cast<void>(maker.make(nobody, {hit}));
  EXPECT_TRUE(maker.orphaned_errors().empty()) << "who knows whose it is";
}

TEST(FeatureRows, WhatIsNoRankIsAJobOfItsOwnButForLaunchers) {
  capture::WatchWindow window;
  window.end = window.begin + std::chrono::seconds{1};
  const auto add = [&](std::int32_t pid, capture::Role role, std::int32_t rank) {
    capture::ProcessWindow& process = window.processes.emplace_back();
    process.process.pid = pid;
    process.process.name = "python3";
    process.place = {.role = role, .job = "a:1", .is_local_job = false, .rank = rank};
  };
  add(20, capture::Role::kLauncher, 3);
  add(30, capture::Role::kRank, 3);
  add(40, capture::Role::kNone, -1);
  Maker maker = watch_maker();
  const auto rows = maker.make(window);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].job, "a:1");
  EXPECT_EQ(rows[0].window.rank, 3);
  EXPECT_EQ(rows[0].window.pid, 30);
  EXPECT_FALSE(rows[0].is_local_job);
  EXPECT_EQ(rows[1].job, "python3/40");
  EXPECT_EQ(rows[1].window.rank, -1);
  EXPECT_TRUE(rows[1].is_local_job);
}

/// Two ends of a connection of this process.
struct Connection {
  sys::Fd client, server;
};
Connection connect_to_self() {
  const sys::Fd listener = sys::Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Connection out{sys::Fd::adopt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.raw(), raw, bytes) != 0 || ::listen(listener.raw(), 1) != 0 ||
      ::getsockname(listener.raw(), raw, &bytes) != 0 ||
      ::connect(out.client.raw(), raw, bytes) != 0)
    return {};
  out.server = sys::Fd::adopt(::accept4(listener.raw(), nullptr, nullptr, SOCK_CLOEXEC));
  return out;
}

TEST(HostSource, TellsWhatTheKernelCountsAndConnectionsInFullWindowsOnly) {
  const Connection connection = connect_to_self();
  ASSERT_TRUE(connection.server.is_open());
  HostSource source;
  capture::WatchWindow window = one_process(1);
  window.processes[0].process.pid = ::getpid();
  const auto fill = [&](bool is_full) {
    window.begin = window.end;
    window.end += std::chrono::seconds{1};
    std::vector<FeatureRow> rows = rows_of(window);
    source.fill(window, is_full, rows);
    return rows;
  };
  auto rows = fill(true);
  EXPECT_GT(value(rows, "resident_bytes"), 1 << 20);
  EXPECT_GT(value(rows, "memory_room"), 0);
  for (const char* rate : {"tcp_bytes", "tcp_retransmits", "throttled_share", "psi_cpu"})
    EXPECT_TRUE(std::isnan(value(rows, rate))) << rate << ": one look gives no rate";
  const std::string text(10'000, 'x');
  ASSERT_EQ(::send(connection.client.raw(), text.data(), text.size(), 0), 10'000);
  EXPECT_TRUE(std::isnan(value(fill(false), "tcp_bytes")));
  // Over the two windows since the last look; late counts of the kernel come in a later one.
  double bytes = 2 * value(fill(true), "tcp_bytes");
  EXPECT_TRUE(sys::poll_for_test([&] {
    if (bytes >= 20'000) return true;
    bytes += value(fill(true), "tcp_bytes");
    return false;
  })) << bytes;
  EXPECT_EQ(bytes, 20'000) << "acknowledged here, received there";
  EXPECT_EQ(value(fill(true), "tcp_bytes"), 0);
}

// All that the author of a new metric has to write.
constexpr std::string_view kPackOfAQueue = R"(
schema = 1
name = "queue"
description = "a queue of requests"
[[probe]]
library = "libqueue.so*"
symbols = ["queue::push"]
category = "inference"
metric = "push"
bytes = ["size"]
args = { size = "arg1" }
[[feature]]
name = "push_p99"
metric = "push"
statistic = "p99"
layer = "inference"
floor = 1e-4
worse = 1
meaning = "99th percentile of the time to get into the queue"
[[feature]]
name = "push_bytes"
metric = "push"
statistic = "bytes"
layer = "inference"
floor = 1000
meaning = "what was put into the queue"
)";

TEST(MetricFeatures, APackBringsAMetricAndItsFeatures) {
  std::vector<capture::Pack> with = packs();
  with.push_back(capture::parse_pack(kPackOfAQueue, "queue.toml").value());
  const capture::MetricTable table(with);
  const std::size_t before = detect::known_features().size();
  const auto rules = metric_features(with, table);
  ASSERT_TRUE(rules.has_value()) << rules.error().what;
  ASSERT_EQ(detect::known_features().size(), before + 2);
  const detect::Feature& feature = detect::known_features()[before];
  EXPECT_EQ(feature.name, "push_p99");
  EXPECT_EQ(feature.unit, "s");
  EXPECT_EQ(feature.layer, detect::Layer::kInference);
  EXPECT_EQ(feature.scale, detect::Scale::kLog);
  EXPECT_EQ(feature.floor, 1e-4);
  EXPECT_EQ(feature.worse, 1);
  auto window = one_process(2);
  window.processes[0].metrics.resize(table.size());
  window.processes[0].metrics.at(*table.index("push")) = {
      .is_known = true, .count = 8, .bytes = 1000, .sum_s = 0.8, .p99_s = 0.3};
  const auto rows = Maker(*rules).make(window);
  EXPECT_EQ(value(rows, "push_p99"), 0.3);
  EXPECT_EQ(value(rows, "push_bytes"), 500);
  // The same again is the same; another one of the name is refused.
  EXPECT_TRUE(metric_features(with, table).has_value());
  with.back().features[0].definition->floor = 1;
  const auto other = metric_features(with, table);
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().what.find("push_p99"), std::string::npos) << other.error().what;
}

TEST(MetricFeatures, SayWhatIsMissing) {
  auto pack = capture::parse_pack(kPackOfAQueue, "queue.toml").value();
  const auto refusal = [&] {
    const auto rules = metric_features({pack}, capture::MetricTable({pack}));
    return rules ? std::string() : rules.error().what;
  };
  pack.features = {{.name = "unheard_of", .metric = "push"}};
  EXPECT_NE(refusal().find("unheard_of: it is unknown"), std::string::npos) << refusal();
  pack.features = {{.name = "step_rate", .metric = "pull"}};
  EXPECT_NE(refusal().find("no probe counts for the metric pull"), std::string::npos) << refusal();
  pack.features = {{.name = "odd", .metric = "push", .definition = {{"roof", "x", 1, 0}}}};
  EXPECT_NE(refusal().find("no such layer"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace kansoku::agent
