// SPDX-License-Identifier: Apache-2.0
// Live: Python programs that tell where they are, and the stacks we read of them.
#include "capture/python/sampler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/parse.h"
#include "sys/fd.h"
#include "sys/wait_for_test.h"

namespace kansoku::capture::python {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using trace::SampleState;

/// A Python program with pipes at both ends. Killed with the object.
class Child {
 public:
  Child(const std::string& python, const std::string& script) {
    std::array<int, 2> in{}, out{};
    EXPECT_EQ(::pipe2(in.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
    const std::string path = std::string(KANSOKU_SOURCE_DIR) + "/tests/data/python/" + script;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::execl(python.c_str(), python.c_str(), "-S", path.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    finish();
    ::close(in_);
    ::close(out_);
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void finish() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void send_line(std::string_view text) const {
    EXPECT_EQ(::write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  /// Output up to the line "END", which every program prints when it is where it should be.
  [[nodiscard]] std::vector<std::string> read_to_end() const {
    std::string text;
    char c = 0;
    while (!text.ends_with("END\n") && ::read(out_, &c, 1) == 1)
      text.push_back(c);
    EXPECT_THAT(text, ::testing::EndsWith("END\n"));
    std::vector<std::string> lines;
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos;
         at = end + 1) {
      lines.push_back(text.substr(at, end - at));
    }
    if (!lines.empty()) lines.pop_back();
    return lines;
  }

 private:
  pid_t pid_{0};
  int in_{-1}, out_{-1};
};

/// Interpreters of 3.8 or later on this machine, the system's own first.
std::vector<std::string> interpreters() {
  std::vector<std::string> found;
  for (int minor = 8; minor <= 14; ++minor) {
    for (const char* folder : {"/usr/bin", "/usr/local/bin"}) {
      found.push_back(fmt::format("{}/python3.{}", folder, minor));
    }
  }
  for (const auto& [variable, below] :
       {std::pair("HOME", "/.pyenv/versions"), std::pair("PYENV_ROOT", "/versions")}) {
    const char* root = std::getenv(variable);
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(
             std::string(root == nullptr ? "/nonexistent" : root) + below, error)) {
      const std::string name = entry.path().filename().string();
      const auto minor = parse_int<int>(
          name.starts_with("3.") ? std::string_view(name).substr(2, name.find('.', 2) - 2)
                                 : std::string_view());
      if (minor && *minor >= 8) found.push_back(entry.path().string() + "/bin/python3");
    }
  }
  std::erase_if(found, [](const auto& path) { return ::access(path.c_str(), X_OK) != 0; });
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::string name_of(const std::string& path) {
  std::string name;
  for (const char c : path)
    name.push_back(std::isalnum(static_cast<unsigned char>(c)) ? c : '_');
  return name;
}

class LivePython : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::unique_ptr<Process> attach(pid_t pid, Process::Options options = {}) const {
    auto process = Process::attach(pid, procfs_, options);
    EXPECT_TRUE(process) << process.error().what << " " << GetParam();
    return process ? std::move(*process) : nullptr;
  }
  /// Samples until `is_wanted(stacks)`; false if it never was.
  template <class IsWanted>
  [[nodiscard]] bool sample_until(Process& process, IsWanted is_wanted) {
    bool is_there = true;
    return sys::poll_for_test([&] {
             is_there = process.sample(stacks_).has_value();
             return !is_there || is_wanted(stacks_);
           }) &&
           is_there;
  }
  /// State of a program of one thread that waits for its next command.
  [[nodiscard]] static bool waits(const std::vector<PyStack>& stacks) {
    return stacks.size() == 1 && stacks[0].state == SampleState::kSleeping;
  }
  sys::Procfs procfs_;
  std::vector<PyStack> stacks_;
};

using Frames = std::vector<std::string>;

Frames frames_of(const PyStack& stack) {
  Frames frames;
  for (const PyFrame& frame : stack.frames) {
    frames.push_back(fmt::format("F {}\t{}\t{}", frame.line, frame.function, frame.file));
  }
  return frames;
}

std::map<std::int32_t, Frames> parse_report(const std::vector<std::string>& lines) {
  std::map<std::int32_t, Frames> stacks;
  Frames* current = nullptr;
  for (const std::string& line : lines) {
    if (line.starts_with("T ")) {
      current = &stacks[parse_int<std::int32_t>(std::string_view(line).substr(2)).value_or(-1)];
    } else if (current != nullptr) {
      current->push_back(line);
    }
  }
  return stacks;
}

TEST_P(LivePython, GivesExactlyTheStacksThatThePythonProgramSees) {
  const Child child(GetParam(), "known_stacks.py");
  const auto expected = parse_report(child.read_to_end());
  ASSERT_THAT(expected, SizeIs(6));
  const auto process = attach(child.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_THAT(process->version(), StartsWith("3."));
  // The reporting thread may not have reached its read() yet.
  std::map<std::int32_t, Frames> got;
  EXPECT_TRUE(sample_until(*process, [&](const std::vector<PyStack>& stacks) {
    got.clear();
    for (const PyStack& stack : stacks)
      got[stack.tid] = frames_of(stack);
    return got == expected;
  }));
  EXPECT_EQ(got, expected);
  EXPECT_EQ(stacks_.front().tid, child.pid());  // the oldest thread comes first
  EXPECT_TRUE(sample_until(*process, [](const std::vector<PyStack>& stacks) {
    return std::all_of(stacks.begin(), stacks.end(), [](const PyStack& stack) {
      return stack.state == SampleState::kSleeping && !stack.holds_gil;
    });
  }));
}

TEST_P(LivePython, AMainThreadThatWaitsForTheInterpreterLockSaysSo) {
  const Child child(GetParam(), "lock_hog.py");
  static_cast<void>(child.read_to_end());
  if (!sys::read_file(fmt::format("/proc/{}/syscall", child.pid()), 4096))
    GTEST_SKIP() << "may not look at the system calls of a thread";
  const auto process = attach(child.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_TRUE(sample_until(*process, [&](const std::vector<PyStack>& stacks) {
    return !stacks.empty() && stacks.front().tid == child.pid() &&
           stacks.front().wait.call == "futex" && stacks.front().wait.on == kInterpreterLock;
  }));
}

TEST_P(LivePython, OneReadIsEnoughWhileNothingMoves) {
  const Child child(GetParam(), "known_stacks.py");
  static_cast<void>(child.read_to_end());
  const auto process = attach(child.pid());
  ASSERT_NE(process, nullptr);
  const auto keys_of = [](const std::vector<PyStack>& stacks) {
    std::vector<std::uint64_t> keys;
    for (const PyStack& stack : stacks) {
      for (const PyFrame& frame : stack.frames)
        keys.push_back(frame.cache_key);
    }
    return keys;
  };
  // When the last thread stands still nobody tells.
  std::vector<std::uint64_t> last_keys;
  Process::Counters last;
  EXPECT_TRUE(sample_until(*process, [&](const std::vector<PyStack>& stacks) {
    const auto now = process->counters();
    const auto keys = keys_of(stacks);
    const bool is_enough =
        now.read_calls - last.read_calls == 1 && now.torn == last.torn && keys == last_keys;
    last = now;
    last_keys = keys;
    return is_enough && stacks.size() == 6;
  }));
  ASSERT_THAT(stacks_, SizeIs(6));
  EXPECT_NE(stacks_[0].frames[0].cache_key, stacks_[0].frames[1].cache_key);
}

/// Tally of samples of busy.py.
struct Tally {
  int samples{0}, stacks{0}, holders{0}, running{0}, impossible{0};
  std::uint64_t torn{0};
  std::set<std::string> seen;  // functions

  void add(const std::vector<PyStack>& sampled, std::uint64_t newly_torn) {
    static const std::set<std::pair<std::string, std::string>> kLegal{{"top", "left"},
                                                                      {"top", "right"},
                                                                      {"left", "leaf"},
                                                                      {"right", "middle"},
                                                                      {"middle", "leaf"}};
    ++samples;
    torn += newly_torn;
    int holders_now = 0;
    for (const PyStack& stack : sampled) {
      ++stacks;
      holders_now += stack.holds_gil ? 1 : 0;
      running += stack.state == SampleState::kRunning ? 1 : 0;
      for (std::size_t f = 1; f < stack.frames.size(); ++f) {
        const std::string caller(stack.frames[f - 1].function), callee(stack.frames[f].function);
        seen.insert(callee);
        if (caller.find("top") != 0 && callee == "top") continue;
        if (!stack.frames[f].file.ends_with("busy.py")) continue;
        impossible += kLegal.contains({caller, callee}) ? 0 : 1;
      }
    }
    EXPECT_LE(holders_now, 1);
    holders += holders_now;
  }
};

/// How often this thread has lost its processor to another one.
long preemptions() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nivcsw;
}

TEST_P(LivePython, ReadsOnlyStacksThatCanBe) {
  const Child child(GetParam(), "busy.py");
  static_cast<void>(child.read_to_end());
  const auto process = attach(child.pid());
  ASSERT_NE(process, nullptr);
  constexpr int kSamples = 3000;
  Tally tally;
  // On a busy machine the program may hardly run while we look: look on until it did. A sample in
  // the middle of which we were stopped has seen it at two times: how many those are is the
  // machine's affair.
  const auto has_run = [&] {
    return tally.seen.contains("leaf") && tally.seen.contains("middle") &&
           tally.running > kSamples / 10 && tally.holders > kSamples / 10;
  };
  bool is_there = true;
  const auto look = [&] {
    const long before = preemptions();
    const std::uint64_t torn = process->counters().torn;
    is_there = process->sample(stacks_).has_value();
    if (is_there && preemptions() == before) tally.add(stacks_, process->counters().torn - torn);
    return !is_there || (tally.samples >= kSamples && has_run());
  };
  EXPECT_TRUE(sys::poll_for_test(look, Nanos{}));
  ASSERT_TRUE(is_there);
  EXPECT_THAT(tally.seen, Contains("leaf"));
  EXPECT_THAT(tally.seen, Contains("middle"));
  EXPECT_GT(tally.running, kSamples / 10);
  EXPECT_GT(tally.holders, kSamples / 10);
  EXPECT_GE(tally.stacks + static_cast<int>(tally.torn), tally.samples);
  EXPECT_LE(tally.impossible, tally.samples / 50) << "of " << tally.stacks << " stacks";
  EXPECT_LE(tally.torn, static_cast<std::uint64_t>(tally.samples) / 20);
}

TEST_P(LivePython, KeepsTheInnermostFramesOfADeepStack) {
  const Child child(GetParam(), "commands.py");
  static_cast<void>(child.read_to_end());
  child.send_line("d");
  static_cast<void>(child.read_to_end());
  const auto deep = attach(child.pid(), {.depth_max = 2000});
  const auto cut = attach(child.pid(), {.depth_max = 64});
  ASSERT_NE(deep, nullptr);
  ASSERT_NE(cut, nullptr);
  ASSERT_TRUE(sample_until(*deep, waits));
  EXPECT_THAT(stacks_[0].frames, SizeIs(604));  // <module>, main, obey, dive x 601
  EXPECT_EQ(stacks_[0].frames[0].function, "<module>");
  EXPECT_EQ(deep->counters().truncated, 0U);
  const auto before = cut->counters();
  ASSERT_TRUE(cut->sample(stacks_));
  ASSERT_THAT(stacks_, SizeIs(1));
  EXPECT_THAT(stacks_[0].frames, SizeIs(64));
  for (const PyFrame& frame : stacks_[0].frames)
    EXPECT_EQ(frame.function, "dive");
  EXPECT_EQ(cut->counters().truncated - before.truncated, 1U);
}

TEST_P(LivePython, TellsThatTheProcessWasKilled) {
  Child child(GetParam(), "commands.py");
  static_cast<void>(child.read_to_end());
  const pid_t pid = child.pid();
  const auto process = attach(pid);
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(process->sample(stacks_));
  child.finish();
  const auto gone = process->sample(stacks_);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
  EXPECT_EQ(Process::attach(pid, procfs_, {}).error().code, Code::kNotFound);
}

TEST_P(LivePython, TellsThatAnotherProgramWasExecuted) {
  const Child child(GetParam(), "commands.py");
  static_cast<void>(child.read_to_end());
  const auto process = attach(child.pid());
  ASSERT_NE(process, nullptr);
  child.send_line("e");
  child.send_line("END\n");
  static_cast<void>(child.read_to_end());  // cat says it
  const auto gone = process->sample(stacks_);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kNotFound);
  EXPECT_EQ(Process::attach(child.pid(), procfs_, {}).error().code, Code::kNotFound);
}

TEST_P(LivePython, ReadsAForkedChild) {
  const Child child(GetParam(), "commands.py");
  static_cast<void>(child.read_to_end());
  child.send_line("f");
  const auto lines = child.read_to_end();
  ASSERT_THAT(lines, SizeIs(1));
  const auto grandchild = parse_int<std::int32_t>(lines[0]);
  ASSERT_TRUE(grandchild);
  const auto process = attach(*grandchild);
  ASSERT_NE(process, nullptr);
  EXPECT_TRUE(sample_until(*process, [&](const std::vector<PyStack>& stacks) {
    return stacks.size() == 1 && stacks[0].tid == *grandchild &&
           stacks[0].frames.back().function == "in_child" &&
           stacks[0].state == SampleState::kSleeping;
  }));
  ::kill(*grandchild, SIGKILL);
}

TEST_P(LivePython, SeesThatAProcessIsStopped) {
  const Child child(GetParam(), "commands.py");
  static_cast<void>(child.read_to_end());
  const auto process = attach(child.pid());
  ASSERT_NE(process, nullptr);
  ASSERT_TRUE(sample_until(*process, waits));
  ::kill(child.pid(), SIGSTOP);
  int status = 0;
  ASSERT_EQ(::waitpid(child.pid(), &status, WUNTRACED), child.pid());
  ASSERT_TRUE(process->sample(stacks_));
  ASSERT_THAT(stacks_, SizeIs(1));
  EXPECT_EQ(stacks_[0].state, SampleState::kStopped);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LivePython);
INSTANTIATE_TEST_SUITE_P(Interpreter, LivePython, ::testing::ValuesIn(interpreters()),
                         [](const auto& test) { return name_of(test.param); });

TEST(LivePythons, AreInstalled) {
  if (interpreters().empty())
    GTEST_SKIP() << "no Python from 3.8 on in /usr/bin, /usr/local or pyenv";
  EXPECT_THAT(interpreters(), Each(HasSubstr("python3")));
}

TEST(Process, IsNotFoundWithoutPython) {
  const auto process = Process::attach(::getpid(), sys::Procfs(), {});
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().code, Code::kNotFound);
  EXPECT_THAT(process.error().what, HasSubstr("no interpreter"));
}

}  // namespace
}  // namespace kansoku::capture::python
