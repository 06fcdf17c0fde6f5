// SPDX-License-Identifier: Apache-2.0
#include "trace/append.h"

#include <algorithm>
#include <bitset>
#include <optional>

#include "trace/internal/packet_walk.h"
#include "trace/reader.h"

namespace kansoku::trace {
namespace {

using protozero::data_view;
using protozero::pbf_reader;

constexpr std::uint64_t kUuidMax = std::uint64_t{1} << 31;  // leaves room for ours
constexpr std::size_t kSequencesMax = 128;                  // that a Writer may have

/// The sequences, tracks and processes that a file's packets name.
class Taken {
 public:
  Result<void> packet(data_view view) {
    pbf_reader reader(view);
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case protozero::tag_and_type(schema::packet::kSequenceId, protozero::pbf_wire_type::varint):
          sequence(reader.get_uint64());
          break;
        case protozero::tag_and_type(schema::packet::kTrackDescriptor,
                                     protozero::pbf_wire_type::length_delimited):
          track(reader.get_view());
          break;
        case protozero::tag_and_type(schema::packet::kTrackEvent,
                                     protozero::pbf_wire_type::length_delimited):
          event(reader.get_view());
          break;
        case protozero::tag_and_type(schema::packet::kDefaults,
                                     protozero::pbf_wire_type::length_delimited):
          defaults(reader.get_view());
          break;
        default:
          reader.skip();
      }
    }
    return {};
  }

  Result<AppendPoint> point(const WalkedPackets& walked) const {
    AppendPoint out{walked.whole_bytes, walked.is_torn, {}, {}};
    std::size_t free = 1;
    while (free < kSequencesMax && sequences_.test(free))
      ++free;
    if (free == kSequencesMax || uuid_max_ >= kUuidMax)
      return Error{Code::kUnsupported,
                   "append to a trace: its sequences or tracks are not numbered as Kansoku does",
                   "only a recording of kansoku can be appended to"};
    out.options.sequence = static_cast<std::uint32_t>(free);
    out.options.first_uuid = static_cast<std::uint32_t>(uuid_max_) + 1;
    for (const auto& [pid, uuid] : processes_)
      out.processes.emplace(pid, TrackHandle{static_cast<std::uint32_t>(uuid)});
    return out;
  }

 private:
  void sequence(std::uint64_t id) {
    if (id < kSequencesMax) sequences_.set(static_cast<std::size_t>(id));
  }

  // Tracks that are never declared count too.
  void event(data_view view) {
    pbf_reader reader(view);
    while (reader.next(schema::event::kTrackUuid, protozero::pbf_wire_type::varint))
      uuid_max_ = std::max(uuid_max_, reader.get_uint64());
  }

  void defaults(data_view view) {
    pbf_reader reader(view);
    while (reader.next(schema::defaults::kTrackEvent, protozero::pbf_wire_type::length_delimited))
      event(reader.get_view());
  }

  void track(data_view view) {
    std::uint64_t uuid = 0;
    std::optional<std::int32_t> pid;
    pbf_reader reader(view);
    while (reader.next()) {
      switch (reader.tag_and_type()) {
        case protozero::tag_and_type(schema::track::kUuid, protozero::pbf_wire_type::varint):
          uuid = reader.get_uint64();
          break;
        case protozero::tag_and_type(schema::track::kParentUuid, protozero::pbf_wire_type::varint):
          uuid_max_ = std::max(uuid_max_, reader.get_uint64());
          break;
        case protozero::tag_and_type(schema::track::kProcess,
                                     protozero::pbf_wire_type::length_delimited):
          pid = process(reader.get_view());
          break;
        default:
          reader.skip();
      }
    }
    uuid_max_ = std::max(uuid_max_, uuid);
    if (pid) processes_[*pid] = uuid;
  }

  static std::optional<std::int32_t> process(data_view view) {
    pbf_reader reader(view);
    while (reader.next(schema::track::kPid, protozero::pbf_wire_type::varint))
      return static_cast<std::int32_t>(reader.get_uint64());
    return std::nullopt;
  }

  std::bitset<kSequencesMax> sequences_;
  std::uint64_t uuid_max_{0};
  std::map<std::int32_t, std::uint64_t> processes_;
};

}  // namespace

Result<AppendPoint> append_point(ByteSpan untrusted) {
  Taken taken;
  PacketWalker walker(ReadOptions{}.inflated_chunk_bytes_max,
                      [&](data_view packet) { return taken.packet(packet); });
  TRY(const WalkedPackets walked, walker.walk(untrusted));
  return taken.point(walked);
}

}  // namespace kansoku::trace
