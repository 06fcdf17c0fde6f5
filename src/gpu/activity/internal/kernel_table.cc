// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "common/parse.h"
#include "gpu/activity/internal/spread.h"
#include "gpu/activity/internal/tables.h"
#include "gpu/activity/occupancy.h"

namespace kansoku::gpu::activity {
namespace {

/// "512,1,1" of "[512, 1, 1]" too; "" of anything that is no three numbers.
std::string extent_text(std::string_view text) {
  std::string out;
  std::size_t commas = 0;
  for (const char c : text) {
    if (c == ' ' || c == '[' || c == ']') continue;
    if (c != ',' && (c < '0' || c > '9')) return {};
    commas += c == ',' ? 1 : 0;
    out += c;
  }
  return commas == 2 ? out : std::string{};
}

std::optional<std::uint64_t> threads_of(std::string_view extent) {
  std::uint64_t threads = 1;
  while (!extent.empty()) {
    const std::string_view number = extent.substr(0, extent.find(','));
    extent.remove_prefix(std::min(extent.size(), number.size() + 1));
    const auto value = parse_int<std::uint64_t>(number);
    if (!value || *value == 0 || *value > 1024) return std::nullopt;
    threads *= *value;
  }
  return threads;
}

/// How often a kernel was launched in one shape.
struct Shape {
  trace::StringId grid, block;  // as the recording writes them
  std::int64_t registers, shared_bytes, device;
  friend auto operator<=>(const Shape&, const Shape&) = default;
};

struct Sums {
  OpClass what{OpClass::kKernel};
  std::vector<double> us;
  std::uint64_t shared_count{0};
  std::map<Shape, std::uint32_t> shapes;
  std::uint32_t one_slice{0};  // of the kernel
};

class KernelTable {
 public:
  explicit KernelTable(const Input& in) : in_(in) {}
  std::vector<KernelRow> rows();

 private:
  void add(const Op& op);
  void add_shape(const Op& op, Sums& sums);
  [[nodiscard]] KernelRow row_of(std::string_view name, Sums& sums, double all_us) const;
  void describe(const Sums& sums, KernelRow& row) const;

  const Input& in_;
  std::map<std::string_view, Sums> kernels_;
};

void KernelTable::add_shape(const Op& op, Sums& sums) {
  Shape shape{{}, {}, -1, -1, in_.work.devices[in_.work.streams[op.stream].device].ordinal};
  for (const trace::ArgValue& arg : in_.args.all(op.slice)) {
    const bool is_text = arg.kind == trace::ArgValue::Kind::kString;
    if (is_text && in_.args.meaning(arg.key) == ArgName::kGrid) shape.grid = arg.text;
    if (is_text && in_.args.meaning(arg.key) == ArgName::kBlock) shape.block = arg.text;
  }
  shape.registers = in_.args.number(op.slice, ArgName::kRegisters).value_or(-1);
  shape.shared_bytes = in_.args.number(op.slice, ArgName::kSharedBytes).value_or(-1);
  ++sums.shapes[shape];
}

void KernelTable::add(const Op& op) {
  const std::string_view full = in_.args.text(op.slice, ArgName::kFullName);
  const std::string_view name =
      full.empty() ? in_.args.string(in_.trace.slices.name[op.slice]) : full;
  Sums& sums = kernels_[name];
  if (sums.us.empty()) sums.one_slice = op.slice;
  sums.what = op.what;
  sums.us.push_back(us_of(op.time.end_ns - op.time.begin_ns));
  sums.shared_count += op.is_shared ? 1 : 0;
  add_shape(op, sums);
}

void KernelTable::describe(const Sums& sums, KernelRow& row) const {
  const auto most =
      std::max_element(sums.shapes.begin(), sums.shapes.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const Shape& shape = most->first;
  row.grid = extent_text(in_.args.string(shape.grid));
  row.block = extent_text(in_.args.string(shape.block));
  row.shape_count = sums.shapes.size();
  if (shape.registers >= 0) row.registers = static_cast<std::uint64_t>(shape.registers);
  if (shape.shared_bytes >= 0) row.shared_bytes = static_cast<std::uint64_t>(shape.shared_bytes);
  if (const auto said = in_.args.number(sums.one_slice, ArgName::kOccupancyPercent);
      said && *said > 0 && *said <= 100) {
    row.occupancy = static_cast<double>(*said) / 100;
    row.occupancy_by = "profiler";
  }
  const auto known = in_.trace.metadata.find(fmt::format("kansoku.cuda.device.{}", shape.device));
  const auto threads = threads_of(row.block);
  if (known == in_.trace.metadata.end() || !threads || row.block.empty() || !row.registers ||
      !row.shared_bytes)
    return;
  const auto limits = limits_of(known->second);
  if (!limits) return;
  const auto occupancy = occupancy_of(*limits, *threads, *row.registers, *row.shared_bytes);
  if (!occupancy) return;
  row.occupancy = occupancy;
  row.occupancy_by = "limits";
}

KernelRow KernelTable::row_of(std::string_view name, Sums& sums, double all_us) const {
  KernelRow row;
  row.name = std::string(in_.args.string(in_.trace.slices.name[sums.one_slice]));
  if (row.name != name) row.full_name = std::string(name);
  row.what = sums.what;
  row.count = sums.us.size();
  row.us = spread_of(sums.us);
  row.shared_count = sums.shared_count;
  const double total_us = row.us->mean * static_cast<double>(row.count);
  if (is_allowed(Figure::kKernelTotals, in_.recorded)) row.total_us = total_us;
  if (all_us > 0) row.share = total_us / all_us;
  describe(sums, row);
  return row;
}

std::vector<KernelRow> KernelTable::rows() {
  double all_us = 0;
  for (const Op& op : in_.work.ops) {
    if (op.what != OpClass::kKernel && op.what != OpClass::kCollective) continue;
    add(op);
    all_us += us_of(op.time.end_ns - op.time.begin_ns);
  }
  std::vector<KernelRow> rows;
  rows.reserve(kernels_.size());
  for (auto& [name, sums] : kernels_)
    rows.push_back(row_of(name, sums, all_us));
  std::stable_sort(rows.begin(), rows.end(), [](const KernelRow& a, const KernelRow& b) {
    return a.share.value_or(0) > b.share.value_or(0);
  });
  return rows;
}

/// Launch calls that name their kernel, where no operation was timed.
std::vector<KernelRow> launches_by_name(const Input& in) {
  std::map<std::string_view, std::uint64_t> counts;
  for (const Call& call : in.work.calls) {
    if (call.what != CallClass::kLaunch || call.is_nested) continue;
    const std::string_view name = in.args.text(call.slice, ArgName::kFullName);
    if (!name.empty()) ++counts[name];
  }
  std::vector<KernelRow> rows;
  for (const auto& [name, count] : counts) {
    KernelRow row;
    row.name = std::string(name);
    row.count = count;
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const KernelRow& a, const KernelRow& b) { return a.count > b.count; });
  return rows;
}

}  // namespace

std::vector<KernelRow> kernel_rows(const Input& in) {
  if (!is_allowed(Figure::kKernelTimes, in.recorded)) return launches_by_name(in);
  return KernelTable(in).rows();
}

}  // namespace kansoku::gpu::activity
