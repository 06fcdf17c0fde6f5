// SPDX-License-Identifier: Apache-2.0
#include "capture/probe_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kansoku::capture {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::uint16_t flags_of(const FunctionProbes& probes, const std::vector<CaptureDef>& captures,
                       bool at_end) {
  const bool has_text =
      std::any_of(captures.begin(), captures.end(),
                  [](const CaptureDef& capture) { return capture.how.is_text != WIRE_TEXT_NONE; });
  int flags = at_end ? WIRE_PROBE_AT_END : 0;
  if (has_text) flags |= WIRE_PROBE_TEXT;
  if (std::any_of(captures.begin(), captures.end(),
                  [](const CaptureDef& capture) { return capture.is_long; }))
    flags |= WIRE_PROBE_LONG_TEXT;
  if (probes.steps) flags |= WIRE_PROBE_STEPS;
  if (probes.has_frames) flags |= WIRE_PROBE_FRAMES;
  if (probes.is_sampled) flags |= WIRE_PROBE_SAMPLED;
  if (std::any_of(captures.begin(), captures.end(), is_out)) flags |= WIRE_PROBE_OUT;
  if (probes.kind == ProbeKind::kInstant) flags |= WIRE_PROBE_INSTANT;
  if (probes.kind == ProbeKind::kScope) flags |= WIRE_PROBE_INSTANT | WIRE_PROBE_SCOPE;
  return static_cast<std::uint16_t>(flags);
}

wire_scope prefix_of(const std::string& text) {
  wire_scope out{};
  std::memcpy(out.prefix, text.data(), std::min<std::size_t>(text.size(), WIRE_PREFIX_BYTES));
  std::memset(out.mask, 0xff, std::min<std::size_t>(text.size(), WIRE_PREFIX_BYTES));
  return out;
}

}  // namespace

std::optional<std::uint32_t> add_probes(ProbeTable& table, std::vector<ProbeInfo> probes,
                                        std::size_t numbers_max) {
  std::size_t at = 0;
  const auto fits = [&] {
    for (std::size_t i = at; i < at + probes.size() && i < table.size(); ++i)
      if (!table[i].is_free) return false;
    return true;
  };
  while (!fits())
    ++at;
  if (at + probes.size() > numbers_max) return std::nullopt;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    if (at + i < table.size()) {
      table[at + i] = std::move(probes[i]);
    } else {
      table.push_back(std::move(probes[i]));
    }
  }
  return static_cast<std::uint32_t>(at);
}

wire_probe describe(const FunctionProbes& probes, const std::vector<CaptureDef>& captures,
                    std::uint8_t sinks, bool at_end) {
  wire_probe out{};
  out.sinks = sinks;
  out.flags = flags_of(probes, captures, at_end);
  for (std::uint8_t i = 0; i < captures.size() && i < WIRE_ARGS_MAX; ++i) {
    const CaptureDef& capture = captures[i];
    const auto bit = static_cast<std::uint16_t>(1U << i);
    out.captures[out.capture_count++] = capture.how;
    (is_read_at_end(capture) ? out.at_end : out.at_begin) |= bit;
    if ((out.at_begin & bit) != 0 && contains(probes.bytes, capture.name)) out.factors |= bit;
    if (capture.how.is_text != WIRE_TEXT_NONE) out.text = i;
    if (capture.name == probes.type) out.type = static_cast<std::uint8_t>(i + 1);
    if (capture.how.is_text == WIRE_TEXT_PYTHON) out.scope_name = i;
    if (capture.name == kScopeArguments) out.scope_arguments = i;
  }
  std::fill(std::begin(out.sizes), std::end(out.sizes), std::uint8_t{1});
  for (std::size_t i = 0; i < probes.type_values.size() && i < WIRE_SIZES_MAX; ++i)
    out.sizes[i] = probes.type_values[i].bytes;
  for (const ScopeMetric& scope : probes.scopes) {
    if (out.scope_count == WIRE_SCOPES_MAX) break;
    out.scopes[out.scope_count++] = prefix_of(scope.prefix);
  }
  return out;
}

}  // namespace kansoku::capture
