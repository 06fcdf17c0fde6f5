// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>

#include "gpu/activity/bus_bandwidth.h"
#include "gpu/activity/internal/names.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/internal/tables.h"

namespace kansoku::gpu::activity {
namespace {

struct CopyKey {
  std::string kind;
  std::int32_t pageable;  // -1: unknown
  friend auto operator<=>(const CopyKey&, const CopyKey&) = default;
};

struct CopySums {
  std::uint64_t count{0}, bytes_count{0}, bytes{0}, timed_bytes{0};
  double total_us{0}, timed_us{0};  // timed: of those that say their bytes too
};

std::string kind_of(const Input& in, std::uint32_t slice) {
  const std::string_view said = in.args.text(slice, ArgName::kKind);
  return std::string(said.empty() ? copy_kind_of(in.args.string(in.trace.slices.name[slice]))
                                  : said);
}

/// By argument, else by the words of PyTorch's profiler: "Memcpy HtoD (Pageable -> Device)".
std::int32_t pageable_of(const Input& in, std::uint32_t slice) {
  if (const auto said = in.args.number(slice, ArgName::kPageable)) return *said != 0 ? 1 : 0;
  const std::string_view name = in.args.string(in.trace.slices.name[slice]);
  if (name.find("Pageable") != std::string_view::npos) return 1;
  return name.find("Pinned") != std::string_view::npos ? 0 : -1;
}

CopyRow copy_row(const Input& in, const CopyKey& key, const CopySums& sums) {
  const bool is_timed = is_allowed(Figure::kCopyRates, in.recorded);
  CopyRow row;
  row.kind = key.kind;
  if (key.pageable >= 0) row.pageable = key.pageable == 1;
  row.count = sums.count;
  if (sums.bytes_count == sums.count && is_allowed(Figure::kCopyBytes, in.recorded))
    row.bytes = sums.bytes;
  if (is_timed) row.total_us = sums.total_us;
  // Bytes a microsecond are megabytes a second.
  if (is_timed && sums.timed_us > 0)
    row.gb_per_s = static_cast<double>(sums.timed_bytes) / sums.timed_us / 1e3;
  return row;
}

struct CollectiveKey {
  std::string name;
  std::optional<std::uint64_t> bytes, group_size;
  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};

/// Data that a collective moved: from the kernel's own arguments (PyTorch's profiler), else from
/// the call of NCCL around its launch.
CollectiveKey collective_key(const Input& in, const Op& op) {
  const std::string_view said = in.args.text(op.slice, ArgName::kCollective);
  CollectiveKey key{
      collective_of(said.empty() ? in.args.string(in.trace.slices.name[op.slice]) : said), {}, {}};
  key.group_size = in.args.count(op.slice, ArgName::kGroupSize);
  const auto in_count = in.args.count(op.slice, ArgName::kInCount);
  const auto out_count = in.args.count(op.slice, ArgName::kOutCount);
  const std::uint64_t type_bytes = type_bytes_of(in.args.text(op.slice, ArgName::kDataType));
  if (in_count && out_count && type_bytes > 0) {
    const std::uint64_t most = std::max(*in_count, *out_count);
    if (most < (std::uint64_t{1} << 56)) key.bytes = most * type_bytes;
    return key;
  }
  if (op.call == kNoIndex) return key;
  for (std::uint32_t at = in.host.parent(in.work.calls[op.call].slice); at != kNoIndex;
       at = in.host.parent(at)) {
    const std::string_view name = in.args.string(in.trace.slices.name[at]);
    if (!name.starts_with("nccl")) continue;
    const std::string word = collective_of(name);
    if (word.empty()) continue;
    key.name = word;
    if (!key.group_size) key.group_size = in.args.count(at, ArgName::kGroupSize);
    const auto bytes = in.args.count(at, ArgName::kBytes);
    if (bytes) key.bytes = whole_bytes_of(word, *bytes, key.group_size);
    break;
  }
  return key;
}

}  // namespace

std::vector<CopyRow> copy_rows(const Input& in) {
  std::map<CopyKey, CopySums> sums;
  const auto add = [&](std::uint32_t slice, bool is_set, double us) {
    CopySums& at = is_set ? sums[{"set", -1}] : sums[{kind_of(in, slice), pageable_of(in, slice)}];
    ++at.count;
    at.total_us += us;
    const auto bytes = in.args.count(slice, ArgName::kBytes);
    if (!bytes || *bytes >= (std::uint64_t{1} << 56)) return;
    ++at.bytes_count;
    at.bytes += *bytes;
    if (us <= 0) return;
    at.timed_bytes += *bytes;
    at.timed_us += us;
  };
  const bool is_timed = is_allowed(Figure::kCopyRates, in.recorded);
  for (const Op& op : in.work.ops) {
    if (!is_timed || (op.what != OpClass::kCopy && op.what != OpClass::kSet)) continue;
    add(op.slice, op.what == OpClass::kSet, us_of(op.time.end_ns - op.time.begin_ns));
  }
  for (const Call& call : in.work.calls) {
    if (is_timed || call.is_nested) continue;
    if (call.what == CallClass::kCopy || call.what == CallClass::kSet)
      add(call.slice, call.what == CallClass::kSet, 0);
  }
  std::vector<CopyRow> rows;
  rows.reserve(sums.size());
  for (const auto& [key, at] : sums)
    rows.push_back(copy_row(in, key, at));
  return rows;
}

std::vector<CollectiveRow> collective_rows(const Input& in) {
  std::map<CollectiveKey, std::vector<double>> times;
  if (!is_allowed(Figure::kBusBandwidth, in.recorded)) return {};
  for (const Op& op : in.work.ops) {
    if (op.what == OpClass::kCollective)
      times[collective_key(in, op)].push_back(us_of(op.time.end_ns - op.time.begin_ns));
  }
  std::vector<CollectiveRow> rows;
  for (auto& [key, us] : times) {
    CollectiveRow row;
    row.name = key.name;
    row.count = us.size();
    row.bytes = key.bytes;
    row.group_size = key.group_size;
    row.us = spread_of(us);
    const auto factor = key.group_size ? bus_factor_of(key.name, *key.group_size) : std::nullopt;
    if (factor && key.bytes && row.us->p50 > 0)
      row.bus_gb_per_s = *factor * static_cast<double>(*key.bytes) / row.us->p50 / 1e3;
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const CollectiveRow& a, const CollectiveRow& b) {
    return a.us->mean * static_cast<double>(a.count) > b.us->mean * static_cast<double>(b.count);
  });
  return rows;
}

}  // namespace kansoku::gpu::activity
