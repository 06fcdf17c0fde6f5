// SPDX-License-Identifier: Apache-2.0
#include "capture/attacher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "capture/mapped_library_for_test.h"

namespace kansoku::capture {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

/// Another process that sees the files of this one.
class Sibling {
 public:
  Sibling() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Sibling() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Sibling(const Sibling&) = delete;
  Sibling& operator=(const Sibling&) = delete;
  [[nodiscard]] std::int32_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

/// An engine, a folder for libraries, and a pack that wants two functions of them.
class AttacherTest : public ::testing::Test {
 protected:
  void start(const AttachPolicy& policy) {
    std::string pattern = ::testing::TempDir() + "kansoku_attacher_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = std::filesystem::canonical(pattern).string() + "/";
    auto engine = bpf::Engine::create({});
    if (!engine) GTEST_SKIP() << "needs root and bpf: " << engine.error().what;
    engine_ = std::move(engine).value();
    packs_.resize(1);
    packs_[0].name = "test";
    FunctionProbes& probes = packs_[0].functions.emplace_back();
    probes.library = "libx.so*";
    probes.symbols = {"qsort", "bsearch"};
    probes.category = "c";
    probes.metric = "alloc";
    attacher_ = make({.policy = policy});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::unique_ptr<Attacher> make(const AttacherOptions& options) {
    return std::make_unique<Attacher>(*engine_, procfs_, packs_, probes_, nullptr, options);
  }
  std::string library(const std::string& name) {
    std::filesystem::copy_file(libc_path_for_test(), folder_ + name);
    return folder_ + name;
  }
  void map(const std::vector<sys::Mapping>& mappings) {
    attacher_->set_mappings(::getpid(), mappings);
  }

  std::string folder_;
  sys::Procfs procfs_;
  std::vector<Pack> packs_;
  ProbeTable probes_;
  std::unique_ptr<bpf::Engine> engine_;
  std::unique_ptr<Attacher> attacher_;
};

class MeteringTest : public AttacherTest {
 protected:
  void SetUp() override { start(metering_policy()); }
};

TEST_F(MeteringTest, AFileIsAttachedOnceAndLetGoWithItsLastUser) {
  const Sibling other;
  const std::vector<sys::Mapping> mapped{mapping_for_test(library("libx.so.1"))};
  attacher_->set_mappings(::getpid(), mapped);
  attacher_->set_mappings(other.pid(), mapped);
  EXPECT_EQ(attacher_->file_count(), 1U);
  EXPECT_EQ(attacher_->probe_count(), 2U);
  const std::size_t links = engine_->link_count();
  EXPECT_GT(links, 0U);
  attacher_->forget_process(::getpid());
  EXPECT_EQ(engine_->link_count(), links);
  attacher_->set_mappings(other.pid(), {});
  EXPECT_EQ(attacher_->file_count(), 0U);
  EXPECT_EQ(attacher_->probe_count(), 0U);
  EXPECT_EQ(engine_->link_count(), 0U);
}

TEST_F(MeteringTest, WhatCannotBeOpenedNowIsTriedAgain) {
  const std::string path = library("libx.so.1");
  const std::vector<sys::Mapping> mapped{mapping_for_test(path)};
  std::filesystem::rename(path, path + ".away");
  map(mapped);
  map(mapped);
  EXPECT_EQ(attacher_->file_count(), 0U);
  EXPECT_THAT(attacher_->problems(), SizeIs(1)) << "told once";
  EXPECT_TRUE(attacher_->wants_again(::getpid()));
  std::filesystem::rename(path + ".away", path);
  map(mapped);
  EXPECT_EQ(attacher_->probe_count(), 2U);
  EXPECT_FALSE(attacher_->wants_again(::getpid()));
}

TEST_F(MeteringTest, WhatCannotBeAttachedNowIsTriedAgain) {
  const std::vector<sys::Mapping> mapped{mapping_for_test(library("libx.so.1"))};
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int next = ::dup(0);
  ::close(next);
  // As many descriptors as opening the file takes, and none for attaching.
  bool is_refused = false;
  for (rlim_t more = 1; more < 8 && !is_refused; ++more) {
    attacher_->forget_process(::getpid());
    const rlimit narrow{static_cast<rlim_t>(next) + more, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &narrow), 0);
    map(mapped);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    is_refused = attacher_->file_count() == 1 && engine_->link_count() == 0;
  }
  ASSERT_TRUE(is_refused);
  attacher_->retry();
  const std::size_t links = engine_->link_count();
  EXPECT_GT(links, 0U);
  attacher_->retry();
  EXPECT_EQ(engine_->link_count(), links);
}

TEST_F(MeteringTest, AFifoInThePlaceOfALibraryHoldsNobodyUp) {
  const std::string path = library("libx.so.1");
  const std::vector<sys::Mapping> mapped{mapping_for_test(path)};
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  map(mapped);
  EXPECT_EQ(attacher_->file_count(), 0U);
  EXPECT_THAT(attacher_->problems(), ElementsAre(HasSubstr("not a regular file")));
}

/// A file system in user space whose server is this test, which never answers. Ends with it.
class SilentFileSystem {
 public:
  explicit SilentFileSystem(const std::string& at) : at_(at) {
    std::filesystem::create_directory(at);
    server_ = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    const std::string options =
        "fd=" + std::to_string(server_) + ",rootmode=40000,user_id=0,group_id=0";
    is_mounted_ = server_ >= 0 &&
                  ::mount("silent", at.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
  }
  ~SilentFileSystem() {
    if (server_ >= 0) ::close(server_);  // whoever waits gets an error now
    if (is_mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  SilentFileSystem(const SilentFileSystem&) = delete;
  SilentFileSystem& operator=(const SilentFileSystem&) = delete;
  [[nodiscard]] bool is_mounted() const { return is_mounted_; }

  /// As the maps of a process would show a library in it. Nobody may look at the path.
  [[nodiscard]] sys::Mapping mapping() const {
    sys::Mapping out;
    std::ifstream mounts("/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
      if (line.find(" " + at_ + " ") == std::string::npos) continue;
      char colon = 0;
      int id = 0, parent = 0;
      std::istringstream(line) >> id >> parent >> out.device_major >> colon >> out.device_minor;
    }
    out.end = 0x1000;
    out.inode = 2;
    out.executable = true;
    out.path = at_ + "/libx.so.1";
    return out;
  }

 private:
  std::string at_;
  int server_{-1};
  bool is_mounted_{false};
};

TEST_F(MeteringTest, AFileSystemThatDoesNotAnswerCostsItsFileOnly) {
  const SilentFileSystem silent(folder_ + "silent");
  if (!silent.is_mounted()) GTEST_SKIP() << "file systems in user space cannot be mounted here";
  const Sibling other;
  map({silent.mapping()});
  EXPECT_EQ(attacher_->file_count(), 0U);
  EXPECT_THAT(attacher_->problems(), ElementsAre(HasSubstr("its file system does not answer")));
  EXPECT_EQ(attacher_->counters().failed, 1U);
  EXPECT_TRUE(attacher_->wants_again(::getpid()));
  attacher_->set_mappings(other.pid(), {mapping_for_test(library("libx.so.2"))});
  EXPECT_EQ(attacher_->probe_count(), 2U) << "others are metered meanwhile";
  map({silent.mapping()});
  EXPECT_EQ(attacher_->counters().failed, 1U) << "told once, and no second thread";
}

// A process can mount any file over the library that it has mapped, in a namespace of its own.
TEST_F(MeteringTest, AnotherFileUnderTheNameStandsForItsProcessAlone) {
  const Sibling other;
  const std::string real = library("libx.so.1"), junk = folder_ + "libx.so.2";
  std::ofstream(junk) << "no library";
  sys::Mapping lie = mapping_for_test(real);
  lie.path = junk;
  attacher_->set_mappings(::getpid(), {lie});
  EXPECT_EQ(attacher_->file_count(), 0U);
  EXPECT_THAT(attacher_->problems(), SizeIs(1)) << "it was looked at";
  attacher_->set_mappings(other.pid(), {mapping_for_test(real)});
  EXPECT_EQ(attacher_->probe_count(), 2U);
  attacher_->forget_process(::getpid());
  EXPECT_EQ(attacher_->probe_count(), 2U);
  attacher_->forget_process(other.pid());
  EXPECT_EQ(attacher_->probe_count(), 0U);
}

TEST_F(MeteringTest, AFileThatIsNoLibraryIsRefusedUntilItsUsersAreGone) {
  const std::string path = folder_ + "libx.so.3";
  std::ofstream(path) << "no library";
  const std::vector<sys::Mapping> mapped{mapping_for_test(path)};
  map(mapped);
  EXPECT_THAT(attacher_->problems(), SizeIs(1));
  std::filesystem::copy_file(libc_path_for_test(), path,
                             std::filesystem::copy_options::overwrite_existing);
  map(mapped);
  EXPECT_EQ(attacher_->file_count(), 0U) << "not read again and again";
  attacher_->forget_process(::getpid());
  map(mapped);
  EXPECT_EQ(attacher_->probe_count(), 2U);
}

bool mount_overlay(const std::string& lower, const std::string& at) {
  for (const char* const part : {"-upper", "-work", ""})
    ::mkdir((at + part).c_str(), 0700);
  const std::string options =
      "lowerdir=" + lower + ",upperdir=" + at + "-upper,workdir=" + at + "-work";
  return ::mount("overlay", at.c_str(), "overlay", 0, options.c_str()) == 0;
}

bool map_code(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  return fd >= 0 && ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
}

/// A process with `lower` mounted twice, as two containers of one image have it, and the library in
/// it mapped from both. Writes to `ready` whether that was possible, then waits.
[[noreturn]] void be_two_containers(const std::string& folder, int ready) {
  const bool can = ::unshare(CLONE_NEWNS) == 0 &&
                   ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                   mount_overlay(folder + "image", folder + "a") &&
                   mount_overlay(folder + "image", folder + "b") &&
                   map_code(folder + "a/libx.so.1") && map_code(folder + "b/libx.so.1");
  const char answer = can ? 'y' : 'n';
  if (::write(ready, &answer, 1) == 1) ::pause();
  ::_exit(0);
}

TEST_F(MeteringTest, ContainersOfOneImageShareItsFiles) {
  std::filesystem::create_directory(folder_ + "image");
  static_cast<void>(library("image/libx.so.1"));
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) be_two_containers(folder_, ready[1]);
  ASSERT_GT(child, 0);
  char answer = 'n';
  EXPECT_EQ(::read(ready[0], &answer, 1), 1);
  if (answer == 'y') {
    const auto mappings = procfs_.maps(child);
    ASSERT_TRUE(mappings.has_value());
    std::set<std::uint32_t> devices;
    for (const sys::Mapping& mapping : *mappings)
      if (mapping.path.starts_with(folder_)) devices.insert(mapping.device_minor);
    attacher_->set_mappings(child, *mappings);
    EXPECT_EQ(attacher_->file_count(), 1U) << "seen on " << devices.size() << " devices";
    EXPECT_EQ(attacher_->probe_count(), 2U);
    attacher_->forget_process(child);
    EXPECT_EQ(attacher_->file_count(), 0U);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  if (answer != 'y') GTEST_SKIP() << "overlay file systems cannot be mounted here";
}

class RecordingTest : public AttacherTest {
 protected:
  void SetUp() override {
    start(recording_policy());
    if (!engine_) return;
    path_ = library("libx.so");
    mapping_ = mapping_for_test(path_);
  }
  std::string path_;
  sys::Mapping mapping_;
};

// The process that was seen with the library first may be gone before it was opened.
TEST_F(RecordingTest, ALibraryThatCannotBeOpenedNowIsTriedAgainWithItsNextUser) {
  std::filesystem::rename(path_, path_ + ".away");
  for (int i = 0; i < 3; ++i)
    attacher_->set_mappings(::getpid(), {mapping_});
  EXPECT_THAT(attacher_->problems(), SizeIs(1)) << "told once";
  EXPECT_THAT(attacher_->attachments(), SizeIs(0));
  std::filesystem::rename(path_ + ".away", path_);
  attacher_->set_mappings(::getpid(), {mapping_});
  EXPECT_THAT(attacher_->attachments(), SizeIs(2));
  EXPECT_GT(engine_->link_count(), 0U);
  const std::size_t links = engine_->link_count();
  attacher_->set_mappings(::getpid(), {mapping_});
  EXPECT_EQ(engine_->link_count(), links) << "a file is attached to once";
}

TEST_F(RecordingTest, WindowsAttachAgainThoughTheNameIsGone) {
  attacher_->set_mappings(::getpid(), {mapping_});
  const std::size_t links = engine_->link_count();
  ASSERT_GT(links, 0U);
  attacher_->set_enabled(false);
  EXPECT_EQ(engine_->link_count(), 0U);
  std::filesystem::remove(path_);
  attacher_->set_enabled(true);
  EXPECT_GE(engine_->link_count(), links);
  EXPECT_EQ(attacher_->counters().failed, 0U);
}

TEST_F(RecordingTest, AFileThatIsNoLibraryIsRefusedForGood) {
  std::filesystem::resize_file(path_, 10);
  attacher_->set_mappings(::getpid(), {mapping_});
  EXPECT_EQ(attacher_->counters().failed, 1U);
  std::filesystem::remove(path_);
  std::filesystem::copy_file(libc_path_for_test(), path_);
  attacher_->set_mappings(::getpid(), {mapping_});
  EXPECT_THAT(attacher_->attachments(), SizeIs(0));
}

// Function of resolve_test.cc; a copy of this program stands for the library.
TEST_F(RecordingTest, AFunctionThatBeginsWithALoopIsRecordedByItsExitsAndNotMetered) {
  const std::string path = folder_ + "libx.so.2";
  std::filesystem::copy_file("/proc/self/exe", path);
  packs_[0].functions[0].symbols = {"resolve_loop"};
  const auto recording = make({});
  recording->set_mappings(::getpid(), {mapping_for_test(path)});
  ASSERT_THAT(recording->attachments(), SizeIs(1));
  EXPECT_EQ(recording->attachments()[0].end, "counted by 1 exit");
  EXPECT_EQ(probes_.front().kind, ProbeKind::kInstant);
  const auto metering = make({.policy = metering_policy()});
  metering->set_mappings(::getpid(), {mapping_for_test(path)});
  EXPECT_EQ(metering->probe_count(), 0U);
  EXPECT_THAT(metering->problems(), SizeIs(1));
}

TEST_F(RecordingTest, WhatAnotherAttacherHasIsLeftOut) {
  map({mapping_});
  packs_[0].functions[0].symbols = {"qsort", "lsearch"};
  const auto second = make({.is_window = true, .after = attacher_.get()});
  second->set_mappings(::getpid(), {mapping_});
  ASSERT_THAT(second->attachments(), SizeIs(1));
  EXPECT_EQ(second->attachments()[0].title, "lsearch");
  EXPECT_TRUE(probes_.back().is_window);
  EXPECT_FALSE(probes_.front().is_window);
}

}  // namespace
}  // namespace kansoku::capture
