// SPDX-License-Identifier: Apache-2.0
#include "capture/attacher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "capture/mapped_library_for_test.h"

namespace kansoku::capture {
namespace {

using ::testing::SizeIs;

class AttacherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kansoku_attacher_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = std::filesystem::canonical(pattern).string() + "/";
    auto engine = bpf::Engine::create({1U << 20, std::nullopt});
    if (!engine) GTEST_SKIP() << "needs root and bpf: " << engine.error().what;
    engine_ = std::move(engine).value();
    packs_.resize(1);
    packs_[0].name = "test";
    FunctionProbes& probes = packs_[0].functions.emplace_back();
    probes.library = "libx.so";
    probes.symbols = {"qsort", "bsearch"};
    probes.category = "c";
    attacher_ = std::make_unique<Attacher>(*engine_, procfs_, packs_, probes_, nullptr);
    path_ = folder_ + "libx.so";
    std::filesystem::copy_file(libc_path_for_test(), path_);
    mapping_ = mapping_for_test(path_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_, path_;
  sys::Procfs procfs_;
  std::vector<Pack> packs_;
  ProbeTable probes_;
  std::unique_ptr<bpf::Engine> engine_;
  std::unique_ptr<Attacher> attacher_;
  sys::Mapping mapping_;
};

// The process that was seen with the library first may be gone before it was opened.
TEST_F(AttacherTest, ALibraryThatCannotBeOpenedNowIsTriedAgainWithItsNextUser) {
  std::filesystem::rename(path_, path_ + ".away");
  for (int i = 0; i < 3; ++i)
    attacher_->attach_libraries(::getpid(), {mapping_});
  EXPECT_THAT(attacher_->problems(), SizeIs(1)) << "told once";
  EXPECT_THAT(attacher_->attachments(), SizeIs(0));
  std::filesystem::rename(path_ + ".away", path_);
  attacher_->attach_libraries(::getpid(), {mapping_});
  EXPECT_THAT(attacher_->attachments(), SizeIs(2));
  EXPECT_GT(engine_->link_count(), 0U);
  const std::size_t links = engine_->link_count();
  attacher_->attach_libraries(::getpid(), {mapping_});
  EXPECT_EQ(engine_->link_count(), links) << "a file is attached to once";
}

TEST_F(AttacherTest, WindowsAttachAgainThoughTheNameIsGone) {
  attacher_->attach_libraries(::getpid(), {mapping_});
  const std::size_t links = engine_->link_count();
  ASSERT_GT(links, 0U);
  attacher_->detach();
  EXPECT_EQ(engine_->link_count(), 0U);
  std::filesystem::remove(path_);
  attacher_->attach();
  EXPECT_GE(engine_->link_count(), links);
  EXPECT_EQ(attacher_->counters().failed, 0U);
}

TEST_F(AttacherTest, AFileThatIsNoLibraryIsRefusedForGood) {
  std::filesystem::resize_file(path_, 10);
  attacher_->attach_libraries(::getpid(), {mapping_});
  EXPECT_EQ(attacher_->counters().failed, 1U);
  std::filesystem::remove(path_);
  std::filesystem::copy_file(libc_path_for_test(), path_);
  attacher_->attach_libraries(::getpid(), {mapping_});
  EXPECT_THAT(attacher_->attachments(), SizeIs(0));
}

}  // namespace
}  // namespace kansoku::capture
