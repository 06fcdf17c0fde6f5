// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "capture/cuda/channel.h"
#include "capture/cuda/snapshot.h"
#include "capture/cuda/stuck.h"
#include "sys/native_stack.h"
#include "sys/procfs.h"

namespace kansoku::capture::hang {

enum class HangVerdict : std::uint8_t { kStuck, kUnknown, kNothing, kNoLibrary, kGone };
/// "stuck_kernel", "unknown", "nothing_stuck", "not_covered", "gone".
[[nodiscard]] std::string_view hang_verdict_name(HangVerdict verdict);

/// A frame, innermost first.
struct FrameText {
  std::string function, file;
  std::uint32_t line{0};   // of Python
  bool is_guessed{false};  // of native code: see sys::NativeFrame
};

struct ThreadText {
  std::int32_t tid{0};
  std::string call;  // of the driver that it waits in; "" in none
  double seconds{0};
  std::vector<FrameText> python, native;
  char state{'?'};  // as /proc has it: R, S, D, T, ...
};

/// Stack of the launch of a kernel that may be stuck, from the first times that the library saw it.
struct LaunchSite {
  std::string operation;
  std::vector<FrameText> native;
};

/// Findings on one process after two looks at it.
struct HangLook {
  std::int32_t pid{0};
  std::int32_t rank{-1};  // in its job; -1: it is in none
  HangVerdict verdict{HangVerdict::kNoLibrary};
  std::string why;
  bool is_stopped{false};
  /// Its device completed work between the looks, or its host computed, or waited for a disk.
  bool is_at_work{false};
  cuda::Snapshot snapshot;
  std::vector<std::int32_t> devices;  // of the contexts
  std::vector<cuda::Stuck> stuck;
  std::vector<std::uint32_t> moving;     // streams that completed work between the looks
  std::vector<ThreadText> threads;       // those that wait in the driver
  std::vector<LaunchSite> launch_sites;  // of the kernels among `stuck`
  bool uses_nccl{false};
  cuda::RankAt at{cuda::RankAt::kNoWork};
  std::uint64_t collectives{0}, collectives_pending{0};
  std::vector<std::int32_t> waits_for;  // pids of those that its collective misses
};

/// The first of two looks.
struct FirstLook {
  std::int32_t pid{0};
  std::uint64_t at_ns{0};
  const cuda::Channel* channel{nullptr};  // borrowed until the second look; null: it has none
  std::string why_not;                    // it has none
  cuda::Snapshot snapshot;
  std::uint64_t ticks{0};  // of processor time
};
[[nodiscard]] FirstLook first_look(const sys::Procfs& procfs, std::int32_t pid,
                                   const cuda::Channel* channel, std::string why_not = {});
/// `stacks` is shared by all looks: libraries are read once.
[[nodiscard]] HangLook second_look(const sys::Procfs& procfs, const FirstLook& first,
                                   sys::NativeStacks& stacks);

/// Stacks of the threads of a process of which nothing else is known: those that run Python, or
/// else the first; at most 16. `call` is empty. Native frames of sleeping threads alone.
[[nodiscard]] std::vector<ThreadText> threads_of(const sys::Procfs& procfs, std::int32_t pid,
                                                 sys::NativeStacks& stacks);

/// Compares the processes of a job: fills waits_for, and corrects the verdict of those that wait in
/// a collective for one that is not known, or is at work.
void judge_job(const sys::Procfs& procfs, std::vector<HangLook>& looks, sys::NativeStacks& stacks);

}  // namespace kansoku::capture::hang
