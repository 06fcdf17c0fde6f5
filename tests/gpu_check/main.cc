// SPDX-License-Identifier: Apache-2.0
// gpu_check [OPTION...]: the checks of checks.inc on the first CUDA device, one line each.
//   --list         the checks and what they claim
//   --only TEXT    only those whose name holds TEXT; may be repeated
//   --json FILE    the results as JSON as well
//   --log FILE     what kernels and libraries print [/dev/null]
//   --perturb      every comparison expects something else: each check has to fail (for tests)
// Exit status: 0 all passed or were skipped, 1 one failed, 2 they could not run.
//
// This process never calls CUDA. Workers, which are this program again, do: a worker runs checks
// one after the other until one breaks its context or the process; the next worker goes on behind
// it.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "facts.h"
#include "worker.h"

namespace gpu_check {

namespace {

struct Options {
  bool lists{false}, perturbs{false};
  std::vector<std::string> only;
  std::string json, log{"/dev/null"};
};

struct Outcome {
  const Row* row;
  Result result;
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    const unsigned char byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') out += '\\';
    if (byte >= 0x20 && byte < 0x7f)
      out += letter;
    else
      out += '?';
  }
  return out + "\"";
}

std::size_t count_of(const std::vector<Outcome>& outcomes, const char* verdict) {
  return static_cast<std::size_t>(
      std::count_if(outcomes.begin(), outcomes.end(),
                    [&](const Outcome& o) { return o.result.verdict == verdict; }));
}

// Version 1: docs/gpu-check.md. A field that changes its meaning changes the version.
bool write_json(const std::string& path, const Facts& facts, const Options& options,
                const std::vector<Outcome>& outcomes) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file, "{\"schema\": \"kansoku.gpu_check\", \"version\": 1,\n \"about\": {");
  for (const auto& [key, value] : facts.values)
    std::fprintf(file, "%s: %s, ", quoted(key).c_str(), quoted(value).c_str());
  std::fprintf(file, "\"software_device\": %s, \"perturbed\": %s},\n",
               facts.is_software ? "true" : "false", options.perturbs ? "true" : "false");
  std::fprintf(file, " \"passed\": %zu, \"failed\": %zu, \"skipped\": %zu,\n \"checks\": [",
               count_of(outcomes, "passed"), count_of(outcomes, "failed"),
               count_of(outcomes, "skipped"));
  const char* separator = "\n";
  for (const Outcome& o : outcomes) {
    std::fprintf(file,
                 "%s  {\"name\": %s, \"status\": \"%s\", \"text\": %s, \"milliseconds\": %ld, "
                 "\"claim\": %s}",
                 separator, quoted(o.row->name).c_str(), o.result.verdict.c_str(),
                 quoted(o.result.text).c_str(), o.result.milliseconds,
                 quoted(o.row->claim).c_str());
    separator = ",\n";
  }
  std::fprintf(file, "\n]}\n");
  return std::fclose(file) == 0;
}

bool is_wanted(const Row& row, const std::vector<std::string>& only) {
  if (row.where == Where::kSelftest)
    return std::find(only.begin(), only.end(), "selftest") != only.end();
  return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& text) {
           return std::strstr(row.name, text.c_str()) != nullptr;
         });
}

int run(const Options& options) {
  const Facts facts = ask_for_facts(options.log);
  if (!facts.error.empty()) {
    std::fprintf(stderr, "gpu_check: no check ran: %s\n", facts.error.c_str());
    return 2;
  }
  for (const auto& [key, value] : facts.values)
    std::printf("%-20s %s\n", key.c_str(), value.c_str());
  std::vector<const Row*> rows;
  for (const Row& row : all_rows())
    if (is_wanted(row, options.only)) rows.push_back(&row);
  if (rows.empty()) {
    std::fprintf(stderr, "gpu_check: no check has such a name; --list names them\n");
    return 2;
  }
  std::vector<Outcome> outcomes;
  run_rows(rows, options.perturbs, options.log, [&](const Row& row, const Result& result) {
    outcomes.push_back({&row, result});
    std::printf("%-7s  %-36s %s\n", result.verdict.c_str(), row.name, result.text.c_str());
    std::fflush(stdout);
  });
  const std::size_t failed = count_of(outcomes, "failed");
  std::printf("gpu_check: %zu checks: %zu passed, %zu failed, %zu skipped\n", outcomes.size(),
              count_of(outcomes, "passed"), failed, count_of(outcomes, "skipped"));
  if (!options.json.empty() && !write_json(options.json, facts, options, outcomes)) {
    std::fprintf(stderr, "gpu_check: cannot write %s\n", options.json.c_str());
    return 2;
  }
  return failed == 0 ? 0 : 1;
}

int usage() {
  std::fprintf(stderr,
               "usage: gpu_check [--list] [--only TEXT]... [--json FILE] [--log FILE] "
               "[--perturb]\n");
  return 2;
}

int list() {
  for (const Row& row : all_rows())
    if (row.where != Where::kSelftest) std::printf("%-36s %s\n", row.name, row.claim);
  return 0;
}

}  // namespace

}  // namespace gpu_check

int main(int argc, char** argv) {
  using namespace gpu_check;
  if (argc > 1 && std::strcmp(argv[1], "--worker") == 0) return work(argc, argv);
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::string* value = nullptr;
    if (word == "--list") {
      options.lists = true;
    } else if (word == "--perturb") {
      options.perturbs = true;
    } else if (word == "--only") {
      value = &options.only.emplace_back();
    } else if (word == "--json") {
      value = &options.json;
    } else if (word == "--log") {
      value = &options.log;
    } else {
      return usage();
    }
    if (value == nullptr) continue;
    if (++i == argc) return usage();
    *value = argv[i];
  }
  return options.lists ? list() : run(options);
}
