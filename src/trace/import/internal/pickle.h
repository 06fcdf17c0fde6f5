// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "common/result.h"

namespace kansoku::trace::import {

/// A Python pickle that holds plain data only: None, bool, int, float, str, bytes, list, tuple,
/// dict. Values share structure as in Python; a value may even contain itself, so readers bound
/// their depth. Texts borrow from the pickle.
class PlainPickle {
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
  struct Limits {
    std::size_t values_max{50'000'000};
    std::size_t stack_max{1'000'000};
  };

  /// Runs the opcodes that build plain data. kUnsupported names the first other one (those that
  /// import, call or build objects) with its offset, kCorrupt the broken part, kLimit the limit.
  /// Executes nothing. Source: the opcode table of CPython's pickletools.
  [[nodiscard]] static Result<PlainPickle> read(ByteSpan untrusted, const Limits& limits);
  [[nodiscard]] static Result<PlainPickle> read(ByteSpan untrusted) {
    return read(untrusted, Limits{});
  }

  [[nodiscard]] Id root() const { return root_; }
  [[nodiscard]] const Value& at(Id id) const { return values_[id]; }
  /// The value of text key `key` in dict `dict`, or null; the last one wins as in Python.
  [[nodiscard]] const Value* find(const Value& dict, std::string_view key) const;

 private:
  friend class PickleMachine;
  std::vector<Value> values_;
  Id root_{0};
};

}  // namespace kansoku::trace::import
