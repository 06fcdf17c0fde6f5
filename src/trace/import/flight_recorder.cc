// SPDX-License-Identifier: Apache-2.0
#include "trace/import/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "common/json.h"
#include "common/parse.h"
#include "trace/import/format.h"
#include "trace/import/internal/pickle.h"
#include "trace/import/internal/plain_json.h"

namespace kansoku::trace::import {
namespace {

using Kind = PlainData::Kind;
using Value = PlainData::Value;

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
  DumpReader(const PlainData& data, const FlightLimits& limits) : data_(data), limits_(limits) {}

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
  [[nodiscard]] std::optional<DumpEntry> entry_of(const Value& value, const FlightDump& dump);
  [[nodiscard]] Result<void> read_version(const Value& version, FlightDump& out);
  void read_frames(const Value* frames, DumpEntry& out);

  const PlainData& data_;
  const FlightLimits& limits_;
  std::size_t held_bytes_{0};
  std::string_view lacking_;  // of the first entry that is no operation
};

/// A send or receive, by the name that it is profiled under: version 1 says it nowhere else.
bool is_transfer(std::string_view name) {
  return name.find(":send") != std::string_view::npos ||
         name.find(":recv") != std::string_view::npos;
}

/// An operation recorded without events, as inside of a coalesced group.
bool has_no_events(const DumpEntry& entry) {
  return entry.state == "scheduled" && !entry.is_retired && entry.started_ns == 0 &&
         entry.completed_ns == 0;
}

/// True if an operation has the number that its coalesced group took when it began.
bool has_number_of(const DumpEntry& entry, const DumpEntry& group) {
  return (entry.is_p2p && entry.p2p_seq == group.p2p_seq) ||
         entry.collective_seq == group.collective_seq;
}

/// Gives the operations of coalesced groups the state of their groups.
void settle_coalesced(std::vector<DumpEntry>& entries) {
  std::map<std::int64_t, std::vector<std::size_t>> open;  // by group: operations without events
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const DumpEntry& entry = entries[i];
    auto& members = open[entry.local_id];
    if (!entry.is_of_coalesced()) {
      if (!members.empty() &&
          (!has_no_events(entry) || !has_number_of(entry, entries[members.back()])))
        members.clear();
      if (has_no_events(entry)) members.push_back(i);
      continue;
    }
    for (const std::size_t member : members) {
      if (!has_number_of(entries[member], entry)) continue;
      entries[member].state = entry.state;
      entries[member].is_retired = entry.is_retired;
      entries[member].started_ns = entry.started_ns;
      entries[member].completed_ns = entry.completed_ns;
    }
    members.clear();
  }
}

Error DumpReader::too_much() {
  return {Code::kLimit, "read flight recorder dump: more bytes to keep than the limit"};
}

/// Looking something up takes as long as the dictionary is, and a million entries may share one.
const Value* DumpReader::member(const Value& dict, std::string_view key) const {
  return dict.items.size() > 2 * limits_.members_max ? nullptr : data_.find(dict, key);
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
    print(data_.at(value.items[i]), depth + 1, out);
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
    for (const PlainData::Id id : value->items) {
      const Value& item = data_.at(id);
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
    const Value& group = data_.at(config.items[i + 1]);
    if (group.kind == Kind::kList) {  // version 1: by id, the ranks alone
      out.groups.push_back(
          {.name = text(&data_.at(config.items[i])), .description = {}, .ranks = ranks_of(&group)});
      if (is_full()) return too_much();
      continue;
    }
    const Value* name = member(group, "name");
    out.groups.push_back({.name = name != nullptr ? text(name) : text(&data_.at(config.items[i])),
                          .description = text(member(group, "desc")),
                          .ranks = ranks_of(member(group, "ranks"))});
    if (is_full()) return too_much();
  }
  return {};
}

void DumpReader::read_status(const Value& status, FlightDump& out) {
  for (std::size_t i = 0; i + 1 < status.items.size(); i += 2) {
    const Value& value = data_.at(status.items[i + 1]);
    out.status.push_back({.local_id = integer(&data_.at(status.items[i]), -1),
                          .enqueued = integer(member(value, "last_enqueued_collective"), -1),
                          .started = integer(member(value, "last_started_collective"), -1),
                          .completed = integer(member(value, "last_completed_collective"), -1)});
  }
}

void DumpReader::read_frames(const Value* frames, DumpEntry& out) {
  if (frames == nullptr) return;
  for (const PlainData::Id id : frames->items) {
    if (out.frames.size() >= kFramesMax) break;
    const Value& frame = data_.at(id);
    out.frames.push_back({.function = text(member(frame, "name")),
                          .file = text(member(frame, "filename")),
                          .line = static_cast<std::uint32_t>(std::clamp<std::int64_t>(
                              integer(member(frame, "line"), 0), 0, 1 << 30))});
    held_bytes_ += sizeof(DumpFrame);
  }
}

