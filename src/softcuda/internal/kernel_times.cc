// SPDX-License-Identifier: Apache-2.0
#include "softcuda/internal/kernel_times.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace kansoku::softcuda {
namespace {

std::string plain_name(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || plain == nullptr) return name;
  // Without the types of result and parameters.
  std::string_view text(plain.get());
  if (text.starts_with("void ")) text.remove_prefix(5);
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    if (text[i] == '(' && depth == 0 && !text.substr(i).starts_with("(anonymous"))
      return std::string(text.substr(0, i));
  }
  return std::string(text);
}

double ms_of(Nanos elapsed) {
  return static_cast<double>(elapsed.count()) * 1e-6;
}

}  // namespace

void KernelTimes::add(std::string_view kernel, Nanos elapsed) {
  const std::scoped_lock lock(mutex_);
  auto found = rows_.find(kernel);
  if (found == rows_.end()) found = rows_.emplace(std::string(kernel), Row{}).first;
  ++found->second.launches;
  found->second.elapsed += elapsed;
}

std::string KernelTimes::table(std::size_t rows) const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::pair<std::string, Row>> sorted(rows_.begin(), rows_.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.elapsed > b.second.elapsed;
  });
  Row all;
  for (const auto& [name, row] : sorted) {
    all.launches += row.launches;
    all.elapsed += row.elapsed;
  }
  std::string out = fmt::format("{:.{}f} ms in {} launches of {} kernels", ms_of(all.elapsed),
                                decimals_, all.launches, sorted.size());
  for (std::size_t i = 0; i < std::min(rows, sorted.size()); ++i) {
    const Row& row = sorted[i].second;
    const double share = all.elapsed > Nanos{} ? ms_of(row.elapsed) / ms_of(all.elapsed) : 0;
    out += fmt::format("\n{:10.{}f} ms {:5.1f} % {:7} launches  {}", ms_of(row.elapsed), decimals_,
                       100 * share, row.launches, plain_name(sorted[i].first));
  }
  return out;
}

}  // namespace kansoku::softcuda
