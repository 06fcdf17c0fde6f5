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

constexpr std::string_view kSimulationPage = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{css}{more_css}</style>
</head>
<body>
<main>
<header class="top"><span>Kansoku · {what}</span><button id="theme" type="button" hidden>Dark</button></header>
{body}
</main>
<script>
{js}</script>
</body>
</html>
)";

struct PageKind {
  std::string_view schema;
  std::string_view what;
  Page (*page)(const Json&);
};

constexpr std::array<PageKind, 3> kPageKinds{{
    {"kansoku.simulation/1", "simulation", run_page},
    {"kansoku.simulation_sweep/1", "comparison of variants", sweep_page},
    {"kansoku.workload_fit/1", "model of a workload", fit_page},
}};

}  // namespace

Result<std::string> simulation_html(const Json& result) {
  const std::string schema = result.at("schema").as_string();
  for (const PageKind& kind : kPageKinds) {
    if (schema != kind.schema) continue;
    const Page page = kind.page(result);
    return fill(kSimulationPage, {{"title", escape(shortened(page.title, 200) + " - Kansoku")},
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