/// Nothing without what every version writes of an operation: its group, number, name and state.
std::optional<DumpEntry> DumpReader::entry_of(const Value& value, const FlightDump& dump) {
  DumpEntry entry;
  const auto number = [&](std::string_view key) { return integer(member(value, key), 0); };
  const Value* seq = member(value, dump.counts_together ? "seq_id" : "collective_seq_id");
  const Value* id = member(value, "pg_id");
  const auto lacks = [this](std::string_view key) {
    if (lacking_.empty()) lacking_ = key;
    return std::nullopt;
  };
  if (seq == nullptr) return lacks(dump.counts_together ? "seq_id" : "collective_seq_id");
  if (id == nullptr && dump.counts_together) return lacks("pg_id");
  entry.local_id = integer(id, -1);
  entry.name = text(member(value, "profiling_name"));
  entry.state = text(member(value, "state"));
  if (entry.name.empty()) return lacks("profiling_name");
  if (entry.state.empty()) return lacks("state");
  if (dump.counts_together) {
    entry.group_name = text(id);
    entry.is_p2p = is_transfer(entry.name);
    entry.collective_seq = integer(seq, 0);
    if (entry.is_p2p) entry.p2p_seq = entry.collective_seq;
  } else {
    const Value* group = member(value, "process_group");
    if (group == nullptr || group->items.size() < 2 || group->kind != Kind::kList)
      return lacks("process_group");
    entry.group_name = text(&data_.at(group->items[0]));
    entry.group_description = text(&data_.at(group->items[1]));
    entry.is_p2p = number("is_p2p") != 0;
    entry.collective_seq = integer(seq, 0);
    entry.p2p_seq = number("p2p_seq_id");
  }
  entry.op_id = number("op_id");
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
  for (const PlainData::Id id : entries.items) {
    if (out.entries.size() >= limits_.entries_max)
      return Error{Code::kLimit, "read flight recorder dump: more entries than the limit"};
    auto entry = entry_of(data_.at(id), out);
    if (is_full()) return too_much();
    if (!entry) {
      ++out.bad_entries;
      continue;
    }
    out.entries.push_back(std::move(*entry));
    held_bytes_ += sizeof(DumpEntry);
  }
  if (out.entries.empty() && out.bad_entries > 0) {
    return Error{Code::kCorrupt,
                 fmt::format("read flight recorder dump: version {}, and none of its {} entries "
                             "is an operation: the first lacks {}",
                             out.version, out.bad_entries, lacking_)};
  }
  return {};
}

/// The number before the point changes if known fields do; the one behind it if some are added.
Result<void> DumpReader::read_version(const Value& version, FlightDump& out) {
  out.version = text(&version);
  const std::string_view major = std::string_view(out.version).substr(0, out.version.find('.'));
  out.counts_together = major == "1";
  if (out.counts_together || major == "2") return {};
  return Error{Code::kUnsupported,
               fmt::format("read flight recorder dump: version \"{}\" is not known", out.version),
               "versions 1 and 2 are"};
}

Result<void> DumpReader::read(FlightDump& out) {
  const Value& root = data_.at(data_.root());
  const Value* version = data_.find(root, "version");
  const Value* entries = data_.find(root, "entries");
  const Value* config = data_.find(root, "pg_config");
  if (version == nullptr || (entries == nullptr && config == nullptr)) {
    return Error{Code::kCorrupt,
                 "read flight recorder dump: no dictionary with version and entries or pg_config"};
  }
  TRY_VOID(read_version(*version, out));
  const Value* backend = data_.find(root, "nccl_version");
  out.backend_version = text(backend != nullptr ? backend : data_.find(root, "comm_lib_version"));
  if (config != nullptr && config->kind == Kind::kDict) TRY_VOID(read_groups(*config, out));
  if (const Value* status = data_.find(root, "pg_status");
      status != nullptr && status->kind == Kind::kDict)
    read_status(*status, out);
  if (entries != nullptr && entries->kind == Kind::kList) TRY_VOID(read_entries(*entries, out));
  return {};
}

}  // namespace

Result<FlightDump> read_flight_recorder(ByteSpan bytes, std::string_view file_name,
                                        const FlightLimits& limits) {
  const ByteSpan untrusted = without_byte_order_mark(bytes);
  const std::string_view text = as_text(untrusted);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  TRY(const PlainData data, is_json ? read_plain_json(untrusted, {}) : read_pickle(untrusted, {}));
  FlightDump out;
  out.rank = rank_of(file_name);
  TRY_VOID(DumpReader(data, limits).read(out));
  settle_coalesced(out.entries);
  return out;
}

std::string flight_recorder_json(const FlightDump& dump) {
  Json groups = Json::object(), entries = Json::array();
  for (std::size_t i = 0; i < dump.groups.size(); ++i) {
    const DumpGroup& group = dump.groups[i];
    groups.set(std::to_string(i), Json::object()
                                      .set("name", group.name)
                                      .set("desc", group.description)
                                      .set("ranks", Json::array_of(group.ranks)));
  }
  for (const DumpEntry& entry : dump.entries) {
    Json group = Json::array();
    group.push(entry.group_name).push(entry.group_description);
    entries.push(Json::object()
                     .set("pg_id", entry.local_id)
                     .set("process_group", std::move(group))
                     .set("profiling_name", entry.name)
                     .set("state", entry.state)
                     .set("collective_seq_id", entry.collective_seq)
                     .set("p2p_seq_id", entry.p2p_seq)
                     .set("op_id", entry.op_id)
                     .set("is_p2p", entry.is_p2p)
                     .set("retired", entry.is_retired)
                     .set("time_created_ns", entry.created_ns)
                     .set("time_discovered_started_ns", entry.started_ns)
                     .set("time_discovered_completed_ns", entry.completed_ns)
                     .set("timeout_ms", entry.timeout_ms)
                     .set("input_sizes", entry.input_sizes)
                     .set("input_dtypes", entry.input_dtypes)
                     .set("output_sizes", entry.output_sizes)
                     .set("output_dtypes", entry.output_dtypes));
  }
  return Json::object()
      .set("version", "2.9")
      .set("comm_lib_version", dump.backend_version)
      .set("pg_config", std::move(groups))
      .set("entries", std::move(entries))
      .dump();
}

}  // namespace kansoku::trace::import
