// SPDX-License-Identifier: Apache-2.0
// Arguments on the stack, values that functions write through arguments, long texts, the ends of a
// sample of the calls, and their callers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "capture/bpf/calls_for_test.h"
#include "capture/bpf/engine.h"
#include "capture/bpf/sites.h"
#include "sys/clock.h"
#include "sys/elf.h"

// NOLINTBEGIN(bugprone-easily-swappable-parameters)
extern "C" {
/// A launch of CUDA's driver by its arguments: three lie on the stack.
[[gnu::noinline, gnu::used]] int target_nine(std::uint64_t a, unsigned b, unsigned c, unsigned d,
                                             unsigned e, unsigned f, unsigned g, unsigned h,
                                             std::uint64_t i) {
  asm volatile("" ::: "memory");
  return static_cast<int>(a + b + c + d + e + f + g + h + i);
}
/// A look-up: writes a handle, is told a name.
[[gnu::noinline, gnu::used]] int target_look_up(std::uint64_t* handle, const char* name) {
  asm volatile("" ::: "memory");
  if (name == nullptr) return 1;
  if (name[0] == '>') {  // looks up what follows inside
    std::uint64_t inner = 0;
    const int failed = target_look_up(&inner, name + 1);
    *handle = inner + 1;
    return failed;
  }
  *handle = std::strlen(name);
  return 0;
}
}
// NOLINTEND(bugprone-easily-swappable-parameters)

namespace kansoku::capture::bpf {
namespace {

class ArgumentsTest : public testing::TestWithParam<AttachMode> {
 protected:
  static constexpr std::uint32_t kProbe = 3;

  void SetUp() override {
    engine_ = engine_for_test(GetParam());
    if (!engine_) GTEST_SKIP() << "needs root and bpf";
    auto file = sys::ElfFile::open("/proc/self/exe");
    ASSERT_TRUE(file);
    file_ = std::move(file).value();
  }
  void attach(const wire_probe& probe, const std::string& function, bool with_return) {
    const auto described = engine_->describe_probe(kProbe, probe);
    ASSERT_TRUE(described) << described.error().what;
    const sys::Symbol* symbol = file_->find_symbol(function);
    ASSERT_NE(symbol, nullptr);
    const Site site = pick_site(*file_, *symbol, {true, true});
    const UprobeSpec spec{*file_->file_offset(site.address), 0,
                          with_return ? kProbe : kProbe | WIRE_COOKIE_INSTANT};
    const auto attached = engine_->attach_uprobes("/proc/self/exe", {&spec, 1}, with_return);
    ASSERT_TRUE(attached) << attached.error().what;
  }
  struct Seen {
    int kind{0};
    std::vector<std::uint64_t> args;
    std::uint16_t failed{0};
    std::string text;
    std::uint32_t frames{0};
  };
  std::vector<Seen> drain() {
    std::vector<Seen> out;
    engine_->drain([&](std::span<const std::byte> record) {
      const auto* head = reinterpret_cast<const wire_event*>(record.data());
      Seen one;
      one.kind = head->kind;
      one.failed = head->failed_args;
      if (head->kind == WIRE_CALL_STACK) {
        one.frames = reinterpret_cast<const wire_call_stack*>(record.data())->frame_count;
      } else if (head->layout != WIRE_PLAIN) {
        const auto* with = reinterpret_cast<const wire_args*>(record.data());
        one.args.assign(std::begin(with->args), std::end(with->args));
      }
      if (head->layout == WIRE_WITH_LONG_TEXT)
        one.text = reinterpret_cast<const wire_long_text*>(record.data())->text;
      out.push_back(std::move(one));
    });
    return out;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<sys::ElfFile> file_;
};

wire_probe nine_arguments(int flags) {
  wire_probe probe = probe_for_test(WIRE_SINK_RING, flags);
  for (int i = 0; i < 6; ++i)
    add_capture_for_test(probe, i, i == 0 ? 8 : 4);
  for (int i = 6; i < 9; ++i)
    add_capture_for_test(probe, WIRE_STACK_POINTER, i == 8 ? 8 : 4, WIRE_TEXT_NONE,
                         {static_cast<std::uint16_t>(8 * (i - 5))});
  return probe;
}

constexpr std::uint64_t kBig = 0x1122334455667788;
const std::vector<std::uint64_t> kNine{kBig, 2, 3, 4, 5, 6, 7, 8, kBig + 1, 0};
int call_nine() {
  return target_nine(kBig, 2, 3, 4, 5, 6, 7, 8, kBig + 1);
}

TEST_P(ArgumentsTest, OnTheStackAreRead) {
  attach(nine_arguments(WIRE_PROBE_INSTANT), "target_nine", false);
  call_nine();
  const auto seen = drain();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].args, kNine);
  EXPECT_EQ(seen[0].failed, 0);
}

TEST_P(ArgumentsTest, OfAPairAreReadAtTheBegin) {
  attach(nine_arguments(0), "target_nine", true);
  call_nine();
  const auto seen = drain();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].args, kNine);
  EXPECT_EQ(seen[1].kind, WIRE_END);
}

