// SPDX-License-Identifier: Apache-2.0
// One importer and one exporter a format; `import.cc` has the table. Exporters get a workload that
// check_exportable has passed.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "simulate/import/import.h"

namespace kansoku::simulate::import {

[[nodiscard]] Result<Workload> import_philly(std::string_view untrusted, std::string_view file_name,
                                             const ImportOptions& options);
[[nodiscard]] Result<std::string> export_philly(const Workload& workload);

[[nodiscard]] Result<Workload> import_openb(std::string_view untrusted, std::string_view file_name,
                                            const ImportOptions& options);
[[nodiscard]] Result<std::string> export_openb(const Workload& workload);

[[nodiscard]] Result<Workload> import_alibaba_batch(std::string_view untrusted,
                                                    std::string_view file_name,
                                                    const ImportOptions& options);
[[nodiscard]] Result<std::string> export_alibaba_batch(const Workload& workload);

[[nodiscard]] Result<Workload> import_azure_llm(std::string_view untrusted,
                                                std::string_view file_name,
                                                const ImportOptions& options);
[[nodiscard]] Result<std::string> export_azure_llm(const Workload& workload);

[[nodiscard]] Result<Workload> import_vidur(std::string_view untrusted, std::string_view file_name,
                                            const ImportOptions& options);
[[nodiscard]] Result<std::string> export_vidur(const Workload& workload);

[[nodiscard]] Result<Workload> import_wfformat(std::string_view untrusted,
                                               std::string_view file_name,
                                               const ImportOptions& options);
[[nodiscard]] Result<std::string> export_wfformat(const Workload& workload);

[[nodiscard]] Result<Workload> import_plain(std::string_view untrusted, std::string_view file_name,
                                            const ImportOptions& options);
[[nodiscard]] Result<std::string> export_plain(const Workload& workload);

}  // namespace kansoku::simulate::import
