// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "common/parse.h"
#include "common/rng.h"
#include "detect/internal/model_fit.h"
#include "detect/job_model.h"

namespace kansoku::detect {
namespace {

constexpr std::string_view kSchema = "kansoku.job_model/1";
constexpr std::size_t kTextMax = std::size_t{64} << 20;
constexpr std::size_t kListMax = 1024;
constexpr std::array<std::string_view, 4> kUses{"modelled", "event", "growth", "shown"};

Error bad_model_text(std::string_view what) {
  return Error{Code::kCorrupt, fmt::format("read job model: {}", what),
               "learn it anew with `kansoku detect fit`"};
}

Json peers_json(const PeerModel& peers) {
  Json ranks = Json::array(), offsets = Json::array();
  const std::size_t columns = peers.scales.size();
  for (std::size_t i = 0; i < std::min(peers.ranks.size(), kListMax); ++i) {
    ranks.push(peers.ranks[i]);
    offsets.push(Json::array_of(std::span(peers.offsets).subspan(i * columns, columns)));
  }
  return Json::object()
      .set("scales", Json::array_of(peers.scales))
      .set("persistent", Json::array_of(peers.persistent))
      .set("tail", Json::array_of(peers.tail))
      .set("windows", peers.windows)
      .set("ranks", ranks)
      .set("offsets", offsets);
}

Json column_json(const Column& column) {
  return Json::object()
      .set("name", column.name)
      .set("unit", column.unit)
      .set("layer", layer_name(column.layer))
      .set("scale", column.scale == Scale::kLog ? "log" : "linear")
      .set("use", kUses.at(static_cast<std::size_t>(column.use)))
      .set("floor", column.floor);
}

/// Reads members and keeps the first complaint.
struct Reader {
  std::string problem;

