// SPDX-License-Identifier: Apache-2.0
// compare_recordings ONE OTHER CATEGORY...: compares two recordings that were made beside each
// other. Their calls are the same if they have per thread the same slices and instants of these
// categories, in the same order, with the same arguments; the greatest distance of their times is
// told. Events at the ends of one of them alone, because it began earlier or ended later, are left
// out and counted. Prints one line; fails if calls differ.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sys/fd.h"
#include "trace/reader.h"

namespace {

using namespace kansoku;  // NOLINT(google-build-using-namespace)

struct Event {
  std::string text;  // name and arguments
  std::int64_t begin_ns{0}, end_ns{0};
};
using Thread = std::pair<std::int32_t, std::int32_t>;
using Events = std::map<Thread, std::vector<Event>>;

std::string text_of(const trace::Trace& trace, const trace::ArgValue& arg) {
  const std::string key(trace.str(arg.key));
  switch (arg.kind) {
    case trace::ArgValue::Kind::kString:
      return fmt::format(" {}={}", key, trace.str(arg.text));
    case trace::ArgValue::Kind::kInt:
      return fmt::format(" {}={}", key, arg.i64);
    case trace::ArgValue::Kind::kUint:
      return fmt::format(" {}={}", key, arg.u64);
    case trace::ArgValue::Kind::kDouble:
      return fmt::format(" {}={}", key, arg.f64);
  }
  return {};
}

Events events_of(const trace::Trace& trace, const std::set<std::string>& categories) {
  Events out;
  const auto add = [&](const auto& table, std::size_t i, std::int64_t begin, std::int64_t end) {
    if (!categories.contains(std::string(trace.str(table.category[i])))) return;
    Event event{std::string(trace.str(table.name[i])), begin, end};
    for (std::uint32_t arg = 0; arg < table.arg_count[i]; ++arg)
      event.text += text_of(trace, trace.args[table.arg_begin[i] + arg]);
    const trace::Track& track = trace.tracks[table.track[i].raw];
    out[{track.pid, track.tid}].push_back(std::move(event));
  };
  for (std::size_t i = 0; i < trace.slices.size(); ++i) {
    const std::int64_t begin = trace.slices.start_ns[i];
    if (trace.slices.duration_ns[i] >= 0)
      add(trace.slices, i, begin, begin + trace.slices.duration_ns[i]);
  }
  for (std::size_t i = 0; i < trace.instants.size(); ++i)
    add(trace.instants, i, trace.instants.time_ns[i], trace.instants.time_ns[i]);
  for (auto& [thread, events] : out)
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::tie(a.begin_ns, b.end_ns) < std::tie(b.begin_ns, a.end_ns);
    });
  return out;
}

/// Leaves what both saw from begin to end.
void cut(std::vector<Event>& one, std::vector<Event>& other, std::uint64_t& left_out) {
  if (one.empty() || other.empty()) return;
  constexpr std::int64_t kSlack = 1'000'000;
  const std::int64_t from = std::max(one.front().begin_ns, other.front().begin_ns) - kSlack;
  const auto last = [](const std::vector<Event>& events) {
    return std::max_element(events.begin(), events.end(),
                            [](const Event& a, const Event& b) { return a.end_ns < b.end_ns; })
        ->end_ns;
  };
  const std::int64_t until = std::min(last(one), last(other)) + kSlack;
  for (auto* events : {&one, &other}) {
    left_out += std::erase_if(
        *events, [&](const Event& event) { return event.begin_ns < from || event.end_ns > until; });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::vector<Events> both;
  for (const char* const path : {argv[1], argv[2]}) {
    const auto bytes = sys::read_file(path, std::size_t{1} << 30);
    if (!bytes) return fmt::print("{}\n", bytes.error().what), 2;
    const auto trace = trace::read_trace(as_bytes(*bytes));
    if (!trace) return fmt::print("{}\n", trace.error().what), 2;
    both.push_back(events_of(*trace, std::set<std::string>(argv + 3, argv + argc)));
  }
  std::uint64_t same = 0, different = 0, left_out = 0;
  std::vector<std::int64_t> apart;
  std::set<Thread> threads;
  for (const Events& events : both)
    for (const auto& [thread, list] : events)
      threads.insert(thread);
  for (const Thread& thread : threads) {
    std::vector<Event>&one = both[0][thread], &other = both[1][thread];
    cut(one, other, left_out);
    if (one.size() != other.size()) {
      fmt::print("thread {}: {} and {} events\n", thread.second, one.size(), other.size());
      different +=
          one.size() > other.size() ? one.size() - other.size() : other.size() - one.size();
    }
    for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i) {
      if (one[i].text == other[i].text) {
        ++same;
        apart.push_back(std::abs(one[i].begin_ns - other[i].begin_ns));
        apart.push_back(std::abs(one[i].end_ns - other[i].end_ns));
      } else if (++different <= 5) {
        fmt::print("thread {}, event {}: {} | {}\n", thread.second, i, one[i].text, other[i].text);
      }
    }
  }
  std::sort(apart.begin(), apart.end());
  const auto quantile = [&](double share) {
    return apart.empty() ? 0.0
                         : 1e-3 * static_cast<double>(apart[static_cast<std::size_t>(
                                      share * static_cast<double>(apart.size() - 1))]);
  };
  fmt::print(
      "{} equal, {} different, {} at the ends left out; apart: median {:.1f} us, 99 % {:.1f} us, "
      "most {:.1f} us\n",
      same, different, left_out, quantile(0.5), quantile(0.99), quantile(1));
  return different == 0 && same > 0 ? 0 : 1;
}
