// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "gpu/activity/internal/device_figures.h"
#include "gpu/activity/internal/names.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/internal/tables.h"

namespace kansoku::gpu::activity {
namespace {

struct RangeKey {
  std::string_view name, domain;
  bool is_on_thread{false};
  friend auto operator<=>(const RangeKey&, const RangeKey&) = default;
};

struct RangeSums {
  std::uint64_t count{0}, op_count{0};
  std::int64_t host_ns{0};
  std::map<std::uint32_t, std::vector<stats::Interval>> work;  // by device
};

class Ranges {
 public:
  explicit Ranges(const Input& in) : in_(in) {}
  std::vector<RangeRow> rows(bool has_all_operations);

 private:
  [[nodiscard]] bool is_range(std::uint32_t slice);
  [[nodiscard]] RangeKey key_of(std::uint32_t slice) const;
  void add_slice(std::uint32_t slice);
  void add_op(const Op& op);

  const Input& in_;
  std::map<std::pair<trace::StringId, trace::StringId>, bool> known_;
  std::map<RangeKey, RangeSums> sums_;
};

bool Ranges::is_range(std::uint32_t slice) {
  const std::pair key(in_.trace.slices.category[slice], in_.trace.slices.name[slice]);
  const auto [known, is_new] = known_.try_emplace(key);
  if (is_new)
    known->second = is_range_category(in_.args.string(key.first)) &&
                    !in_.args.string(key.second).starts_with("ProfilerStep#");
  return known->second;
}

RangeKey Ranges::key_of(std::uint32_t slice) const {
  const trace::TrackId track = in_.trace.slices.track[slice];
  const bool is_on_thread = track.raw < in_.trace.tracks.size() &&
                            in_.trace.tracks[track.raw].kind == trace::TrackKind::kThread;
  return {in_.args.string(in_.trace.slices.name[slice]), in_.args.text(slice, ArgName::kDomain),
          is_on_thread};
}

/// One inside another of the same name takes no further time of the host.
void Ranges::add_slice(std::uint32_t slice) {
  const RangeKey key = key_of(slice);
  RangeSums& of = sums_[key];
  ++of.count;
  for (std::uint32_t at = in_.host.parent(slice); at != kNoIndex; at = in_.host.parent(at))
    if (is_range(at) && key_of(at) == key) return;
  const stats::Interval time = in_.host.time(slice);
  of.host_ns += time.end_ns - time.begin_ns;
}

void Ranges::add_op(const Op& op) {
  if (op.call == kNoIndex || !is_busy(op.what)) return;
  const std::uint32_t device = in_.work.streams[op.stream].device;
  std::vector<RangeSums*> around;
  for (std::uint32_t at = in_.host.parent(in_.work.calls[op.call].slice); at != kNoIndex;
       at = in_.host.parent(at)) {
    if (!is_range(at)) continue;
    RangeSums* const of = &sums_[key_of(at)];
    if (std::find(around.begin(), around.end(), of) != around.end()) continue;
    around.push_back(of);
    ++of->op_count;
    of->work[device].push_back(op.time);
  }
}

std::vector<RangeRow> Ranges::rows(bool has_all_operations) {
  for (std::uint32_t i = 0; i < in_.trace.slices.size(); ++i)
    if (is_range(i)) add_slice(i);
  if (sums_.empty()) return {};
  double busy_us = 0;
  for (const Device& device : in_.work.devices) {
    const DeviceTime time = device_time(in_.work, device);
    busy_us += us_of(time.busy.measure_ns(time.window));
  }
  for (const Op& op : in_.work.ops)
    add_op(op);
  std::vector<RangeRow> rows;
  for (auto& [key, of] : sums_) {
    RangeRow row{.name = std::string(key.name),
                 .domain = std::string(key.domain),
                 .count = of.count,
                 .host_us = us_of(of.host_ns)};
    if (key.is_on_thread && has_all_operations) {
      row.op_count = of.op_count;
      double device_us = 0;
      for (auto& [device, work] : of.work)
        for (const auto set = stats::IntervalSet::of(std::move(work));
             const stats::Interval& one : set.items())
          device_us += us_of(one.end_ns - one.begin_ns);
      row.device_us = device_us;
      if (busy_us > 0) row.share = device_us / busy_us;
    }
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const RangeRow& a, const RangeRow& b) {
    return std::tuple(a.device_us.value_or(-1), a.host_us) >
           std::tuple(b.device_us.value_or(-1), b.host_us);
  });
  return rows;
}

}  // namespace

std::vector<RangeRow> range_rows(const Input& in) {
  return Ranges(in).rows(is_allowed(Figure::kOperators, in.recorded));
}

}  // namespace kansoku::gpu::activity
