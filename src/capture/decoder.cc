// SPDX-License-Identifier: Apache-2.0
#include "capture/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace kansoku::capture {
namespace {

constexpr std::size_t kGroupName = 3;  // in FunctionProbes::group

constexpr std::size_t kNotesMax = 6;        // of one call
constexpr std::size_t kSeatsMax = 65536;    // groups of all processes between two looks
constexpr std::size_t kOpenCallsMax = 512;  // a thread; deeper calls are left out and counted
constexpr std::size_t kScopeOpsMax = 4096;  // a process; PyTorch has a handful
constexpr std::string_view kUnnamedScope = "unnamed scope";
constexpr std::uint64_t kTimeMax = (1ULL << 62) - 1;  // 146 years of uptime

using trace::Arg;

// A record of the ring as T, or null if it is shorter. Ring records are 8-byte aligned.
template <class T>
const T* view_as(std::span<const std::byte> record) {
  return record.size() >= sizeof(T) ? reinterpret_cast<const T*>(record.data()) : nullptr;
}

std::string_view bounded(const char* text, std::size_t bytes_max) {
  return {text, ::strnlen(text, bytes_max)};
}

const wire_args* with_args(const wire_event& head, std::span<const std::byte> record) {
  return head.layout != WIRE_PLAIN ? view_as<wire_args>(record) : nullptr;
}

// The text of a record that has one.
std::optional<std::string_view> record_text(const wire_event& head,
                                            std::span<const std::byte> record) {
  if (head.layout == WIRE_WITH_TEXT) {
    const auto* with = view_as<wire_text>(record);
    return bounded(with->text, sizeof(with->text));
  }
  if (head.layout == WIRE_WITH_LONG_TEXT) {
    const auto* with = view_as<wire_long_text>(record);
    return bounded(with->text, sizeof(with->text));
  }
  return std::nullopt;
}

// True if a record has all that its layout promises.
bool has_layout(const wire_event& head, std::span<const std::byte> record) {
  static constexpr std::array<std::size_t, 4> kBytes{sizeof(wire_event), sizeof(wire_args),
                                                     sizeof(wire_text), sizeof(wire_long_text)};
  return head.layout < kBytes.size() && record.size() >= kBytes.at(head.layout);
}

bool is_call(const wire_event& head) {
  return head.kind == WIRE_BEGIN || head.kind == WIRE_END || head.kind == WIRE_INSTANT;
}

// A record_function name as PyTorch makes them: printable ASCII of some length.
bool is_scope_name(std::string_view text) {
  return text.size() >= 3 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

Decoder::Decoder(trace::Writer& writer, const ProbeTable& probes, const sys::Procfs& procfs)
    : writer_(writer), probes_(probes), symbols_(procfs, writer), cuda_(probes, procfs) {}

std::vector<LifecycleEvent> Decoder::take_lifecycle() {
  return std::exchange(lifecycle_, {});
}

Decoder::Thread& Decoder::thread_of(const wire_event& head) {
  // One thread's records come in runs.
  const std::uint64_t key = std::uint64_t{head.tgid} << 32 | head.tid;
  if (last_thread_ != nullptr && last_thread_key_ == key) return *last_thread_;
  const auto [found, is_new] = threads_.try_emplace(key);
  if (is_new) found->second.track = writer_.thread_track(as_pid(head.tgid), as_pid(head.tid), "");
  last_thread_key_ = key;
  last_thread_ = &found->second;
  return found->second;
}

const Decoder::ProbeNames& Decoder::names_of(std::uint32_t probe) {
  while (names_.size() <= probe) {
    const ProbeInfo& info = probes_[names_.size()];
    ProbeNames names{writer_.name(info.title), writer_.category(info.category), {}};
    for (const CaptureDef& capture : info.captures)
      names.args.push_back(writer_.name(capture.name));
    names_.push_back(std::move(names));
  }
  return names_[probe];
}

void Decoder::on_record(std::span<const std::byte> record) {
  const auto* head = view_as<wire_event>(record);
  ++counters_.records;
  if (head == nullptr || (head->kind < WIRE_SWITCH && head->probe >= probes_.size()) ||
      (is_call(*head) && !has_layout(*head, record)) || head->t_boot_ns > kTimeMax) {
    ++counters_.bad_records;
    return;
  }
  if (is_call(*head)) tell_cuda(*head, record);
  const auto* slice = view_as<wire_slice>(record);
  const auto* change = view_as<wire_switch>(record);
  if (head->kind == WIRE_SLICE && slice != nullptr && slice->duration_ns <= kTimeMax) {
    on_slice(*slice);
  } else if (head->kind == WIRE_BEGIN) {
    on_begin(*head, record);
  } else if (head->kind == WIRE_END) {
    on_end(*head, record);
  } else if (head->kind == WIRE_INSTANT) {
    on_instant(*head, record);
  } else if ((head->kind == WIRE_SWITCH || head->kind == WIRE_WAKE) && change != nullptr) {
    on_switch(*change);
  } else if (head->kind == WIRE_SIGNAL && change != nullptr) {
    on_signal(*change);
  } else if (const auto lifecycle = lifecycle_event(record)) {
    on_lifecycle(*lifecycle);
  } else if (const auto* call = view_as<wire_call_stack>(record);
             head->kind == WIRE_CALL_STACK && call != nullptr && head->probe < probes_.size()) {
    on_call_stack(*call);
  } else if (const auto* stack = view_as<wire_stack>(record);
             head->kind == WIRE_STACK && stack != nullptr) {
    on_stack(*stack);
  } else {
    ++counters_.bad_records;
  }
}

void Decoder::tell_cuda(const wire_event& head, std::span<const std::byte> record) {
  const wire_args* values = with_args(head, record);
  cuda_.on_record(head, values == nullptr ? nullptr : values->args, record_text(head, record));
}

// Adds the meanings of a launch's or copy's numbers, in place of the numbers.
void Decoder::add_cuda_args() {
  using outside::Key;
  const CudaCalls::Shown* shown = cuda_.shown();
  if (shown == nullptr) return;
  const outside::Call& call = shown->call;
  const auto kind = call.entry->kind;
  if (kind == outside::Kind::kCopy || kind == outside::Kind::kSet) {
    if (const auto bytes = outside::bytes_of(call); bytes && !call.has(Key::kBytes))
      args_.push_back(Arg::uint(writer_.name("bytes"), *bytes));
    if (kind == outside::Kind::kCopy)
      args_.push_back(Arg::str(writer_.name("kind"), outside::direction_of(call)));
  }
  if (shown->kernel == nullptr) return;
  static constexpr std::array<std::string_view, 6> kShape{"grid_x",  "grid_y",  "grid_z",
                                                          "block_x", "block_y", "block_z"};
  for (const std::string_view name : kShape)
    std::erase_if(args_, [&, key = writer_.name(name)](const Arg& arg) { return arg.key == key; });
  const auto shape = [&](Key x, Key y, Key z) {
    return fmt::format("{},{},{}", call.number(x), call.number(y), call.number(z));
  };
  const outside::Kernel& kernel = *shown->kernel;
  args_.push_back(Arg::str(writer_.name("kernel"), kernel.shown));
  if (kernel.full != kernel.shown)
    args_.push_back(Arg::str(writer_.name("full_name"), kernel.full));
  if (call.has(Key::kGridX) && call.has(Key::kBlockX)) {
    grid_ = shape(Key::kGridX, Key::kGridY, Key::kGridZ);
    block_ = shape(Key::kBlockX, Key::kBlockY, Key::kBlockZ);
    args_.push_back(Arg::str(writer_.name("grid"), grid_));
    args_.push_back(Arg::str(writer_.name("block"), block_));
  }
  if (shown->is_captured) args_.push_back(Arg::uint(writer_.name("captured"), 1));
}

void Decoder::on_lifecycle(LifecycleEvent event) {
  cuda_.on_lifecycle(event);
  if (event.kind != LifecycleEvent::Kind::kFork) {
    symbols_.forget(event.pid);
    forget_threads(event);
  }
  lifecycle_.push_back(event);
}

// With its program, a process loses its calls. Those of one that exits stay open in the trace: in
// which call it ended is evidence.
void Decoder::forget_threads(const LifecycleEvent& event) {
  const std::int32_t pid = event.pid;
  const std::uint64_t first = std::uint64_t{static_cast<std::uint32_t>(pid)} << 32;
  const auto begin = threads_.lower_bound(first), end = threads_.upper_bound(first | UINT32_MAX);
  if (event.kind == LifecycleEvent::Kind::kExec) {
    for (auto thread = begin; thread != end; ++thread)
      close_until(thread->second, 0, event.time);
  }
  threads_.erase(begin, end);
  last_thread_ = nullptr;
  scope_enter_ops_.erase(pid);
  ordinals_.erase(ordinals_.lower_bound({pid, 0}), ordinals_.upper_bound({pid, UINT64_MAX}));
}

void Decoder::on_stack(const wire_stack& record) {
  const std::size_t count = std::min<std::size_t>(record.frame_count, WIRE_STACK_MAX);
  if (count == 0) return;  // in the kernel on behalf of no user code
  const BootTime time = boot_time(static_cast<std::int64_t>(record.head.t_boot_ns));
  const std::int32_t pid = as_pid(record.head.tgid);
  static_cast<void>(thread_of(record.head));  // declares the thread
  std::array<std::uint64_t, WIRE_STACK_MAX> addresses{};
  std::copy_n(record.frames, count, addresses.begin());
  writer_.native_sample(pid, as_pid(record.head.tid), time, record.cpu,
                        symbols_.stack(pid, std::span(addresses).first(count), time));
}

void Decoder::on_call_stack(const wire_call_stack& record) {
  constexpr std::size_t kFramesShown = 12;
  const std::size_t count = std::min<std::size_t>(record.frame_count, WIRE_CALL_FRAMES);
  std::array<std::uint64_t, WIRE_CALL_FRAMES> addresses{};
  std::copy_n(record.frames, count, addresses.begin());
  Thread& thread = thread_of(record.head);
  thread.stack =
      symbols_.text(as_pid(record.head.tgid), std::span(addresses).first(count),
                    boot_time(static_cast<std::int64_t>(record.head.t_boot_ns)), kFramesShown);
  thread.stack_probe = record.head.probe;
}

// The stack that came just before its call.
void Decoder::add_stack(const wire_event& head) {
  Thread& thread = thread_of(head);
  if (thread.stack.empty()) return;
  stack_ = std::exchange(thread.stack, {});
  if (thread.stack_probe == head.probe) args_.push_back(Arg::str(writer_.name("stack"), stack_));
}

void Decoder::on_slice(const wire_slice& record) {
  const auto start = static_cast<std::int64_t>(record.head.t_boot_ns);
  if (probes_[record.head.probe].is_window && boot_time(start) < window_begin_) return;
  const ProbeNames& names = names_of(record.head.probe);
  const Thread& thread = thread_of(record.head);
  writer_.slice_begin(thread.track, boot_time(start), names.title, names.category);
  writer_.slice_end(thread.track, boot_time(start + static_cast<std::int64_t>(record.duration_ns)));
}

void Decoder::collect_args(const wire_event& head, std::span<const std::byte> record,
                           bool at_return) {
  args_.clear();
  const wire_args* values = with_args(head, record);
  const auto text = record_text(head, record);
  const ProbeInfo& probe = probes_[head.probe];
  if (values == nullptr) return;
  const ProbeNames& names = names_of(head.probe);
  for (std::size_t i = 0; i < probe.captures.size(); ++i) {
    const CaptureDef& capture = probe.captures[i];
    if (is_read_at_end(capture) != at_return) continue;
    const bool lacks_text = capture.how.is_text != 0 && !text;
    if (lacks_text || (head.failed_args >> i & 1) != 0) {
      // Another layout has no name there: note_seat() tells.
      const bool is_group_name =
          probe.group.size() > kGroupName && capture.name == probe.group[kGroupName];
      counters_.unread_args += is_group_name ? 0 : 1;
      continue;
    }
    std::uint64_t value = values->args[i];
    if (capture.how.size == 4) value &= 0xffffffffU;
    if (capture.how.is_text != 0) {
      args_.push_back(Arg::str(names.args[i], *text));
    } else if (capture.is_signed) {
      args_.push_back(Arg::sint(names.args[i], capture.how.size == 4
                                                   ? static_cast<std::int32_t>(value)
                                                   : static_cast<std::int64_t>(value)));
    } else {
      args_.push_back(Arg::uint(names.args[i], value));
    }
  }
}

const Arg* Decoder::arg_of(std::string_view name) {
  const trace::NameId id = writer_.name(name);
  const auto found =
      std::find_if(args_.begin(), args_.end(), [&](const Arg& arg) { return arg.key == id; });
  return found == args_.end() ? nullptr : &*found;
}

// The product of the pack's captures, if all of it could be read.
std::optional<std::uint64_t> Decoder::bytes_of(const ProbeInfo& probe) {
  if (probe.bytes.empty()) return std::nullopt;
  std::uint64_t product = 1;
  for (const std::string& name : probe.bytes) {
    const Arg* factor = arg_of(name);
    if (factor == nullptr) return std::nullopt;
    product *= factor->bits;
  }
  if (probe.type.empty()) return product;
  const Arg* type = arg_of(probe.type);
  if (type == nullptr || type->bits >= probe.type_values.size()) return std::nullopt;
  return product * probe.type_values[type->bits].bytes;
}

void Decoder::add_derived_args(const ProbeInfo& probe, std::int32_t pid) {
  if (const auto bytes = bytes_of(probe)) {
    args_.push_back(Arg::uint(writer_.name("bytes"), *bytes));
    if (!probe.type.empty())
      args_.push_back(
          Arg::str(writer_.name("dtype"), probe.type_values[arg_of(probe.type)->bits].name));
  }
  if (probe.ordinal_by) {
    const Arg* group = arg_of(*probe.ordinal_by);
    const std::uint64_t seq = ordinals_[{pid, group == nullptr ? 0 : group->bits}]++;
    args_.push_back(Arg::uint(writer_.name("seq"), seq));
  }
}

// A group's memory may be another group's later: what it says last holds. Rank and size that no
// group can have were read of another layout, as was the name, and are not told.
void Decoder::note_seat(const ProbeInfo& probe, std::int32_t pid) {
  if (probe.group.empty()) return;
  const Arg *const group = arg_of(probe.group[0]), *const rank = arg_of(probe.group[1]),
                   *const size = arg_of(probe.group[2]);
  if (group == nullptr || rank == nullptr || size == nullptr) return;
  const Arg* const name =
      probe.group.size() > kGroupName ? arg_of(probe.group[kGroupName]) : nullptr;
  if (rank->bits >= size->bits || size->bits > kGroupSizeMax) {
    const std::array lies{rank->key, size->key, name == nullptr ? rank->key : name->key};
    std::erase_if(args_, [&](const Arg& arg) {
      return std::find(lies.begin(), lies.end(), arg.key) != lies.end();
    });
    return;
  }
  if (probe.group.size() > kGroupName && name == nullptr) ++counters_.unread_args;
  if (seats_.size() >= kSeatsMax) {
    ++counters_.seats_over_limit;
    return;
  }
  seats_.insert_or_assign({pid, group->bits},
                          GroupSeat{pid, group->bits, static_cast<std::int32_t>(rank->bits),
                                    static_cast<std::int32_t>(size->bits)});
}

std::vector<GroupSeat> Decoder::take_seats() {
  std::vector<GroupSeat> out;
  out.reserve(seats_.size());
  for (const auto& [key, seat] : std::exchange(seats_, {}))
    out.push_back(seat);
  return out;
}

void Decoder::push_open(Thread& thread, OpenCall call) {
  if (thread.open.size() >= kOpenCallsMax) {
    ++counters_.too_deep;
    return;
  }
  thread.open.push_back(std::move(call));
}

void Decoder::on_begin(const wire_event& head, std::span<const std::byte> record) {
  const ProbeInfo& probe = probes_[head.probe];
  if (probe.kind == ProbeKind::kAnnotate) {
    on_annotation(head, record, false);
    return;
  }
  Thread& thread = thread_of(head);
  if (thread.open.size() >= kOpenCallsMax) {
    ++counters_.too_deep;
    return;
  }
  args_.clear();
  if (probe.is_syscall) {
    if (const auto* values = view_as<wire_args>(record);
        values != nullptr && head.layout != WIRE_PLAIN) {
      args_.push_back(Arg::uint(writer_.name("arg0"), values->args[0]));
      args_.push_back(Arg::uint(writer_.name("arg2"), values->args[2]));
    }
  } else {
    collect_args(head, record, false);
    add_derived_args(probe, as_pid(head.tgid));
    note_seat(probe, as_pid(head.tgid));
    add_cuda_args();
    add_stack(head);
  }
  const ProbeNames& names = names_of(head.probe);
  writer_.slice_begin(thread.track, boot_time(static_cast<std::int64_t>(head.t_boot_ns)),
                      names.title, names.category, args_);
  OpenCall call{.probe = head.probe, .name = names.title, .category = names.category};
  call.begin = boot_time(static_cast<std::int64_t>(head.t_boot_ns));
  for (const Arg& arg : args_) {
    if (arg.kind != Arg::Kind::kString) call.args.push_back(arg);
  }
  if (on_call_)
    on_call_({as_pid(head.tgid), as_pid(head.tid), probe.title, probe.category, call.begin});
  push_open(thread, std::move(call));
  if (probe.category == "collective" || probe.category == "message")
    communicating_.insert(as_pid(head.tgid));
}

void Decoder::reopen_calls() {
  for (const auto& [key, thread] : threads_) {
    for (const OpenCall& call : thread.open)
      writer_.slice_begin(thread.track, call.begin, call.name, call.category, call.args);
  }
}

void Decoder::end_window() {
  for (auto& [key, thread] : threads_)
    std::erase_if(thread.open, [&](const OpenCall& call) { return probes_[call.probe].is_window; });
}

// Ends calls above `depth` that never returned: an exception went through them, or their end was
// lost.
void Decoder::close_until(Thread& thread, std::size_t depth, BootTime time) {
  while (thread.open.size() > depth) {
    writer_.slice_end(thread.track, time);
    thread.open.pop_back();
  }
}

void Decoder::on_end(const wire_event& head, std::span<const std::byte> record) {
  const ProbeInfo& probe = probes_[head.probe];
  if (probe.kind == ProbeKind::kAnnotate) {
    on_annotation(head, record, true);
    return;
  }
  Thread& thread = thread_of(head);
  const BootTime time = boot_time(static_cast<std::int64_t>(head.t_boot_ns));
  const auto open = std::find_if(
      thread.open.rbegin(), thread.open.rend(),
      [&](const OpenCall& call) { return !call.is_scope && call.probe == head.probe; });
  if (open == thread.open.rend()) {
    ++counters_.unmatched_ends;
    return;
  }
  const auto depth = static_cast<std::size_t>(std::distance(open, thread.open.rend()));
  close_until(thread, depth, time);
  collect_args(head, record, true);
  if (probe.is_syscall) {
    const auto* values = view_as<wire_args>(record);
    if (values != nullptr && head.layout != WIRE_PLAIN) {
      args_.push_back(
          Arg::sint(writer_.name("result"), static_cast<std::int64_t>(values->args[0])));
    }
  }
  for (const Arg& note : thread.open.back().notes)
    args_.push_back(note);
  writer_.slice_end(thread.track, time, args_);
  thread.open.pop_back();
}

void Decoder::on_annotation(const wire_event& head, std::span<const std::byte> record,
                            bool at_return) {
  Thread& thread = thread_of(head);
  collect_args(head, record, at_return);
  if (thread.open.empty()) return;
  auto& notes = thread.open.back().notes;
  for (const Arg& arg : args_) {
    const bool is_text = arg.kind == Arg::Kind::kString;  // lies in the record, not in the note
    if (!is_text && notes.size() < kNotesMax) notes.push_back(arg);
  }
}

void Decoder::on_instant(const wire_event& head, std::span<const std::byte> record) {
  const ProbeInfo& probe = probes_[head.probe];
  if (probe.kind == ProbeKind::kScope) {
    on_scope(head, record);
    return;
  }
  collect_args(head, record, false);
  note_seat(probe, as_pid(head.tgid));
  add_cuda_args();
  add_stack(head);
  const ProbeNames& names = names_of(head.probe);
  const BootTime time = boot_time(static_cast<std::int64_t>(head.t_boot_ns));
  if (probe.is_host && host_track_.raw == 0) host_track_ = writer_.custom_track({}, "host");
  const trace::TrackHandle track = probe.is_host ? host_track_ : thread_of(head).track;
  writer_.instant(track, time, names.title, names.category, args_);
}

// Enter and exit of record_function come through one function: the operator's address tells them
// apart once an enter with its two arguments and a printable name was seen; from then on its other
// names may be anything. A one-argument call of another operator on top of a scope is the exit.
void Decoder::on_scope(const wire_event& head, std::span<const std::byte> record) {
  const wire_args* values = with_args(head, record);
  const ProbeInfo& probe = probes_[head.probe];
  if (values == nullptr || probe.captures.size() < 3) return;
  std::uint64_t op = 0;
  std::uint64_t arg_count = 0;
  std::size_t text_index = 0;
  for (std::size_t i = 0; i < probe.captures.size(); ++i) {
    if (probe.captures[i].name == "op") op = values->args[i];
    if (probe.captures[i].name == kScopeArguments) arg_count = values->args[i];
    if (probe.captures[i].how.is_text != 0) text_index = i;
  }
  const auto with = record_text(head, record);
  const bool has_text = (head.failed_args >> text_index & 1) == 0 && with;
  const std::string_view text = has_text ? *with : std::string_view{};
  const BootTime time = boot_time(static_cast<std::int64_t>(head.t_boot_ns));
  auto& enter_ops = scope_enter_ops_[as_pid(head.tgid)];
  const bool has_name = is_scope_name(text);
  const bool is_enter = arg_count == 2 && (has_name || enter_ops.contains(op));
  Thread& thread = thread_of(head);
  if (is_enter && thread.open.size() < kOpenCallsMax) {
    if (enter_ops.size() < kScopeOpsMax) enter_ops.insert(op);
    OpenCall call{.probe = head.probe, .is_scope = true, .begin = time};
    const std::string_view name = has_name ? text : kUnnamedScope;
    call.name = writer_.name(name);
    call.category = names_of(head.probe).category;
    writer_.slice_begin(thread.track, time, call.name, call.category);
    if (on_call_) on_call_({as_pid(head.tgid), as_pid(head.tid), name, probe.category, time});
    push_open(thread, std::move(call));
  } else if (!is_enter && arg_count == 1 && !enter_ops.contains(op) && !thread.open.empty() &&
             thread.open.back().is_scope) {
    close_until(thread, thread.open.size() - 1, time);
  }
}

void Decoder::on_switch(const wire_switch& record) {
  const BootTime time = boot_time(static_cast<std::int64_t>(record.head.t_boot_ns));
  const std::string_view next = bounded(record.next_comm, sizeof(record.next_comm));
  const std::string_view prev = bounded(record.prev_comm, sizeof(record.prev_comm));
  name_thread(record.head.tgid, record.head.tid, prev);
  name_thread(record.next_tgid, record.next_tid, next);
  if (record.head.kind == WIRE_WAKE) {
    writer_.sched_wake(time, record.cpu, as_pid(record.next_tid), next, as_pid(record.head.tid));
    return;
  }
  writer_.sched_switch({time, record.cpu, as_pid(record.head.tid), as_pid(record.next_tid),
                        record.prev_state, prev, next});
}

void Decoder::on_signal(const wire_switch& record) {
  name_thread(record.head.tgid, record.head.tid,
              bounded(record.prev_comm, sizeof(record.prev_comm)));
  const std::array args{trace::Arg::uint(writer_.name("signal"), record.prev_state),
                        trace::Arg::uint(writer_.name("sender"), record.head.tid)};
  const std::int32_t pid = as_pid(record.next_tgid);
  writer_.instant(writer_.thread_track(pid, pid, ""),
                  boot_time(static_cast<std::int64_t>(record.head.t_boot_ns)),
                  writer_.name("asked to end"), writer_.category("process"), args);
}

// Also of threads that are not observed: they have the processor while the job waits for it.
void Decoder::name_thread(std::uint32_t pid, std::uint32_t tid, std::string_view name) {
  constexpr std::size_t kThreadsMax = 32'768;
  if (tid == 0) return;  // the idle thread of a processor
  const auto known = thread_names_.find(tid);
  if (known != thread_names_.end() && known->second == name) return;
  if (known == thread_names_.end() && thread_names_.size() >= kThreadsMax) {
    ++counters_.unnamed_threads;
    return;
  }
  if (known == thread_names_.end()) named_pids_.insert(as_pid(pid));
  thread_names_[tid] = name;
  static_cast<void>(writer_.thread_track(as_pid(pid), as_pid(tid), name));
}

}  // namespace kansoku::capture
