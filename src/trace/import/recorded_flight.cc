// SPDX-License-Identifier: Apache-2.0
#include "trace/import/recorded_flight.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "common/parse.h"

namespace kansoku::trace::import {
namespace {

constexpr std::string_view kReading = "reading", kGroup = "group";
constexpr std::array<std::string_view, 3> kStorage{"unknown", "still", "moves"};
constexpr std::int64_t kIsP2p = 1, kIsRetired = 2;  // the writer takes 12 arguments
constexpr std::size_t kRanksOfInstant = 100;        // of a group: the writer cuts long texts

/// Arguments of one instant.
class Args {
 public:
  Args(const Trace& trace, std::size_t instant) : trace_(trace) {
    const std::size_t first = trace.instants.arg_begin[instant];
    const std::size_t count = trace.instants.arg_count[instant];
    if (count <= trace.args.size() && first <= trace.args.size() - count)
      args_ = std::span(trace.args).subspan(first, count);
  }
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] std::string text(std::string_view key) const {
    const ArgValue* const arg = find(key);
    const bool is_text = arg != nullptr && arg->kind == ArgValue::Kind::kString;
    return is_text ? std::string(trace_.str(arg->text)) : std::string();
  }
  [[nodiscard]] std::int64_t number(std::string_view key) const {
    const ArgValue* const arg = find(key);
    const bool is_number =
        arg != nullptr && (arg->kind == ArgValue::Kind::kInt || arg->kind == ArgValue::Kind::kUint);
    return is_number ? arg->i64 : 0;
  }

 private:
  [[nodiscard]] const ArgValue* find(std::string_view key) const {
    const StringId id = trace_.strings.find(key);
    const auto found = std::find_if(args_.begin(), args_.end(),
                                    [&](const ArgValue& arg) { return arg.key == id; });
    return id == StringId{} || found == args_.end() ? nullptr : &*found;
  }
  const Trace& trace_;
  std::span<const ArgValue> args_;
};

DumpEntry call_of(std::string_view name, const Args& args) {
  DumpEntry out;
  out.name = name;
  out.state = args.text("state");
  out.local_id = args.number("group_id");
  out.group_name = args.text("group");
  out.group_description = args.text("description");
  out.collective_seq = args.number("collective_seq");
  out.p2p_seq = args.number("p2p_seq");
  out.op_id = args.number("op_id");
  const std::int64_t flags = args.number("flags");
  out.is_p2p = (flags & kIsP2p) != 0;
  out.is_retired = (flags & kIsRetired) != 0;
  out.created_ns = args.number("created_ns");
  out.timeout_ms = args.number("timeout_ms");
  out.input_sizes = args.text("input_sizes");
  out.output_sizes = args.text("output_sizes");
  return out;
}

void add_group(const Args& args, FlightDump& out) {
  DumpGroup group{args.text("group"), args.text("description"), {}};
  std::string ranks = args.text("ranks");
  for (std::string_view rest = ranks; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    if (const auto rank = parse_int<std::int32_t>(rest.substr(0, end)))
      group.ranks.push_back(*rank);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const bool goes_on = !out.groups.empty() && out.groups.back().name == group.name &&
                       out.groups.back().description == group.description;
  if (!goes_on) {
    out.groups.push_back(std::move(group));
    return;
  }
  out.groups.back().ranks.insert(out.groups.back().ranks.end(), group.ranks.begin(),
                                 group.ranks.end());
}

void write_group(Writer& writer, TrackHandle track, const DumpGroup& group, BootTime now) {
  const std::span<const std::int32_t> ranks(group.ranks);
  for (std::size_t at = 0; at == 0 || at < ranks.size(); at += kRanksOfInstant) {
    const auto part = ranks.subspan(at, std::min(kRanksOfInstant, ranks.size() - at));
    const std::string text = fmt::format("{}", fmt::join(part, " "));
    const std::array args{Arg::str(writer.name("group"), std::string_view(group.name)),
                          Arg::str(writer.name("description"), std::string_view(group.description)),
                          Arg::str(writer.name("ranks"), std::string_view(text))};
    writer.instant(track, now, writer.name(kGroup), writer.category(kFlightCategory), args);
  }
}

void write_call(Writer& writer, TrackHandle track, const DumpEntry& call, BootTime now) {
  const auto number = [&](std::string_view key, std::int64_t value) {
    return Arg::sint(writer.name(key), value);
  };
  const auto text = [&](std::string_view key, std::string_view value) {
    return Arg::str(writer.name(key), value);
  };
  const std::array args{
      text("state", call.state),
      number("group_id", call.local_id),
      text("group", call.group_name),
      text("description", call.group_description),
      number("collective_seq", call.collective_seq),
      number("p2p_seq", call.p2p_seq),
      number("op_id", call.op_id),
      number("flags", (call.is_p2p ? kIsP2p : 0) | (call.is_retired ? kIsRetired : 0)),
      number("created_ns", call.created_ns),
      number("timeout_ms", call.timeout_ms),
      text("input_sizes", call.input_sizes),
      text("output_sizes", call.output_sizes)};
  writer.instant(track, now, writer.name(call.name), writer.category(kFlightCategory), args);
}

}  // namespace

void write_recorded_flight(Writer& writer, const RecordedFlight& flight, BootTime now) {
  const TrackHandle track =
      writer.custom_track(writer.thread_track(flight.pid, flight.pid, ""), "Flight Recorder");
  const std::array args{
      Arg::sint(writer.name("read_ns"), flight.read_ns),
      Arg::str(writer.name("storage"), kStorage.at(static_cast<std::size_t>(flight.storage))),
      Arg::uint(writer.name("bad_entries"), flight.dump.bad_entries)};
  writer.instant(track, now, writer.name(kReading), writer.category(kFlightCategory), args);
  for (const DumpGroup& group : flight.dump.groups)
    write_group(writer, track, group, now);
  for (const DumpEntry& call : flight.dump.entries)
    write_call(writer, track, call, now);
}

std::vector<RecordedFlight> read_recorded_flight(const Trace& trace) {
  std::map<std::int32_t, RecordedFlight> found;
  const StringId category = trace.strings.find(kFlightCategory);
  const InstantTable& instants = trace.instants;
  for (std::size_t i = 0; i < instants.size() && category != StringId{}; ++i) {
    if (instants.category[i] != category) continue;
    const std::int32_t pid = process_of_track(trace, instants.track[i]);
    const std::string_view name = trace.str(instants.name[i]);
    const Args args(trace, i);
    if (name == kReading) {
      RecordedFlight& flight = found[pid] = {};
      const auto storage = std::find(kStorage.begin(), kStorage.end(), args.text("storage"));
      flight.pid = pid;
      flight.read_ns = args.number("read_ns");
      flight.dump.bad_entries = static_cast<std::uint64_t>(args.number("bad_entries"));
      if (storage != kStorage.end())
        flight.storage = static_cast<RecordedFlight::Storage>(storage - kStorage.begin());
      continue;
    }
    const auto known = found.find(pid);
    if (known == found.end()) continue;
    FlightDump& dump = known->second.dump;
    if (name == kGroup && args.has("ranks"))
      add_group(args, dump);
    else if (args.number("created_ns") > 0 && !args.text("state").empty())
      dump.entries.push_back(call_of(name, args));
    else
      ++dump.bad_entries;
  }
  std::vector<RecordedFlight> out;
  for (auto& [pid, flight] : found)
    out.push_back(std::move(flight));
  return out;
}

}  // namespace kansoku::trace::import
