// SPDX-License-Identifier: Apache-2.0
#include "trace/import/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "common/parse.h"
#include "trace/import/internal/pickle.h"

namespace kansoku::trace::import {
namespace {

using Kind = PlainPickle::Kind;
using Value = PlainPickle::Value;

constexpr int kPrintDepthMax = 4;
constexpr std::size_t kFramesMax = 256;
constexpr std::size_t kRanksMax = 1U << 20;

std::int32_t number_at_end(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9')
    --begin;
  return parse_int<std::int32_t>(text.substr(begin)).value_or(-1);
}

std::int32_t rank_of(std::string_view file_name) {
  const std::size_t slash = file_name.rfind('/');
  if (slash != std::string_view::npos) file_name.remove_prefix(slash + 1);
  const std::int32_t whole = number_at_end(file_name);
  return whole >= 0 ? whole : number_at_end(file_name.substr(0, file_name.find('.')));
}

class DumpReader {
 public:
  DumpReader(const PlainPickle& pickle, const FlightLimits& limits)
      : pickle_(pickle), limits_(limits) {}

  Result<void> read(FlightDump& out);

 private:
  [[nodiscard]] std::string text(const Value* value);
  [[nodiscard]] const Value* member(const Value& dict, std::string_view key) const;
  [[nodiscard]] bool is_full() const { return held_bytes_ > limits_.held_bytes_max; }
  [[nodiscard]] static Error too_much();
  [[nodiscard]] static std::int64_t integer(const Value* value, std::int64_t fallback);
  void print(const Value& value, int depth, std::string& out) const;
  [[nodiscard]] std::string printed(const Value* value);
  [[nodiscard]] std::vector<std::int32_t> ranks_of(const Value* value);
  [[nodiscard]] Result<void> read_groups(const Value& config, FlightDump& out);
  void read_status(const Value& status, FlightDump& out);
  [[nodiscard]] Result<void> read_entries(const Value& entries, FlightDump& out);
  [[nodiscard]] DumpEntry entry_of(const Value& value);
  void read_frames(const Value* frames, DumpEntry& out);

