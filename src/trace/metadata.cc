// SPDX-License-Identifier: Apache-2.0
#include "trace/metadata.h"

#include <optional>

namespace kansoku::trace {

std::vector<MetadataFact> metadata_facts(const Trace& trace, std::string_view key) {
  std::vector<MetadataFact> out;
  const StringId meta = trace.strings.find("kansoku.meta"), key_name = trace.strings.find("key"),
                 value_name = trace.strings.find("value"), wanted = trace.strings.find(key);
  const InstantTable& instants = trace.instants;
  for (std::size_t i = 0; i < instants.size() && wanted != StringId{}; ++i) {
    const std::size_t first = instants.arg_begin[i], count = instants.arg_count[i];
    if (instants.category[i] != meta || count > trace.args.size() ||
        first > trace.args.size() - count)
      continue;
    bool is_wanted = false;
    std::optional<std::string_view> value;
    for (std::size_t k = first; k < first + count; ++k) {
      const ArgValue& arg = trace.args[k];
      if (arg.kind != ArgValue::Kind::kString) continue;
      is_wanted = is_wanted || (arg.key == key_name && arg.text == wanted);
      if (arg.key == value_name) value = trace.str(arg.text);
    }
    if (is_wanted && value) out.push_back({instants.time_ns[i], *value});
  }
  return out;
}

}  // namespace kansoku::trace
