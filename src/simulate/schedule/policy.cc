// SPDX-License-Identifier: Apache-2.0
#include "simulate/schedule/policy.h"

#include <algorithm>
#include <array>
#include <string>

#include "simulate/schedule/backfill.h"
#include "simulate/schedule/fair_share.h"
#include "simulate/schedule/fifo.h"
#include "simulate/schedule/improvement.h"
#include "simulate/schedule/priority.h"
#include "simulate/schedule/shortest.h"

namespace kansoku::simulate::schedule {
namespace {

template <class P>
std::unique_ptr<Policy> make() {
  return std::make_unique<P>();
}

constexpr std::array<std::string_view, 6> kNames{"fifo",       "priority", "shortest",
                                                 "fair_share", "backfill", "improvement"};
constexpr std::array<std::unique_ptr<Policy> (*)(), kNames.size()> kMakers{
    make<Fifo>, make<Priority>, make<Shortest>, make<FairShare>, make<Backfill>, make<Improvement>};

}  // namespace

std::span<const std::string_view> policy_names() {
  return kNames;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return kMakers[static_cast<std::size_t>(found - kNames.begin())]();
  std::string all;
  for (const std::string_view known : kNames)
    all += (all.empty() ? "" : ", ") + std::string(known);
  return Error{Code::kNotFound, "scheduler \"" + std::string(name) + "\": unknown",
               "there are " + all};
}

}  // namespace kansoku::simulate::schedule
