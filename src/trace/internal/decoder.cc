// SPDX-License-Identifier: Apache-2.0
#include "trace/internal/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "common/parse.h"
#include "trace/internal/schema.h"

namespace kansoku::trace {
namespace {

using protozero::data_view;
using protozero::pbf_reader;
using protozero::pbf_wire_type;

// Case labels that match field number and wire type together: a field of the wrong type is skipped
// like an unknown one.
constexpr std::uint32_t varint(std::uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::varint);
}
constexpr std::uint32_t bytes(std::uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::length_delimited);
}
constexpr std::uint32_t fixed64(std::uint32_t field) {
  return protozero::tag_and_type(field, pbf_wire_type::fixed64);
}

std::string_view text_of(data_view view) {
  return {view.data(), view.size()};
}

std::int32_t as_pid(std::uint64_t value) {
  return static_cast<std::int32_t>(value);
}

constexpr std::uint64_t kOwnClockFirst = 64;
constexpr std::uint64_t kOwnClockLast = 127;
constexpr std::size_t kLabelsMax = 64;       // of one process
constexpr std::size_t kFactBytesMax = 4096;  // of one text in losses and metadata

// From `begin` to `end`, at least 0. Hostile times may be further apart than an int64 counts.
std::int64_t duration_between(std::int64_t begin, std::int64_t end) {
  if (end <= begin) return 0;
  const std::uint64_t ns = static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(begin);
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(ns, std::numeric_limits<std::int64_t>::max()));
}

}  // namespace

struct PacketDecoder::PacketHead {
  std::uint32_t sequence{0};
  std::uint64_t flags{0};
  std::uint64_t timestamp{0};
  bool has_timestamp{false};
  std::uint64_t clock{0};  // 0 = the sequence's default
};

struct PacketDecoder::EventFields {
  std::uint64_t type{0};
  std::optional<std::uint64_t> track;
  StringId name{}, category{};
  double counter_value{0};
  bool has_args{false};
  std::array<std::uint64_t, 8> flows{};
  std::size_t flow_count{0};
  TrackId track_id{};
};

void PacketDecoder::count(const StatDef& stat, std::uint64_t by) {
  Loss& loss = trace_.losses[std::string(stat.name)];
  loss = {std::string(stat.name), loss.count + by, stat.severity, std::string(stat.advice)};
}

Result<void> PacketDecoder::count_event(std::uint64_t by) {
  if (by > options_.events_max - event_count_) {
    return Error{Code::kLimit, fmt::format("read trace: more than {} events", options_.events_max)};
  }
  event_count_ += by;
  return {};
}

Result<StringId> PacketDecoder::intern(data_view text) {
  const std::size_t before = trace_.strings.size();
  const StringId id = trace_.strings.intern(text_of(text));
  if (trace_.strings.size() != before) string_bytes_ += text.size() + 32;
  if (string_bytes_ > options_.strings_bytes_max) {
    return Error{Code::kLimit, fmt::format("read trace: more than {} bytes of names",
                                           options_.strings_bytes_max)};
  }
  return id;
}

void PacketDecoder::read_head(data_view view, PacketHead& head) const {
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::packet::kTimestamp):
        head.timestamp = reader.get_uint64();
        head.has_timestamp = true;
        break;
      case varint(schema::packet::kSequenceId):
        head.sequence = reader.get_uint32();
        break;
      case varint(schema::packet::kSequenceFlags):
        head.flags = reader.get_uint64();
        break;
      case varint(schema::packet::kIncrementalStateCleared):
        if (reader.get_uint64() != 0) head.flags |= schema::packet::kFlagCleared;
        break;
      case varint(schema::packet::kTimestampClockId):
        head.clock = reader.get_uint64();
        break;
      default:
        reader.skip();
    }
  }
}

Result<void> PacketDecoder::packet(data_view view) {
  PacketHead head;
  read_head(view, head);
  const auto [found, is_new] = sequences_.try_emplace(head.sequence);
  if (is_new && sequences_.size() > options_.sequences_max) {
    return Error{Code::kLimit,
                 fmt::format("read trace: more than {} packet sequences", options_.sequences_max)};
  }
  Sequence& sequence = found->second;
  if ((head.flags & schema::packet::kFlagCleared) != 0) sequence.clear_incremental_state();
  return body(view, head, sequence);
}