  void complain(std::string_view what) {
    if (problem.empty()) problem = what;
  }
  double number(const Json& object, std::string_view key) {
    const Json value = object.at(key);
    if (!value.is_number()) complain(fmt::format("{} is no number", key));
    return value.as_double();
  }
  std::size_t count(const Json& object, std::string_view key) {
    const std::int64_t value = object.at(key).as_int(-1);
    if (value < 0 || value > (std::int64_t{1} << 53)) complain(fmt::format("{} is no count", key));
    return value < 0 ? 0 : static_cast<std::size_t>(value);
  }
  std::string text(const Json& object, std::string_view key) {
    const Json value = object.at(key);
    if (!value.is_string()) complain(fmt::format("{} is no text", key));
    return value.as_string().substr(0, 4096);
  }
  std::vector<double> numbers(const Json& object, std::string_view key) {
    return numbers_of(object.at(key), key);
  }
  std::vector<double> numbers_of(const Json& list, std::string_view key) {
    std::vector<double> out;
    if (!list.is_array() || list.size() > kListMax)
      complain(fmt::format("{} is no list, or too long", key));
    for (std::size_t i = 0; i < std::min(list.size(), kListMax); ++i) {
      const Json value = list.at(i);
      if (!value.is_number()) complain(fmt::format("{} has an entry that is no number", key));
      out.push_back(value.as_double());
    }
    return out;
  }
  /// Calls `read` with each object of a list.
  template <class Read>
  void each(const Json& object, std::string_view key, Read read) {
    const Json list = object.at(key);
    if (!list.is_array() || list.size() > kListMax) {
      complain(fmt::format("{} is no list, or too long", key));
      return;
    }
    for (std::size_t i = 0; i < list.size() && problem.empty(); ++i)
      read(list.at(i));
  }
};

Column read_column(Reader& reader, const Json& json) {
  Column out;
  out.name = reader.text(json, "name");
  out.unit = reader.text(json, "unit");
  out.floor = reader.number(json, "floor");
  const std::string layer = reader.text(json, "layer"), use = reader.text(json, "use"),
                    scale = reader.text(json, "scale");
  int found = -1;
  for (int i = 0; i <= static_cast<int>(Layer::kHost); ++i)
    if (layer_name(static_cast<Layer>(i)) == layer) found = i;
  if (found < 0) reader.complain("a column's layer is unknown");
  out.layer = static_cast<Layer>(std::max(found, 0));
  if (scale != "log" && scale != "linear") reader.complain("a column's scale is unknown");
  out.scale = scale == "log" ? Scale::kLog : Scale::kLinear;
  const auto place = std::find(kUses.begin(), kUses.end(), use);
  if (place == kUses.end()) reader.complain("a column's use is unknown");
  out.use = place == kUses.end() ? Use::kShown : static_cast<Use>(place - kUses.begin());
  return out;
}

PeerModel read_peers(Reader& reader, const Json& json) {
  PeerModel out;
  out.scales = reader.numbers(json, "scales");
  out.persistent = reader.numbers(json, "persistent");
  out.tail = reader.numbers(json, "tail");
  const std::size_t windows = reader.count(json, "windows");
  out.windows = static_cast<std::uint32_t>(
      std::min<std::size_t>(windows, std::numeric_limits<std::uint32_t>::max()));
  for (const double rank : reader.numbers(json, "ranks")) {
    if (!(rank >= 0 && rank < 1e9)) reader.complain("ranks has an entry that is no rank");
    out.ranks.push_back(rank >= 0 && rank < 1e9 ? static_cast<std::int32_t>(rank) : 0);
  }
  reader.each(json, "offsets", [&](const Json& list) {
    const auto values = reader.numbers_of(list, "offsets");
    out.offsets.insert(out.offsets.end(), values.begin(), values.end());
  });
  return out;
}

void read_numbers(Reader& reader, const Json& json, JobModel::Parts& out) {
  out.threshold = reader.number(json, "threshold");
  out.flag_rate = reader.number(json, "flag_rate");
  out.measured_points = reader.number(json, "measured_points");
  out.measured_flags = reader.number(json, "measured_flags");
  // Older models do not tell: as many as there may be.
  out.measured_clear = json.at("measured_clear").is_null() ? out.measured_flags
                                                           : reader.number(json, "measured_clear");
  out.correlation = reader.number(json, "correlation");
  out.level = reader.number(json, "level");
  out.window_steps = reader.count(json, "window_steps");
  out.long_steps = reader.count(json, "long_steps");
  out.far_cut = reader.number(json, "far_cut");
  out.far_points = reader.number(json, "far_points");
  out.cuts = reader.numbers(json, "cuts");
  out.gap_cut = reader.number(json, "gap_cut");
  out.refreshes = reader.count(json, "refreshes");
  // Older models do not tell these.
  const auto number_or = [&](std::string_view key, double other) {
    return json.at(key).is_null() ? other : reader.number(json, key);
  };
  out.own_margin = number_or("own_margin", 0);
  out.level_margin = number_or("level_margin", 0);
  out.far_margin = number_or("far_margin", 0);
  out.blur = number_or("blur", ModelOptions{}.blur);
  out.window_s = number_or("window_s", 0);
  if (json.at("own_margin").is_null() && out.refreshes > 0)
    reader.complain(
        "it was refreshed by an older version, which raised its thresholds: no own_margin");
  out.rows = reader.number(json, "rows");
}

std::string checksum_line(std::string_view text) {
  return fmt::format("fnv1a64:{:016x}", hash_of(text));
}

}  // namespace

std::string JobModel::to_text() const {
  Json columns = Json::array(), coordinates = Json::array(), paces = Json::array();
  for (const Column& column : parts_.columns)
    columns.push(column_json(column));
  for (const Coordinate& one : parts_.coordinates) {
    coordinates.push(Json::object()
                         .set("column", static_cast<std::uint64_t>(one.column))
                         .set("center", one.center)
                         .set("spread", one.spread)
                         .set("least", one.least));
  }
  for (const Pace& pace : parts_.paces) {
    paces.push(
        Json::object().set("median", pace.median).set("low", pace.low).set("high", pace.high));
  }
  const std::string text = Json::object()
                               .set("schema", kSchema)
                               .set("command", parts_.key.command)
                               .set("world_size", parts_.key.world_size)
                               .set("hardware", parts_.key.hardware)
                               .set("columns", columns)
                               .set("coordinates", coordinates)
                               .set("mixture", parts_.mixture.to_json())
                               .set("threshold", parts_.threshold)
                               .set("flag_rate", parts_.flag_rate)
                               .set("measured_points", parts_.measured_points)
                               .set("measured_flags", parts_.measured_flags)
                               .set("measured_clear", parts_.measured_clear)
                               .set("correlation", parts_.correlation)
                               .set("level", parts_.level)
                               .set("window_steps", static_cast<std::uint64_t>(parts_.window_steps))
                               .set("long_steps", static_cast<std::uint64_t>(parts_.long_steps))
                               .set("peers", peers_json(parts_.peers))
                               .set("long_peers", peers_json(parts_.long_peers))
                               .set("far_cut", parts_.far_cut)
                               .set("far_points", parts_.far_points)
                               .set("cuts", Json::array_of(parts_.cuts))
                               .set("gap_cut", parts_.gap_cut)
                               .set("own_margin", parts_.own_margin)
                               .set("level_margin", parts_.level_margin)
                               .set("far_margin", parts_.far_margin)
                               .set("blur", parts_.blur)
                               .set("window_s", parts_.window_s)
                               .set("paces", paces)
                               .set("rows", parts_.rows)
                               .set("refreshes", parts_.refreshes)
                               .dump();
  return text + "\n" + checksum_line(text) + "\n";
}

Result<JobModel> JobModel::from_text(std::string_view untrusted) {
  if (untrusted.size() > kTextMax) return bad_model_text("larger than 64 MiB");
  const std::size_t end = untrusted.find('\n');
  if (end == std::string_view::npos) return bad_model_text("no line with a checksum");
  const std::string_view text = untrusted.substr(0, end);
  std::string_view sum = untrusted.substr(end + 1);
  if (!sum.empty() && sum.back() == '\n') sum.remove_suffix(1);
  if (sum != checksum_line(text)) return bad_model_text("its checksum is wrong");
  TRY(const Json json, Json::parse(text));
  if (json.at("schema").as_string() != kSchema)
    return bad_model_text(fmt::format("its schema is not {}", kSchema));
  Reader reader;
  Parts out;
  out.key.command = reader.text(json, "command");
  const std::size_t world = reader.count(json, "world_size");
  out.key.world_size = static_cast<std::int32_t>(std::min<std::size_t>(world, 1 << 30));
  out.key.hardware = reader.text(json, "hardware");
  reader.each(json, "columns",
              [&](const Json& one) { out.columns.push_back(read_column(reader, one)); });
  reader.each(json, "coordinates", [&](const Json& one) {
    out.coordinates.push_back({reader.count(one, "column"), reader.number(one, "center"),
                               reader.number(one, "spread"), reader.number(one, "least")});
  });
  reader.each(json, "paces", [&](const Json& one) {
    out.paces.push_back(
        {reader.number(one, "median"), reader.number(one, "low"), reader.number(one, "high")});
  });
  read_numbers(reader, json, out);
  out.peers = read_peers(reader, json.at("peers"));
  out.long_peers = read_peers(reader, json.at("long_peers"));
  if (!reader.problem.empty()) return bad_model_text(reader.problem);
  if (out.paces.size() != out.columns.size()) return bad_model_text("paces: not one a column");
  TRY(out.mixture, stats::Mixture::from_json(json.at("mixture")));
  if (json.at("own_margin").is_null()) take_margins(out);
  return from_parts(std::move(out));
}

}  // namespace kansoku::detect
