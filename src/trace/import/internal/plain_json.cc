// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/plain_json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace kansoku::trace::import {

/// Copies simdjson's tree, whose depth simdjson bounds.
class JsonTree {
 public:
  JsonTree(const PlainLimits& limits, PlainData& out) : limits_(limits), out_(out) {}

  Result<PlainData::Id> copy(const simdjson::dom::element& element) {
    PlainData::Value value;
    switch (element.type()) {
      case simdjson::dom::element_type::ARRAY:
        value.kind = PlainData::Kind::kList;
        for (const simdjson::dom::element item : simdjson::dom::array(element)) {
          TRY(const PlainData::Id id, copy(item));
          value.items.push_back(id);
        }
        break;
      case simdjson::dom::element_type::OBJECT:
        value.kind = PlainData::Kind::kDict;
        for (const auto& [key, member] : simdjson::dom::object(element)) {
          TRY(const PlainData::Id name, add(text_of(key)));
          TRY(const PlainData::Id id, copy(member));
          value.items.push_back(name);
          value.items.push_back(id);
        }
        break;
      case simdjson::dom::element_type::STRING:
        value = text_of(std::string_view(element));
        break;
      case simdjson::dom::element_type::BOOL:
        value.kind = PlainData::Kind::kBool;
        value.integer = bool(element) ? 1 : 0;
        break;
      case simdjson::dom::element_type::INT64:
        value.kind = PlainData::Kind::kInt;
        value.integer = std::int64_t(element);
        break;
      case simdjson::dom::element_type::UINT64:
      case simdjson::dom::element_type::DOUBLE:
        value.kind = PlainData::Kind::kFloat;
        value.real = double(element);
        break;
      case simdjson::dom::element_type::NULL_VALUE:
        break;
    }
    return add(std::move(value));
  }

  void set_root(PlainData::Id id) { out_.root_ = id; }

 private:
  [[nodiscard]] PlainData::Value text_of(std::string_view text) {
    PlainData::Value value;
    value.kind = PlainData::Kind::kText;
    value.text = out_.owned_.emplace_back(text);
    return value;
  }

  [[nodiscard]] Result<PlainData::Id> add(PlainData::Value value) {
    if (out_.values_.size() >= limits_.values_max)
      return Error{Code::kLimit, "read JSON: more values than the limit"};
    out_.values_.push_back(std::move(value));
    return static_cast<PlainData::Id>(out_.values_.size() - 1);
  }

  const PlainLimits& limits_;
  PlainData& out_;
};

namespace {

// Python writes numbers that JSON does not have: they are unknown.
std::string without_special_numbers(std::string_view text) {
  constexpr std::array<std::string_view, 3> kSpecial{"-Infinity", "Infinity", "NaN"};
  std::string out;
  out.reserve(text.size());
  bool is_in_text = false;
  while (!text.empty()) {
    const char first = text.front();
    const auto* const special =
        std::find_if(kSpecial.begin(), kSpecial.end(),
                     [&](std::string_view word) { return text.starts_with(word); });
    if (!is_in_text && special != kSpecial.end()) {
      out += "null";
      text.remove_prefix(special->size());
      continue;
    }
    if (first == '"') is_in_text = !is_in_text;
    const std::size_t bytes = is_in_text && first == '\\' && text.size() > 1 ? 2 : 1;
    out += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace

Result<PlainData> read_plain_json(ByteSpan untrusted, const PlainLimits& limits) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const std::string text = without_special_numbers(as_text(untrusted));
  if (const auto code = parser.parse(text.data(), text.size(), true).get(root))
    return Error{Code::kCorrupt, fmt::format("read JSON: {}", simdjson::error_message(code))};
  PlainData out;
  JsonTree tree(limits, out);
  TRY(const PlainData::Id id, tree.copy(root));
  tree.set_root(id);
  return out;
}

}  // namespace kansoku::trace::import