Result<void> PacketDecoder::body(data_view view, const PacketHead& head, Sequence& sequence) {
  // Interned data, clocks and defaults count for the packet they come in, whatever their place in
  // it.
  data_view event;
  data_view sample;
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case bytes(schema::packet::kTrackEvent):
        event = reader.get_view();
        break;
      case bytes(schema::packet::kPerfSample):
        sample = reader.get_view();
        break;
      case bytes(schema::packet::kInternedData):
        TRY_VOID(interned_data(reader.get_view(), sequence));
        break;
      case bytes(schema::packet::kTrackDescriptor):
        TRY_VOID(track_descriptor(reader.get_view()));
        break;
      case bytes(schema::packet::kFtraceEvents):
        TRY_VOID(ftrace_bundle(reader.get_view()));
        break;
      case bytes(schema::packet::kClockSnapshot):
        clock_snapshot(reader.get_view(), sequence);
        break;
      case bytes(schema::packet::kDefaults):
        packet_defaults(reader.get_view(), sequence);
        break;
      default:
        reader.skip();
    }
  }
  const bool has_event = event.data() != nullptr || sample.data() != nullptr;
  // A packet without an event moves an incremental clock too.
  if (!has_event && !head.has_timestamp) return {};
  const std::int64_t time_ns = boot_time_of(head, sequence, has_event);
  if (event.data() != nullptr) TRY_VOID(track_event(event, time_ns, sequence));
  if (sample.data() != nullptr) TRY_VOID(perf_sample(sample, time_ns, sequence));
  return {};
}

std::int64_t PacketDecoder::boot_time_of(const PacketHead& head, Sequence& sequence,
                                         bool has_event) {
  const std::uint64_t id = head.clock != 0 ? head.clock : sequence.default_clock;
  const bool is_own = id >= kOwnClockFirst && id <= kOwnClockLast;
  auto& clocks = is_own ? sequence.clocks : global_clocks_;
  const auto found = clocks.find(id);
  if (id == schema::clock::kBoot || found == clocks.end()) {
    if (id != schema::clock::kBoot && has_event) count(trace_unknown_reference);
    return static_cast<std::int64_t>(head.timestamp);
  }
  ClockMap& clock = found->second;
  std::uint64_t now = head.timestamp;
  if (clock.is_incremental) now = clock.last += head.timestamp;
  const std::uint64_t since = (now - clock.at_time) * clock.unit_ns;  // wraps like the clock does
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(clock.at_boot_ns) + since);
}

void PacketDecoder::clock_snapshot(data_view view, Sequence& sequence) {
  struct Reading {
    std::uint64_t id{0}, time{0}, unit_ns{1};
    bool is_incremental{false};
  };
  std::vector<Reading> readings;
  std::optional<std::int64_t> boot;
  pbf_reader reader(view);
  while (reader.next(schema::clock::kClocks, pbf_wire_type::length_delimited)) {
    pbf_reader one(reader.get_view());
    Reading reading;
    while (one.next()) {
      switch (one.tag_and_type()) {
        case varint(schema::clock::kId):
          reading.id = one.get_uint64();
          break;
        case varint(schema::clock::kTime):
          reading.time = one.get_uint64();
          break;
        case varint(schema::clock::kIsIncremental):
          reading.is_incremental = one.get_uint64() != 0;
          break;
        case varint(schema::clock::kUnitNs):
          reading.unit_ns = std::max<std::uint64_t>(one.get_uint64(), 1);
          break;
        default:
          one.skip();
      }
    }
    if (reading.id == schema::clock::kBoot) boot = static_cast<std::int64_t>(reading.time);
    if (readings.size() < 256) readings.push_back(reading);
  }
  if (!boot) return;  // nothing to relate the others to
  for (const Reading& reading : readings) {
    const bool is_own = reading.id >= kOwnClockFirst && reading.id <= kOwnClockLast;
    auto& clocks = is_own ? sequence.clocks : global_clocks_;
    if (clocks.size() < 4096)
      clocks[reading.id] = {*boot, reading.time, reading.unit_ns, reading.is_incremental,
                            reading.time};
  }
}

void PacketDecoder::packet_defaults(data_view view, Sequence& sequence) {
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::defaults::kTimestampClockId):
        sequence.default_clock = reader.get_uint64();
        break;
      case bytes(schema::defaults::kTrackEvent): {
        pbf_reader event(reader.get_view());
        while (event.next(schema::defaults::kTrackUuid, pbf_wire_type::varint))
          sequence.default_track = event.get_uint64();
        break;
      }
      default:
        reader.skip();
    }
  }
}

