// SPDX-License-Identifier: Apache-2.0
#include "export/simulation_html.h"

namespace kansoku::exporter {

Result<std::string> simulation_html(const Json& result) {
  return Error{Code::kUnsupported,
               "report: schema \"" + result.at("schema").as_string() + "\" is not known"};
}

}  // namespace kansoku::exporter
