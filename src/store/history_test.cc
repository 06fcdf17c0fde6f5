// SPDX-License-Identifier: Apache-2.0
#include "store/history.h"

#include <dirent.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "common/rng.h"
#include "sys/fd.h"

namespace kansoku::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using trace::IncidentRecord;

constexpr std::int64_t kSecond = 1'000'000'000, kDay = 86'400 * kSecond;
constexpr std::int64_t kBegin = 1'700'000'000 * kSecond;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

IncidentRecord incident(std::int64_t begin_ns,
                        trace::IncidentKind kind = trace::IncidentKind::kLatencySpike) {
  IncidentRecord out;
  out.host = "n1";
  out.job = "it's; DROP TABLE incidents --";
  out.begin_ns = begin_ns;
  out.kind = kind;
  out.id = trace::incident_id(out.host, out.job, begin_ns, word_of(kind));
  out.ranks = {0, 3};
  out.tests = {"rank"};
  out.score = std::numeric_limits<double>::infinity();
  out.evidence = {{"step_mean", "s", "torch", 0.1, kNone, 1}};
  out.summary = "rank 3 \"is\" slow\n" + std::string(1, '\0') + "ü";
  return out;
}

class WithHistory : public ::testing::Test {
 protected:
  void SetUp() override {
    places_ = library_places();
    places_.push_back(std::string(KANSOKU_SOURCE_DIR) +
                      "/build/npm/node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so");
    std::string name = "/tmp/kansoku-history-XXXXXX";
    parent_ = ::mkdtemp(name.data());
    folder_ = parent_ + "/history";
    options_.features = {"step_mean", "gc_share"};
    const auto history = History::open(folder_, options_, places_);
    if (!history) GTEST_SKIP() << history.error().what << "; " << history.error().hint;
  }
  ~WithHistory() override { std::filesystem::remove_all(parent_); }

  [[nodiscard]] History open() {
    auto history = History::open(folder_, options_, places_);
    EXPECT_TRUE(history) << history.error().what;
    return std::move(history).value();
  }
  /// Windows of `rank_count` ranks a second: the second's number and a quarter of the rank.
  static void add(History& history, std::int64_t begin_ns, int seconds, int rank_count = 2) {
    for (int s = 0; s < seconds; ++s) {
      std::vector<std::array<double, 2>> values;
      std::vector<HistoryRow> rows;
      for (int rank = 0; rank < rank_count; ++rank)
        values.push_back({double(s), rank == 0 ? kNone : rank / 4.0});
      for (int rank = 0; rank < rank_count; ++rank)
        rows.push_back({rank, 100 + rank, values[static_cast<std::size_t>(rank)]});
      const auto done = history.add_windows(begin_ns + s * kSecond, "job", rows);
      EXPECT_TRUE(done) << done.error().what;
    }
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  [[nodiscard]] std::size_t segment_count() const {
    const auto names = files();
    return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [](const auto& name) {
      return name.starts_with("windows-") && name.ends_with(".duckdb");
    }));
  }

  std::vector<std::string> places_;
  std::string parent_, folder_;
  HistoryOptions options_;
};

