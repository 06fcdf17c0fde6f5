// SPDX-License-Identifier: Apache-2.0
#include "trace/import/files_for_test.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include "common/check.h"

namespace kansoku::trace::import {
namespace {

std::string bytes_of(std::uint64_t value, int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += static_cast<char>((value >> (8 * i)) & 0xffU);
  return out;
}

std::string text_of(const Trace& trace, std::uint32_t begin, std::uint32_t count) {
  std::string out;
  for (std::uint32_t i = begin; i < begin + count; ++i) {
    const ArgValue& arg = trace.args[i];
    out += fmt::format(" {}=", trace.str(arg.key));
    if (arg.kind == ArgValue::Kind::kInt) out += fmt::format("{}", arg.i64);
    if (arg.kind == ArgValue::Kind::kUint) out += fmt::format("{}u", arg.u64);
    if (arg.kind == ArgValue::Kind::kDouble) out += fmt::format("{}f", arg.f64);
    if (arg.kind == ArgValue::Kind::kString) out += fmt::format("'{}'", trace.str(arg.text));
  }
  return out;
}

}  // namespace

std::string gzip(std::string_view text, int level) {
  z_stream state{};
  CHECK(deflateInit2(&state, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string in(text);
  std::string out(deflateBound(&state, static_cast<uLong>(text.size())), '\0');
  state.next_in = reinterpret_cast<Bytef*>(in.data());
  state.avail_in = static_cast<uInt>(in.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  CHECK(deflate(&state, Z_FINISH) == Z_STREAM_END);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

std::string from_hex(std::string_view hex) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  CHECK(hex.size() % 2 == 0);
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const std::size_t high = kDigits.find(hex[i]), low = kDigits.find(hex[i + 1]);
    CHECK(high < 16 && low < 16);
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

namespace pickled {

std::string none() {
  return "N";
}
std::string number(std::int64_t value) {
  return "\x8a\x08" + bytes_of(static_cast<std::uint64_t>(value), 8);
}
std::string text(std::string_view value) {
  return "X" + bytes_of(value.size(), 4) + std::string(value);
}
std::string list(const std::vector<std::string>& items) {
  return fmt::format(
      "]("
      "{}e",
      fmt::join(items, ""));
}
std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items)
    out += text(key) + value;
  return out + "u";
}
std::string file(std::string_view value) {
  return "\x80\x02" + std::string(value) + ".";
}

}  // namespace pickled

std::string text_of(const Trace& trace) {
  std::string out = fmt::format("window {} {}\n", trace.begin_ns, trace.end_ns);
  for (const Process& p : trace.processes) {
    out += fmt::format("process {} '{}' role '{}' rank {} of {}\n", p.pid, trace.str(p.name),
                       trace.str(p.role), p.rank, p.world_size);
  }
  for (const Track& t : trace.tracks) {
    out += fmt::format("track {} in {} pid {} tid {} '{}'\n", static_cast<int>(t.kind),
                       static_cast<std::int32_t>(t.parent.raw), t.pid, t.tid, trace.str(t.name));
  }
  for (const ProcessGroup& g : trace.groups) {
    out += fmt::format("group '{}' '{}' {}\n", trace.str(g.name), trace.str(g.description),
                       fmt::join(g.ranks, ","));
  }
  const SliceTable& s = trace.slices;
  for (std::size_t i = 0; i < s.size(); ++i) {
    out += fmt::format("slice {} +{} on {} '{}' '{}'{}\n", s.start_ns[i], s.duration_ns[i],
                       s.track[i].raw, trace.str(s.category[i]), trace.str(s.name[i]),
                       text_of(trace, s.arg_begin[i], s.arg_count[i]));
  }
  const InstantTable& n = trace.instants;
  for (std::size_t i = 0; i < n.size(); ++i) {
    out += fmt::format("instant {} on {} '{}' '{}'{}\n", n.time_ns[i], n.track[i].raw,
                       trace.str(n.category[i]), trace.str(n.name[i]),
                       text_of(trace, n.arg_begin[i], n.arg_count[i]));
  }
  const CounterTable& c = trace.counters;
  for (std::size_t i = 0; i < c.size(); ++i)
    out += fmt::format("counter {} on {} {}\n", c.time_ns[i], c.track[i].raw, c.value[i]);
  for (const auto& [name, loss] : trace.losses)
    out += fmt::format("loss {} {}\n", name, loss.count);
  return out;
}

std::string import_problem_of(const Trace& trace) {
  const auto is_track = [&](TrackId id) { return id.raw < trace.tracks.size(); };
  const auto is_text = [&](StringId id) { return id.raw < trace.strings.size(); };
  const SliceTable& s = trace.slices;
  for (const std::size_t size : {s.duration_ns.size(), s.track.size(), s.name.size(),
                                 s.category.size(), s.arg_begin.size(), s.arg_count.size()}) {
    if (size != s.size()) return "slice columns of unequal length";
  }
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (!is_track(s.track[i]) || !is_text(s.name[i]) || !is_text(s.category[i]))
      return "a slice with an id of nothing";
    if (std::size_t{s.arg_begin[i]} + s.arg_count[i] > trace.args.size())
      return "a slice with arguments that are not there";
    if (s.duration_ns[i] < kOpenDuration) return "a negative duration";
    const std::int64_t end_ns = s.start_ns[i] + (s.duration_ns[i] < 0 ? 0 : s.duration_ns[i]);
    if (s.start_ns[i] < trace.begin_ns || end_ns > trace.end_ns) return "a slice out of the window";
  }
  const InstantTable& n = trace.instants;
  for (const std::size_t size :
       {n.track.size(), n.name.size(), n.category.size(), n.arg_begin.size(), n.arg_count.size()}) {
    if (size != n.size()) return "instant columns of unequal length";
  }
  for (const TrackId track : n.track) {
    if (!is_track(track)) return "an instant on no track";
  }
  const CounterTable& c = trace.counters;
  if (c.track.size() != c.size() || c.value.size() != c.size())
    return "counter columns of unequal length";
  for (const TrackId track : c.track) {
    if (!is_track(track)) return "a counter on no track";
  }
  for (const Track& track : trace.tracks) {
    if (track.parent != kNoTrack && !is_track(track.parent)) return "a track in no track";
  }
  for (std::size_t i = 0; i < trace.processes.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (trace.processes[i].pid == trace.processes[j].pid) return "two processes of one number";
    }
  }
  return {};
}

}  // namespace kansoku::trace::import
