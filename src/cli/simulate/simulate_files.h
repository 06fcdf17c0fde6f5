// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "simulate/experiment.h"
#include "simulate/import/import.h"
#include "simulate/workload/workload.h"

namespace kansoku::cli {

/// Reads the files that experiments name. Relative paths are looked for beside the file that names
/// them, then from the working directory. Files may be gzip. A trace is read once; rows left out
/// are told on standard error.
class FileLoader final : public simulate::Loader {
 public:
  FileLoader(std::string beside, bool skip_bad_rows)
      : beside_(std::move(beside)), skip_bad_rows_(skip_bad_rows) {}
  [[nodiscard]] Result<simulate::Workload> workload(const std::string& path) override;
  [[nodiscard]] Result<std::vector<simulate::NodeSpec>> nodes(const std::string& path) override;
  [[nodiscard]] Result<Json> json(const std::string& path) override;
  /// Sets the format, which is guessed from the text otherwise.
  void force_format(simulate::import::Format format) { format_ = format; }

 private:
  [[nodiscard]] Result<std::string> text(const std::string& path) const;

  std::string beside_;
  bool skip_bad_rows_;
  std::optional<simulate::import::Format> format_;
  std::map<std::string, simulate::Workload> read_;  // by path as written
};

/// The text of a file, inflated if it is gzip. kLimit above 4 GiB.
[[nodiscard]] Result<std::string> read_text(const std::string& path);
[[nodiscard]] Result<Json> read_json(const std::string& path);
/// The folder of a path with a slash at its end; empty for a bare name.
[[nodiscard]] std::string folder_of(const std::string& path);

}  // namespace kansoku::cli
