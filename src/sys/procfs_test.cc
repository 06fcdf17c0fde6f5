// SPDX-License-Identifier: Apache-2.0
#include "sys/procfs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace kansoku::sys {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kProcStat =
    "42 (a) b (c) S 7 42 42 0 -1 4194304 100 0 0 0 11 22 0 0 20 0 3 0 98765 1000 50 "
    "18446744073709551615 1 1 0 0 0 0\n";

/// A folder laid out like /proc, gone with the test.
class ProcfsTest : public ::testing::Test {
 protected:
  ProcfsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kansoku_proc_XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  ~ProcfsTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  void file(const std::string& name, std::string_view content) const {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  std::string root_;
};

TEST_F(ProcfsTest, ListsPidsAndTidsInOrder) {
  for (const char* name : {"10/stat", "9/stat", "100/stat", "self/stat", "12x/stat", "0/stat"}) {
    file(name, kProcStat);
  }
  file("9/task/11/stat", kProcStat);
  file("9/task/9/stat", kProcStat);
  const Procfs procfs(root_);
  EXPECT_THAT(procfs.pids(), ElementsAre(9, 10, 100));
  EXPECT_THAT(procfs.tids(9), ElementsAre(9, 11));
  EXPECT_THAT(procfs.tids(8), IsEmpty());
  EXPECT_THAT(Procfs(root_ + "/nothing").pids(), IsEmpty());
}

TEST_F(ProcfsTest, ReadsStatOfProcessAndThread) {
  file("42/stat", kProcStat);
  file("42/task/43/stat", kProcStat);
  const Procfs procfs(root_);
  const auto stat = procfs.stat(42);
  ASSERT_TRUE(stat) << stat.error().what;
  EXPECT_EQ(stat->comm, "a) b (c");
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent_pid, 7);
  EXPECT_EQ(stat->user_ticks, 11U);
  EXPECT_EQ(stat->system_ticks, 22U);
  EXPECT_EQ(stat->start_ticks, 98765U);
  ASSERT_TRUE(procfs.thread_stat(42, 43));
  EXPECT_EQ(procfs.thread_stat(42, 44).error().code, Code::kNotFound);
  EXPECT_EQ(procfs.stat(1).error().code, Code::kNotFound);
}

