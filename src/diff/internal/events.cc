// SPDX-License-Identifier: Apache-2.0
#include "diff/internal/events.h"

#include <algorithm>
#include <array>
#include <optional>
#include <queue>

#include "common/parse.h"
#include "diff/internal/names.h"
#include "diff/thresholds.h"
#include "trace/collective_kernels.h"

namespace kansoku::diff {
namespace {

using trace::StringId;
using trace::Trace;

constexpr std::int64_t kTimeMaxNs = std::int64_t{1} << 61;
constexpr std::size_t kItemsMax = 20'000;  // further names of a recording are one item a kind
constexpr std::size_t kDimsMax = std::size_t{1} << 22;
constexpr std::size_t kShapesMax = 256;  // further shapes of an item are one
constexpr std::string_view kOtherName = "(others)";
constexpr std::string_view kOwnClock =
    ", device clock";  // as the recorder ends such a track's name

struct CategoryRow {
  std::string_view name;
  Kind kind;
  bool is_device;
};
// Kansoku's packs, PyTorch's profilers (old names in capitals) and the importers.
constexpr std::array<CategoryRow, 26> kCategories{{
    {"kernel", Kind::kKernel, true},          {"Kernel", Kind::kKernel, true},
    {"gpu_memcpy", Kind::kCopy, true},        {"Memcpy", Kind::kCopy, true},
    {"gpu_memset", Kind::kCopy, true},        {"Memset", Kind::kCopy, true},
    {"cuda_graph", Kind::kGraph, true},       {"gpu_host_function", Kind::kStreamWait, true},
    {"gpu_wait", Kind::kStreamWait, true},    {"cpu_op", Kind::kOperator, false},
    {"Operator", Kind::kOperator, false},     {"torch-ops", Kind::kOperator, false},
    {"backward", Kind::kRange, false},        {"collective", Kind::kCollective, false},
    {"cuda", Kind::kHostCall, false},         {"cuda_runtime", Kind::kHostCall, false},
    {"cuda_driver", Kind::kHostCall, false},  {"Runtime", Kind::kHostCall, false},
    {"os_runtime", Kind::kHostCall, false},   {"nccl", Kind::kHostCall, false},
    {"io", Kind::kHostCall, false},           {"python", Kind::kHostCall, false},
    {"inference", Kind::kHostCall, false},    {"step", Kind::kRange, false},
    {"user_annotation", Kind::kRange, false}, {"python_function", Kind::kFunction, false},
}};

std::string_view text_of(const Trace& trace, StringId id) {
  return id.raw < trace.strings.size() ? trace.strings.view(id) : std::string_view();
}

/// The product of the numbers in "50,1,1", "[50, 1, 1]" or "[[2, 3], [4]]" (there: their sum over
/// lists); 0 for anything else.
double volume_of(std::string_view text) {
  double sum = 0, product = 1;
  bool has_number = false;
  std::size_t i = 0;
  const auto close = [&] {
    if (has_number) sum += product;
    product = 1;
    has_number = false;
  };
  while (i < text.size()) {
    const char c = text[i];
    if (c >= '0' && c <= '9') {
      std::size_t end = i;
      while (end < text.size() && text[end] >= '0' && text[end] <= '9')
        ++end;
      const auto number = parse_int<std::uint64_t>(text.substr(i, end - i));
      product *= number ? static_cast<double>(*number) : 0;
      has_number = true;
      i = end;
      continue;
    }
    if (c == ']') close();
    if (c != ',' && c != ' ' && c != '[' && c != ']') return 0;
    ++i;
  }
  close();
  return sum;
}

/// "[[2, 3], [4]]" as lists of numbers; nothing for anything else.
std::vector<std::vector<double>> lists_of(std::string_view text) {
  std::vector<std::vector<double>> out;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[' && ++depth == 2) out.emplace_back();
    if (c == ']') --depth;
    if (c < '0' || c > '9') continue;
    std::size_t end = i;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9')
      ++end;
    const auto number = parse_int<std::uint64_t>(text.substr(i, end - i));
    if (depth != 2 || !number) return {};
    out.back().push_back(static_cast<double>(*number));
    i = end - 1;
  }
  return out;
}

/// Work of an operator, by the shapes of its inputs: the multiplications of a product of
/// matrices, for attention (queries, keys and values of four dimensions) the elements of the
/// queries times the keys that each meets, else the elements. Ratios of it mean something, between
/// calls of one operator.
double work_of(std::string_view dims) {
  auto lists = lists_of(dims);
  std::erase_if(lists, [](const auto& list) { return list.size() < 2; });
  const bool is_attention =
      lists.size() >= 3 && std::all_of(lists.begin(), lists.begin() + 3, [&](const auto& list) {
        return list.size() == 4 && list[0] == lists[0][0];
      });
  // Heads and positions stand in either order; there are more positions.
  if (is_attention)
    return lists[0][0] * lists[0][1] * lists[0][2] * lists[0][3] *
           std::max(lists[1][1], lists[1][2]);
  for (std::size_t i = 0; i + 1 < lists.size(); ++i) {
    const auto &a = lists[i], &b = lists[i + 1];
    double rows = 1;
    for (std::size_t k = 0; k + 1 < a.size(); ++k)
      rows *= a[k];
    if (b.size() == 2 && a.back() == b[0]) return rows * a.back() * b[1];
    if (b.size() == 2 && a.back() == b[1]) return rows * a.back() * b[0];  // transposed weights
    if (b.size() == 3 && a.size() == 3 && a[0] == b[0] && a[2] == b[1])
      return rows * a.back() * b[2];
  }
  return volume_of(dims);
}

/// The arguments of a slice that matter here.
struct Facts {
  std::optional<std::int64_t> correlation, external;  // external: of the operator around it
  std::string_view full_name, grid, block, dims;
  double bytes{0};
};

class Reader {
 public:
  explicit Reader(const Trace& trace) : trace_(trace), collective_kernels_(trace) {}
  EventTable read();

