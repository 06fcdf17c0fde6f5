// SPDX-License-Identifier: Apache-2.0
#include "softcuda/telemetry/launch_observer.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace kansoku::softcuda {
namespace {

Error contradiction(std::string_view what) {
  return Error{Code::kCorrupt, fmt::format("observe launches: {}", what)};
}

Result<std::string> text_at(const std::vector<char>& text, const ObservedText& place) {
  if (place.at > text.size() || place.bytes > text.size() - place.at)
    return contradiction("a text lies outside of the library's texts");
  return std::string(text.data() + place.at, place.bytes);
}

}  // namespace

Result<LaunchObserver> LaunchObserver::open(void* library, int device) {
  auto* const observe = reinterpret_cast<ObserveFunction*>(dlsym(library, kObserveName));
  auto* const observed = reinterpret_cast<ObservedFunction*>(dlsym(library, kObservedName));
  if (observe != nullptr && observed != nullptr) return LaunchObserver(observe, observed, device);
  return Error{Code::kUnavailable,
               fmt::format("observe launches: this driver has no {}",
                           observe == nullptr ? kObserveName : kObservedName),
               "only the software GPU's driver observes; `make softgpu` builds it anew"};
}

Result<void> LaunchObserver::check(int code) const {
  if (code == 0) return {};
  return Error{Code::kUnavailable,
               fmt::format("observe launches on device {}: CUDA error {}", device_, code)};
}

template <class Item>
Result<std::vector<Item>> LaunchObserver::items(ObservedSection section) const {
  const auto number = static_cast<std::uint32_t>(section);
  std::uint64_t count = 0, again = 0;
  TRY_VOID(check(observed_(device_, number, nullptr, sizeof(Item), 0, &count)));
  std::vector<Item> items(count);
  if (items.empty()) return items;
  TRY_VOID(check(observed_(device_, number, items.data(), sizeof(Item), count, &again)));
  if (again != count) return contradiction("somebody else began anew meanwhile");
  return items;
}

Result<void> LaunchObserver::begin(std::uint32_t what) const {
  return check(observe_(device_, what));
}

Result<LaunchesSeen> LaunchObserver::end() const {
  TRY_VOID(check(observe_(device_, 0)));
  TRY(const auto summary, items<ObservedSummary>(ObservedSection::kSummary));
  TRY(const auto hazards, items<ObservedHazard>(ObservedSection::kHazards));
  TRY(const auto profile, items<ObservedProfile>(ObservedSection::kProfile));
  TRY(const auto classes, items<ObservedClass>(ObservedSection::kClasses));
  TRY(const auto lines, items<ObservedLine>(ObservedSection::kLines));
  TRY(const auto text, items<char>(ObservedSection::kText));
  if (summary.size() != 1) return contradiction("there is no summary");
  LaunchesSeen seen;
  seen.launches = summary[0].launches;
  seen.hazard_count = summary[0].hazard_count;
  seen.lines_left_out = summary[0].lines_left_out;
  if (!profile.empty()) seen.profile = profile[0];
  for (const ObservedHazard& each : hazards) {
    TRY(auto kind, text_at(text, each.kind));
    TRY(auto message, text_at(text, each.text));
    seen.hazards.push_back({std::move(kind), std::move(message), each.launch, each.line});
  }
  for (const ObservedClass& each : classes) {
    TRY(auto name, text_at(text, each.name));
    seen.classes.push_back({std::move(name), {each.warps, each.threads}});
  }
  for (const ObservedLine& each : lines) {
    TRY(auto kernel, text_at(text, each.kernel));
    seen.lines.push_back({std::move(kernel), each.line, {each.warps, each.threads}});
  }
  return seen;
}

}  // namespace kansoku::softcuda
