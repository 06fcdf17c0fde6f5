// SPDX-License-Identifier: Apache-2.0
#include "agent/job_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "detect/feature.h"

namespace kansoku::agent {
namespace {

using std::chrono::seconds;
constexpr std::int64_t kSecond = 1'000'000'000;

class JobTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "kansoku-job-table-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    process_.process.pid = 7;
    process_.process.arguments = {"python3", "train.py"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  JobTableOptions options() {
    JobTableOptions out;
    out.host = "h";
    out.models_folder = folder_;
    out.learn_time = seconds{200};
    out.log = [this](const std::string& line) { log_.push_back(line); };
    return out;
  }
  /// So many seconds of a job of one process, steady but for a little noise.
  void go(JobTable& table, int count, std::int32_t rank) {
    for (int i = 0; i < count; ++i, ++second_)
      static_cast<void>(
          table.on_rows(second_ * kSecond, boot_time(second_ * kSecond), {row_of(rank, 7)}));
  }
  [[nodiscard]] FeatureRow row_of(std::int32_t rank, std::int32_t pid) const {
    FeatureRow row;
    row.job = "job";
    row.is_local_job = true;
    row.process = &process_;
    row.window = {rank, pid, std::vector<double>(detect::known_features().size(), kNan)};
    const auto set = [&](std::string_view feature, double value) {
      row.window.values.at(static_cast<std::size_t>(detect::feature_index(feature))) = value;
    };
    const auto t = static_cast<double>(second_);
    set("step_mean", 0.2 + 0.002 * std::sin(1.7 * t));
    set("cpu_cores", 1.1 + 0.02 * std::sin(2.9 * t));
    set("collective_mean", 0.004 + 0.0002 * std::sin(0.7 * t));
    return row;
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  capture::ProcessWindow process_;
  std::string folder_;
  std::vector<std::string> log_;
  std::int64_t second_{1};
};

TEST_F(JobTableTest, WhatIsLearntIsKeptAndTheNextRunIsWatchedWithIt) {
  {
    JobTable table(options());
    go(table, 210, 0);
    ASSERT_EQ(table.status().size(), 1U);
    EXPECT_EQ(table.status()[0].detector.state, detect::Detector::State::kWatching);
    EXPECT_TRUE(table.status()[0].is_local);
  }
  EXPECT_EQ(files(), 1U);
  JobTable again(options());
  go(again, 1, 0);
  EXPECT_EQ(again.status()[0].detector.state, detect::Detector::State::kWatching);
}

TEST_F(JobTableTest, AModelThatIsCorruptIsRefusedByNameAndItsJobLearntAnew) {
  {
    JobTable table(options());
    go(table, 210, 0);
  }
  ASSERT_EQ(files(), 1U);
  const auto path = std::filesystem::directory_iterator(folder_)->path();
  std::fstream(path, std::ios::in | std::ios::out).seekp(500) << '7' << '8';
  log_.clear();
  JobTable again(options());
  go(again, 1, 0);
  EXPECT_EQ(again.status()[0].detector.state, detect::Detector::State::kLearning);
  EXPECT_EQ(again.counters().refused_models, 1U);
  ASSERT_FALSE(log_.empty());
  EXPECT_NE(log_[0].find(path.string()), std::string::npos) << log_[0];
  EXPECT_NE(log_[0].find("is unusable, and its job is learnt again"), std::string::npos) << log_[0];
  EXPECT_NE(log_[0].find("checksum"), std::string::npos) << log_[0];
}

TEST_F(JobTableTest, AModelThatCannotBeWrittenIsTriedAgainLaterNotEverySecond) {
  std::filesystem::remove_all(folder_);
  std::ofstream(folder_).close();  // no folder: nothing can be written below it
  JobTable table(options());
  go(table, 300, 0);
  EXPECT_EQ(table.counters().failed_writes, 1U);
  go(table, 600, 0);
  EXPECT_EQ(table.counters().failed_writes, 2U);
}

TEST_F(JobTableTest, AProcessThatIsNoRankIsAJobOnceItHasLivedForSomeTime) {
  JobTable table(options());
  go(table, 10, -1);
  EXPECT_TRUE(table.status().empty());
  go(table, 1, -1);
  EXPECT_EQ(table.status().size(), 1U);
  JobTable other(options());
  go(other, 1, 0);
  EXPECT_EQ(other.status().size(), 1U) << "a rank is one at once";
}

TEST_F(JobTableTest, WhileNothingIsJudgedJobsThatAreOverAreForgotten) {
  JobTable table(options());
  go(table, 1, 0);
  FeatureRow row;
  row.job = "job";
  const auto pass = [&](const std::vector<FeatureRow>& rows, int seconds_later) {
    second_ += seconds_later;
    return table.pass(second_ * kSecond, boot_time(second_ * kSecond), rows);
  };
  EXPECT_TRUE(pass({row}, 3600).empty());
  EXPECT_EQ(table.status().size(), 1U) << "it goes on, however long nobody judges it";
  row.job = "other";
  EXPECT_TRUE(pass({row}, 29).empty());
  EXPECT_EQ(table.status().size(), 1U);
  EXPECT_TRUE(pass({row}, 1).empty());
  EXPECT_TRUE(table.status().empty()) << "and none begins";
}

TEST_F(JobTableTest, WhatIsWrongEndsWithTheRunAndTheNextOneIsAnotherEpisode) {
  JobTable table(options());
  go(table, 250, 0);
  std::vector<incident::Observation> told;
  const auto slow = [&](int count, std::int32_t pid) {
    for (int i = 0; i < count; ++i, ++second_) {
      FeatureRow row = row_of(0, pid);
      row.window.values.at(static_cast<std::size_t>(detect::feature_index("step_mean"))) = 2;
      const auto more = table.on_rows(second_ * kSecond, boot_time(second_ * kSecond), {row});
      told.insert(told.end(), more.begin(), more.end());
    }
  };
  const auto idle = [&](int count) {
    for (int i = 0; i < count; ++i, ++second_) {
      const auto more = table.on_rows(second_ * kSecond, boot_time(second_ * kSecond), {});
      told.insert(told.end(), more.begin(), more.end());
    }
  };
  slow(10, 7);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().job, "job");
  EXPECT_EQ(told.back().facts.end_ns, 0);
  const std::uint64_t episode = told.back().episode;
  EXPECT_TRUE(table.take_label({"job", incident::Source::kDetector, episode}, {}));
  EXPECT_FALSE(table.take_label({"job", incident::Source::kHardware, episode}, {}));
  EXPECT_FALSE(table.take_label({"other", incident::Source::kDetector, episode}, {}));
  idle(2);
  EXPECT_EQ(told.back().facts.end_ns, 0) << "a window or two may have missed it";
  idle(1);
  EXPECT_NE(told.back().facts.end_ns, 0);
  idle(40);
  EXPECT_TRUE(table.status().empty());
  slow(20, 8);
  EXPECT_NE(told.back().episode, episode) << "of another detector, which counts from one as well";
  EXPECT_EQ(told.back().facts.end_ns, 0);
  EXPECT_FALSE(table.take_label({"job", incident::Source::kDetector, episode}, {}));
}

TEST_F(JobTableTest, OneUsersJobsLeaveRoomForThoseOfOthers) {
  JobTable table(options());
  std::vector<FeatureRow> rows;
  std::vector<capture::ProcessWindow> processes(JobTable::kJobsMax);
  for (std::size_t i = 0; i < JobTable::kJobsMax; ++i) {
    processes[i] = process_;
    processes[i].process.owner.user = i + 1 < JobTable::kJobsMax ? 7 : 8;
    rows.push_back(row_of(0, static_cast<std::int32_t>(i)));
    rows.back().job = "job" + std::to_string(1000 + i);
    rows.back().process = &processes[i];
  }
  static_cast<void>(table.on_rows(kSecond, boot_time(kSecond), rows));
  EXPECT_EQ(table.status().size(), JobTable::kJobsOfUserMax + 1);
  EXPECT_EQ(table.status().back().name, "job" + std::to_string(999 + JobTable::kJobsMax));
  EXPECT_EQ(table.counters().over_limit, JobTable::kJobsOfUserMax - 1);
}

TEST_F(JobTableTest, TheOldestModelsGo) {
  const auto now = std::filesystem::file_time_type::clock::now();
  for (std::size_t i = 0; i < JobTable::kModelsMax + 3; ++i) {
    const std::string path = folder_ + "/" + std::to_string(i) + ".model";
    std::ofstream(path).close();
    std::filesystem::last_write_time(path, now - seconds{i});
  }
  std::ofstream(folder_ + "/other").close();
  std::ofstream(folder_ + "/0.model.tmp77").close();
  JobTable table(options());
  EXPECT_EQ(files(), JobTable::kModelsMax + 1);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/0.model"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/1002.model"));
  ASSERT_EQ(log_.size(), 1U);
  std::ofstream(folder_ + "/late.model").close();
  go(table, 210, 0);  // learns one, which is in use
  EXPECT_EQ(files(), JobTable::kModelsMax + 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/999.model"));
}

}  // namespace
}  // namespace kansoku::agent
