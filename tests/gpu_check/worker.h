// SPDX-License-Identifier: Apache-2.0
#pragma once

// The list of checks, and the processes that run them.
#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "facts.h"

namespace gpu_check {

enum class Where {
  kShared,    // in a process with others
  kAlone,     // in a process of its own: it breaks its context, or looks at the process
  kSample,    // a program beside this one
  kSelftest,  // as kShared; of the harness itself, and not in the list
};
struct Row {
  const char* name;  // "errors.set_device"
  Where where;
  const char* claim;
  void (*body)(Check&);
};
const std::vector<Row>& all_rows();

struct Result {
  std::string verdict;  // passed, failed, skipped
  std::string text;     // values, or the reason
  long milliseconds{0};
};

/// From a process of its own, since this one never calls CUDA.
Facts ask_for_facts(const std::string& log);
/// Runs the rows in their order, and tells each result as soon as it is known.
void run_rows(const std::vector<const Row*>& rows, bool perturbs, const std::string& log,
              const std::function<void(const Row&, const Result&)>& tell);
/// Main function of a worker: --worker facts, or --worker plain|perturbed NAME...
int work(int argc, char** argv);

}  // namespace gpu_check
