// SPDX-License-Identifier: Apache-2.0
#include "simulate/import/internal/formats.h"

namespace kansoku::simulate::import {

Result<Workload> import_wfformat(std::string_view, std::string_view, const ImportOptions&) {
  return Error{Code::kUnsupported, "not yet"};
}

Result<std::string> export_wfformat(const Workload&) {
  return Error{Code::kUnsupported, "not yet"};
}

}  // namespace kansoku::simulate::import
