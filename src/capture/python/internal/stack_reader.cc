// SPDX-License-Identifier: Apache-2.0
#include "capture/python/internal/stack_reader.h"

#include <algorithm>
#include <utility>

#include "capture/python/internal/snapshot.h"

namespace kansoku::capture::python {
namespace {

constexpr std::size_t kInterpretersMax = 16;
constexpr std::size_t kListRoundsMax = 600;
constexpr std::uint64_t kGapBytesMax = 512;   // between two frames that are read as one range
constexpr std::uint64_t kAboveBytes = 512;    // read above the top frame: where callees will be
constexpr std::uint64_t kBelowBytes = 2048;   // read below an unknown frame: where callers are
constexpr std::uint64_t kChunkBytes = 16384;  // of the data stack, from 3.11
constexpr std::uint32_t kOwnerMax = 8;
constexpr std::uint64_t kTagMask = 7;  // low bits of a _PyStackRef (3.14)
constexpr int kNamingRoundsMax = 3;

std::uint64_t at(std::uint64_t base, std::int32_t offset) {
  return base + static_cast<std::uint64_t>(offset);
}

std::size_t thread_bytes_of(const Layout& o) {
  return static_cast<std::size_t>(std::max({o.thread_next, o.thread_interpreter, o.thread_id,
                                            o.thread_frame, o.thread_native_id})) +
         8;
}

std::size_t frame_bytes_of(const Layout& o) {
  return static_cast<std::size_t>(std::max(
      {o.frame_previous + 8, o.frame_code + 8, o.frame_instruction + 8, o.frame_owner + 1}));
}

}  // namespace

StackReader::StackReader(RemoteMemory& memory, const Layout& layout, std::uint64_t runtime,
                         Process::Options options)
    : layout_(layout),
      runtime_(runtime),
      options_(options),
      thread_bytes_(thread_bytes_of(layout)),
      frame_bytes_(frame_bytes_of(layout)),
      snapshot_(memory, options.batch_reads),
      loader_(memory, options.batch_reads),
      codes_(snapshot_, loader_, layout_, options.code_cache_max) {}

Result<void> StackReader::sample() {
  snapshot_.clear();
  codes_.start_sample();
  want_speculatively();
  snapshot_.fetch();
  const auto head = snapshot_.get<std::uint64_t>(at(runtime_, layout_.runtime_interpreters_head));
  if (!head) {
    return Error{Code::kNotFound,
                 "read Python runtime: the process has ended or runs another program"};
  }
  ++counters_.samples;
  initialised_ = *head != 0;
  if (layout_.runtime_tstate_current >= 0) {
    holder_ =
        snapshot_.get<std::uint64_t>(at(runtime_, layout_.runtime_tstate_current)).value_or(0);
    main_thread_id_ =
        snapshot_.get<std::uint64_t>(at(runtime_, layout_.runtime_main_thread)).value_or(0);
  }
  read_lists();
  adopt_listed();
  read_stacks();
  retry_torn();
  count_losses();
  return {};
}

/// Every place that the last sample visited, each thread in the order in which it must be read.
void StackReader::want_speculatively() {
  snapshot_.want(at(runtime_, layout_.runtime_interpreters_head), 8);
  if (layout_.runtime_tstate_current >= 0) {
    snapshot_.want(at(runtime_, layout_.runtime_tstate_current), 8);
    snapshot_.want(at(runtime_, layout_.runtime_main_thread), 8);
  }
  for (const Interpreter& interpreter : interpreters_)
    want_interpreter(interpreter);
  for (const Thread& thread : threads_)
    want_thread(thread);
  addresses_.clear();
  for (const Thread& thread : threads_) {
    for (const FrameRef& frame : thread.frames) {
      if (!frame.is_shim) addresses_.push_back(frame.code_address);
    }
  }
  std::sort(addresses_.begin(), addresses_.end());
  addresses_.erase(std::unique(addresses_.begin(), addresses_.end()), addresses_.end());
  for (const std::uint64_t address : addresses_)
    codes_.want(address);
}

void StackReader::want_interpreter(const Interpreter& interpreter) {
  snapshot_.want(at(interpreter.address, layout_.interpreter_next), 8);
  snapshot_.want(at(interpreter.address, layout_.interpreter_threads_head), 8);
  if (layout_.interpreter_gil < 0) return;
  snapshot_.want(at(interpreter.address, layout_.interpreter_gil), 8);
  if (interpreter.gil == 0) return;
  snapshot_.want(at(interpreter.gil, layout_.gil_holder), 8);
  snapshot_.want(at(interpreter.gil, layout_.gil_locked), 4);
}

/// The thread, its frames, the frames once more, and once more which frame is the first: that tells
/// if they changed.
void StackReader::want_thread(const Thread& thread) {
  snapshot_.want(thread.address, thread_bytes_);
  if (layout_.cframe_frame >= 0 && thread.cframe != 0) snapshot_.want(top_field(thread), 8);
  want_frames(thread, snapshot_);
  if (layout_.cframe_frame < 0 || thread.cframe != 0) snapshot_.want_again(top_field(thread), 8);
}

/// Frames that lie close together (from 3.11 they do) are read as one range, with some space above
/// for calls made since.
void StackReader::want_frames(const Thread& thread, Snapshot& snapshot) {
  if (thread.frames.empty()) return;
  addresses_.clear();
  for (const FrameRef& frame : thread.frames)
    addresses_.push_back(frame.address);
  std::sort(addresses_.begin(), addresses_.end());
  std::uint64_t begin = addresses_.front();
  std::uint64_t end = begin + frame_bytes_;
  const bool on_data_stack = layout_.instruction == InstructionKind::kPointer;
  const auto flush = [&] {
    const std::uint64_t page_end = (end + kPageBytes - 1) / kPageBytes * kPageBytes;
    const std::uint64_t above = on_data_stack ? std::min(kAboveBytes, page_end - end) : 0;
    snapshot.want(begin, end - begin + above);
    if (on_data_stack) snapshot.want_again(begin, end - begin + above);
  };
  for (const std::uint64_t address : addresses_) {
    if (address > end + kGapBytesMax) {
      flush();
      begin = address;
    }
    end = address + frame_bytes_;
  }
  flush();
}

/// An unknown frame, and the parts of its page that callers and callees would need.
void StackReader::want_frame_near(std::uint64_t address) {
  if (layout_.instruction != InstructionKind::kPointer) {
    snapshot_.want(address, frame_bytes_);
    return;
  }
  const std::uint64_t page = address / kPageBytes * kPageBytes;
  const std::uint64_t begin = std::max(page, address - std::min(address, kBelowBytes));
  const std::uint64_t last_page_end =
      (address + frame_bytes_ + kPageBytes - 1) / kPageBytes * kPageBytes;
  const std::uint64_t end = std::min(last_page_end, address + frame_bytes_ + kAboveBytes);
  snapshot_.want(begin, end - begin);
}

/// Walks both lists from the start until nothing on the way is missing any more.
void StackReader::read_lists() {
  for (std::size_t round = 0; round < kListRoundsMax; ++round) {
    broken_lists_ = 0;
    threads_skipped_ = 0;
    listed_.clear();
    bool complete = list_interpreters();
    for (const Interpreter& interpreter : interpreters_) {
      complete = list_threads(interpreter) && complete;
    }
    if (complete) return;
    if (!snapshot_.fetch()) break;  // a pointer into nowhere: keep the listed ones
  }
  ++broken_lists_;
}

bool StackReader::is_in_lock(std::uint64_t address) const {
  // Up to 3.11 the lock is a part of the runtime, beside the current thread; the other locks there
  // are allocated elsewhere. From 3.12 on it is a structure of two condition variables and mutexes.
  constexpr std::uint64_t kLockBytes = 256, kBesideBytes = 4096;
  if (layout_.interpreter_gil < 0) {
    const std::uint64_t current = at(runtime_, layout_.runtime_tstate_current);
    return address >= runtime_ && address < current + kBesideBytes;
  }
  return std::any_of(interpreters_.begin(), interpreters_.end(), [&](const Interpreter& one) {
    return one.gil != 0 && address >= one.gil && address - one.gil < kLockBytes;
  });
}

bool StackReader::list_interpreters() {
  interpreters_.clear();
  auto next = snapshot_.get<std::uint64_t>(at(runtime_, layout_.runtime_interpreters_head));
  while (next && *next != 0) {
    if (!is_plausible(*next) || interpreters_.size() >= kInterpretersMax) {
      ++broken_lists_;
      return true;
    }
    Interpreter interpreter{.address = *next};
    next = snapshot_.get<std::uint64_t>(at(interpreter.address, layout_.interpreter_next));
    if (!next) {
      want_interpreter(interpreter);
      return false;
    }
    if (layout_.interpreter_gil >= 0) {
      interpreter.gil =
          snapshot_.get<std::uint64_t>(at(interpreter.address, layout_.interpreter_gil))
              .value_or(0);
      const auto locked = snapshot_.get<std::uint32_t>(at(interpreter.gil, layout_.gil_locked));
      if (!locked && is_plausible(interpreter.gil)) {
        want_interpreter(interpreter);
        interpreters_.push_back(interpreter);
        return false;
      }
      if (locked.value_or(0) == 1) {
        interpreter.holder =
            snapshot_.get<std::uint64_t>(at(interpreter.gil, layout_.gil_holder)).value_or(0);
      }
    } else {
      interpreter.holder = holder_;
    }
    interpreters_.push_back(interpreter);
  }
  return true;
}

bool StackReader::list_threads(const Interpreter& interpreter) {
  auto next =
      snapshot_.get<std::uint64_t>(at(interpreter.address, layout_.interpreter_threads_head));
  if (!next) {
    want_interpreter(interpreter);
    return false;
  }
  const std::size_t first = listed_.size();
  while (*next != 0) {
    const std::uint64_t address = *next;
    const bool is_known =
        std::any_of(listed_.begin() + static_cast<std::ptrdiff_t>(first), listed_.end(),
                    [&](const Listed& l) { return l.address == address; });
    if (!is_plausible(address) || is_known) {
      ++broken_lists_;
      return true;
    }
    if (listed_.size() >= options_.threads_max) {
      ++threads_skipped_;
      return true;
    }
    const std::byte* thread = snapshot_.find(address, thread_bytes_);
    if (thread == nullptr) {
      snapshot_.want(address, thread_bytes_);
      return false;
    }
    if (load_at<std::uint64_t>(thread, layout_.thread_interpreter) != interpreter.address) {
      ++broken_lists_;
      return true;
    }
    listed_.push_back({address, interpreter.address, interpreter.holder});
    next = load_at<std::uint64_t>(thread, layout_.thread_next);
  }
  return true;
}

/// Makes threads_ the listed ones. A thread that was there before keeps its memory.
void StackReader::adopt_listed() {
  std::swap(threads_, previous_threads_);
  threads_.resize(listed_.size());
  for (std::size_t i = 0; i < listed_.size(); ++i) {
    const Listed& listed = listed_[i];
    const auto old =
        std::find_if(previous_threads_.begin(), previous_threads_.end(),
                     [&](const Thread& thread) { return thread.address == listed.address; });
    if (old != previous_threads_.end()) {
      std::swap(threads_[i], *old);
      old->address = 0;
    }
    Thread& thread = threads_[i];
    thread.address = listed.address;
    thread.interpreter = listed.interpreter;
    thread.holds_gil = listed.holder == listed.address;
    thread.torn = false;
    if (!start_walk(thread)) fail(thread);
  }
}

/// Reads the thread itself, which must be in the snapshot, and forgets the old frames.
bool StackReader::start_walk(Thread& thread) {
  thread.is_retry = thread.torn;
  thread.torn = false;
  thread.truncated = false;
  thread.awaits_caller = false;
  thread.moved = false;
  thread.rechecks = false;
  thread.frames.clear();
  thread.step = Thread::Step::kWalking;
  thread.asked = 0;
  thread.cycle_mark = 0;
  const std::byte* state = snapshot_.find(thread.address, thread_bytes_);
  if (state == nullptr) return false;
  if (load_at<std::uint64_t>(state, layout_.thread_interpreter) != thread.interpreter) return false;
  thread.thread_id = load_at<std::uint64_t>(state, layout_.thread_id);
  thread.native_id =
      layout_.thread_native_id < 0 ? 0 : load_at<std::uint64_t>(state, layout_.thread_native_id);
  thread.is_main = layout_.thread_native_id < 0 && thread.thread_id == main_thread_id_;
  thread.top = load_at<std::uint64_t>(state, layout_.thread_frame);
  thread.cframe = 0;
  if (layout_.cframe_frame >= 0) std::swap(thread.cframe, thread.top);
  thread.cursor = thread.top;
  return true;
}

void StackReader::fail(Thread& thread) const {
  thread.torn = true;
  thread.step = Thread::Step::kDone;
}

void StackReader::read_stacks() {
  walk_all();
  recheck_all();
  name_all();
}

void StackReader::walk_all() {
  const std::size_t rounds_max = std::size_t{2} * options_.depth_max + 8;
  for (std::size_t round = 0; round < rounds_max; ++round) {
    bool waits = false;
    for (Thread& thread : threads_) {
      if (thread.step == Thread::Step::kWalking && !walk(thread)) waits = true;
    }
    if (!waits) return;
    snapshot_.fetch();
  }
  for (Thread& thread : threads_) {
    if (thread.step == Thread::Step::kWalking) fail(thread);
  }
}

/// Goes on from where it stopped. False: something was queued that must be fetched first.
bool StackReader::walk(Thread& thread) {
  if (thread.cframe != 0 && thread.top == 0) {
    const auto top = snapshot_.get<std::uint64_t>(top_field(thread));
    if (!top && (thread.asked == thread.cframe || !is_plausible(thread.cframe))) {
      return fail(thread), true;
    }
    if (!top) {
      snapshot_.want(top_field(thread), 8);
      thread.asked = thread.cframe;
      thread.rechecks = true;
      return false;
    }
    thread.top = *top;
    thread.cursor = *top;
  }
  std::size_t frames_max = std::size_t{2} * options_.depth_max;
  std::size_t real_frames = 0;
  for (const FrameRef& frame : thread.frames)
    real_frames += frame.is_shim ? 0 : 1;
  while (thread.cursor != 0) {
    if (real_frames >= options_.depth_max || thread.frames.size() >= frames_max) {
      thread.truncated = true;
      break;
    }
    if (!take_frame(thread)) return thread.torn;
    real_frames += thread.frames.back().is_shim ? 0 : 1;
    if (has_cycle(thread)) return fail(thread), true;
  }
  thread.step = Thread::Step::kNaming;
  return true;
}

/// Moves the frame at the cursor to the list. False: it must be fetched first, or the stack is
/// torn.
bool StackReader::take_frame(Thread& thread) {
  if (!is_plausible(thread.cursor)) return fail(thread), false;
  const std::byte* bytes = snapshot_.find(thread.cursor, frame_bytes_);
  if (bytes == nullptr) {
    if (thread.asked == thread.cursor) return fail(thread), false;
    want_frame_near(thread.cursor);
    thread.asked = thread.cursor;
    thread.rechecks = true;
    return false;
  }
  FrameRef frame;
  if (!parse_frame(bytes, thread.cursor, frame)) return fail(thread), false;
  if (!frame.is_shim && thread.awaits_caller && !waits_for_callee(bytes)) {
    // The frames taken so far had returned already: the stack ends here.
    thread.frames.clear();
    thread.moved = true;
  }
  // A frame that C code called has no caller that waits for it: the C code does.
  thread.awaits_caller =
      !frame.is_shim &&
      (layout_.frame_is_entry < 0 || load_at<std::uint8_t>(bytes, layout_.frame_is_entry) == 0);
  thread.frames.push_back(frame);
  thread.cursor = frame.previous;
  return true;
}

bool StackReader::parse_frame(const std::byte* bytes, std::uint64_t address,
                              FrameRef& frame) const {
  frame.address = address;
  frame.previous = load_at<std::uint64_t>(bytes, layout_.frame_previous);
  frame.code_address = load_at<std::uint64_t>(bytes, layout_.frame_code) & ~kTagMask;
  frame.instruction = load_at<std::uint64_t>(bytes, layout_.frame_instruction);
  const std::uint32_t owner =
      layout_.frame_owner < 0 ? 0 : load_at<std::uint8_t>(bytes, layout_.frame_owner);
  frame.is_shim =
      layout_.shim_owner >= 0 && owner >= static_cast<std::uint32_t>(layout_.shim_owner);
  return owner <= kOwnerMax;
}

/// The interpreter saves its stack pointer in a frame before it enters a callee, and takes it out
/// when it goes on in that frame. One that has no saved pointer is not the caller of anything: it
/// took the caller's place after the callee had returned.
bool StackReader::waits_for_callee(const std::byte* frame) const {
  if (layout_.frame_stack_top < 0) return true;
  if (layout_.minor >= 14) return load_at<std::uint64_t>(frame, layout_.frame_stack_top) != 0;
  return load_at<std::int32_t>(frame, layout_.frame_stack_top) != -1;
}

/// Brent: a frame that was met at the last power of two, met again.
bool StackReader::has_cycle(Thread& thread) const {
  const std::size_t depth = thread.frames.size();
  if ((depth & (depth - 1)) == 0) {
    thread.cycle_mark = thread.frames.back().address;
    return thread.cursor == thread.cycle_mark;
  }
  return thread.cursor != 0 && thread.cursor == thread.cycle_mark;
}

std::uint64_t StackReader::top_field(const Thread& thread) const {
  return layout_.cframe_frame >= 0 ? at(thread.cframe, layout_.cframe_frame)
                                   : at(thread.address, layout_.thread_frame);
}

/// Looks once more at the first frame and at all frames of each thread. The stack of a thread that
/// calls and returns all the time is never the same twice: at the second attempt, the part that
/// did not change is taken.
void StackReader::recheck_all() {
  loader_.clear();
  for (const Thread& thread : threads_) {
    if (thread.step != Thread::Step::kNaming || !thread.rechecks) continue;
    want_frames(thread, loader_);
    loader_.want_again(top_field(thread), 8);
  }
  loader_.fetch();
  for (Thread& thread : threads_) {
    if (thread.step != Thread::Step::kNaming) continue;
    const Snapshot& again = thread.rechecks ? loader_ : snapshot_;
    const std::byte* after = again.find_again(top_field(thread), 8);
    thread.after = after == nullptr ? thread.top : load_at<std::uint64_t>(after, 0);
    keep_unchanged(thread, again);
    thread.moved = thread.moved || thread.after != thread.top;
  }
  for (Thread& thread : threads_) {
    if (thread.step != Thread::Step::kNaming) continue;
    if (thread.moved && (!thread.is_retry || !is_consistent(thread))) fail(thread);
  }
}

/// Drops the frames inside of the outermost one that differs between the two copies. That one
/// itself counts as it is in the second copy, if it has the same caller.
void StackReader::keep_unchanged(Thread& thread, const Snapshot& again) const {
  if (layout_.instruction != InstructionKind::kPointer) return;
  for (std::size_t i = thread.frames.size(); i-- > 0;) {
    FrameRef& frame = thread.frames[i];
    const std::byte* bytes = again.find_again(frame.address, frame_bytes_);
    FrameRef second;
    if (bytes == nullptr || !parse_frame(bytes, frame.address, second)) continue;
    const bool is_same = second.code_address == frame.code_address &&
                         second.previous == frame.previous &&
                         (i == 0 || second.instruction == frame.instruction);
    if (is_same) continue;
    thread.moved = true;
    const bool has_same_caller = second.previous == frame.previous && !second.is_shim;
    if (has_same_caller) frame = second;
    thread.frames.erase(
        thread.frames.begin(),
        thread.frames.begin() + static_cast<std::ptrdiff_t>(has_same_caller ? i : i + 1));
    return;
  }
}

/// For a stack whose first frame moved: true if it returned to one of the frames read (which are
/// cut to that), or was called by one of them.
bool StackReader::is_consistent(Thread& thread) {
  constexpr int kCallsMax = 4;
  const bool on_data_stack = layout_.instruction == InstructionKind::kPointer;
  std::uint64_t frame = thread.after;
  for (int calls = 0; calls <= kCallsMax; ++calls) {
    if (frame == 0 || frame == thread.top) return true;
    const auto known = std::find_if(thread.frames.begin(), thread.frames.end(),
                                    [&](const FrameRef& f) { return f.address == frame; });
    if (known != thread.frames.end()) {
      if (calls == 0) thread.frames.erase(thread.frames.begin(), known);
      return true;
    }
    // On the data stack callees take the place of callees, so nearness is enough.
    const std::uint64_t distance = frame > thread.top ? frame - thread.top : thread.top - frame;
    if (on_data_stack && distance < kChunkBytes) return true;
    if (!is_plausible(frame)) return false;
    loader_.clear();
    loader_.want(at(frame, layout_.frame_previous), 8);
    loader_.fetch();
    const auto previous = loader_.get<std::uint64_t>(at(frame, layout_.frame_previous));
    if (!previous) return false;
    frame = *previous;
  }
  return false;
}

void StackReader::name_all() {
  for (int round = 0; round < kNamingRoundsMax; ++round) {
    bool waits = false;
    for (Thread& thread : threads_) {
      if (thread.step == Thread::Step::kNaming && !name_frames(thread)) waits = true;
    }
    if (!waits) return;
    snapshot_.fetch();
  }
  for (Thread& thread : threads_) {
    if (thread.step == Thread::Step::kNaming) fail(thread);
  }
}

/// False: heads of code objects were queued that must be fetched first.
bool StackReader::name_frames(Thread& thread) {
  bool complete = true;
  for (FrameRef& frame : thread.frames) {
    if (frame.is_shim || frame.code != nullptr) continue;
    switch (codes_.resolve(frame.code_address, frame.code)) {
      case CodeCache::Outcome::kFound:
        break;
      case CodeCache::Outcome::kMissing:
        codes_.want(frame.code_address);
        complete = false;
        continue;
      case CodeCache::Outcome::kNotCode:
        return fail(thread), true;
    }
    std::int64_t offset = 0;
    if (!codes_.offset_of(frame.code_address, *frame.code, frame.instruction, offset)) {
      return fail(thread), true;
    }
    frame.line = CodeCache::line_of(*frame.code, offset);
  }
  if (complete) thread.step = Thread::Step::kDone;
  return complete;
}

/// Reads torn stacks a second time, from the thread state on.
void StackReader::retry_torn() {
  const auto torn = std::count_if(threads_.begin(), threads_.end(),
                                  [](const Thread& thread) { return thread.torn; });
  if (torn == 0) return;
  counters_.retried += static_cast<std::uint64_t>(torn);
  snapshot_.clear();
  for (const Thread& thread : threads_) {
    if (thread.torn) want_thread(thread);
  }
  snapshot_.fetch();
  for (Thread& thread : threads_) {
    if (thread.torn && !start_walk(thread)) fail(thread);
  }
  read_stacks();
}

void StackReader::count_losses() {
  for (Thread& thread : threads_) {
    counters_.torn += thread.torn ? 1 : 0;
    counters_.truncated += thread.truncated && !thread.torn ? 1 : 0;
  }
  counters_.truncated += threads_skipped_;
  counters_.read_calls = snapshot_.costs().read_calls + loader_.costs().read_calls;
  counters_.read_ranges = snapshot_.costs().read_ranges + loader_.costs().read_ranges;
}

}  // namespace kansoku::capture::python
