// SPDX-License-Identifier: Apache-2.0
#include "softcuda/internal/counts.h"

#include <fmt/format.h>

namespace kansoku::softcuda {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(Done::kCount)> kDoneNames{
    "kernel",        "copy_HtoD", "copy_DtoH",  "copy_DtoD",   "copy_HtoH", "set",
    "host_function", "event",     "value_wait", "value_write", "graph"};

}  // namespace

std::string_view done_name(Done what) {
  return kDoneNames[static_cast<std::size_t>(what)];
}

Counts::Counts(std::size_t functions)
    : functions_(functions), calls_(std::make_unique<Calls[]>(functions)) {}

void Counts::add(Done what, std::uint64_t bytes) {
  Sum& sum = done_[static_cast<std::size_t>(what)];
  ++sum.count;
  sum.bytes += bytes;
}

void Counts::add_kernel(std::string_view name) {
  add(Done::kKernel, 0);
  const std::scoped_lock lock(mutex_);
  const auto found = kernels_.find(name);
  ++(found == kernels_.end() ? kernels_[std::string(name)] : found->second);
}

std::string Counts::text(const char* const* names) const {
  std::string out;
  for (std::size_t i = 0; i < functions_; ++i) {
    if (calls_[i].calls == 0) continue;
    out += fmt::format("call {} {} {}\n", names[i], calls_[i].calls.load(),
                       calls_[i].successes.load());
  }
  for (std::size_t i = 0; i < done_.size(); ++i) {
    if (done_[i].count == 0) continue;
    out +=
        fmt::format("did {} {} {}\n", kDoneNames[i], done_[i].count.load(), done_[i].bytes.load());
  }
  const std::scoped_lock lock(mutex_);
  for (const auto& [name, number] : kernels_)
    out += fmt::format("kernel {} {}\n", name, number);
  return out;
}

}  // namespace kansoku::softcuda
