// SPDX-License-Identifier: Apache-2.0
#include "cli/llm/model_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "capture/llm/source.h"
#include "cli/wiring.h"
#include "common/parse.h"
#include "common/text.h"
#include "trace/inference.h"

namespace kansoku::cli {
namespace {

/// "1%", "0.5%", "none": a share; 1 and above is no limit.
Result<double> parse_budget(const std::string& text) {
  if (text == "none") return 1.0;
  std::string_view number = text;
  const bool is_percent = number.ends_with('%');
  if (is_percent) number.remove_suffix(1);
  const auto value = parse_double(number);
  if (!value || !is_percent || *value <= 0 || *value > 100) {
    return Error{Code::kUnsupported, fmt::format("read --budget {}: not a share", text),
                 "e.g. 1%, 0.2%, or none"};
  }
  return *value / 100;
}

}  // namespace

void ModelArguments::declare(CLI::App& app) {
  app.add_option("--level", level, "how closely to look: token, graph, operator or thread")
      ->check(CLI::IsMember({"token", "graph", "operator", "thread"}))
      ->capture_default_str();
  app.add_option(
         "--budget", budget,
         "what it may cost the program, as a share of its time; above it the level is on in "
         "windows; none: no limit")
      ->capture_default_str();
}

Result<void> ModelArguments::apply(SessionOptions& out) const {
  TRY(const double share, parse_budget(budget));
  const auto wanted = trace::model_level_from_name(level);
  if (!wanted)
    return Error{Code::kUnsupported, fmt::format("read --level {}: no such level", level)};
  out.model = SessionOptions::Model{*wanted, share};
  out.probes = "llama,ggml-graph,ggml-ops,ggml-threads";
  if (*wanted >= trace::ModelLevel::kOperator) out.probes += ",sched";
  return {};
}

Result<std::vector<capture::FunctionProbes>> model_probes(const SessionOptions& session) {
  TRY(const auto known, known_packs());
  TRY(auto packs, capture::select_packs(known, session.probes));
  return capture::llm::take_model_probes(packs);
}

std::vector<std::int32_t> find_model_processes(const sys::Procfs& procfs,
                                               const std::vector<capture::FunctionProbes>& probes) {
  const auto is_code = [&](const sys::Mapping& mapping) {
    return mapping.executable &&
           std::any_of(probes.begin(), probes.end(), [&](const capture::FunctionProbes& one) {
             return capture::any_glob_match(one.library, base_name(mapping.path));
           });
  };
  std::vector<std::int32_t> out;
  for (const std::int32_t pid : procfs.pids()) {
    const auto mappings = procfs.maps(pid);
    if (mappings && std::any_of(mappings->begin(), mappings->end(), is_code)) out.push_back(pid);
  }
  return out;
}

}  // namespace kansoku::cli
