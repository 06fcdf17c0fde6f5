// SPDX-License-Identifier: Apache-2.0
#include "softcuda/internal/observing.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace kansoku::softcuda {
namespace {

using cuda::CUresult;

/// Texts one behind the other, each but once.
class Texts {
 public:
  ObservedText place_of(std::string_view text) {
    const auto [found, is_new] = places_.try_emplace(std::string(text));
    if (is_new) {
      found->second = {all_.size(), text.size()};
      all_ += text;
    }
    return found->second;
  }
  std::string take() { return std::move(all_); }

 private:
  std::string all_;
  std::map<std::string, ObservedText> places_;
};

template <class Items>
CUresult copy_items(const Items& all, const ItemsOut& out) {
  *out.count = all.size();
  if (out.capacity == 0) return cuda::CUDA_SUCCESS;
  if (out.items == nullptr || out.item_bytes == 0 || out.capacity < all.size())
    return cuda::CUDA_ERROR_INVALID_VALUE;
  auto* to = static_cast<std::byte*>(out.items);
  for (const auto& item : all) {
    const std::size_t copied = std::min<std::size_t>(out.item_bytes, sizeof item);
    std::memcpy(to, &item, copied);
    std::memset(to + copied, 0, out.item_bytes - copied);
    to += out.item_bytes;
  }
  return cuda::CUDA_SUCCESS;
}

void add_to(gpu::exec::InstructionCount& sum, const gpu::exec::InstructionCount& count) {
  sum.warps += count.warps;
  sum.threads += count.threads;
}

}  // namespace

CUresult hand_out(const SeenSections& seen, std::uint32_t section, const ItemsOut& out) {
  if (out.count == nullptr) return cuda::CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<ObservedSection>(section)) {
    case ObservedSection::kSummary:
      return copy_items(seen.summary, out);
    case ObservedSection::kHazards:
      return copy_items(seen.hazards, out);
    case ObservedSection::kProfile:
      return copy_items(seen.profile, out);
    case ObservedSection::kClasses:
      return copy_items(seen.classes, out);
    case ObservedSection::kLines:
      return copy_items(seen.lines, out);
    case ObservedSection::kText:
      return copy_items(seen.text, out);
  }
  return cuda::CUDA_ERROR_NOT_SUPPORTED;
}

void SeenLaunches::add(const std::string& kernel, const gpu::exec::Observations& seen) {
  const std::scoped_lock lock(mutex_);
  ++launches_;
  if (wants_hazards()) {
    hazard_count_ += seen.hazard_count;
    for (const gpu::exec::Fault& hazard : seen.hazards) {
      if (hazards_.size() == gpu::exec::Observations::kHazardsMax) break;
      if (known_.emplace(hazard.kernel, hazard.kind, hazard.line, hazard.other_line).second)
        hazards_.push_back(hazard);
    }
  }
  if (!wants_profile()) return;
  const gpu::exec::Profile& profile = seen.profile;
  for (std::size_t i = 0; i < classes_.size(); ++i)
    add_to(classes_[i], profile.classes[i]);
  profile_.branches += profile.branches;
  profile_.divergent_branches += profile.divergent_branches;
  profile_.global_requests += profile.global_requests;
  profile_.global_sectors += profile.global_sectors;
  profile_.global_sectors_needed += profile.global_sectors_needed;
  profile_.shared_requests += profile.shared_requests;
  profile_.shared_passes += profile.shared_passes;
  profile_.shared_passes_needed += profile.shared_passes_needed;
  add_lines(kernel, profile);
}

void SeenLaunches::add_lines(const std::string& kernel, const gpu::exec::Profile& profile) {
  auto& lines = lines_[kernel];
  for (const gpu::exec::Profile::Line& line : profile.lines) {
    auto found = lines.find(line.line);
    if (found == lines.end()) {
      if (line_count_ == lines_max_) {
        ++lines_left_out_;
        continue;
      }
      ++line_count_;
      found = lines.emplace(line.line, gpu::exec::InstructionCount{}).first;
    }
    add_to(found->second, line.count);
  }
}

SeenSections SeenLaunches::sections() const {
  SeenSections out;
  Texts texts;
  const std::scoped_lock lock(mutex_);
  out.summary.push_back({launches_, hazard_count_, lines_left_out_, what_, 0});
  for (gpu::exec::Fault hazard : hazards_) {
    const std::uint64_t launch = std::exchange(hazard.launch, 0);
    out.hazards.push_back({texts.place_of(gpu::exec::fault_name(hazard.kind)),
                           texts.place_of(hazard.text()), launch, hazard.line, 0});
  }
  if (wants_profile()) out.profile.push_back(profile_);
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i].warps == 0) continue;
    const auto name = gpu::exec::class_name(static_cast<gpu::exec::InstructionClass>(i));
    out.classes.push_back({texts.place_of(name), classes_[i].warps, classes_[i].threads});
  }
  for (const auto& [kernel, lines] : lines_) {
    for (const auto& [line, count] : lines)
      out.lines.push_back({texts.place_of(kernel), count.warps, count.threads, line, 0});
  }
  out.text = texts.take();
  return out;
}

void Observing::begin(std::uint32_t what) {
  auto current = std::make_shared<SeenLaunches>(what);
  const std::scoped_lock lock(mutex_);
  current_ = std::move(current);
  seen_ = nullptr;
  is_on_.store(true, std::memory_order_release);
}

void Observing::end() {
  const std::scoped_lock lock(mutex_);
  if (current_ == nullptr) return;
  is_on_.store(false, std::memory_order_release);
  seen_ = std::make_shared<const SeenSections>(current_->sections());
  current_ = nullptr;
}

CUresult Observing::seen(std::shared_ptr<const SeenSections>& out) const {
  const std::scoped_lock lock(mutex_);
  if (current_ != nullptr) return cuda::CUDA_ERROR_NOT_READY;
  if (seen_ == nullptr) return cuda::CUDA_ERROR_NOT_FOUND;
  out = seen_;
  return cuda::CUDA_SUCCESS;
}

}  // namespace kansoku::softcuda
