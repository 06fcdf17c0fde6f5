// SPDX-License-Identifier: Apache-2.0
#include "export/internal/page.h"
#include "export/internal/pages.h"
namespace kansoku::exporter {
Page sweep_page(const Json&) {
  return {};
}
Page fit_page(const Json&) {
  return {};
}
}  // namespace kansoku::exporter
