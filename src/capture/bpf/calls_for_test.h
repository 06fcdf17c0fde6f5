// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "capture/bpf/engine.h"
#include "capture/bpf/exits.h"
#include "capture/bpf/sites.h"
#include "sys/elf.h"

extern "C" {
/// Calls itself until `depth` is 1; throws std::invalid_argument where it is 0.
[[gnu::noinline, gnu::used]] inline long nested_for_test(long depth) {
  if (depth == 0) throw std::invalid_argument("the bottom");
  if (depth == 1) return 1;
  long inner = nested_for_test(depth - 1);
  asm volatile("" : "+r"(inner));  // no loop is made of it
  return inner + 1;
}
}

namespace kansoku::capture::bpf {

/// An engine that observes this process; nothing where BPF may not be used.
inline std::unique_ptr<Engine> engine_for_test(AttachMode mode) {
  auto engine = Engine::create({.ring_bytes = 1U << 20, .forced = mode});
  if (!engine) return nullptr;
  EXPECT_TRUE((*engine)->observe_process(::getpid()).has_value());
  return std::move(engine).value();
}

/// The description of a probe that captures nothing.
inline wire_probe probe_for_test(int sinks, int flags = 0) {
  wire_probe out{};
  out.sinks = static_cast<std::uint8_t>(sinks);
  out.flags = static_cast<std::uint16_t>(flags);
  return out;
}

/// Adds a capture: `source` is an argument (or, at the end, WIRE_RETURN), read along `offsets`.
inline void add_capture_for_test(wire_probe& probe, int source, int size = 8,
                                 int is_text = WIRE_TEXT_NONE,
                                 const std::vector<std::uint16_t>& offsets = {}) {
  wire_capture capture{};
  capture.source = static_cast<std::uint8_t>(source);
  capture.size = static_cast<std::uint8_t>(size);
  capture.is_text = static_cast<std::uint8_t>(is_text);
  for (const std::uint16_t offset : offsets)
    capture.offset[capture.step_count++] = offset;
  const auto bit = static_cast<std::uint16_t>(1U << probe.capture_count);
  probe.captures[probe.capture_count++] = capture;
  (capture.source == WIRE_RETURN || (source & WIRE_SOURCE_OUT) != 0 ? probe.at_end
                                                                    : probe.at_begin) |= bit;
  if (capture.is_text != 0) probe.flags |= WIRE_PROBE_TEXT;
  if (capture.is_text != 0) probe.text = static_cast<std::uint8_t>(probe.capture_count - 1);
  if ((source & WIRE_SOURCE_OUT) != 0) probe.flags |= WIRE_PROBE_OUT;
}

/// Probes that see begin and end of the calls of a function at its own exits.
inline std::vector<UprobeSpec> call_specs_for_test(sys::ElfFile& file, const std::string& name,
                                                   std::uint64_t cookie, bool wants_value = false,
                                                   bool before_calls = false) {
  const sys::Symbol* symbol = file.find_symbol(name);
  EXPECT_NE(symbol, nullptr) << name;
  if (symbol == nullptr) return {};
  const std::uint64_t entry = pick_site(file, *symbol, {true, true}).address;
  std::vector<UprobeSpec> specs{{*file.file_offset(entry), 0, cookie | WIRE_COOKIE_CALL}};
  const ExitNeeds needs{.entry_site = entry,
                        .value_bytes = static_cast<std::uint8_t>(wants_value ? 8 : 0),
                        .before_calls = before_calls};
  const Exits found = find_exits(file, *symbol, needs);
  EXPECT_FALSE(found.exits.empty()) << name << ": " << found.problem;
  for (const Exit& exit : found.exits)
    specs.push_back({*file.file_offset(exit.address), 0, exit.cookie(cookie)});
  return specs;
}

}  // namespace kansoku::capture::bpf
