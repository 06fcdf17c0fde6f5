// SPDX-License-Identifier: Apache-2.0
#include "capture/python/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "capture/python/internal/detect.h"
#include "capture/python/internal/process_memory.h"
#include "capture/python/internal/stack_reader.h"
#include "capture/python/internal/task_state.h"
#include "capture/python/offsets.h"
#include "sys/syscalls.h"

namespace kansoku::capture::python {
namespace {

constexpr int kCheckAttemptsMax = 8;
constexpr std::uint64_t kForgetEverySamples = 256;

/// Why the last sample does not look like the stacks of a Python program; nothing if it does.
std::optional<std::string> doubt(const StackReader& reader) {
  if (reader.threads().empty()) return "no thread state points back at its interpreter";
  std::size_t torn = 0;
  for (const StackReader::Thread& thread : reader.threads()) {
    torn += thread.torn ? 1 : 0;
    for (const StackReader::FrameRef& frame : thread.frames) {
      if (frame.code == nullptr || thread.torn) continue;
      if (frame.code->function != "<?>" && frame.code->file != "<?>") return std::nullopt;
      return "names do not decode";
    }
  }
  if (torn == reader.threads().size()) return "no stack of code objects";
  return std::nullopt;  // threads without frames: nothing runs, nothing speaks against it
}

}  // namespace

struct Process::Impl {
  Impl(std::int32_t pid_in, const std::string& proc_root_in, std::string version_in,
       const Layout& layout, std::uint64_t runtime, Options options)
      : pid(pid_in),
        proc_root(proc_root_in),
        version(std::move(version_in)),
        memory(pid_in),
        reader(memory, layout, runtime, options),
        tasks(proc_root_in, pid_in),
        ids(pid_in, proc_root_in, memory, tasks),
        has_native_ids(layout.thread_native_id >= 0),
        depth_max(options.depth_max) {}

  const std::int32_t pid;
  const std::string proc_root;
  const std::string version;
  ProcessMemory memory;
  StackReader reader;
  TaskStates tasks;
  ThreadIds ids;
  const bool has_native_ids;
  const std::uint32_t depth_max;
  std::vector<PyStack> spare;  // stacks that the last sample did not need, for their capacity

  void fill(const StackReader::Thread& thread, PyStack& stack);
  [[nodiscard]] PyWait wait_of(std::int32_t tid) const;
};

PyWait Process::Impl::wait_of(std::int32_t tid) const {
  PyWait out;
  const auto wait = sys::thread_wait(proc_root, pid, tid);
  if (!wait) return out;
  out.call = sys::syscall_name(*wait);
  if (sys::takes_lock(wait->number)) {
    out.on = reader.is_in_lock(wait->first) ? kInterpreterLock : "";
  } else if (sys::takes_descriptor(wait->number)) {
    std::error_code failed;
    out.on = std::filesystem::read_symlink(fmt::format("{}/{}/fd/{}", proc_root, pid, wait->first),
                                           failed)
                 .string();
  }
  return out;
}

/// Outermost first, without the interpreter's own frames.
void Process::Impl::fill(const StackReader::Thread& thread, PyStack& stack) {
  stack.tid = has_native_ids ? ids.from_native(thread.native_id)
                             : ids.from_pthread(thread.thread_id, thread.is_main);
  const TaskReading task = tasks.read(stack.tid);
  stack.state = task.state;
  stack.minor_faults = task.minor_faults;
  stack.holds_gil = thread.holds_gil;
  stack.wait = {};
  const bool sleeps =
      stack.state == trace::SampleState::kSleeping || stack.state == trace::SampleState::kDisk;
  if (sleeps && stack.tid == pid) stack.wait = wait_of(stack.tid);
  stack.frames.clear();
  for (auto frame = thread.frames.rbegin(); frame != thread.frames.rend(); ++frame) {
    if (frame->code == nullptr) continue;
    stack.frames.push_back({.function = frame->code->function,
                            .file = frame->code->file,
                            .line = frame->line,
                            .cache_key = (std::uint64_t{frame->code->serial} << 32) | frame->line});
  }
}

Process::Process(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Process::~Process() = default;

Result<std::unique_ptr<Process>> Process::attach(std::int32_t pid, const sys::Procfs& procfs,
                                                 Options options) {
  TRY(const Interpreter found, find_interpreter(pid, procfs));
  ProcessMemory memory(pid);
  std::byte first{};
  if (!memory.read({{found.runtime, &first, 1}})) {
    Error error = errno_error(memory.last_errno(), "read memory of", fmt::format("pid {}", pid));
    if (memory.last_errno() == EFAULT) error.code = Code::kNotFound;
    if (error.code == Code::kPermission) {
      error.hint = "needs CAP_SYS_PTRACE, or the same user and kernel.yama.ptrace_scope=0";
    }
    return error;
  }
  TRY(const Layout layout, layout_of(found, memory));
  const std::string version = version_text(found.version);
  auto impl = std::make_unique<Impl>(pid, procfs.root(), version, layout, found.runtime, options);
  std::optional<std::string> why;
  const auto not_started = [&] {
    return Error{Code::kNotFound,
                 fmt::format("find Python in pid {}: the interpreter has not started", pid)};
  };
  for (int attempt = 0; attempt < kCheckAttemptsMax; ++attempt) {
    TRY_VOID(impl->reader.sample());
    if (!impl->reader.is_initialised()) return not_started();
    why = doubt(impl->reader);
    if (!why) return std::unique_ptr<Process>(new Process(std::move(impl)));  // NOLINT
  }
  return Error{
      Code::kUnavailable,
      fmt::format("read stacks of Python {} in pid {} ({}): {}", version, pid, found.path, *why),
      "this build of CPython does not have the layout of its release"};
}

const std::string& Process::version() const {
  return impl_->version;
}

Result<void> Process::sample(std::vector<PyStack>& out) {
  Impl& impl = *impl_;
  TRY_VOID(impl.reader.sample());
  const auto& threads = impl.reader.threads();
  std::size_t count = 0;
  // The list has the newest thread first; we give the oldest, usually the main thread, first.
  for (auto thread = threads.rbegin(); thread != threads.rend(); ++thread) {
    const bool has_frames = std::any_of(thread->frames.begin(), thread->frames.end(),
                                        [](const auto& frame) { return frame.code != nullptr; });
    if (thread->torn || !has_frames) continue;
    if (out.size() == count) {
      out.emplace_back();
      if (!impl.spare.empty()) {
        std::swap(out.back(), impl.spare.back());
        impl.spare.pop_back();
      }
    }
    impl.fill(*thread, out[count]);
    ++count;
  }
  while (out.size() > count) {
    if (impl.spare.size() < threads.size() + 1) impl.spare.push_back(std::move(out.back()));
    out.pop_back();
  }
  if (impl.reader.counters().samples % kForgetEverySamples == 0) impl.tasks.forget_unused();
  return {};
}

const Process::Counters& Process::counters() const {
  return impl_->reader.counters();
}

}  // namespace kansoku::capture::python
