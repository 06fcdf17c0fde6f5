// SPDX-License-Identifier: Apache-2.0
#include "sys/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace kansoku::sys {
namespace {

using testing::ElementsAre;

TEST(Folder, ListsRegularFilesByName) {
  std::string root = testing::TempDir() + "kansoku_folder_XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  std::filesystem::create_directories(root + "/inner");
  std::ofstream(root + "/b") << "b";
  std::ofstream(root + "/a") << "a";
  EXPECT_TRUE(is_folder(root));
  EXPECT_FALSE(is_folder(root + "/a"));
  const auto files = list_files(root, 2);
  ASSERT_TRUE(files) << files.error().what;
  EXPECT_THAT(*files, ElementsAre(root + "/a", root + "/b"));
  EXPECT_EQ(list_files(root, 1).error().code, Code::kLimit);
  EXPECT_EQ(list_files(root + "/none", 1).error().code, Code::kNotFound);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace kansoku::sys
