// SPDX-License-Identifier: Apache-2.0
#pragma once

// Facts behind a result: device, driver, files of the libraries, compiler.
#include <string>
#include <utility>
#include <vector>

namespace gpu_check {

struct Facts {
  std::string error;  // why there is no device; empty: there is one
  std::vector<std::pair<std::string, std::string>> values;
  bool is_software{false};
};
/// Asks the runtime; call it in a process that may use CUDA.
Facts collect_facts();
/// Waits for all work; the name of the error that the context keeps, or nothing.
std::string context_error();

}  // namespace gpu_check