wire_probe look_up() {
  wire_probe probe = probe_for_test(WIRE_SINK_RING, WIRE_PROBE_LONG_TEXT);
  add_capture_for_test(probe, 0 | WIRE_SOURCE_OUT, 8, WIRE_TEXT_NONE, {0});
  add_capture_for_test(probe, 1 | WIRE_SOURCE_OUT, 8, WIRE_TEXT_C, {0});
  add_capture_for_test(probe, WIRE_RETURN, 4);
  return probe;
}

TEST_P(ArgumentsTest, WhatIsWrittenThroughOneIsReadAtTheEnd) {
  attach(look_up(), "target_look_up", true);
  const std::string name(500, 'k');
  std::uint64_t handle = 77;
  EXPECT_EQ(target_look_up(&handle, name.c_str()), 0);
  const auto seen = drain();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].kind, WIRE_BEGIN);
  EXPECT_EQ(seen[1].kind, WIRE_END);
  EXPECT_EQ(seen[1].args[0], 500U) << "not what was there before";
  EXPECT_EQ(seen[1].args[2], 0U);
  EXPECT_EQ(seen[1].text, name);
  EXPECT_EQ(seen[1].failed, 0);
}

TEST_P(ArgumentsTest, ThatCannotBeReadHaveFailed) {
  attach(look_up(), "target_look_up", true);
  std::uint64_t handle = 77;
  EXPECT_EQ(target_look_up(&handle, nullptr), 1);
  const auto seen = drain();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[1].failed, 0b010);
  EXPECT_EQ(seen[1].args[2], 1U);
}

// Arguments kept by the inner call are not taken for the outer one's.
TEST_P(ArgumentsTest, OfACallAroundOneOfTheSameFunctionAreLost) {
  attach(look_up(), "target_look_up", true);
  std::uint64_t handle = 0;
  EXPECT_EQ(target_look_up(&handle, ">abc"), 0);
  EXPECT_EQ(handle, 4U);
  const auto seen = drain();
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[2].args[0], 3U) << "the inner one's";
  EXPECT_EQ(seen[2].failed, 0);
  EXPECT_EQ(seen[3].failed, 0b011) << "the outer one's are not known";
}

TEST_P(ArgumentsTest, OfASampleOfTheCallsTheEndIsSeen) {
  if (GetParam() != AttachMode::kSession) GTEST_SKIP() << "sessions only";
  attach(nine_arguments(WIRE_PROBE_SAMPLED), "target_nine", true);
  const sys::RealClock clock;
  const auto is_in_slice = [&] {
    const auto ns = static_cast<std::uint64_t>(clock.now().time_since_epoch().count());
    return ns % WIRE_SLICE_PERIOD_NS < WIRE_SLICE_NS;
  };
  std::uint64_t calls = 0, ends = 0, begins = 0, instants = 0;
  for (bool was_in = false, was_out = false; !was_in || !was_out || ends == 0 || instants == 0;) {
    (is_in_slice() ? was_in : was_out) = true;
    call_nine();
    ++calls;
    for (const Seen& one : drain()) {
      begins += one.kind == WIRE_BEGIN ? 1 : 0;
      ends += one.kind == WIRE_END ? 1 : 0;
      instants += one.kind == WIRE_INSTANT ? 1 : 0;
      if (one.kind != WIRE_END) {
        EXPECT_EQ(one.args, kNine);
      }
    }
  }
  EXPECT_EQ(begins + instants, calls) << "each call is told once";
  EXPECT_EQ(begins, ends);
}

TEST_P(ArgumentsTest, WhoMakesACallIsTold) {
  attach(nine_arguments(WIRE_PROBE_INSTANT | WIRE_PROBE_FRAMES), "target_nine", false);
  call_nine();
  const auto seen = drain();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].kind, WIRE_CALL_STACK);
  EXPECT_GE(seen[0].frames, 2U);
  EXPECT_EQ(seen[1].kind, WIRE_INSTANT);
}

INSTANTIATE_TEST_SUITE_P(Modes, ArgumentsTest,
                         testing::Values(AttachMode::kSession, AttachMode::kMulti,
                                         AttachMode::kPerf),
                         [](const auto& mode) {
                           return std::string(attach_mode_name(mode.param));
                         });

}  // namespace
}  // namespace kansoku::capture::bpf