Result<void> PacketDecoder::interned_data(data_view view, Sequence& sequence) {
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case bytes(schema::interned::kEventNames):
        TRY_VOID(interned_text(reader.get_view(), sequence.event_names));
        break;
      case bytes(schema::interned::kCategories):
        TRY_VOID(interned_text(reader.get_view(), sequence.categories));
        break;
      case bytes(schema::interned::kAnnotationNames):
        TRY_VOID(interned_text(reader.get_view(), sequence.annotation_names));
        break;
      case bytes(schema::interned::kFunctionNames):
        TRY_VOID(interned_text(reader.get_view(), sequence.functions));
        break;
      case bytes(schema::interned::kSourcePaths):
        TRY_VOID(interned_text(reader.get_view(), sequence.paths));
        break;
      case bytes(schema::interned::kFrames):
        TRY_VOID(interned_frame(reader.get_view(), sequence));
        break;
      case bytes(schema::interned::kCallstacks):
        TRY_VOID(interned_stack(reader.get_view(), sequence));
        break;
      default:
        reader.skip();
    }
  }
  return {};
}

Result<void> PacketDecoder::interned_text(data_view view, IidMap<StringId>& table) {
  std::uint64_t iid = 0;
  data_view text("", 0);
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::interned::kId):
        iid = reader.get_uint64();
        break;
      case bytes(schema::interned::kText):
        text = reader.get_view();
        break;
      default:
        reader.skip();
    }
  }
  TRY(const StringId id, intern(text));
  table.set(iid, id);
  return {};
}

Result<void> PacketDecoder::interned_frame(data_view view, Sequence& sequence) {
  std::uint64_t iid = 0;
  Frame frame;
  pbf_reader reader(view);
  const auto lookup = [this](const IidMap<StringId>& table, std::uint64_t id) {
    const StringId* found = table.find(id);
    if (found == nullptr) count(trace_unknown_reference);
    return found == nullptr ? StringId{} : *found;
  };
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::interned::kId):
        iid = reader.get_uint64();
        break;
      case varint(schema::interned::kFrameFunction):
        frame.function = lookup(sequence.functions, reader.get_uint64());
        break;
      case varint(schema::interned::kFrameSourcePath):
        frame.file = lookup(sequence.paths, reader.get_uint64());
        break;
      case varint(schema::interned::kFrameLine):
        frame.line = reader.get_uint32();
        break;
      default:
        reader.skip();
    }
  }
  TRY_VOID(count_event());  // frames and stacks take memory like events do
  sequence.frames.set(iid, FrameId{static_cast<std::uint32_t>(trace_.frames.size())});
  trace_.frames.push_back(frame);
  return {};
}

namespace {

// Takes the pseudo frames of the writer off the inner end of a stack.
void strip_pseudo_frames(const Trace& trace, std::vector<FrameId>& frames, InternedStack& out) {
  struct Pseudo {
    std::string_view name;
    SampleState state;
  };
  static constexpr std::array<Pseudo, 4> kStates{{{"[sleeping]", SampleState::kSleeping},
                                                  {"[disk]", SampleState::kDisk},
                                                  {"[stopped]", SampleState::kStopped},
                                                  {"[unknown]", SampleState::kUnknown}}};
  const auto innermost = [&] {
    return frames.empty() ? std::string_view{}
                          : trace.str(trace.frames[frames.back().raw].function);
  };
  for (const Pseudo& pseudo : kStates) {
    if (innermost() != pseudo.name) continue;
    out.state = pseudo.state;
    frames.pop_back();
    break;
  }
  if (innermost() == "[gil]") {
    out.holds_gil = true;
    frames.pop_back();
  }
}

}  // namespace