TEST(History, WithoutTheLibrarySaysHowToGetIt) {
  const std::string folder = "/tmp/kansoku-no-history-" + std::to_string(::getpid());
  const auto history = History::open(folder, {}, {"/nowhere/libduckdb.so"});
  ASSERT_FALSE(history);
  EXPECT_EQ(history.error().code, Code::kUnavailable);
  EXPECT_THAT(history.error().hint, HasSubstr("make deps-store"));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(WithHistory, KeepsWindowsAcrossRuns) {
  {
    History history = open();
    add(history, kBegin, 10);
    ASSERT_TRUE(history.flush());
    EXPECT_EQ(history.counts().written_windows, 20U);
    EXPECT_EQ(history.counts().pending_windows, 0U);
  }
  History history = open();
  const auto values =
      history.windows("job", kBegin + 3 * kSecond, kBegin + 5 * kSecond, "step_mean");
  ASSERT_TRUE(values) << values.error().what;
  ASSERT_THAT(*values, SizeIs(4));
  EXPECT_EQ((*values)[0].wall_ns, kBegin + 3 * kSecond);
  EXPECT_EQ((*values)[1].rank, 1);
  EXPECT_EQ((*values)[1].pid, 101);
  EXPECT_EQ((*values)[3].value, 4);
  // Values that were not seen are not there.
  EXPECT_THAT(*history.windows("job", 0, INT64_MAX, "gc_share"), SizeIs(10));
  EXPECT_THAT(*history.windows("other", 0, INT64_MAX, "gc_share"), IsEmpty());
  EXPECT_THAT(*history.windows("job", 0, INT64_MAX, "never_kept"), IsEmpty());
  EXPECT_FALSE(history.windows("job", 0, INT64_MAX, "a\" FROM windows; --"));
}

TEST_F(WithHistory, TakesFeaturesThatComeAndGo) {
  {
    History history = open();
    add(history, kBegin, 2);
    ASSERT_TRUE(history.flush());
  }
  options_.features = {"cpu_cores", "gc_share"};
  History history = open();
  add(history, kBegin + 10 * kSecond, 2);
  EXPECT_THAT(*history.windows("job", 0, INT64_MAX, "step_mean"), SizeIs(4));
  EXPECT_THAT(*history.windows("job", 0, INT64_MAX, "cpu_cores"), SizeIs(4));
  EXPECT_THAT(*history.windows("job", 0, INT64_MAX, "gc_share"), SizeIs(4));
  EXPECT_EQ(segment_count(), 1U);
}

TEST_F(WithHistory, WritesByCountAndByTime) {
  options_.rows_per_write = 10;
  options_.write_interval = std::chrono::seconds{60};
  History history = open();
  add(history, kBegin, 4);
  EXPECT_EQ(history.counts().written_windows, 0U);
  add(history, kBegin + 4 * kSecond, 1);
  EXPECT_EQ(history.counts().written_windows, 10U);
  add(history, kBegin + 5 * kSecond, 1);
  add(history, kBegin + 64 * kSecond, 1);
  EXPECT_EQ(history.counts().written_windows, 10U);
  add(history, kBegin + 65 * kSecond, 1);
  EXPECT_EQ(history.counts().written_windows, 16U);
}

TEST_F(WithHistory, KeepsIncidentsByIdWithAnyText) {
  History history = open();
  IncidentRecord one = incident(kBegin);
  ASSERT_TRUE(history.put_incident(one));
  one.label = trace::IncidentLabel::kFalse;
  one.end_ns = kBegin + kSecond;
  ASSERT_TRUE(history.put_incident(one));
  ASSERT_TRUE(history.put_incident(incident(kBegin + kDay, trace::IncidentKind::kUnknown)));
  const auto all = history.incidents({});
  ASSERT_TRUE(all) << all.error().what;
  ASSERT_THAT(*all, SizeIs(2));
  EXPECT_EQ((*all)[0].to_json().dump(), one.to_json().dump());
  const auto ids = [&](const IncidentFilter& filter) { return history.incidents(filter)->size(); };
  EXPECT_EQ(ids({.job = "", .kind = {}, .only_open = true}), 1U);
  EXPECT_EQ(ids({.job = one.job, .kind = trace::IncidentKind::kLatencySpike}), 1U);
  EXPECT_EQ(ids({.job = "other", .kind = {}}), 0U);
  EXPECT_EQ(ids({.since_ns = kBegin + 2 * kSecond, .job = "", .kind = {}}), 1U);
  EXPECT_EQ(ids({.until_ns = kBegin + 1, .job = "", .kind = {}}), 1U);
  EXPECT_EQ(ids({.job = "", .kind = {}, .count_max = 1}), 1U);
  EXPECT_EQ(history.incident(one.id)->end_ns, one.end_ns);
  EXPECT_EQ(history.incident("none").error().code, Code::kNotFound);
}

TEST_F(WithHistory, FilesAreTheOwnersAlone) {
  History history = open();
  add(history, kBegin, 1);
  ASSERT_TRUE(history.flush());
  ASSERT_TRUE(history.put_incident(incident(kBegin)));
  struct stat status {};
  ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  ASSERT_THAT(files(), SizeIs(4));  // with their seals
  for (const std::string& file : files()) {
    ASSERT_EQ(::stat((folder_ + "/" + file).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U) << file;
  }
}

TEST_F(WithHistory, ForgetsByAge) {
  options_.age = std::chrono::hours{48};
  History history = open();
  for (int day = 0; day < 5; ++day) {
    add(history, kBegin + day * kDay, 3);
    ASSERT_TRUE(history.flush());
    ASSERT_TRUE(history.put_incident(incident(kBegin + day * kDay)));
  }
  EXPECT_EQ(segment_count(), 5U);
  ASSERT_TRUE(history.retain(kBegin + 4 * kDay + kDay / 2));
  EXPECT_EQ(segment_count(), 3U);
  EXPECT_THAT(*history.incidents({}), SizeIs(2));
  ASSERT_TRUE(history.retain(kBegin + 100 * kDay));
  EXPECT_EQ(segment_count(), 0U);
  EXPECT_THAT(*history.incidents({}), IsEmpty());
}

TEST_F(WithHistory, StaysWithinItsBytes) {
  constexpr std::size_t kFeatures = 16, kRows = 15'000;
  options_.bytes = History::kBytesMin;
  options_.rows_per_write = 4000;
  options_.features.clear();
  for (std::size_t i = 0; i < kFeatures; ++i)
    options_.features.push_back("f" + std::to_string(i));
  History history = open();
  std::vector<double> values(kFeatures * kRows);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<double>(i) * 1e3);  // noise that does not compress
  std::vector<HistoryRow> rows;
  for (std::size_t i = 0; i < kRows; ++i)
    rows.push_back({0, 1, std::span(values).subspan(i * kFeatures, kFeatures)});
  std::uint64_t bytes_max = 0;
  for (int part = 0; part < 20; ++part) {
    ASSERT_TRUE(history.add_windows(kBegin + part * kSecond, "job", rows));
    ASSERT_TRUE(history.retain(kBegin + part * kSecond));
    bytes_max = std::max(bytes_max, history.size_bytes());
  }
  EXPECT_LE(bytes_max, options_.bytes);
  EXPECT_GE(bytes_max, options_.bytes / 2);
  EXPECT_GT(segment_count(), 2U);
  EXPECT_EQ(history.counts().failed_writes, 0U);
}

TEST_F(WithHistory, ManyIncidentsDoNotGrowItsFileForEver) {
  options_.bytes = History::kBytesMin;
  History history = open();
  IncidentRecord one = incident(kBegin);
  one.summary.assign(4000, 'x');
  std::uint64_t bytes_max = 0;
  for (int i = 0; i < 25; ++i) {
    one.begin_ns = kBegin + i * kSecond;
    one.id = std::to_string(i);
    for (char& c : one.summary)
      c = static_cast<char>('a' + (i * 7 + (&c - one.summary.data()) * 31) % 26);
    ASSERT_TRUE(history.put_incident(one));
    bytes_max = std::max(bytes_max, history.size_bytes());
  }
  EXPECT_THAT(*history.incidents({}), SizeIs(25));
  EXPECT_LE(bytes_max, 4U << 20U);
}

// The file does not shrink when rows go: its size alone must not let the rest go too.
TEST_F(WithHistory, WhatIsLeftOfManyIncidentsStays) {
  options_.bytes = History::kBytesMin;
  History history = open();
  RandomStream random(1, "test.incidents");
  for (int i = 0; i < 40; ++i) {
    IncidentRecord one = incident(kBegin + i * kSecond);
    one.summary.assign(100'000, 'x');
    for (char& c : one.summary)
      c = static_cast<char>('!' + random.uniform() * 90);
    ASSERT_TRUE(history.put_incident(one));
  }
  ASSERT_GT(history.size_bytes(), options_.bytes / 4);
  for (int i = 0; i < 8; ++i)
    ASSERT_TRUE(history.retain(kBegin + kDay));
  const auto left = history.incidents({});
  ASSERT_TRUE(left) << left.error().what;
  EXPECT_LT(left->size(), 40U);
  EXPECT_GE(left->size(), 8U);
  EXPECT_EQ(left->back().begin_ns, kBegin + 39 * kSecond) << "the latest stay";
}

TEST_F(WithHistory, TextThatIsNoUtf8IsKeptPrintable) {
  History history = open();
  IncidentRecord one = incident(kBegin);
  one.job = "\xd0\xbe\xd0";  // cut inside of a letter, as the kernel cuts names of programs
  ASSERT_TRUE(history.put_incident(one));
  EXPECT_EQ(history.counts().damaged_files, 0U);
  EXPECT_THAT(*history.incidents({}), SizeIs(1));
}

TEST_F(WithHistory, ADamagedFileIsSetAsideAndANewOneBegun) {
  History history = open();
  add(history, kBegin, 3);
  ASSERT_TRUE(history.flush());
  ASSERT_TRUE(history.put_incident(incident(kBegin)));
  for (const std::string& file : files()) {
    if (file.ends_with(".seal")) continue;
    ASSERT_TRUE(sys::write_file(folder_ + "/" + file, "no database at all"));
  }
  EXPECT_FALSE(history.incidents({}));
  add(history, kBegin + 10 * kSecond, 1);
  ASSERT_TRUE(history.flush());
  ASSERT_TRUE(history.put_incident(incident(kBegin + kSecond)));
  EXPECT_THAT(*history.incidents({}), SizeIs(1));
  EXPECT_THAT(*history.windows("job", 0, INT64_MAX, "step_mean"), SizeIs(2));
  EXPECT_EQ(history.counts().damaged_files, 2U);
  EXPECT_THAT(files(), ::testing::Contains("incidents.duckdb.damaged"));
  EXPECT_EQ(sys::read_file(folder_ + "/incidents.duckdb.damaged", 100).value(),
            "no database at all");
}

// As file systems leave a file that was renamed in place shortly before the power failed.
TEST_F(WithHistory, AnEmptySealSaysNothingOfItsFile) {
  {
    History history = open();
    ASSERT_TRUE(history.put_incident(incident(kBegin)));
  }
  ASSERT_TRUE(sys::write_file(folder_ + "/incidents.duckdb.seal", ""));
  History history = open();
  EXPECT_THAT(*history.incidents({}), SizeIs(1));
  EXPECT_EQ(history.counts().damaged_files, 0U);
}

TEST_F(WithHistory, AFileCutOrBentAnywhereNeverEndsDetection) {
  std::string whole;
  {
    History history = open();
    for (int i = 0; i < 20; ++i)
      ASSERT_TRUE(history.put_incident(incident(kBegin + i)));
    whole = sys::read_file(folder_ + "/incidents.duckdb", 64U << 20U).value();
  }
  for (std::size_t part = 0; part < 12; ++part) {
    std::string bent = whole;
    const std::size_t at = whole.size() * part / 12;
    if (part % 2 == 0)
      bent.resize(at);
    else
      for (std::size_t i = at; i < at + 64 && i < bent.size(); ++i)
        bent[i] = static_cast<char>(~bent[i]);
    ASSERT_TRUE(sys::write_file(folder_ + "/incidents.duckdb", bent));
    History history = open();
    (void)history.incidents({});
    ASSERT_TRUE(history.put_incident(incident(kBegin + kDay))) << part;
    EXPECT_TRUE(history.incident(incident(kBegin + kDay).id)) << part;
  }
}

TEST_F(WithHistory, AnUnusableFolderIsAnErrorThatIsCounted) {
  History history = open();
  std::filesystem::remove_all(folder_);
  ASSERT_TRUE(sys::write_file(folder_, "a file"));
  options_.features = {};
  EXPECT_FALSE(History::open(folder_, options_, places_));
  EXPECT_FALSE(history.put_incident(incident(kBegin)));
  const std::array<double, 2> values{1, 2};
  const HistoryRow row{0, 1, values};
  ASSERT_TRUE(history.add_windows(kBegin, "job", std::span(&row, 1)));
  EXPECT_FALSE(history.flush());
  EXPECT_EQ(history.counts().failed_writes, 2U);
  EXPECT_EQ(history.counts().pending_windows, 1U);
  EXPECT_THAT(*history.incidents({}), SizeIs(1));  // from memory
  std::filesystem::remove(folder_);
  std::filesystem::create_directory(folder_);
  ASSERT_TRUE(history.flush());
  EXPECT_EQ(history.counts().pending_windows, 0U);
  EXPECT_EQ(history.counts().pending_incidents, 0U);
  EXPECT_THAT(*history.windows("job", 0, INT64_MAX, "step_mean"), SizeIs(1));
}

/// While it lives no file of this process may grow beyond `bytes`: a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(WithHistory, AFullDiskKeepsTheLatestInMemoryAndCountsTheRest) {
  options_.rows_pending_max = 100;
  options_.rows_per_write = 1'000'000;
  options_.write_interval = std::chrono::hours{24};
  // Full for the seal, for DuckDB's log, for the file alone.
  for (const rlim_t bytes : {4U, 1024U, 16384U}) {
    std::filesystem::remove_all(folder_);
    History history = open();
    add(history, kBegin, 10);
    ASSERT_TRUE(history.flush());
    {
      const FullDisk full(bytes);
      add(history, kBegin + 10 * kSecond, 60);
      EXPECT_EQ(history.flush().has_value(), bytes == 16384) << bytes;
      EXPECT_GE(history.counts().dropped_windows, 20U);
      EXPECT_LE(history.counts().pending_windows, 100U);
      EXPECT_GE(history.counts().failed_writes, 1U) << bytes;
      (void)history.put_incident(incident(kBegin));
    }
    ASSERT_TRUE(history.flush()) << bytes << ": " << history.counts().last_error;
    EXPECT_EQ(history.counts().damaged_files, 0U) << bytes;
    const auto values = history.windows("job", 0, INT64_MAX, "step_mean");
    ASSERT_TRUE(values) << bytes << ": " << values.error().what;
    EXPECT_EQ(values->size() + history.counts().dropped_windows, 140U) << bytes;
    EXPECT_THAT(*history.incidents({}), SizeIs(1)) << bytes;
  }
}

TEST_F(WithHistory, AnotherProcessWithTheFileOpenIsNoDamage) {
  History history = open();
  ASSERT_TRUE(history.put_incident(incident(kBegin)));
  // A child, since DuckDB's locks do not keep a process from itself.
  std::array<int, 2> ready{}, over{};
  ASSERT_EQ(::pipe(ready.data()) + ::pipe(over.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto database = Database::open_file(
        std::filesystem::canonical(folder_).string() + "/incidents.duckdb", {}, places_);
    char byte = database ? '1' : '0';
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(over[0], &byte, 1);
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, '1');
  EXPECT_FALSE(history.put_incident(incident(kBegin + 1)));
  EXPECT_EQ(history.counts().damaged_files, 0U);
  ASSERT_EQ(::write(over[1], &byte, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(history.flush());
  EXPECT_THAT(*history.incidents({}), SizeIs(2));
  for (const int raw : {ready[0], ready[1], over[0], over[1]})
    ::close(raw);
}

}  // namespace
}  // namespace kansoku::store
