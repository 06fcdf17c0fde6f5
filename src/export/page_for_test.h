// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/check.h"

namespace kansoku::exporter {

inline std::size_t count_for_test(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

/// Checks properties of every page, whatever it was made from: one script, whole elements, numbers
/// that are numbers.
inline void check_page_for_test(const std::string& page) {
  CHECK(count_for_test(page, "<script") == 1 && count_for_test(page, "</html>") == 1);
  CHECK(page.find("=\"nan") == std::string::npos && page.find("=\"inf") == std::string::npos);
  CHECK(page.find('\0') == std::string::npos);
  CHECK(count_for_test(page, "<section") == count_for_test(page, "</section>"));
  CHECK(count_for_test(page, "<svg") == count_for_test(page, "</svg>"));
}

}  // namespace kansoku::exporter