Result<void> PacketDecoder::interned_stack(data_view view, Sequence& sequence) {
  std::uint64_t iid = 0;
  scratch_frames_.clear();
  const auto add = [&](std::uint64_t frame_iid) {
    const FrameId* frame = sequence.frames.find(frame_iid);
    if (frame == nullptr) {
      count(trace_unknown_reference);
    } else if (scratch_frames_.size() < options_.stack_frames_max) {
      scratch_frames_.push_back(*frame);
    } else {
      count(trace_cut_events);
    }
  };
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::interned::kId):
        iid = reader.get_uint64();
        break;
      case varint(schema::interned::kStackFrames):
        add(reader.get_uint64());
        break;
      case bytes(schema::interned::kStackFrames):
        for (const std::uint64_t id : reader.get_packed_uint64())
          add(id);
        break;
      default:
        reader.skip();
    }
  }
  TRY_VOID(count_event(1 + scratch_frames_.size()));
  InternedStack out;
  strip_pseudo_frames(trace_, scratch_frames_, out);
  if (trace_.stacks.begin.empty()) trace_.stacks.begin.push_back(0);
  out.stack = StackId{static_cast<std::uint32_t>(trace_.stacks.size())};
  trace_.stacks.frames.insert(trace_.stacks.frames.end(), scratch_frames_.begin(),
                              scratch_frames_.end());
  trace_.stacks.begin.push_back(static_cast<std::uint32_t>(trace_.stacks.frames.size()));
  sequence.stacks.set(iid, out);
  return {};
}

TrackId PacketDecoder::track_of(std::uint64_t uuid) {
  if (const TrackId* found = tracks_.find(uuid); found != nullptr) return *found;
  const TrackId id{static_cast<std::uint32_t>(trace_.tracks.size())};
  trace_.tracks.emplace_back();
  open_.emplace_back();
  tracks_.set(uuid, id);
  return id;
}

Result<void> PacketDecoder::track_descriptor(data_view view) {
  std::uint64_t uuid = 0;
  std::optional<std::uint64_t> parent;
  Track track;
  bool has_name = false;
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::track::kUuid):
        uuid = reader.get_uint64();
        break;
      case varint(schema::track::kParentUuid):
        parent = reader.get_uint64();
        break;
      case bytes(schema::track::kName): {
        TRY(track.name, intern(reader.get_view()));
        has_name = true;
        break;
      }
      case bytes(schema::track::kProcess):
        TRY_VOID(process_descriptor(reader.get_view(), track));
        break;
      case bytes(schema::track::kThread):
        TRY_VOID(thread_descriptor(reader.get_view(), track));
        break;
      case bytes(schema::track::kCounter):
        track.kind = TrackKind::kCounter;
        reader.skip();
        break;
      default:
        reader.skip();
    }
  }
  TRY_VOID(count_event());
  const TrackId id = track_of(uuid);
  if (parent) track.parent = track_of(*parent);  // may add a track: index again below
  Track& kept = trace_.tracks[id.raw];
  if (!has_name && track.name == StringId{}) track.name = kept.name;
  kept = track;
  return {};
}

Result<void> PacketDecoder::process_descriptor(data_view view, Track& track) {
  track.kind = TrackKind::kProcess;
  Process process;
  std::vector<data_view> labels;
  std::string cmdline;
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::track::kPid):
        process.pid = as_pid(reader.get_uint64());
        break;
      case bytes(schema::track::kCmdline): {
        const auto word = text_of(reader.get_view());
        if (cmdline.size() < 4096)
          cmdline += (cmdline.empty() ? "" : " ") + std::string(word.substr(0, 4096));
        break;
      }
      case bytes(schema::track::kProcessName): {
        TRY(process.name, intern(reader.get_view()));
        break;
      }
      case bytes(schema::track::kLabels): {
        const data_view label = reader.get_view();
        if (labels.size() < kLabelsMax) labels.push_back(label);
        break;
      }
      default:
        reader.skip();
    }
  }
  TRY(process.cmdline, intern(data_view(cmdline)));
  for (const data_view label : labels)
    TRY_VOID(process_label(text_of(label), process));
  track.pid = process.pid;
  track.name = process.name;
  const auto [found, is_new] = process_index_.try_emplace(process.pid, trace_.processes.size());
  if (is_new) {
    trace_.processes.push_back(process);
  } else {
    trace_.processes[found->second] = process;
  }
  return {};
}

Result<void> PacketDecoder::process_label(std::string_view label, Process& process) {
  const auto equals = label.find('=');
  if (equals == std::string_view::npos) return {};
  const std::string_view key = label.substr(0, equals);
  const std::string_view value = label.substr(equals + 1);
  const auto number = parse_int<std::int32_t>(value);
  if (key == "rank" && number) process.rank = *number;
  if (key == "local_rank" && number) process.local_rank = *number;
  if (key == "world_size" && number) process.world_size = *number;
  if (key == "parent_pid" && number) process.parent_pid = *number;
  if (key != "job" && key != "role") return {};
  TRY(const StringId text, intern(data_view(value.data(), value.size())));
  (key == "job" ? process.job : process.role) = text;
  return {};
}

