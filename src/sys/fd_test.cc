// SPDX-License-Identifier: Apache-2.0
#include "sys/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace kansoku::sys {
namespace {

class WriteFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kansoku_fd_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern + "/";
  }
  void TearDown() override {
    for (const char* const name : {"file", "link", "device"})
      ::unlink((folder_ + name).c_str());
    ::rmdir(folder_.c_str());
  }
  [[nodiscard]] struct stat status(const char* name) const {
    struct stat status {};
    EXPECT_EQ(::lstat((folder_ + name).c_str(), &status), 0);
    return status;
  }
  std::string folder_;
};

TEST_F(WriteFile, ReplacesARegularFile) {
  ASSERT_TRUE(write_file(folder_ + "file", "one"));
  ASSERT_TRUE(write_file(folder_ + "file", "second"));
  EXPECT_EQ(read_file(folder_ + "file", 100).value(), "second");
  EXPECT_EQ(status("file").st_mode & 0777, 0600U);
}

TEST_F(WriteFile, FollowsALink) {
  ASSERT_TRUE(write_file(folder_ + "file", "one"));
  ASSERT_EQ(::symlink("file", (folder_ + "link").c_str()), 0);
  ASSERT_TRUE(write_file(folder_ + "link", "through"));
  EXPECT_TRUE(S_ISLNK(status("link").st_mode));
  EXPECT_EQ(read_file(folder_ + "file", 100).value(), "through");
}

TEST_F(WriteFile, AppendingGoesOnWhereTheFileEnds) {
  for (const char* const part : {"one ", "two"}) {
    auto sink = FileSink::create(folder_ + "file", {.append = true});
    ASSERT_TRUE(sink.has_value());
    ASSERT_TRUE((*sink)->append(as_bytes(std::string(part))).has_value());
  }
  EXPECT_EQ(read_file(folder_ + "file", 100).value(), "one two");
}

TEST_F(WriteFile, AppendingGoesBehindWhatOthersMadeOfTheFile) {
  ASSERT_TRUE(write_file(folder_ + "file", "one "));
  ASSERT_EQ(::chmod((folder_ + "file").c_str(), 0640), 0);
  auto sink = FileSink::create(folder_ + "file", {.append = true});
  auto other = FileSink::create(folder_ + "file", {.append = true});
  ASSERT_TRUE(sink && other);
  ASSERT_TRUE((*sink)->append(as_bytes(std::string("two "))).has_value());
  ASSERT_TRUE((*other)->append(as_bytes(std::string("three "))).has_value());
  EXPECT_EQ(read_file(folder_ + "file", 100).value(), "one two three ");
  ASSERT_EQ(::truncate((folder_ + "file").c_str(), 0), 0);  // rotated by copying
  ASSERT_TRUE((*sink)->append(as_bytes(std::string("four"))).has_value());
  EXPECT_EQ(read_file(folder_ + "file", 100).value(), "four");
  EXPECT_EQ(status("file").st_mode & 0777, 0640U);
}

TEST_F(WriteFile, ATornLineIsEndedOrCut) {
  using TornLine = FileSink::TornLine;
  const std::string long_line(40'000, 'x');
  const auto after = [&](const std::string& before, TornLine torn) {
    EXPECT_TRUE(write_file(folder_ + "file", before));
    auto sink = FileSink::create(folder_ + "file", {.append = true, .torn_line = torn});
    EXPECT_TRUE(sink.has_value());
    EXPECT_TRUE((*sink)->append(as_bytes(std::string("new\n"))).has_value());
    return read_file(folder_ + "file", 1U << 20).value();
  };
  EXPECT_EQ(after("one\ntw", TornLine::kKeep), "one\ntwnew\n");
  EXPECT_EQ(after("one\ntw", TornLine::kEnd), "one\ntw\nnew\n");
  EXPECT_EQ(after("one\ntw", TornLine::kCut), "one\nnew\n");
  EXPECT_EQ(after("tw", TornLine::kCut), "new\n");
  EXPECT_EQ(after("one\n" + long_line, TornLine::kCut), "one\nnew\n");
  EXPECT_EQ(after(long_line, TornLine::kCut), "new\n");
  for (const TornLine torn : {TornLine::kEnd, TornLine::kCut}) {
    EXPECT_EQ(after("one\n", torn), "one\nnew\n");
    EXPECT_EQ(after("", torn), "new\n");
  }
}

TEST_F(WriteFile, APipeIsWrittenTo) {
  ASSERT_EQ(::mkfifo((folder_ + "link").c_str(), 0600), 0);
  const int reader = ::open((folder_ + "link").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  {
    auto sink = FileSink::create(folder_ + "link", {.append = true});
    ASSERT_TRUE(sink.has_value()) << sink.error().what;
    ASSERT_TRUE((*sink)->append(as_bytes(std::string("one "))).has_value());
    ASSERT_TRUE((*sink)->append(as_bytes(std::string("two"))).has_value());
  }
  std::array<char, 16> text{};
  EXPECT_EQ(::read(reader, text.data(), text.size()), 7);
  EXPECT_STREQ(text.data(), "one two");
  ::close(reader);
  EXPECT_EQ(Fd::open_regular(folder_ + "link").error().code, Code::kUnsupported);
}

// Once renamed over: as root, `-o /dev/full` took the machine's device away.
TEST_F(WriteFile, LeavesADeviceInItsPlace) {
  const std::string path = folder_ + "device";
  if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 7)) != 0)
    GTEST_SKIP() << "making a device needs root";
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(write_file(path, "text"));  // a device like /dev/full
  EXPECT_TRUE(S_ISCHR(status("device").st_mode));
  EXPECT_EQ(status("device").st_mode & 0777, 0666U);
}

}  // namespace
}  // namespace kansoku::sys
