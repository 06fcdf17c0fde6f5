// SPDX-License-Identifier: Apache-2.0
#include "trace/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "trace/internal/deflate.h"
#include "trace/internal/packet_buffer.h"
#include "trace/internal/schema.h"

namespace kansoku::trace {
namespace {

constexpr std::size_t kTextBytesMax = 4096;  // of one name; longer ones are cut
constexpr std::size_t kStackFramesMax = 2048;
constexpr std::string_view kTooMany = "(too many names)";
// Names that the writer itself writes: these do not count against the limit of names.
constexpr std::array<std::string_view, 8> kOwnNames{"loss",     "metadata", "stat", "count",
                                                    "severity", "advice",   "key",  "value"};
constexpr std::array<std::string_view, 2> kOwnCategories{"kansoku.loss", "kansoku.meta"};
constexpr std::array<std::string_view, 5> kPseudoFrames{"[unknown]", "[sleeping]", "[disk]",
                                                        "[stopped]", "[gil]"};

// Strings of one intern table of the sequence: ids count from 1.
class Interner {
 public:
  // The id of `text`, or 0 if it would be more than `count_max`; `is_new` tells that its entry must
  // still be written.
  std::uint32_t intern(std::string_view text, std::uint32_t count_max, bool& is_new) {
    is_new = false;
    if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
    if (ids_.size() - exempt_count_ >= count_max) return 0;
    is_new = true;
    texts_.emplace_back(text);
    const auto id = static_cast<std::uint32_t>(texts_.size());
    ids_.emplace(texts_.back(), id);
    return id;
  }
  // Texts known by now do not count against the limits of later calls.
  void exempt_all() { exempt_count_ = ids_.size(); }

 private:
  std::size_t exempt_count_{0};
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
};

std::string_view cut(std::string_view text) {
  return text.substr(0, kTextBytesMax);
}

std::string_view state_frame(SampleState state) {
  static constexpr std::array<std::string_view, 5> kNames{"[unknown]", "", "[sleeping]", "[disk]",
                                                          "[stopped]"};
  return kNames.at(static_cast<std::size_t>(state));
}

struct VectorHash {
  std::size_t operator()(const std::vector<std::uint32_t>& values) const noexcept {
    std::uint64_t hash = 1469598103934665603ULL;
    for (const std::uint32_t value : values)
      hash = (hash ^ value) * 1099511628211ULL;
    return static_cast<std::size_t>(hash);
  }
};

}  // namespace

struct Writer::Impl {
  ByteSink* sink;  // never null
  WriterOptions options;
  std::int64_t base_ns;
  std::unique_ptr<Deflater> deflater;
  PacketBuffer chunk;
  std::vector<std::byte> out;
  std::optional<Error> broken;
  Interner names, categories, functions, paths;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t>
      frames;                         // function, path, line
  std::size_t exempt_frame_count{0};  // pseudo frames
  std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, VectorHash>
      stack_ids;                                   // frames -> handle
  std::vector<std::vector<std::uint32_t>> stacks;  // handle - 1 -> frames
  std::map<std::tuple<std::uint32_t, SampleState, bool>, std::uint32_t>
      callstacks;  // with pseudo frames
  std::map<std::int32_t, std::uint32_t> process_tracks;
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> thread_tracks;
  std::map<std::uint32_t, std::vector<std::byte>> ftrace;  // by cpu, pending
  std::size_t ftrace_bytes{0};
  PacketBuffer scratch;
  std::uint32_t next_uuid;
  std::uint32_t own_track{0};
  std::uint64_t bytes_written{0}, events{0}, over_limit{0};
  // Packets of names, frames and tracks so far, in pieces of at most about a chunk.
  std::vector<std::vector<std::byte>> declared;

  Impl(ByteSink& sink_in, BootTime base, WriterOptions options_in)
      : sink(&sink_in),
        options(options_in),
        base_ns(base.time_since_epoch().count()),
        next_uuid(options_in.first_uuid) {
    CHECK(options.sequence >= 1 && options.sequence < 128);  // one byte in put_plain_event()
  }

