// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/plain_data.h"

namespace kansoku::trace::import {

const PlainData::Value* PlainData::find(const Value& dict, std::string_view key) const {
  if (dict.kind != Kind::kDict) return nullptr;
  for (std::size_t i = dict.items.size(); i >= 2; i -= 2) {
    const Value& name = values_[dict.items[i - 2]];
    if (name.kind == Kind::kText && name.text == key) return &values_[dict.items[i - 1]];
  }
  return nullptr;
}

}  // namespace kansoku::trace::import
