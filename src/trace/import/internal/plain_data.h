// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace kansoku::trace::import {

/// Values as a pickle or JSON holds them: none, bool, int, float, text, list, dict. Values may
/// share structure as in Python; a value may even contain itself, so readers bound their depth.
/// Texts borrow from the file, or from `owned`.
class PlainData {
 public:
  using Id = std::uint32_t;
  enum class Kind : std::uint8_t { kNone, kBool, kInt, kFloat, kText, kList, kDict };
  struct Value {
    Kind kind{Kind::kNone};
    std::int64_t integer{0};  // kInt; kBool: 0 or 1
    double real{0};
    std::string_view text;
    std::vector<Id> items;  // elements; of a dict key, value, key, value, ...
  };

  [[nodiscard]] Id root() const { return root_; }
  [[nodiscard]] const Value& at(Id id) const { return values_[id]; }
  /// The value of text key `key` in dict `dict`, or null; the last one wins as in Python.
  [[nodiscard]] const Value* find(const Value& dict, std::string_view key) const;

 private:
  friend class PickleMachine;
  friend class JsonTree;
  std::vector<Value> values_;
  std::deque<std::string> owned_;  // unescaped texts
  Id root_{0};
};

struct PlainLimits {
  std::size_t values_max{50'000'000};
  std::size_t stack_max{1'000'000};
};

}  // namespace kansoku::trace::import
