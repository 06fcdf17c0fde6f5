// SPDX-License-Identifier: Apache-2.0
// Any bytes as records of the ring: a byte of length in units of four (0 = 512 bytes), then so many
// bytes, and so on. Each is decoded or counted, and the trace made of them can be read.
#include "capture/decoder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "common/check.h"
#include "trace/reader.h"

namespace {

using namespace kansoku;
using namespace kansoku::capture;

void add_probe(ProbeTable& table, ProbeKind kind, std::string_view category,
               std::initializer_list<std::pair<std::string_view, std::string_view>> captures) {
  ProbeInfo info;
  info.title = "probe " + std::to_string(table.size());
  info.category = category;
  info.kind = kind;
  for (const auto& [name, expression] : captures)
    info.captures.push_back(parse_capture(name, expression).value());
  table.push_back(std::move(info));
}

// One probe of each kind.
ProbeTable make_probes() {
  ProbeTable table;
  add_probe(
      table, ProbeKind::kCall, "collective",
      {{"elements", "arg0"}, {"element_bytes", "arg1:u32"}, {"pg", "arg2"}, {"r", "ret:i32"}});
  table.back().ordinal_by = "pg";
  table.back().bytes = {"elements", "element_bytes"};
  add_probe(table, ProbeKind::kCall, "nccl", {{"count", "arg0"}, {"nccl_type", "arg1:u32"}});
  table.back().ordinal_by = "";
  table.back().bytes = {"count"};
  table.back().type = "nccl_type";
  table.back().type_values = {{"int8", 1}, {"float16", 2}};
  add_probe(table, ProbeKind::kInstant, "mark", {{"t", "arg0:str"}, {"n", "arg1:i64"}});
  add_probe(table, ProbeKind::kAnnotate, "note", {{"x", "arg0:i32"}, {"seq", "ret:u32"}});
  add_probe(table, ProbeKind::kScope, "step",
            {{"op", "arg0"}, {"scope", "arg1:str"}, {"arg_count", "arg2"}});
  add_probe(table, ProbeKind::kCall, "io", {});
  table.back().is_syscall = true;
  add_probe(table, ProbeKind::kInstant, "host", {});
  table.back().is_host = true;
  return table;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;
  static const ProbeTable probes = make_probes();
  const sys::Procfs procfs("/no/such/folder");
  MemorySink sink;
  const auto writer = trace::Writer::create(sink, boot_time(1'000'000)).value();
  Decoder decoder(*writer, probes, procfs);
  std::span<const std::uint8_t> rest(data, size);
  std::uint64_t count = 0;
  alignas(8) std::array<std::byte, 1024> record{};
  while (!rest.empty()) {
    const std::size_t wanted = rest.front() == 0 ? 512 : rest.front() * std::size_t{4};
    rest = rest.subspan(1);
    const std::size_t bytes = std::min(wanted, rest.size());
    std::memcpy(record.data(), rest.data(), bytes);
    rest = rest.subspan(bytes);
    decoder.on_record(std::span(record).first(bytes));
    ++count;
  }
  const Decoder::Counters& counters = decoder.counters();
  CHECK(counters.records == count);
  CHECK(counters.bad_records <= count && counters.unmatched_ends <= count);
  CHECK(decoder.take_lifecycle().size() <= count);
  CHECK(writer->flush().has_value());
  const auto trace = trace::read_trace(as_bytes(sink.data()));
  CHECK(trace.has_value());
  CHECK(!trace->losses.contains("trace_unknown_reference"));
  CHECK(!trace->losses.contains("trace_end_without_begin"));
  CHECK(trace->slices.size() + trace->instants.size() + trace->samples.size() +
            trace->switches.size() + trace->wakes.size() <=
        count);
  return 0;
}