 private:
  void find_ranks();
  void place_tracks();
  void find_dims();
  void read_slice(std::size_t slice);
  [[nodiscard]] Facts facts_of(std::size_t slice) const;
  std::uint32_t item_of(const CategoryRow& row, std::size_t slice, std::string_view full_name);
  std::uint32_t new_item(Kind kind, Lane lane, std::string name);
  std::uint32_t shape_of(std::uint32_t item, const CategoryRow& row, const Facts& facts);
  void link_launches();
  void link_flows();
  void judge_clock();

  struct Place {
    std::uint32_t rank{0};
    bool is_ours{false}, on_main{false};
  };
  struct Known {
    std::uint32_t item{0};
  };

  const Trace& trace_;
  trace::CollectiveKernels collective_kernels_;
  EventTable out_;
  std::vector<Place> places_;       // by track
  std::vector<std::int16_t> rows_;  // by string id: row of kCategories, -1 none
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::string_view>, std::uint32_t> known_;
  std::map<std::tuple<Lane, Kind, std::string>, std::uint32_t> items_;
  std::vector<std::map<std::string, std::uint32_t>> shapes_;    // by item
  std::vector<std::map<std::int64_t, std::int64_t>> launches_;  // by rank: correlation -> begin
  // By rank and External id: the shapes of an operator's inputs.
  std::map<std::pair<std::uint32_t, std::int64_t>, std::string_view> dims_of_;
  bool says_own_clock_{false};
  std::vector<std::int64_t> correlations_;  // of device events, kNoTime: none
  std::unordered_map<std::uint32_t, std::uint32_t> device_of_slice_;
  std::unordered_map<std::uint32_t, std::uint32_t> host_of_slice_;
};

void Reader::find_ranks() {
  std::map<std::int32_t, std::vector<std::int32_t>> pids;  // by rank
  for (const trace::Process& process : trace_.processes) {
    const std::string_view role = text_of(trace_, process.role);
    if (process.rank < 0 || role == "worker" || role == "launcher" || role == "unobserved")
      continue;
    pids[process.rank].push_back(process.pid);
  }
  if (pids.empty()) {  // no rank is told: all processes together are one
    for (const trace::Process& process : trace_.processes) {
      const std::string_view role = text_of(trace_, process.role);
      if (role != "worker" && role != "launcher" && role != "unobserved")
        pids[0].push_back(process.pid);
    }
    if (pids.empty()) pids[0] = {0};
  }
  for (const auto& [rank, members] : pids) {
    for (const std::int32_t pid : members)
      out_.ranks.index_of_pid.emplace(pid, static_cast<std::uint32_t>(out_.ranks.numbers.size()));
    out_.ranks.numbers.push_back(rank);
  }
  launches_.resize(out_.ranks.numbers.size());
}

void Reader::place_tracks() {
  places_.resize(trace_.tracks.size());
  for (std::uint32_t i = 0; i < trace_.tracks.size(); ++i) {
    const trace::Track& track = trace_.tracks[i];
    const auto rank = out_.ranks.index_of_pid.find(process_of_track(trace_, {i}));
    if (rank == out_.ranks.index_of_pid.end()) continue;
    places_[i] = {.rank = rank->second,
                  .is_ours = true,
                  .on_main = track.kind == trace::TrackKind::kThread && track.tid == track.pid};
  }
  rows_.assign(trace_.strings.size(), -1);
  for (std::size_t row = 0; row < kCategories.size(); ++row) {
    const StringId id = trace_.strings.find(kCategories[row].name);
    if (id != StringId{}) rows_[id.raw] = static_cast<std::int16_t>(row);
  }
}

Facts Reader::facts_of(std::size_t slice) const {
  Facts out;
  const std::uint32_t begin = trace_.slices.arg_begin[slice];
  const std::uint32_t count = trace_.slices.arg_count[slice];
  if (begin > trace_.args.size() || count > trace_.args.size() - begin) return out;
  for (std::uint32_t i = begin; i < begin + count; ++i) {
    const trace::ArgValue& arg = trace_.args[i];
    const std::string_view key = text_of(trace_, arg.key);
    const bool is_text = arg.kind == trace::ArgValue::Kind::kString;
    const bool is_whole =
        arg.kind == trace::ArgValue::Kind::kInt || arg.kind == trace::ArgValue::Kind::kUint;
    if (is_whole && key == "correlation") out.correlation = arg.i64;
    if (is_whole && key == "External id") out.external = arg.i64;
    if (is_whole && key == "bytes") out.bytes = static_cast<double>(arg.u64);
    if (!is_text) continue;
    const std::string_view text = text_of(trace_, arg.text);
    if (key == "full_name") out.full_name = text;
    if (key == "grid") out.grid = text;
    if (key == "block") out.block = text;
    if (key == "Input Dims" || key == "Input dims") out.dims = text;
  }
  return out;
}

/// A kernel's work is that of the operator that launched it.
void Reader::find_dims() {
  const auto& table = trace_.slices;
  for (std::size_t slice = 0; slice < table.size(); ++slice) {
    const StringId category = table.category[slice];
    if (category.raw >= rows_.size() || rows_[category.raw] < 0) continue;
    if (table.track[slice].raw >= places_.size()) continue;
    const Place place = places_[table.track[slice].raw];
    if (!place.is_ours || dims_of_.size() >= kDimsMax) continue;
    const Facts facts = facts_of(slice);
    if (facts.external && !facts.dims.empty())
      dims_of_.try_emplace({place.rank, *facts.external}, facts.dims);
  }
}

std::uint32_t Reader::new_item(Kind kind, Lane lane, std::string name) {
  const auto find = [&](std::string text) {
    return items_.try_emplace({lane, kind, std::move(text)},
                              static_cast<std::uint32_t>(out_.items.size()));
  };
  auto [found, is_new] = items_.size() < kItemsMax
                             ? find(std::move(name))
                             : std::pair(items_.find({lane, kind, name}), false);
  if (found == items_.end()) std::tie(found, is_new) = find(std::string(kOtherName));
  if (!is_new) return found->second;
  Item item;
  item.kind = kind;
  item.lane = lane;
  item.name = std::get<2>(found->first);
  out_.items.push_back(std::move(item));
  shapes_.emplace_back();
  return found->second;
}

std::uint32_t Reader::item_of(const CategoryRow& row, std::size_t slice,
                              std::string_view full_name) {
  const StringId category = trace_.slices.category[slice], name = trace_.slices.name[slice];
  const auto [known, is_new] =
      known_.try_emplace({category.raw, name.raw, full_name}, std::uint32_t{0});
  if (!is_new) return known->second;
  const std::string_view text = full_name.empty() ? text_of(trace_, name) : full_name;
  Kind kind = row.kind;
  std::string canonical(text);
  if (kind == Kind::kKernel) {
    canonical = canonical_kernel(text);
    if (collective_kernels_.contains(slice)) kind = Kind::kCollective;
  } else if (text == "c10d::Reducer::finalize_backward") {
    kind = Kind::kCollective;  // it waits for the other ranks
  } else if (kind == Kind::kRange) {
    if (text.starts_with("gloo:") || text.starts_with("nccl:")) kind = Kind::kCollective;
    if (trace_.str(category) == "user_annotation") canonical = unnumbered(text);
  }
  return known->second =
             new_item(kind, row.is_device ? Lane::kDevice : Lane::kHost, std::move(canonical));
}

std::uint32_t Reader::shape_of(std::uint32_t item, const CategoryRow& row, const Facts& facts) {
  Shape shape;
  std::string_view unit;
  if (row.is_device && !facts.grid.empty()) {
    shape.text = "grid " + std::string(facts.grid);
    if (!facts.block.empty()) shape.text += " block " + std::string(facts.block);
    shape.size = volume_of(facts.grid);
    unit = "blocks";
    shape.base = shape.text;
    // One grid may do more work in each of its blocks. A list of tensors has no sizes here.
    if (const double work = work_of(facts.dims); work > 0) {
      shape.text += " for " + std::string(facts.dims);
      shape.size = work;
      unit = kUnitWork;
    }
  } else if (!facts.dims.empty()) {
    shape.text = facts.dims;
    shape.size = volume_of(facts.dims);
    unit = "elements";
  } else if (facts.bytes > 0) {
    shape.text = std::to_string(static_cast<std::uint64_t>(facts.bytes)) + " bytes";
    shape.size = facts.bytes;
    unit = "bytes";
  }
  shape.unit = unit;
  if (shape.base.empty()) shape.base = shape.text;
  auto& known = shapes_[item];
  auto& shapes = out_.items[item].shapes;
  if (known.size() >= kShapesMax && !known.contains(shape.text)) shape = {};
  const auto [found, is_new] =
      known.try_emplace(shape.text, static_cast<std::uint32_t>(shapes.size()));
  if (is_new) {
    if (out_.items[item].size_unit.empty()) out_.items[item].size_unit = unit;
    shapes.push_back(std::move(shape));
  }
  return found->second;
}

void Reader::read_slice(std::size_t slice) {
  const auto& table = trace_.slices;
  const StringId category = table.category[slice], name = table.name[slice];
  if (category.raw >= rows_.size() || rows_[category.raw] < 0) return;
  if (table.track[slice].raw >= places_.size()) return;
  const Place place = places_[table.track[slice].raw];
  if (!place.is_ours || table.duration_ns[slice] == trace::kOpenDuration) return;
  if (text_of(trace_, name).starts_with("ProfilerStep#")) return;  // a frame around all others
  const std::int64_t begin_ns = table.start_ns[slice], duration_ns = table.duration_ns[slice];
  if (begin_ns < -kTimeMaxNs || begin_ns > kTimeMaxNs || duration_ns < 0) {
    ++out_.odd_times;
    return;
  }
  const CategoryRow& row = kCategories[static_cast<std::size_t>(rows_[category.raw])];
  Facts facts = facts_of(slice);
  if (row.is_device && facts.dims.empty() && facts.external) {
    const auto known = dims_of_.find({place.rank, *facts.external});
    if (known != dims_of_.end()) facts.dims = known->second;
  }
  Event event;
  event.begin_ns = begin_ns;
  event.end_ns = begin_ns + std::min(duration_ns, kTimeMaxNs - begin_ns);
  event.rank = place.rank;
  event.track = table.track[slice].raw;
  event.on_main = place.on_main;
  event.item = item_of(row, slice, facts.full_name);
  event.shape = shape_of(event.item, row, facts);
  const auto number = static_cast<std::uint32_t>(slice);
  if (row.is_device) {
    const StringId track = trace_.tracks[event.track].name;
    says_own_clock_ = says_own_clock_ || text_of(trace_, track).ends_with(kOwnClock);
    device_of_slice_.emplace(number, static_cast<std::uint32_t>(out_.device.size()));
    correlations_.push_back(facts.correlation.value_or(kNoTime));
    out_.device.push_back(event);
  } else {
    if (facts.correlation) launches_[event.rank].emplace(*facts.correlation, begin_ns);
    if (row.kind == Kind::kHostCall)
      host_of_slice_.emplace(number, static_cast<std::uint32_t>(out_.host.size()));
    out_.host.push_back(event);
  }
}

void Reader::link_launches() {
  for (std::size_t i = 0; i < out_.device.size(); ++i) {
    if (correlations_[i] == kNoTime) continue;
    const auto& launches = launches_[out_.device[i].rank];
    const auto found = launches.find(correlations_[i]);
    if (found != launches.end()) out_.device[i].launch_ns = found->second;
  }
}

void Reader::link_flows() {
  std::unordered_map<std::uint64_t, std::int64_t> begin_of_flow;
  const std::size_t count = std::min(trace_.flows.id.size(), trace_.flows.slice.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto host = host_of_slice_.find(trace_.flows.slice[i]);
    if (host != host_of_slice_.end())
      begin_of_flow.emplace(trace_.flows.id[i], out_.host[host->second].begin_ns);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto device = device_of_slice_.find(trace_.flows.slice[i]);
    const auto begin = begin_of_flow.find(trace_.flows.id[i]);
    if (device == device_of_slice_.end() || begin == begin_of_flow.end()) continue;
    std::int64_t& launch_ns = out_.device[device->second].launch_ns;
    if (launch_ns == kNoTime) launch_ns = begin->second;
  }
}

/// A device clock that was mapped to the host's never shows work long before its launch, or hours
/// after it.
void Reader::judge_clock() {
  std::size_t linked = 0, apart = 0;
  for (const Event& event : out_.device) {
    if (event.launch_ns == kNoTime) continue;
    ++linked;
    const double lead_ns =
        static_cast<double>(event.begin_ns) - static_cast<double>(event.launch_ns);
    if (lead_ns < -kClockLeadMaxNs || lead_ns > kClockLagMaxNs) ++apart;
  }
  out_.device_clock_apart = says_own_clock_ || 2 * apart > linked;
}

EventTable Reader::read() {
  find_ranks();
  place_tracks();
  find_dims();
  for (std::size_t i = 0; i < trace_.slices.size(); ++i)
    read_slice(i);
  link_launches();
  link_flows();
  judge_clock();
  for (std::vector<Event>* events : {&out_.device, &out_.host}) {
    std::stable_sort(events->begin(), events->end(), [](const Event& a, const Event& b) {
      return std::tuple(a.rank, a.begin_ns, b.end_ns) < std::tuple(b.rank, b.begin_ns, a.end_ns);
    });
  }
  return std::move(out_);
}

}  // namespace

EventTable read_events(const Trace& trace) {
  return Reader(trace).read();
}

}  // namespace kansoku::diff
