// SPDX-License-Identifier: Apache-2.0
#include "agent/incident_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sys/clock.h"
#include "sys/fd.h"
#include "sys/process.h"
#include "sys/wait_for_test.h"
#include "trace/reader.h"

namespace kansoku::agent {
namespace {

using ::testing::HasSubstr;

class IncidentRecorderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kansoku_recordings_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    options_.duration = std::chrono::milliseconds{20};
    options_.packs.resize(1);
    options_.packs[0].name = "stacks";
    options_.packs[0].python_hz = 100;  // needs no eBPF
    options_.file_bytes_max = 1U << 20;
    auto child = sys::Child::start({"/usr/bin/tail", "-f", "/dev/null"}, {});
    ASSERT_TRUE(child.has_value());
    child_.emplace(std::move(child).value());
    child_->release();
  }
  void TearDown() override {
    child_->send(SIGKILL);
    static_cast<void>(child_->wait());
    std::filesystem::remove_all(folder_);
  }

  IncidentRecorder recorder() {
    return {clock_, procfs_, options_, folder_,
            [this](const std::string& line) { lines_ += line + "\n"; }};
  }
  static trace::IncidentRecord incident(const std::string& id, const std::string& job) {
    trace::IncidentRecord out;
    out.id = id;
    out.job = job;
    return out;
  }
  void open(IncidentRecorder& recorder, const std::string& id, const std::string& job) {
    recorder.on_opened(incident(id, job), {child_->pid()}, clock_.now());
  }
  static void wait_for(IncidentRecorder& recorder) {
    EXPECT_TRUE(sys::poll_for_test([&] {
      recorder.poll();
      return !recorder.is_recording();
    }));
  }
  [[nodiscard]] bool has(const std::string& id) const {
    return std::filesystem::exists(recording_path(folder_, id));
  }

  sys::RealClock clock_;
  sys::Procfs procfs_;
  IncidentRecording options_;
  std::string folder_, lines_;
  std::optional<sys::Child> child_;
};

TEST_F(IncidentRecorderTest, RecordsOneAtATimeAndAJobNowAndThen) {
  options_.duration = std::chrono::minutes{5};
  {
    IncidentRecorder recorder = this->recorder();
    open(recorder, "aa", "job");
    open(recorder, "bb", "another");
    EXPECT_TRUE(recorder.is_recording());
    EXPECT_EQ(recorder.counters().skipped, 1U);
    EXPECT_THAT(lines_, HasSubstr("another recording is running"));
  }
  EXPECT_TRUE(has("aa")) << "what it had when the agent ended";
  EXPECT_FALSE(has("bb"));
  options_.duration = std::chrono::milliseconds{20};
  IncidentRecorder recorder = this->recorder();
  open(recorder, "cc", "job");
  wait_for(recorder);
  EXPECT_EQ(recorder.counters().made, 1U);
  open(recorder, "dd", "job");
  EXPECT_THAT(lines_, HasSubstr("its job was recorded recently"));
  open(recorder, "ee", "another");
  wait_for(recorder);
  EXPECT_EQ(recorder.counters().made, 2U);
  EXPECT_GT(recorder.cpu_s(), 0);
  EXPECT_EQ(recorder.counters().skipped, 1U);
  const auto bytes = sys::read_file(recording_path(folder_, "ee"), 1U << 20);
  ASSERT_TRUE(bytes.has_value());
  const auto trace = trace::read_trace(as_bytes(*bytes));
  ASSERT_TRUE(trace.has_value()) << trace.error().what;
  EXPECT_EQ(trace->metadata.at("kansoku.incident"), "ee");
}

TEST_F(IncidentRecorderTest, TheOldestGoAndLeftoversToo) {
  options_.count_max = 3;
  std::filesystem::create_directory(folder_ + "/recordings");
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours{1};
  for (int i = 0; i < 5; ++i) {
    const std::string path = recording_path(folder_, std::to_string(i)) + (i == 4 ? ".part" : "");
    std::ofstream(path) << "old";
    std::filesystem::last_write_time(path, old + std::chrono::seconds{i});
  }
  IncidentRecorder recorder = this->recorder();
  open(recorder, "new", "job");
  wait_for(recorder);
  EXPECT_FALSE(has("0"));
  EXPECT_FALSE(has("1"));
  EXPECT_TRUE(has("2"));
  EXPECT_TRUE(has("3"));
  EXPECT_TRUE(has("new"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/recordings"), {}), 3);
}

TEST_F(IncidentRecorderTest, WhatCannotBeRecordedIsCounted) {
  IncidentRecorder recorder = this->recorder();
  recorder.on_opened(incident("aa", "gone"), {}, clock_.now());
  wait_for(recorder);
  EXPECT_EQ(recorder.counters().failed, 1U);
  EXPECT_THAT(lines_, HasSubstr("they have ended"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/recordings"));
}

TEST_F(IncidentRecorderTest, AFullDiskCostsRecordingsOnly) {
  options_.file_bytes_max = options_.bytes_max = std::uint64_t{1} << 60;
  IncidentRecorder recorder = this->recorder();
  open(recorder, "aa", "job");
  EXPECT_EQ(recorder.counters().skipped, 1U);
  EXPECT_THAT(lines_, HasSubstr("MB are free"));
  EXPECT_FALSE(recorder.is_recording());
}

TEST_F(IncidentRecorderTest, NoneIsMadeUnlessAskedFor) {
  options_.duration = {};
  IncidentRecorder recorder = this->recorder();
  open(recorder, "aa", "job");
  EXPECT_FALSE(recorder.is_recording());
  EXPECT_EQ(recorder.counters().skipped, 0U);
}

}  // namespace
}  // namespace kansoku::agent