Result<void> PacketDecoder::thread_descriptor(data_view view, Track& track) {
  track.kind = TrackKind::kThread;
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::track::kThreadPid):
        track.pid = as_pid(reader.get_uint64());
        break;
      case varint(schema::track::kThreadTid):
        track.tid = as_pid(reader.get_uint64());
        break;
      case bytes(schema::track::kThreadName): {
        TRY(track.name, intern(reader.get_view()));
        break;
      }
      default:
        reader.skip();
    }
  }
  return {};
}

Result<void> PacketDecoder::track_event(data_view view, std::int64_t time_ns, Sequence& sequence) {
  EventFields fields;
  scratch_args_.clear();
  const auto lookup = [this](const IidMap<StringId>& table, std::uint64_t iid) {
    const StringId* found = table.find(iid);
    if (found == nullptr) count(trace_unknown_reference);
    return found == nullptr ? StringId{} : *found;
  };
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::event::kType):
        fields.type = reader.get_uint64();
        break;
      case varint(schema::event::kTrackUuid):
        fields.track = reader.get_uint64();
        break;
      case varint(schema::event::kNameId):
        fields.name = lookup(sequence.event_names, reader.get_uint64());
        break;
      case bytes(schema::event::kName): {
        TRY(fields.name, intern(reader.get_view()));
        break;
      }
      case varint(schema::event::kCategoryIds):
        fields.category = lookup(sequence.categories, reader.get_uint64());
        break;
      case bytes(schema::event::kCategories): {
        TRY(fields.category, intern(reader.get_view()));
        break;
      }
      case bytes(schema::event::kAnnotations):
        TRY_VOID(annotation(reader.get_view(), sequence));
        break;
      case varint(schema::event::kCounterValue):
        fields.counter_value = static_cast<double>(reader.get_int64());
        break;
      case fixed64(schema::event::kDoubleCounterValue):
        fields.counter_value = reader.get_double();
        break;
      case fixed64(schema::event::kFlowIds): {
        const std::uint64_t flow = reader.get_fixed64();
        if (fields.flow_count < fields.flows.size()) {
          fields.flows.at(fields.flow_count++) = flow;
        } else {
          count(trace_cut_events);
        }
        break;
      }
      default:
        reader.skip();
    }
  }
  TRY_VOID(count_event(1 + scratch_args_.size()));
  fields.track_id = track_of(fields.track.value_or(sequence.default_track.value_or(0)));
  if (fields.type == schema::event::kSliceBegin) begin_slice(fields, time_ns);
  if (fields.type == schema::event::kSliceEnd) end_slice(fields, time_ns);
  if (fields.type == schema::event::kInstant) instant(fields, time_ns);
  if (fields.type == schema::event::kCounter) {
    trace_.counters.time_ns.push_back(time_ns);
    trace_.counters.track.push_back(fields.track_id);
    trace_.counters.value.push_back(fields.counter_value);
  }
  return {};
}

Result<void> PacketDecoder::annotation(data_view view, Sequence& sequence) {
  ArgValue arg;
  bool has_value = false;
  pbf_reader reader(view);
  const auto set = [&](ArgValue::Kind kind) {
    arg.kind = kind;
    has_value = true;
  };
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::annotation::kNameId): {
        const StringId* found = sequence.annotation_names.find(reader.get_uint64());
        if (found == nullptr) count(trace_unknown_reference);
        if (found != nullptr) arg.key = *found;
        break;
      }
      case bytes(schema::annotation::kName): {
        TRY(arg.key, intern(reader.get_view()));
        break;
      }
      case varint(schema::annotation::kBool):
      case varint(schema::annotation::kUint):
        set(ArgValue::Kind::kUint);
        arg.u64 = reader.get_uint64();
        break;
      case varint(schema::annotation::kInt):
        set(ArgValue::Kind::kInt);
        arg.i64 = reader.get_int64();
        break;
      case fixed64(schema::annotation::kDouble):
        set(ArgValue::Kind::kDouble);
        arg.f64 = reader.get_double();
        break;
      case bytes(schema::annotation::kString): {
        set(ArgValue::Kind::kString);
        TRY(const StringId text, intern(reader.get_view()));
        arg.text = text;
        break;
      }
      default:
        reader.skip();
    }
  }
  if (!has_value) return {};
  if (scratch_args_.size() < options_.args_per_event_max) {
    scratch_args_.push_back(arg);
  } else {
    count(trace_cut_events);
  }
  return {};
}

