// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/profile/own_caller.h"

#include <gtest/gtest.h>

#include <array>

namespace kansoku::diagnose {
namespace {

struct Calls {
  trace::Trace trace;

  trace::TrackId track(std::int32_t pid) {
    trace::Track track;
    track.kind = trace::TrackKind::kThread;
    track.pid = track.tid = pid;
    trace.tracks.push_back(track);
    return {static_cast<std::uint32_t>(trace.tracks.size() - 1)};
  }
  void add(trace::TrackId track, const char* category, const char* name, std::int64_t begin_ns,
           std::int64_t end_ns) {
    auto& slices = trace.slices;
    slices.start_ns.push_back(begin_ns);
    slices.duration_ns.push_back(end_ns - begin_ns);
    slices.track.push_back(track);
    slices.name.push_back(trace.strings.intern(name));
    slices.category.push_back(trace.strings.intern(category));
    slices.arg_begin.push_back(0);
    slices.arg_count.push_back(0);
  }
};

constexpr const char* kPython = "python_function";
constexpr std::array<std::int32_t, 1> kPids{7};

TEST(OwnCaller, IsTheInnermostOfTheProgramsOwnFunctions) {
  Calls calls;
  const auto here = calls.track(7), elsewhere = calls.track(8);
  calls.add(here, kPython, "train.py(9): main", 0, 100);
  calls.add(here, kPython, "model.py(45): slow_hook", 10, 60);
  calls.add(here, kPython, "torch/nn/modules/module.py(1791): _call_impl", 12, 50);
  calls.add(here, kPython, "<built-in function sleep>", 15, 45);
  calls.add(here, kPython, "<built-in function sleep>", 70, 80);
  calls.add(elsewhere, kPython, "other.py(1): f", 0, 1000);
  calls.add(elsewhere, kPython, "<built-in function sleep>", 0, 1000);
  const auto caller = own_caller(calls.trace, kPids, "<built-in function sleep>");
  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->function, "slow_hook");
  EXPECT_EQ(caller->file, "model.py");
  EXPECT_EQ(caller->line, 45U);
}

TEST(OwnCaller, CallsOperators) {
  Calls calls;
  const auto here = calls.track(7);
  calls.add(here, kPython, "model.py(26): forward", 0, 50);
  calls.add(here, "cpu_op", "aten::mm", 0, 40);
  const auto caller = own_caller(calls.trace, kPids, "aten::mm");
  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->function, "forward");
}

TEST(OwnCaller, IsNobodyWhereNoneIsKnown) {
  Calls calls;
  const auto here = calls.track(7);
  calls.add(here, kPython, "torch/optim/adam.py(3): step", 0, 50);
  calls.add(here, "cpu_op", "aten::mm", 0, 40);
  calls.add(here, kPython, "own.py(2): work", 60, 90);
  calls.add(here, kPython, "own.py(3): inner", 70, 80);
  EXPECT_FALSE(own_caller(calls.trace, kPids, "aten::mm"));
  EXPECT_FALSE(own_caller(calls.trace, kPids, "own.py(3): inner")) << "it is the program's itself";
  EXPECT_FALSE(own_caller(calls.trace, kPids, "aten::none"));
  EXPECT_FALSE(own_caller({}, kPids, "aten::mm"));
}

}  // namespace
}  // namespace kansoku::diagnose
