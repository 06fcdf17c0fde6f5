// SPDX-License-Identifier: Apache-2.0
#include "store/incident_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "sys/fd.h"

namespace kansoku::store {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using trace::IncidentRecord;

IncidentRecord logged_incident(int n) {
  IncidentRecord out;
  out.id = "id" + std::to_string(n);
  out.job = "job";
  out.begin_ns = 1'000'000'000 + n;
  return out;
}

class Log : public ::testing::Test {
 protected:
  Log() {
    std::string name = "/tmp/kansoku-log-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ + "/incidents.jsonl";
  }
  ~Log() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] IncidentLog open(std::uint64_t bytes_max = 1U << 20U) const {
    auto log = IncidentLog::open(path_, {.bytes_max = bytes_max});
    EXPECT_TRUE(log) << log.error().what;
    return std::move(log).value();
  }
  std::string folder_, path_;
};

TEST_F(Log, KeepsTheLastStateOfEachIncident) {
  IncidentLog log = open();
  EXPECT_THAT(log.incidents()->incidents, IsEmpty());
  IncidentRecord one = logged_incident(1);
  ASSERT_TRUE(log.put(one));
  ASSERT_TRUE(log.put(logged_incident(2)));
  ASSERT_TRUE(log.label("id1", trace::IncidentLabel::kTrue));
  one.end_ns = 2'000'000'000;
  ASSERT_TRUE(log.put(one));
  const auto page = open().incidents();
  ASSERT_TRUE(page);
  ASSERT_THAT(page->incidents, SizeIs(2));
  EXPECT_EQ(page->incidents[0].end_ns, one.end_ns);
  EXPECT_EQ(page->incidents[0].label, trace::IncidentLabel::kTrue) << "a later state keeps it";
  EXPECT_EQ(log.label("id3", trace::IncidentLabel::kTrue).error().code, Code::kNotFound);
  EXPECT_THAT(log.incidents({.job = "", .kind = {}, .only_open = true})->incidents, SizeIs(1));
  EXPECT_EQ(log.incidents({.job = "", .kind = {}, .count_max = 1})->incidents.at(0).id, "id2");
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(Log, SkipsAndCountsBadLines) {
  IncidentLog log = open();
  ASSERT_TRUE(log.put(logged_incident(1)));
  std::string text = sys::read_file(path_, 1U << 20U).value();
  text += "no json\n{}\n\n\xFF\n" + std::string(IncidentLog::kLineBytesMax + 1, 'x') + "\n";
  text += text.substr(0, 30);  // the disk was full
  ASSERT_TRUE(sys::write_file(path_, text));
  ASSERT_TRUE(log.put(logged_incident(2)));
  const auto page = log.incidents();
  ASSERT_TRUE(page);
  EXPECT_THAT(page->incidents, SizeIs(2));
  EXPECT_EQ(page->bad_lines, 5U);
}

TEST_F(Log, StaysWithinItsBytesAndKeepsTheLatest) {
  IncidentLog log = open(IncidentLog::kBytesMin);
  std::uintmax_t bytes_max = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(log.put(logged_incident(i)));
    std::uintmax_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      bytes += entry.file_size();
    bytes_max = std::max(bytes_max, bytes);
  }
  EXPECT_LE(bytes_max, IncidentLog::kBytesMin);
  const auto page = log.incidents();
  ASSERT_TRUE(page);
  EXPECT_EQ(page->bad_lines, 0U);
  EXPECT_GT(page->incidents.size(), 50U);
  EXPECT_EQ(page->incidents.back().id, "id999");
}

TEST_F(Log, FailsWithoutItsFolderAndGoesOnWhenItIsBack) {
  IncidentLog log = open();
  std::filesystem::remove_all(folder_);
  EXPECT_FALSE(log.put(logged_incident(1)));
  EXPECT_EQ(log.failed_count(), 1U);
  std::filesystem::create_directory(folder_);
  EXPECT_TRUE(log.put(logged_incident(2)));
  EXPECT_FALSE(IncidentLog::open(folder_ + "/none/a", {}));
  EXPECT_FALSE(IncidentLog::open(path_, {.bytes_max = 1}));
  const auto none = IncidentLog::open(folder_ + "/b", {.create = false});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/b"));
}

}  // namespace
}  // namespace kansoku::store