std::pair<std::uint32_t, std::uint32_t> PacketDecoder::keep_args() {
  const auto begin = static_cast<std::uint32_t>(trace_.args.size());
  trace_.args.insert(trace_.args.end(), scratch_args_.begin(), scratch_args_.end());
  return {scratch_args_.empty() ? 0 : begin, static_cast<std::uint32_t>(scratch_args_.size())};
}

void PacketDecoder::begin_slice(const EventFields& fields, std::int64_t time_ns) {
  SliceTable& slices = trace_.slices;
  const auto [arg_begin, arg_count] = keep_args();
  const auto index = static_cast<std::uint32_t>(slices.size());
  slices.start_ns.push_back(time_ns);
  slices.duration_ns.push_back(kOpenDuration);
  slices.track.push_back(fields.track_id);
  slices.name.push_back(fields.name);
  slices.category.push_back(fields.category);
  slices.arg_begin.push_back(arg_begin);
  slices.arg_count.push_back(arg_count);
  open_[fields.track_id.raw].push_back(index);
  for (std::size_t i = 0; i < fields.flow_count; ++i) {
    trace_.flows.id.push_back(fields.flows.at(i));
    trace_.flows.slice.push_back(index);
  }
}

void PacketDecoder::end_slice(const EventFields& fields, std::int64_t time_ns) {
  auto& open = open_[fields.track_id.raw];
  if (open.empty()) {
    count(trace_end_without_begin);
    return;
  }
  const std::uint32_t index = open.back();
  open.pop_back();
  SliceTable& slices = trace_.slices;
  slices.duration_ns[index] = duration_between(slices.start_ns[index], time_ns);
  if (scratch_args_.empty()) return;
  // A slice's arguments must lie together: those of its begin move behind the others.
  const std::uint32_t old_begin = slices.arg_begin[index];
  const std::uint32_t old_count = slices.arg_count[index];
  const auto new_begin = static_cast<std::uint32_t>(trace_.args.size());
  for (std::uint32_t i = 0; i < old_count; ++i)
    trace_.args.push_back(ArgValue(trace_.args[old_begin + i]));
  trace_.args.insert(trace_.args.end(), scratch_args_.begin(), scratch_args_.end());
  slices.arg_begin[index] = new_begin;
  slices.arg_count[index] = old_count + static_cast<std::uint32_t>(scratch_args_.size());
}

void PacketDecoder::instant(const EventFields& fields, std::int64_t time_ns) {
  const auto [arg_begin, arg_count] = keep_args();
  trace_.instants.time_ns.push_back(time_ns);
  trace_.instants.track.push_back(fields.track_id);
  trace_.instants.name.push_back(fields.name);
  trace_.instants.category.push_back(fields.category);
  trace_.instants.arg_begin.push_back(arg_begin);
  trace_.instants.arg_count.push_back(arg_count);
}

Result<void> PacketDecoder::perf_sample(data_view view, std::int64_t time_ns, Sequence& sequence) {
  std::uint64_t pid = 0;
  std::uint64_t tid = 0;
  bool is_native = false;
  const InternedStack* stack = nullptr;
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::sample::kPid):
        pid = reader.get_uint64();
        break;
      case varint(schema::sample::kTid):
        tid = reader.get_uint64();
        break;
      case varint(schema::sample::kCpu):
        is_native = true;  // Python samples are taken from another processor and name none
        reader.skip();
        break;
      case varint(schema::sample::kCallstack):
        stack = sequence.stacks.find(reader.get_uint64());
        break;
      default:
        reader.skip();
    }
  }
  if (stack == nullptr) {
    count(trace_unknown_reference);
    return {};
  }
  TRY_VOID(count_event());
  SampleTable& samples = trace_.samples;
  samples.time_ns.push_back(time_ns);
  samples.pid.push_back(as_pid(pid));
  samples.tid.push_back(as_pid(tid));
  samples.stack.push_back(stack->stack);
  samples.state.push_back(stack->state);
  samples.holds_gil.push_back(stack->holds_gil ? 1 : 0);
  samples.is_native.push_back(is_native ? 1 : 0);
  return {};
}

