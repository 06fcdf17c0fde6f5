// SPDX-License-Identifier: Apache-2.0
#include "export/simulation_html.h"

#include <array>
#include <string_view>
#include <utility>

#include "export/internal/page.h"
#include "export/internal/pages.h"
#include "export/report_files.h"

namespace kansoku::exporter {
namespace {

struct PageKind {
  std::string_view schema;
  std::string_view what;
  Page (*page)(const Json&);
};

constexpr std::array<PageKind, 3> kPageKinds{{
    {"kansoku.simulation/1", "simulation", run_page},
    {"kansoku.simulation_sweep/1", "comparison of variants", sweep_page},
    {"kansoku.workload_fit/2", "model of a workload", fit_page},
}};

}  // namespace

Result<std::string> simulation_html(const Json& result) {
  const std::string schema = result.at("schema").as_string();
  for (const PageKind& kind : kPageKinds) {
    if (schema != kind.schema) continue;
    const Page page = kind.page(result);
    return fill(kPage, {{"title", escape(shortened(page.title, 200) + " - Kansoku")},
                        {"css", std::string(files::kCss)},
                        {"more_css", std::string(files::kSimulationCss)},
                        {"what", std::string(kind.what)},
                        {"body", page.body},
                        {"js", std::string(files::kSimulationJs)}});
  }
  return Error{Code::kUnsupported,
               "write report: schema \"" + shortened(schema, 100) + "\" is unknown",
               "give the JSON of kansoku simulate run, replay, sweep, merge or fit"};
}

}  // namespace kansoku::exporter