  const PlainPickle& pickle_;
  const FlightLimits& limits_;
  std::size_t held_bytes_{0};
};

Error DumpReader::too_much() {
  return {Code::kLimit, "read flight recorder dump: more bytes to keep than the limit"};
}

/// Looking something up takes as long as the dictionary is, and a million entries may share one.
const Value* DumpReader::member(const Value& dict, std::string_view key) const {
  return dict.items.size() > 2 * limits_.members_max ? nullptr : pickle_.find(dict, key);
}

std::string DumpReader::text(const Value* value) {
  if (value == nullptr || is_full()) return {};
  if (value->kind == Kind::kText) {
    const std::string_view kept = value->text.substr(0, limits_.text_bytes_max);
    held_bytes_ += kept.size();
    return std::string(kept);
  }
  return value->kind == Kind::kInt ? std::to_string(value->integer) : std::string{};
}

std::int64_t DumpReader::integer(const Value* value, std::int64_t fallback) {
  if (value == nullptr) return fallback;
  if (value->kind == Kind::kInt || value->kind == Kind::kBool) return value->integer;
  if (value->kind == Kind::kText) return parse_int<std::int64_t>(value->text).value_or(fallback);
  return fallback;
}

void DumpReader::print(const Value& value, int depth, std::string& out) const {
  if (out.size() > limits_.text_bytes_max || depth > kPrintDepthMax) {
    out += "...";
    return;
  }
  if (value.kind == Kind::kText) out += value.text;
  if (value.kind == Kind::kInt) out += std::to_string(value.integer);
  if (value.kind != Kind::kList) return;
  out += '[';
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    if (out.size() > limits_.text_bytes_max) break;
    if (i > 0) out += ", ";
    print(pickle_.at(value.items[i]), depth + 1, out);
  }
  out += ']';
}

std::string DumpReader::printed(const Value* value) {
  std::string out;
  if (value != nullptr && !is_full()) print(*value, 0, out);
  held_bytes_ += out.size();
  return out;
}

/// "[0, 2]", or a list of numbers.
std::vector<std::int32_t> DumpReader::ranks_of(const Value* value) {
  std::vector<std::int32_t> ranks;
  if (value == nullptr || is_full()) return ranks;
  if (value->kind == Kind::kList) {
    for (const PlainPickle::Id id : value->items) {
      const Value& item = pickle_.at(id);
      const bool is_rank = item.kind == Kind::kInt && item.integer >= 0 &&
                           item.integer <= std::numeric_limits<std::int32_t>::max();
      if (is_rank && ranks.size() < kRanksMax)
        ranks.push_back(static_cast<std::int32_t>(item.integer));
    }
    held_bytes_ += ranks.size() * sizeof(std::int32_t);
    return ranks;
  }
  std::string_view rest = value->text;
  while (!rest.empty() && ranks.size() < kRanksMax) {
    const std::size_t begin = rest.find_first_of("0123456789");
    if (begin == std::string_view::npos) break;
    rest.remove_prefix(begin);
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (const auto rank = parse_int<std::int32_t>(rest.substr(0, digits))) ranks.push_back(*rank);
    rest.remove_prefix(digits);
  }
  held_bytes_ += ranks.size() * sizeof(std::int32_t);
  return ranks;
}

Result<void> DumpReader::read_groups(const Value& config, FlightDump& out) {
  for (std::size_t i = 0; i + 1 < config.items.size(); i += 2) {
    if (out.groups.size() >= limits_.groups_max)
      return Error{Code::kLimit, "read flight recorder dump: more process groups than the limit"};
    const Value& group = pickle_.at(config.items[i + 1]);
    const Value* name = member(group, "name");
    out.groups.push_back({.name = name != nullptr ? text(name) : text(&pickle_.at(config.items[i])),
                          .description = text(member(group, "desc")),
                          .ranks = ranks_of(member(group, "ranks"))});
    if (is_full()) return too_much();
  }
  return {};
}

void DumpReader::read_status(const Value& status, FlightDump& out) {
  for (std::size_t i = 0; i + 1 < status.items.size(); i += 2) {
    const Value& value = pickle_.at(status.items[i + 1]);
    out.status.push_back({.local_id = integer(&pickle_.at(status.items[i]), -1),
                          .enqueued = integer(member(value, "last_enqueued_collective"), -1),
                          .started = integer(member(value, "last_started_collective"), -1),
                          .completed = integer(member(value, "last_completed_collective"), -1)});
  }
}

void DumpReader::read_frames(const Value* frames, DumpEntry& out) {
  if (frames == nullptr) return;
  for (const PlainPickle::Id id : frames->items) {
    if (out.frames.size() >= kFramesMax) break;
    const Value& frame = pickle_.at(id);
    out.frames.push_back({.function = text(member(frame, "name")),
                          .file = text(member(frame, "filename")),
                          .line = static_cast<std::uint32_t>(std::clamp<std::int64_t>(
                              integer(member(frame, "line"), 0), 0, 1 << 30))});
    held_bytes_ += sizeof(DumpFrame);
  }
}

DumpEntry DumpReader::entry_of(const Value& value) {
  DumpEntry entry;
  const auto number = [&](std::string_view key) { return integer(member(value, key), 0); };
  entry.local_id = number("pg_id");
  if (const Value* group = member(value, "process_group");
      group != nullptr && group->items.size() >= 2 && group->kind == Kind::kList) {
    entry.group_name = text(&pickle_.at(group->items[0]));
    entry.group_description = text(&pickle_.at(group->items[1]));
  }
  entry.name = text(member(value, "profiling_name"));
  entry.state = text(member(value, "state"));
  entry.collective_seq = number("collective_seq_id");
  entry.p2p_seq = number("p2p_seq_id");
  entry.op_id = number("op_id");
  entry.is_p2p = number("is_p2p") != 0;
  entry.is_retired = number("retired") != 0;
  entry.created_ns = number("time_created_ns");
  entry.started_ns = number("time_discovered_started_ns");
  entry.completed_ns = number("time_discovered_completed_ns");
  entry.timeout_ms = number("timeout_ms");
  entry.input_sizes = printed(member(value, "input_sizes"));
  entry.input_dtypes = printed(member(value, "input_dtypes"));
  entry.output_sizes = printed(member(value, "output_sizes"));
  entry.output_dtypes = printed(member(value, "output_dtypes"));
  read_frames(member(value, "frames"), entry);
  return entry;
}

Result<void> DumpReader::read_entries(const Value& entries, FlightDump& out) {
  for (const PlainPickle::Id id : entries.items) {
    if (out.entries.size() >= limits_.entries_max)
      return Error{Code::kLimit, "read flight recorder dump: more entries than the limit"};
    const Value& value = pickle_.at(id);
    if (value.kind != Kind::kDict) continue;
    out.entries.push_back(entry_of(value));
    held_bytes_ += sizeof(DumpEntry);
    if (is_full()) return too_much();
  }
  return {};
}

Result<void> DumpReader::read(FlightDump& out) {
  const Value& root = pickle_.at(pickle_.root());
  const Value* version = pickle_.find(root, "version");
  const Value* entries = pickle_.find(root, "entries");
  const Value* config = pickle_.find(root, "pg_config");
  if (version == nullptr || (entries == nullptr && config == nullptr)) {
    return Error{Code::kCorrupt,
                 "read flight recorder dump: no dictionary with version and entries or pg_config"};
  }
  out.version = text(version);
  out.backend_version = text(pickle_.find(root, "nccl_version"));
  if (config != nullptr && config->kind == Kind::kDict) TRY_VOID(read_groups(*config, out));
  if (const Value* status = pickle_.find(root, "pg_status");
      status != nullptr && status->kind == Kind::kDict)
    read_status(*status, out);
  if (entries != nullptr && entries->kind == Kind::kList) TRY_VOID(read_entries(*entries, out));
  return {};
}

}  // namespace

Result<FlightDump> read_flight_recorder(ByteSpan untrusted, std::string_view file_name,
                                        const FlightLimits& limits) {
  TRY(const PlainPickle pickle, PlainPickle::read(untrusted));
  FlightDump out;
  out.rank = rank_of(file_name);
  TRY_VOID(DumpReader(pickle, limits).read(out));
  return out;
}

}  // namespace kansoku::trace::import
