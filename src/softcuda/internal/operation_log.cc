// SPDX-License-Identifier: Apache-2.0
#include "softcuda/internal/operation_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace kansoku::softcuda {
namespace {

std::int64_t ns(BootTime time) {
  return time.time_since_epoch().count();
}

}  // namespace

std::optional<std::size_t> OperationLog::add(const Which& which) {
  const std::scoped_lock lock(mutex_);
  if (rows_.size() >= rows_max_) {
    ++dropped_;
    return std::nullopt;
  }
  Row row;
  row.stream = which.stream;
  row.number = which.number;
  row.bytes = which.bytes;
  row.what = which.what;
  row.is_node = which.is_node;
  if (!which.name.empty()) {
    auto found = known_.find(which.name);
    if (found == known_.end()) {
      found =
          known_.emplace(std::string(which.name), static_cast<std::uint32_t>(names_.size())).first;
      names_.emplace_back(which.name);
    }
    row.name = found->second;
  }
  rows_.push_back(row);
  return rows_.size() - 1;
}

void OperationLog::ran(std::size_t row, const Times& host, const Times& device) {
  const std::scoped_lock lock(mutex_);
  Row& known = rows_[row];
  known.host_begin_ns = ns(host.begin);
  known.host_end_ns = ns(host.end);
  const auto begin = static_cast<std::uint64_t>(ns(device.begin));
  known.device = {begin, begin, static_cast<std::uint64_t>(ns(device.end))};
  known.has_ended = true;
}

void OperationLog::placed(std::size_t row, const Span& device) {
  const std::scoped_lock lock(mutex_);
  Row& known = rows_[row];
  if (!known.has_ended) known.device = device;
  known.device.ready = std::min(known.device.ready, device.ready);
  known.device.begin = std::min(known.device.begin, device.begin);
  known.device.end = std::max(known.device.end, device.end);
  known.has_ended = true;
}

std::string OperationLog::text() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::size_t> order(rows_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(rows_[a].stream, rows_[a].number, a) <
           std::tie(rows_[b].stream, rows_[b].number, b);
  });
  std::string out;
  std::uint64_t unfinished = 0;
  for (const std::size_t i : order) {
    const Row& row = rows_[i];
    if (!row.has_ended) {
      ++unfinished;
      continue;
    }
    out += fmt::format("{} {} {} {} {} {} {} {} {} {} {}\n", row.is_node ? "node" : "op",
                       done_name(row.what), row.stream, row.number, row.device.ready,
                       row.device.begin, row.device.end, row.host_begin_ns, row.host_end_ns,
                       row.bytes, names_[row.name]);
  }
  if (dropped_ > 0) out += fmt::format("dropped {}\n", dropped_);
  if (unfinished > 0) out += fmt::format("unfinished {}\n", unfinished);
  return out;
}

}  // namespace kansoku::softcuda