TEST_F(ProcfsTest, RefusesAMalformedOrEndlessStat) {
  file("1/stat", "1 (x");
  file("2/stat", std::string(100'000, 'x'));
  const Procfs procfs(root_);
  EXPECT_EQ(procfs.stat(1).error().code, Code::kCorrupt);
  EXPECT_EQ(procfs.stat(2).error().code, Code::kLimit);
}

TEST(ParseFileSystem, FindsTheTypeByTheDeviceNumber) {
  constexpr std::string_view kMounts =
      "21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
      "30 21 0:26 / /mnt/my\\040files rw,nosuid - fuse.sshfs host:/x rw,user_id=0\n"
      "31 21 0:27 / /a\\04031:0 rw master:1 propagate_from:2 - overlay overlay rw,lowerdir=/x\n"
      "cut 21 0:28";
  EXPECT_EQ(parse_file_system(kMounts, 254, 1), "ext4");
  EXPECT_EQ(parse_file_system(kMounts, 0, 26), "fuse.sshfs");
  EXPECT_EQ(parse_file_system(kMounts, 0, 27), "overlay");
  EXPECT_EQ(parse_file_system(kMounts, 0, 28), "");
  EXPECT_EQ(parse_file_system(kMounts, 31, 0), "");
  EXPECT_EQ(parse_file_system("", 0, 0), "");
}

TEST(ParseStat, RefusesEveryCutBeforeTheStartTime) {
  const std::size_t needed = kProcStat.find(" 1000 50");
  for (std::size_t length = 0; length < needed - 5; ++length) {
    EXPECT_FALSE(parse_stat(kProcStat.substr(0, length))) << length;
  }
  const auto exact = parse_stat(kProcStat.substr(0, needed));
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->start_ticks, 98765U);
  EXPECT_FALSE(parse_stat("1 )( S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"));
  EXPECT_FALSE(parse_stat("1 (x) S x 42 42 0 -1 4194304 100 0 0 0 11 22 0 0 20 0 3 0 98765 1"));
}

TEST_F(ProcfsTest, SplitsArgumentsAndEnvironment) {
  using namespace std::literals;
  file("5/cmdline", "python3\0\0-c\0pass\0"sv);
  file("5/environ", "A=1\0B=x=y\0=odd\0nothing\0A=2\0EMPTY=\0"sv);
  const Procfs procfs(root_);
  const auto arguments = procfs.cmdline(5);
  ASSERT_TRUE(arguments) << arguments.error().what;
  EXPECT_THAT(*arguments, ElementsAre("python3", "", "-c", "pass"));
  const auto variables = procfs.environ(5);
  ASSERT_TRUE(variables) << variables.error().what;
  EXPECT_THAT(*variables,
              ElementsAre(std::pair("A", "1"), std::pair("B", "x=y"), std::pair("EMPTY", "")));
  EXPECT_EQ(procfs.environ(6).error().code, Code::kNotFound);
}

TEST_F(ProcfsTest, FindsFilesThroughTheTargetsRoot) {
  const Procfs procfs;
  EXPECT_EQ(procfs.through_root(7, "/usr/lib/libx.so"), "/proc/7/root/usr/lib/libx.so");
  EXPECT_EQ(Procfs(root_).through_root(7, "x"), root_ + "/7/root/x");
}

TEST(ParseMaps, ReadsFileHeapAndAnonymousLines) {
  const auto maps = parse_maps(
      "00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/a file with blanks (deleted)\n"
      "not a mapping\n"
      "e03000-e24000 rw-p 00000000 00:00 0           [heap]\n"
      "7f0000000000-7f0000001000 ---p 00000000 fe:10 0 \n"
      "7f0000002000-7f0000001000 r--p 00000000 00:00 0 /end/before/begin\n"
      "7ffe00000000-7ffe00021000 rw-p 0 0:0 0");
  ASSERT_EQ(maps.size(), 4U);
  EXPECT_EQ(maps[0].begin, 0x400000U);
  EXPECT_EQ(maps[0].end, 0x452000U);
  EXPECT_EQ(maps[0].file_offset, 0x1000U);
  EXPECT_EQ(maps[0].device_major, 8U);
  EXPECT_EQ(maps[0].device_minor, 2U);
  EXPECT_EQ(maps[0].inode, 173521U);
  EXPECT_TRUE(maps[0].readable && maps[0].executable && !maps[0].writable);
  EXPECT_EQ(maps[0].path, "/usr/bin/a file with blanks (deleted)");
  EXPECT_EQ(maps[1].path, "[heap]");
  EXPECT_TRUE(maps[1].writable && !maps[1].executable);
  EXPECT_EQ(maps[2].path, "");
  EXPECT_EQ(maps[2].device_major, 0xfeU);
  EXPECT_EQ(maps[3].begin, 0x7ffe00000000U);
}

TEST(ParseMaps, StopsAtItsLimitOfLines) {
  std::string text;
  for (std::uint64_t i = 1; i <= 65537; ++i) {
    text += fmt::format("{:x}-{:x} rw-p 0 0:0 0 \n", i * 4096, (i + 1) * 4096);
  }
  EXPECT_EQ(parse_maps(text).size(), 65536U);
}

TEST(StolenTime, IsTheEighthNumberOfTheFirstLine) {
  constexpr std::string_view kRest = "cpu0 1 2 3 4 5 6 7 9 0 0\nintr 5\n";
  const auto parsed = [&](const char* line) {
    return parse_stolen_ticks(std::string(line) + std::string(kRest));
  };
  EXPECT_EQ(parsed("cpu  8734219 381647 1395121 4442487 16186 0 14202 10866 0 0\n"), 10866U);
  EXPECT_EQ(parsed("cpu  1 2 3 4 5 6 7 0\n"), 0U);
  EXPECT_EQ(parsed("cpu  1 2 3 4 5 6 7\n"), std::nullopt) << "a kernel that does not count it";
  EXPECT_EQ(parsed("cpu  1 2 3 4 5 6 7 x\n"), std::nullopt);
  EXPECT_EQ(parsed(""), std::nullopt);
  EXPECT_EQ(parse_stolen_ticks("cpu  1 2 3 4 5 6 7 8"), std::nullopt) << "cut off";
}

TEST(Procfs, SeesThisProcess) {
  const Procfs procfs;
  const auto pids = procfs.pids();
  EXPECT_TRUE(std::binary_search(pids.begin(), pids.end(), ::getpid()));
  const auto tids = procfs.tids(::getpid());
  EXPECT_TRUE(std::binary_search(tids.begin(), tids.end(), ::gettid()));
  const auto stat = procfs.stat(::getpid());
  ASSERT_TRUE(stat) << stat.error().what;
  EXPECT_EQ(stat->parent_pid, ::getppid());
  EXPECT_GT(stat->start_ticks, 0U);
  const auto maps = procfs.maps(::getpid());
  ASSERT_TRUE(maps) << maps.error().what;
  const auto here = reinterpret_cast<std::uint64_t>(&parse_maps);
  EXPECT_TRUE(std::any_of(maps->begin(), maps->end(), [&](const Mapping& m) {
    return m.begin <= here && here < m.end && m.executable;
  }));
}

}  // namespace
}  // namespace kansoku::sys
