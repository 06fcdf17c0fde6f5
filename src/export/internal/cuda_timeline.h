// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"

// Drawings of the page of device work. JSON goes in, HTML comes out; all of it is escaped here.
namespace kansoku::exporter {

/// The words of the causes of idle time, and a colour for each of those that take most of all
/// devices' idle time; one for the rest.
class CauseColours {
 public:
  /// `devices`: of kansoku.cuda_report/1; `words`: the causes of kansoku.cuda_view/1.
  CauseColours(const Json& devices, const Json& words);
  /// A cause in words; as it is if they lack it.
  [[nodiscard]] std::string text(const std::string& cause) const;
  [[nodiscard]] std::string_view css_class(const std::string& cause) const;
  [[nodiscard]] std::string legend() const;

 private:
  Json words_;
  std::vector<std::string> causes_;  // those with a colour, longest first
  bool has_rest_{false};
};

/// The devices' worst steps: a row a stream, and one of idle time. `timelines`: of
/// kansoku.cuda_view/1.
[[nodiscard]] std::string timelines_html(const Json& timelines, const CauseColours& colours);

/// Live memory over the recording; `points`: [[ms, bytes]].
[[nodiscard]] std::string memory_curve(const Json& points);

}  // namespace kansoku::exporter