  std::size_t open_packet(std::int64_t time_ns);
  void close_packet(std::size_t mark);
  std::size_t open_plain_packet();
  void close_declaration(std::size_t mark);
  void header();
  void own_names();
  std::uint32_t intern(Interner& table, std::uint32_t field, std::string_view text);
  std::uint32_t too_many(Interner& table, std::uint32_t field);
  std::uint32_t name_id(std::string_view text);
  std::uint32_t intern_entry(std::uint32_t field, std::string_view text, std::uint32_t id);
  void put_args(std::span<const Arg> args);
  void put_plain_event(std::uint64_t type, TrackHandle track, std::uint64_t since_base, NameId name,
                       CategoryId category);
  void put_event(std::uint64_t type, TrackHandle track, BootTime time, NameId name,
                 CategoryId category, std::span<const Arg> args, std::uint64_t flow);
  void put_sample(std::int32_t pid, std::int32_t tid, BootTime time, std::uint32_t callstack,
                  std::optional<std::uint32_t> cpu);
  std::uint32_t frame_id(std::string_view function, std::string_view file, std::uint32_t line);
  std::uint32_t callstack_id(StackHandle stack, SampleState state, bool holds_gil);
  void note(std::string_view category_text, std::string_view name_text, std::span<const Arg> args,
            BootTime time);
  void append_ftrace(std::uint32_t cpu);
  void flush_ftrace();
  Result<void> flush();
  void maybe_flush();
};

// Every packet: sequence, flags and time. A time before the base cannot be written relative to it.
std::size_t Writer::Impl::open_packet(std::int64_t time_ns) {
  const std::size_t mark = open_plain_packet();
  if (time_ns >= base_ns) {
    chunk.uint(schema::packet::kTimestamp, static_cast<std::uint64_t>(time_ns - base_ns));
  } else {
    chunk.uint(schema::packet::kTimestamp,
               static_cast<std::uint64_t>(std::max<std::int64_t>(time_ns, 0)));
    chunk.uint(schema::packet::kTimestampClockId, schema::clock::kBoot);
  }
  return mark;
}

std::size_t Writer::Impl::open_plain_packet() {
  const std::size_t mark = chunk.open(schema::file::kPacket);
  chunk.uint(schema::packet::kSequenceId, options.sequence);
  chunk.uint(schema::packet::kSequenceFlags, schema::packet::kFlagNeedsState);
  return mark;
}

void Writer::Impl::close_packet(std::size_t mark) {
  chunk.close(mark);
  if (broken) chunk.clear();  // nobody will ever take it
}

// Closes a packet that declares something, opened by open_plain_packet().
void Writer::Impl::close_declaration(std::size_t mark) {
  constexpr std::size_t kHeadBytes = 3;  // tag and length of a packet opened with open()
  chunk.close(mark);
  if (options.can_restart) {
    const ByteSpan packet = chunk.bytes().subspan(mark - kHeadBytes);
    if (declared.empty() || declared.back().size() + packet.size() > options.chunk_bytes_max)
      declared.emplace_back();
    declared.back().insert(declared.back().end(), packet.begin(), packet.end());
  }
  if (broken) chunk.clear();
}

void Writer::Impl::header() {
  const std::size_t start = chunk.open(schema::file::kPacket);
  chunk.uint(schema::packet::kSequenceId, options.sequence);
  chunk.uint(schema::packet::kSequenceFlags, schema::packet::kFlagCleared);
  const std::size_t defaults = chunk.open(schema::packet::kDefaults);
  chunk.uint(schema::defaults::kTimestampClockId, schema::clock::kRelative);
  chunk.close(defaults);
  const std::size_t snapshot = chunk.open(schema::packet::kClockSnapshot);
  const auto clock = [this](std::uint64_t id, std::uint64_t time) {
    const std::size_t mark = chunk.open(schema::clock::kClocks);
    chunk.uint(schema::clock::kId, id);
    chunk.uint(schema::clock::kTime, time);
    chunk.close(mark);
  };
  clock(schema::clock::kBoot, static_cast<std::uint64_t>(base_ns));
  clock(schema::clock::kRelative, 0);
  chunk.close(snapshot);
  chunk.close(start);
}

std::uint32_t Writer::Impl::intern_entry(std::uint32_t field, std::string_view text,
                                         std::uint32_t id) {
  const std::size_t packet = open_plain_packet();
  const std::size_t data = chunk.open(schema::packet::kInternedData);
  const std::size_t entry = chunk.open(field);
  chunk.uint(schema::interned::kId, id);
  chunk.text(schema::interned::kText, text);
  chunk.close(entry);
  chunk.close(data);
  close_declaration(packet);
  return id;
}

std::uint32_t Writer::Impl::intern(Interner& table, std::uint32_t field, std::string_view text) {
  bool is_new = false;
  text = cut(text);
  const std::uint32_t id = table.intern(text, options.strings_max, is_new);
  if (id == 0) return too_many(table, field);
  return is_new ? intern_entry(field, text, id) : id;
}

std::uint32_t Writer::Impl::too_many(Interner& table, std::uint32_t field) {
  bool is_new = false;
  ++over_limit;
  const std::uint32_t id = table.intern(kTooMany, options.strings_max + 1, is_new);
  return is_new ? intern_entry(field, kTooMany, id) : id;
}

// Event names and argument names share ids: both tables get the entry, so a NameId serves for
// either.
std::uint32_t Writer::Impl::name_id(std::string_view text) {
  bool is_new = false;
  text = cut(text);
  std::uint32_t id = names.intern(text, options.strings_max, is_new);
  if (id == 0) {
    ++over_limit;
    text = kTooMany;
    id = names.intern(text, options.strings_max + 1, is_new);
  }
  if (!is_new) return id;
  intern_entry(schema::interned::kEventNames, text, id);
  return intern_entry(schema::interned::kAnnotationNames, text, id);
}

// However many names a recording has, its losses and the states of its samples must stay readable.
void Writer::Impl::own_names() {
  const std::uint32_t strings_max = std::exchange(options.strings_max, 1U << 20);
  for (const std::string_view text : kOwnNames)
    name_id(text);
  for (const std::string_view text : kOwnCategories)
    intern(categories, schema::interned::kCategories, text);
  for (const std::string_view text : kPseudoFrames)
    frame_id(text, "", 0);
  names.exempt_all();
  categories.exempt_all();
  functions.exempt_all();
  exempt_frame_count = frames.size();
  options.strings_max = strings_max;
}

void Writer::Impl::put_args(std::span<const Arg> args) {
  for (const Arg& arg : args) {
    const std::size_t mark = chunk.open(schema::event::kAnnotations);
    chunk.uint(schema::annotation::kNameId, arg.key.raw);
    if (arg.kind == Arg::Kind::kUint) chunk.uint(schema::annotation::kUint, arg.bits);
    if (arg.kind == Arg::Kind::kInt) chunk.uint(schema::annotation::kInt, arg.bits);
    if (arg.kind == Arg::Kind::kDouble) chunk.fixed64(schema::annotation::kDouble, arg.bits);
    if (arg.kind == Arg::Kind::kString)
      chunk.text(schema::annotation::kString, cut(arg.text).substr(0, 1024));
    chunk.close(mark);
  }
}

// The bulk of every trace, so encoded without nested open() and close(): one bounds check, and
// lengths of one byte, since the message stays below 128.
void Writer::Impl::put_plain_event(std::uint64_t type, TrackHandle track, std::uint64_t since_base,
                                   NameId name, CategoryId category) {
  constexpr std::size_t kBytesMax = 64;
  static_assert(2 * 2 + 2 + 2 + (1 + 10) + 2 + 3 * (1 + 5) <= kBytesMax && kBytesMax < 128);
  const auto tag = [](std::uint32_t field, unsigned wire_type) {
    CHECK(field < 16);
    return static_cast<std::byte>(field << 3 | wire_type);
  };
  const auto field = [&tag](std::byte* to, std::uint32_t number, std::uint64_t value) {
    *to++ = tag(number, 0);
    return PacketBuffer::put_varint(to, value);
  };
  std::byte* const begin = chunk.claim(kBytesMax);
  begin[0] = tag(schema::file::kPacket, 2);
  std::byte* at = begin + 2;
  at = field(at, schema::packet::kSequenceId, options.sequence);
  at = field(at, schema::packet::kSequenceFlags, schema::packet::kFlagNeedsState);
  at = field(at, schema::packet::kTimestamp, since_base);
  *at++ = tag(schema::packet::kTrackEvent, 2);
  std::byte* const event = ++at;
  at = field(at, schema::event::kType, type);
  if (name.raw != 0) at = field(at, schema::event::kNameId, name.raw);
  at = field(at, schema::event::kTrackUuid, track.raw);
  if (category.raw != 0) at = field(at, schema::event::kCategoryIds, category.raw);
  event[-1] = static_cast<std::byte>(at - event);
  begin[1] = static_cast<std::byte>(at - begin - 2);
  chunk.claimed(at);
}

void Writer::Impl::put_event(std::uint64_t type, TrackHandle track, BootTime time, NameId name,
                             CategoryId category, std::span<const Arg> args, std::uint64_t flow) {
  if (broken) return;
  const std::int64_t time_ns = time.time_since_epoch().count();
  if (args.empty() && flow == 0 && time_ns >= base_ns) {
    put_plain_event(type, track, static_cast<std::uint64_t>(time_ns - base_ns), name, category);
    ++events;
    maybe_flush();
    return;
  }
  const std::size_t packet = open_packet(time.time_since_epoch().count());
  const std::size_t mark = chunk.open(schema::packet::kTrackEvent);
  chunk.uint(schema::event::kType, type);
  if (name.raw != 0) chunk.uint(schema::event::kNameId, name.raw);
  chunk.uint(schema::event::kTrackUuid, track.raw);
  if (category.raw != 0) chunk.uint(schema::event::kCategoryIds, category.raw);
  if (flow != 0) chunk.fixed64(schema::event::kFlowIds, flow);
  put_args(
      args.first(std::min<std::size_t>(args.size(), 12)));  // 12 arguments fit a message of 16 KiB
  chunk.close(mark);
  close_packet(packet);
  ++events;
  maybe_flush();
}

std::uint32_t Writer::Impl::frame_id(std::string_view function, std::string_view file,
                                     std::uint32_t line) {
  std::uint32_t function_id = intern(functions, schema::interned::kFunctionNames, function);
  std::uint32_t path_id = file.empty() ? 0 : intern(paths, schema::interned::kSourcePaths, file);
  auto key = std::tuple(function_id, path_id, line);
  if (frames.size() - exempt_frame_count >= options.strings_max && !frames.contains(key)) {
    function_id = too_many(functions, schema::interned::kFunctionNames);
    path_id = 0;
    line = 0;
    key = {function_id, path_id, line};
  }
  const auto [found, is_new] =
      frames.try_emplace(key, static_cast<std::uint32_t>(frames.size() + 1));
  if (!is_new) return found->second;
  const std::size_t packet = open_plain_packet();
  const std::size_t data = chunk.open(schema::packet::kInternedData);
  const std::size_t entry = chunk.open(schema::interned::kFrames);
  chunk.uint(schema::interned::kId, found->second);
  chunk.uint(schema::interned::kFrameFunction, function_id);
  if (path_id != 0) chunk.uint(schema::interned::kFrameSourcePath, path_id);
  if (line != 0) chunk.uint(schema::interned::kFrameLine, line);
  chunk.close(entry);
  chunk.close(data);
  close_declaration(packet);
  return found->second;
}

// PerfSample knows no thread state: it travels as pseudo frames at the inner end of the stack.
std::uint32_t Writer::Impl::callstack_id(StackHandle stack, SampleState state, bool holds_gil) {
  const auto [found, is_new] = callstacks.try_emplace(
      {stack.raw, state, holds_gil}, static_cast<std::uint32_t>(callstacks.size() + 1));
  if (!is_new) return found->second;
  std::vector<std::uint32_t> ids;
  if (stack.raw != 0) ids = stacks[stack.raw - 1];
  if (holds_gil) ids.push_back(frame_id("[gil]", "", 0));
  if (state != SampleState::kRunning) ids.push_back(frame_id(state_frame(state), "", 0));
  const std::size_t packet = open_plain_packet();
  const std::size_t data = chunk.open(schema::packet::kInternedData);
  const std::size_t entry = chunk.open(schema::interned::kCallstacks);
  chunk.uint(schema::interned::kId, found->second);
  for (const std::uint32_t id : ids)
    chunk.uint(schema::interned::kStackFrames, id);
  chunk.close(entry);
  chunk.close(data);
  close_declaration(packet);
  return found->second;
}

void Writer::Impl::flush_ftrace() {
  for (auto& [cpu, events_of_cpu] : ftrace) {
    if (events_of_cpu.empty()) continue;
    const std::size_t packet = chunk.open_large(schema::file::kPacket);
    chunk.uint(schema::packet::kSequenceId, options.sequence);
    const std::size_t bundle = chunk.open_large(schema::packet::kFtraceEvents);
    chunk.uint(schema::ftrace::kCpu, cpu);
    chunk.raw(events_of_cpu);
    chunk.close_large(bundle);
    chunk.close_large(packet);
    events_of_cpu.clear();
  }
  ftrace_bytes = 0;
}

void Writer::Impl::append_ftrace(std::uint32_t cpu) {
  auto& pending = ftrace[cpu];
  pending.insert(pending.end(), scratch.bytes().begin(), scratch.bytes().end());
  ftrace_bytes += scratch.size();
  ++events;
  maybe_flush();
}

void Writer::Impl::maybe_flush() {
  if (chunk.size() + ftrace_bytes >= options.chunk_bytes_max)
    static_cast<void>(flush());  // the error stays in `broken`
}

Result<void> Writer::Impl::flush() {
  if (broken) return *broken;
  flush_ftrace();
  if (chunk.size() == 0) return {};
  out.clear();
  if (deflater) {
    PacketBuffer head;
    std::vector<std::byte> compressed;
    deflater->compress(chunk.bytes(), compressed);
    const std::size_t packet = head.open_large(schema::file::kPacket);
    head.text(schema::packet::kCompressedPackets, as_text(compressed));
    head.close_large(packet);
    out.assign(head.bytes().begin(), head.bytes().end());
  } else {
    out.assign(chunk.bytes().begin(), chunk.bytes().end());
  }
  chunk.clear();
  if (auto appended = sink->append(out); !appended) {
    broken = std::move(appended).error();
    return *broken;
  }
  bytes_written += out.size();
  return {};
}

void Writer::Impl::note(std::string_view category_text, std::string_view name_text,
                        std::span<const Arg> args, BootTime time) {
  const CategoryId category{intern(categories, schema::interned::kCategories, category_text)};
  const NameId name{name_id(name_text)};
  const std::uint64_t observed = events;
  put_event(schema::event::kInstant, TrackHandle{own_track}, time, name, category, args, 0);
  events = observed;  // bookkeeping is no observation
}

Writer::Writer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Writer::~Writer() = default;

Result<std::unique_ptr<Writer>> Writer::create(ByteSink& sink, BootTime now,
                                               WriterOptions options) {
  auto impl = std::make_unique<Impl>(sink, now, options);
  if (options.deflate_level > 0) {
    TRY(impl->deflater, Deflater::create(options.deflate_level));
  }
  impl->chunk.reserve(options.chunk_bytes_max + 65536);
  impl->header();
  impl->own_names();
  std::unique_ptr<Writer> writer(new Writer(std::move(impl)));
  writer->impl_->own_track = writer->custom_track({}, "kansoku").raw;
  return writer;
}

Result<void> Writer::restart(ByteSink& sink, BootTime now) {
  Impl& impl = *impl_;
  CHECK(impl.options.can_restart);
  impl.sink = &sink;
  impl.base_ns = now.time_since_epoch().count();
  impl.broken.reset();
  impl.chunk.clear();
  for (auto& [cpu, pending] : impl.ftrace)
    pending.clear();
  impl.ftrace_bytes = 0;
  impl.bytes_written = impl.events = impl.over_limit = 0;
  impl.header();
  for (const auto& piece : impl.declared) {
    impl.chunk.raw(piece);
    TRY_VOID(impl.flush());
  }
  return {};
}

NameId Writer::name(std::string_view text) {
  return NameId{impl_->name_id(text)};
}

CategoryId Writer::category(std::string_view text) {
  return CategoryId{impl_->intern(impl_->categories, schema::interned::kCategories, text)};
}

namespace {

void put_process(PacketBuffer& chunk, const ProcessInfo& info) {
  const std::size_t process = chunk.open(schema::track::kProcess);
  chunk.sint(schema::track::kPid, info.pid);
  if (!info.cmdline.empty()) chunk.text(schema::track::kCmdline, info.cmdline.substr(0, 1024));
  if (!info.name.empty()) chunk.text(schema::track::kProcessName, info.name.substr(0, 256));
  const auto label = [&chunk](std::string_view key, const std::string& value) {
    chunk.text(schema::track::kLabels, fmt::format("{}={}", key, value.substr(0, 256)));
  };
  if (info.parent_pid != 0) label("parent_pid", std::to_string(info.parent_pid));
  if (info.rank != kNoRank) label("rank", std::to_string(info.rank));
  if (info.local_rank != kNoRank) label("local_rank", std::to_string(info.local_rank));
  if (info.world_size != kNoRank) label("world_size", std::to_string(info.world_size));
  if (!info.job.empty()) label("job", std::string(info.job));
  if (!info.role.empty()) label("role", std::string(info.role));
  chunk.close(process);
}

}  // namespace

TrackHandle Writer::process_track(const ProcessInfo& info) {
  const auto [found, is_new] = impl_->process_tracks.try_emplace(info.pid, impl_->next_uuid);
  if (is_new) ++impl_->next_uuid;
  PacketBuffer& chunk = impl_->chunk;
  const std::size_t packet = impl_->open_plain_packet();
  const std::size_t track = chunk.open(schema::packet::kTrackDescriptor);
  chunk.uint(schema::track::kUuid, found->second);
  put_process(chunk, info);
  chunk.close(track);
  impl_->close_declaration(packet);
  return TrackHandle{found->second};
}

TrackHandle Writer::thread_track(std::int32_t pid, std::int32_t tid, std::string_view thread_name) {
  const auto [found, is_new] = impl_->thread_tracks.try_emplace({pid, tid}, impl_->next_uuid);
  if (is_new) ++impl_->next_uuid;
  if (!is_new && thread_name.empty()) return TrackHandle{found->second};
  const auto process = impl_->process_tracks.find(pid);
  PacketBuffer& chunk = impl_->chunk;
  const std::size_t packet = impl_->open_plain_packet();
  const std::size_t track = chunk.open(schema::packet::kTrackDescriptor);
  chunk.uint(schema::track::kUuid, found->second);
  if (process != impl_->process_tracks.end())
    chunk.uint(schema::track::kParentUuid, process->second);
  const std::size_t thread = chunk.open(schema::track::kThread);
  chunk.sint(schema::track::kThreadPid, pid);
  chunk.sint(schema::track::kThreadTid, tid);
  if (!thread_name.empty()) chunk.text(schema::track::kThreadName, thread_name.substr(0, 256));
  chunk.close(thread);
  chunk.close(track);
  impl_->close_declaration(packet);
  return TrackHandle{found->second};
}

TrackHandle Writer::custom_track(TrackHandle parent, std::string_view track_name) {
  const std::uint32_t uuid = impl_->next_uuid++;
  PacketBuffer& chunk = impl_->chunk;
  const std::size_t packet = impl_->open_plain_packet();
  const std::size_t track = chunk.open(schema::packet::kTrackDescriptor);
  chunk.uint(schema::track::kUuid, uuid);
  chunk.text(schema::track::kName, track_name.substr(0, 256));
  if (parent.raw != 0) chunk.uint(schema::track::kParentUuid, parent.raw);
  chunk.close(track);
  impl_->close_declaration(packet);
  return TrackHandle{uuid};
}

TrackHandle Writer::counter_track(TrackHandle parent, std::string_view track_name,
                                  std::string_view unit) {
  const std::uint32_t uuid = impl_->next_uuid++;
  PacketBuffer& chunk = impl_->chunk;
  const std::size_t packet = impl_->open_plain_packet();
  const std::size_t track = chunk.open(schema::packet::kTrackDescriptor);
  chunk.uint(schema::track::kUuid, uuid);
  chunk.text(schema::track::kName, track_name.substr(0, 256));
  if (parent.raw != 0) chunk.uint(schema::track::kParentUuid, parent.raw);
  const std::size_t counter = chunk.open(schema::track::kCounter);
  if (!unit.empty()) chunk.text(schema::track::kUnitName, unit.substr(0, 64));
  chunk.close(counter);
  chunk.close(track);
  impl_->close_declaration(packet);
  return TrackHandle{uuid};
}

void Writer::slice_begin(TrackHandle track, BootTime time, NameId name, CategoryId category,
                         std::span<const Arg> args, std::uint64_t flow) {
  impl_->put_event(schema::event::kSliceBegin, track, time, name, category, args, flow);
}

void Writer::slice_end(TrackHandle track, BootTime time, std::span<const Arg> args) {
  impl_->put_event(schema::event::kSliceEnd, track, time, {}, {}, args, 0);
}

void Writer::instant(TrackHandle track, BootTime time, NameId name, CategoryId category,
                     std::span<const Arg> args) {
  impl_->put_event(schema::event::kInstant, track, time, name, category, args, 0);
}

void Writer::counter(TrackHandle track, BootTime time, double value) {
  if (impl_->broken) return;
  PacketBuffer& chunk = impl_->chunk;
  const std::size_t packet = impl_->open_packet(time.time_since_epoch().count());
  const std::size_t event = chunk.open(schema::packet::kTrackEvent);
  chunk.uint(schema::event::kType, schema::event::kCounter);
  chunk.uint(schema::event::kTrackUuid, track.raw);
  chunk.fixed64(schema::event::kDoubleCounterValue, std::bit_cast<std::uint64_t>(value));
  chunk.close(event);
  impl_->close_packet(packet);
  ++impl_->events;
  impl_->maybe_flush();
}

FrameHandle Writer::frame(std::string_view function, std::string_view file, std::uint32_t line) {
  return FrameHandle{impl_->frame_id(function, file, line)};
}

StackHandle Writer::stack(std::span<const FrameHandle> outermost_first) {
  std::vector<std::uint32_t> ids;
  const std::size_t skipped =
      outermost_first.size() > kStackFramesMax ? outermost_first.size() - kStackFramesMax : 0;
  for (const FrameHandle frame : outermost_first.subspan(skipped))
    ids.push_back(frame.raw);
  if (impl_->stacks.size() >= impl_->options.strings_max && !impl_->stack_ids.contains(ids)) {
    ++impl_->over_limit;
    ids = {impl_->frame_id(kTooMany, "", 0)};
  }
  const auto next = static_cast<std::uint32_t>(impl_->stacks.size() + 1);
  const auto [found, is_new] = impl_->stack_ids.try_emplace(ids, next);
  if (is_new) impl_->stacks.push_back(std::move(ids));
  return StackHandle{found->second};
}

void Writer::Impl::put_sample(std::int32_t pid, std::int32_t tid, BootTime time,
                              std::uint32_t callstack, std::optional<std::uint32_t> cpu) {
  const std::size_t packet = open_packet(time.time_since_epoch().count());
  const std::size_t mark = chunk.open(schema::packet::kPerfSample);
  if (cpu) chunk.uint(schema::sample::kCpu, *cpu);
  chunk.sint(schema::sample::kPid, pid);
  chunk.sint(schema::sample::kTid, tid);
  chunk.uint(schema::sample::kCallstack, callstack);
  if (cpu) chunk.uint(schema::sample::kCpuMode, schema::sample::kModeUser);
  chunk.close(mark);
  close_packet(packet);
  ++events;
  maybe_flush();
}

void Writer::sample(std::int32_t pid, std::int32_t tid, BootTime time, StackHandle stack,
                    SampleState state, bool holds_gil) {
  if (impl_->broken) return;
  impl_->put_sample(pid, tid, time, impl_->callstack_id(stack, state, holds_gil), std::nullopt);
}

void Writer::native_sample(std::int32_t pid, std::int32_t tid, BootTime time, std::uint32_t cpu,
                           StackHandle stack) {
  if (impl_->broken) return;
  impl_->put_sample(pid, tid, time, impl_->callstack_id(stack, SampleState::kRunning, false), cpu);
}

void Writer::sched_switch(const SchedSwitch& event) {
  if (impl_->broken) return;
  PacketBuffer& out = impl_->scratch;
  out.clear();
  const std::size_t mark = out.open(schema::ftrace::kEvent);
  out.sint(schema::ftrace::kTime, event.time.time_since_epoch().count());
  out.sint(schema::ftrace::kPid, event.prev_tid);
  const std::size_t body = out.open(schema::ftrace::kSwitch);
  out.text(schema::ftrace::kPrevComm, event.prev_comm.substr(0, 16));
  out.sint(schema::ftrace::kPrevPid, event.prev_tid);
  out.uint(schema::ftrace::kPrevState, event.prev_state);
  out.text(schema::ftrace::kNextComm, event.next_comm.substr(0, 16));
  out.sint(schema::ftrace::kNextPid, event.next_tid);
  out.close(body);
  out.close(mark);
  impl_->append_ftrace(event.cpu);
}

void Writer::sched_wake(BootTime time, std::uint32_t cpu, std::int32_t tid, std::string_view comm,
                        std::int32_t waker_tid) {
  if (impl_->broken) return;
  PacketBuffer& out = impl_->scratch;
  out.clear();
  const std::size_t mark = out.open(schema::ftrace::kEvent);
  out.sint(schema::ftrace::kTime, time.time_since_epoch().count());
  out.sint(schema::ftrace::kPid, waker_tid);
  const std::size_t body = out.open(schema::ftrace::kWakeup);
  out.text(schema::ftrace::kWokenComm, comm.substr(0, 16));
  out.sint(schema::ftrace::kWokenPid, tid);
  out.close(body);
  out.close(mark);
  impl_->append_ftrace(cpu);
}

void Writer::loss(const StatDef& stat, std::uint64_t total, BootTime time) {
  const std::array args{Arg::str(name("stat"), stat.name), Arg::uint(name("count"), total),
                        Arg::str(name("severity"), severity_name(stat.severity)),
                        Arg::str(name("advice"), stat.advice)};
  impl_->note("kansoku.loss", "loss", args, time);
}

void Writer::metadata(std::string_view key, std::string_view value, BootTime time) {
  const std::array args{Arg::str(name("key"), key), Arg::str(name("value"), value)};
  impl_->note("kansoku.meta", "metadata", args, time);
}

Result<void> Writer::flush() {
  if (impl_->over_limit != 0)
    loss(trace_strings_over_limit, impl_->over_limit, boot_time(impl_->base_ns));
  return impl_->flush();
}

std::uint64_t Writer::bytes_written() const {
  return impl_->bytes_written;
}
std::uint64_t Writer::events_written() const {
  return impl_->events;
}
std::uint64_t Writer::bytes_pending() const {
  return impl_->chunk.size() + impl_->ftrace_bytes;
}

}  // namespace kansoku::trace
