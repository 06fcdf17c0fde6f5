// SPDX-License-Identifier: Apache-2.0
#include "sys/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace kansoku::sys {
namespace {

constexpr uid_t kSomebody = 65534;

class Trust : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to make files of others";
    std::string name = "/tmp/kansoku-trust-XXXXXX";  // everybody may make files there
    folder_ = ::mkdtemp(name.data());
    std::filesystem::create_directories(folder_ + "/lib");
    std::ofstream(library_ = folder_ + "/lib/libx.so") << "x";
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  static std::string refusal(const std::string& path) {
    const auto checked = check_only_root_writes(path);
    return checked ? "" : checked.error().what;
  }
  std::string folder_, library_;
};

TEST_F(Trust, WhatOnlyRootCanWriteIsLoadable) {
  EXPECT_EQ(refusal(library_), "");
  EXPECT_EQ(refusal("/usr/bin/env"), "");
  EXPECT_TRUE(check_loadable(library_).has_value());
  EXPECT_THAT(refusal(folder_ + "/lib/none.so"), testing::HasSubstr("No such file"));
}

TEST_F(Trust, WhatBelongsToAnotherUserIsNot) {
  ASSERT_EQ(::chown(library_.c_str(), kSomebody, 0), 0);
  EXPECT_THAT(refusal(library_), testing::HasSubstr("belongs to user 65534"));
  const auto checked = check_loadable(library_);
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code, Code::kPermission);
  EXPECT_THAT(checked.error().hint, testing::HasSubstr("only root can write"));
}

TEST_F(Trust, NorWhatOthersCanWrite) {
  ASSERT_EQ(::chmod(library_.c_str(), 0664), 0);
  EXPECT_THAT(refusal(library_),
              testing::HasSubstr("libx.so is writable by users other than root"));
  ASSERT_EQ(::chmod(library_.c_str(), 0644), 0);
  ASSERT_EQ(::chmod((folder_ + "/lib").c_str(), 0777), 0);
  EXPECT_THAT(refusal(library_), testing::HasSubstr("/lib is writable by users other than root"));
}

TEST_F(Trust, NorWhatAFolderOfAnotherUserHolds) {
  ASSERT_EQ(::chown((folder_ + "/lib").c_str(), kSomebody, 0), 0);
  EXPECT_THAT(refusal(library_), testing::HasSubstr("/lib belongs to user 65534"));
}

TEST_F(Trust, LinksAreFollowedAndLookedAtThemselves) {
  const std::string link = folder_ + "/link.so", chain = folder_ + "/chain.so";
  std::filesystem::create_symlink("lib/libx.so", link);
  std::filesystem::create_symlink(link, chain);
  EXPECT_EQ(refusal(chain), "");
  ASSERT_EQ(::lchown(link.c_str(), kSomebody, 0), 0);
  EXPECT_THAT(refusal(chain), testing::HasSubstr("link.so belongs to user 65534"));
  ASSERT_EQ(::lchown(link.c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(library_.c_str(), kSomebody, 0), 0);
  EXPECT_THAT(refusal(chain), testing::HasSubstr("libx.so belongs to user 65534"));
  std::filesystem::create_symlink(folder_ + "/round", folder_ + "/round");
  EXPECT_THAT(refusal(folder_ + "/round"), testing::HasSubstr("too many symbolic links"));
}

TEST_F(Trust, ANameIsLookedForWhereTheLoaderIsTold) {
  ASSERT_EQ(::setenv("LD_LIBRARY_PATH", (folder_ + "/none:" + folder_ + "/lib").c_str(), 1), 0);
  EXPECT_TRUE(check_loadable("libx.so").has_value());
  ASSERT_EQ(::chown((folder_ + "/lib").c_str(), kSomebody, 0), 0);
  EXPECT_FALSE(check_loadable("libx.so").has_value());
  ::unsetenv("LD_LIBRARY_PATH");
  EXPECT_TRUE(check_loadable("libx.so").has_value());
}

TEST(Environment, NamesAPathOrNone) {
  ::setenv("KANSOKU_TEST_PATH", "/x", 1);
  EXPECT_EQ(path_from_environment("KANSOKU_TEST_PATH"), "/x");
  ::setenv("KANSOKU_TEST_PATH", "", 1);
  EXPECT_FALSE(path_from_environment("KANSOKU_TEST_PATH").has_value());
  ::unsetenv("KANSOKU_TEST_PATH");
  EXPECT_FALSE(path_from_environment("KANSOKU_TEST_PATH").has_value());
  EXPECT_TRUE(check_environment().has_value()) << "a test has no borrowed rights";
}

}  // namespace
}  // namespace kansoku::sys