Result<void> PacketDecoder::ftrace_bundle(data_view view) {
  std::uint32_t cpu = 0;
  pbf_reader head(view);
  while (head.next(schema::ftrace::kCpu, pbf_wire_type::varint))
    cpu = head.get_uint32();
  pbf_reader reader(view);
  while (reader.next(schema::ftrace::kEvent, pbf_wire_type::length_delimited)) {
    TRY_VOID(ftrace_event(reader.get_view(), cpu));
  }
  return {};
}

Result<void> PacketDecoder::ftrace_event(data_view view, std::uint32_t cpu) {
  std::uint64_t time = 0;
  std::uint64_t pid = 0;
  data_view change;
  data_view wake;
  pbf_reader reader(view);
  while (reader.next()) {
    switch (reader.tag_and_type()) {
      case varint(schema::ftrace::kTime):
        time = reader.get_uint64();
        break;
      case varint(schema::ftrace::kPid):
        pid = reader.get_uint64();
        break;
      case bytes(schema::ftrace::kSwitch):
        change = reader.get_view();
        break;
      case bytes(schema::ftrace::kWakeup):
      case bytes(schema::ftrace::kWaking):
        wake = reader.get_view();
        break;
      default:
        reader.skip();
    }
  }
  const auto number = [](data_view message, std::uint32_t field) {
    std::uint64_t value = 0;
    pbf_reader one(message);
    while (one.next(field, pbf_wire_type::varint))
      value = one.get_uint64();
    return value;
  };
  if (change.data() != nullptr) {
    TRY_VOID(count_event());
    trace_.switches.time_ns.push_back(static_cast<std::int64_t>(time));
    trace_.switches.cpu.push_back(cpu);
    trace_.switches.prev_tid.push_back(as_pid(number(change, schema::ftrace::kPrevPid)));
    trace_.switches.next_tid.push_back(as_pid(number(change, schema::ftrace::kNextPid)));
    trace_.switches.prev_state.push_back(
        static_cast<std::uint32_t>(number(change, schema::ftrace::kPrevState)));
  }
  if (wake.data() != nullptr) {
    TRY_VOID(count_event());
    trace_.wakes.time_ns.push_back(static_cast<std::int64_t>(time));
    trace_.wakes.tid.push_back(as_pid(number(wake, schema::ftrace::kWokenPid)));
    trace_.wakes.waker_tid.push_back(as_pid(pid));
  }
  return {};
}

// Losses and metadata travel as instants.
void PacketDecoder::recorded_facts(std::size_t instant, StringId loss, StringId metadata) {
  const auto text = [&](std::string_view key) -> std::string {
    const StringId id = trace_.strings.find(key);
    for (std::uint32_t i = 0; i < trace_.instants.arg_count[instant]; ++i) {
      const ArgValue& arg = trace_.args[trace_.instants.arg_begin[instant] + i];
      if (arg.key != id) continue;
      return arg.kind == ArgValue::Kind::kString
                 ? std::string(trace_.str(arg.text).substr(0, kFactBytesMax))
                 : std::to_string(arg.u64);
    }
    return {};
  };
  const StringId category = trace_.instants.category[instant];
  if (category == StringId{}) return;
  if (category == loss && trace_.losses.size() < 1024) {
    const std::string name = text("stat");
    const auto total = parse_int<std::uint64_t>(text("count")).value_or(0);
    trace_.losses[name] = {name, total, severity_from_name(text("severity")), text("advice")};
  }
  if (category == metadata && trace_.metadata.size() < 1024)
    trace_.metadata[text("key")] = text("value");
}

void PacketDecoder::finish() {
  if (trace_.stacks.begin.empty()) trace_.stacks.begin.push_back(0);
  const auto counted_here = trace_.losses;
  const StringId loss = trace_.strings.find("kansoku.loss");
  const StringId metadata = trace_.strings.find("kansoku.meta");
  for (std::size_t row = 0; row < trace_.instants.size(); ++row)
    recorded_facts(row, loss, metadata);
  // Counters in the file do not hide counts of this reading.
  for (const auto& [name, own] : counted_here)
    trace_.losses[name] = own;
  measure_window(trace_);
}

}  // namespace kansoku::trace
