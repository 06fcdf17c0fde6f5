// SPDX-License-Identifier: Apache-2.0
#include "capture/job_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace kansoku::capture {

namespace {

bool is_loopback(std::string_view told) {
  return told.starts_with("127.") || told.starts_with("localhost:") || told.starts_with("::1:") ||
         told.starts_with("[::1]:");
}

}  // namespace

JobOwner job_owner(const JobProcess& process) {
  return {process.owner.user, is_loopback(process.facts.job) ? process.owner.network : 0};
}

bool is_local_job(const JobProcess& process) {
  return process.facts.job.empty() || is_loopback(process.facts.job);
}

std::string numbered_job(const std::string& told, int number) {
  return number == 1 ? told : fmt::format("{}#{}", told, number);
}

std::string own_job_name(const JobProcess& process) {
  return fmt::format("{}/{}", process.name, process.pid);
}

std::string JobNames::name_of(const JobProcess& process) {
  const std::string& told = process.facts.job;
  if (told.empty()) return own_job_name(process);
  const Owner owner(told, job_owner(process));
  if (const auto known = names_.find(owner); known != names_.end()) {
    known->second.is_used = true;
    return known->second.name;
  }
  std::string name = told;
  const auto is_taken = [&] {
    return std::any_of(names_.begin(), names_.end(),
                       [&](const auto& one) { return one.second.name == name; });
  };
  for (int number = 2; is_taken(); ++number)
    name = numbered_job(told, number);
  names_.emplace(owner, Named{name});
  return name;
}

void JobNames::end_window() {
  for (auto one = names_.begin(); one != names_.end();)
    one = std::exchange(one->second.is_used, false) ? std::next(one) : names_.erase(one);
}

}  // namespace kansoku::capture
