// SPDX-License-Identifier: Apache-2.0
#include "trace/inference.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/parse.h"

namespace kansoku::trace {
namespace {

constexpr std::array<std::string_view, 5> kLevels{"none", "token", "graph", "operator", "thread"};
constexpr std::int64_t kSizeMax = std::int64_t{1} << 48;
constexpr std::size_t kTypeMax = 15;

constexpr std::string_view kCallsTrack = "model calls of thread ", kThreadTrack = "graph thread ";

/// Cuts the text up to the next `end` off the front.
std::string_view take(std::string_view& rest, char end) {
  const std::size_t at = rest.find(end);
  const std::string_view out = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return out;
}

std::optional<std::array<std::int64_t, 4>> parse_sizes(std::string_view text) {
  if (text.ends_with('x')) return std::nullopt;
  std::array<std::int64_t, 4> out{};
  for (std::int64_t& size : out) {
    const auto number = parse_int<std::int64_t>(take(text, 'x'));
    if (!number || *number < 0 || *number > kSizeMax) return std::nullopt;
    size = *number;
  }
  if (!text.empty()) return std::nullopt;
  return out;
}

}  // namespace

std::string model_calls_track(std::uint32_t tid) {
  return fmt::format("{}{}", kCallsTrack, tid);
}
std::string graph_thread_track(std::uint32_t ith, std::uint32_t caller_tid) {
  return fmt::format("{}{} of {}", kThreadTrack, ith, caller_tid);
}

std::optional<std::uint32_t> parse_model_calls_track(std::string_view name) {
  if (!name.starts_with(kCallsTrack)) return std::nullopt;
  return parse_int<std::uint32_t>(name.substr(kCallsTrack.size()));
}

std::optional<GraphThread> parse_graph_thread_track(std::string_view name) {
  constexpr std::string_view kOf = " of ";
  const std::size_t at = name.find(kOf);
  if (!name.starts_with(kThreadTrack) || at == std::string_view::npos) return std::nullopt;
  const auto ith =
      parse_int<std::uint32_t>(name.substr(kThreadTrack.size(), at - kThreadTrack.size()));
  const auto caller = parse_int<std::uint32_t>(name.substr(at + kOf.size()));
  if (!ith || !caller) return std::nullopt;
  return GraphThread{*ith, *caller};
}

std::string_view model_level_name(ModelLevel level) {
  return kLevels.at(static_cast<std::size_t>(level));
}

std::optional<ModelLevel> model_level_from_name(std::string_view name) {
  const auto* const found = std::find(kLevels.begin(), kLevels.end(), name);
  if (found == kLevels.end()) return std::nullopt;
  return static_cast<ModelLevel>(found - kLevels.begin());
}

bool is_view_operator(std::string_view op) {
  constexpr std::array<std::string_view, 5> kViews{"NONE", "RESHAPE", "VIEW", "PERMUTE",
                                                   "TRANSPOSE"};
  return std::find(kViews.begin(), kViews.end(), op) != kViews.end();
}

std::string shape_text(const TensorShape& shape) {
  return fmt::format("{} {}x{}x{}x{} {}", shape.type, shape.ne[0], shape.ne[1], shape.ne[2],
                     shape.ne[3], shape.bytes);
}

std::optional<TensorShape> parse_shape(std::string_view untrusted) {
  TensorShape out;
  out.type = take(untrusted, ' ');
  const auto sizes = parse_sizes(take(untrusted, ' '));
  const auto bytes = parse_int<std::uint64_t>(untrusted);
  if (out.type.empty() || out.type.size() > kTypeMax || !sizes || !bytes ||
      *bytes > static_cast<std::uint64_t>(kSizeMax))
    return std::nullopt;
  out.ne = *sizes;
  out.bytes = *bytes;
  return out;
}

std::string source_text(const TensorSource& source) {
  return source.node ? fmt::format("{} #{}", shape_text(source.shape), *source.node)
                     : fmt::format("{} ={}", shape_text(source.shape), source.leaf);
}

std::optional<TensorSource> parse_source(std::string_view untrusted) {
  std::size_t at = 0;
  for (int blanks = 0; blanks < 3; ++blanks) {
    at = untrusted.find(' ', at);
    if (at == std::string_view::npos) return std::nullopt;
    ++at;
  }
  const auto shape = parse_shape(untrusted.substr(0, at - 1));
  const std::string_view from = untrusted.substr(at);
  if (!shape || from.empty()) return std::nullopt;
  TensorSource out{*shape};
  if (from.front() == '=') {
    out.leaf = from.substr(1);
    return out;
  }
  const auto node = from.front() == '#' ? parse_int<std::uint32_t>(from.substr(1)) : std::nullopt;
  if (!node) return std::nullopt;
  out.node = *node;
  return out;
}

}  // namespace kansoku::trace
