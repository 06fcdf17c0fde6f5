// SPDX-License-Identifier: Apache-2.0
#include "trace/model.h"

#include "common/check.h"

namespace kansoku::trace {

StringPool::StringPool() {
  intern("");
}

StringId StringPool::intern(std::string_view text) {
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  const StringId id{static_cast<std::uint32_t>(strings_.size())};
  strings_.emplace_back(text);
  ids_.emplace(strings_.back(), id);
  return id;
}

StringId StringPool::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? StringId{} : found->second;
}

std::string_view StringPool::view(StringId id) const {
  CHECK(id.raw < strings_.size());
  return strings_[id.raw];
}

std::span<const FrameId> StackTable::at(StackId id) const {
  CHECK(id.raw < size());
  return std::span(frames).subspan(begin[id.raw], begin[id.raw + 1] - begin[id.raw]);
}

const ArgValue* Trace::slice_arg(std::size_t slice, StringId key) const {
  CHECK(slice < slices.size());
  for (std::uint32_t i = 0; i < slices.arg_count[slice]; ++i) {
    const ArgValue& arg = args[slices.arg_begin[slice] + i];
    if (arg.key == key) return &arg;
  }
  return nullptr;
}

bool Trace::is_lossy() const {
  for (const auto& [name, loss] : losses) {
    if (loss.severity >= Severity::kDataLoss && loss.count > 0) return true;
  }
  return false;
}

}  // namespace kansoku::trace
