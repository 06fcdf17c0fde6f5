// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "simulate/workload/workload.h"

namespace kansoku::simulate::import {

enum class Format : std::uint8_t {
  kPhilly,        // timestamp,duration,num_gpus,gpu_time,cluster
  kOpenbPods,     // name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec[,qos,pod_phase,...]
  kAlibabaBatch,  // submit_time,duration,cpu,memory,job_id,task_id,instances_num,disk
  kAzureLlm,      // TIMESTAMP,ContextTokens,GeneratedTokens
  kVidur,         // arrived_at,num_prefill_tokens,num_decode_tokens
  kWfFormat,      // WfCommons 1.5, JSON
  kPlain,         // ours, see docs/formats/workload.md
};

[[nodiscard]] std::string_view format_name(Format format);
[[nodiscard]] std::optional<Format> format_from_name(std::string_view name);
/// The format that the text looks like (header line, or JSON with "workflow"), if any.
[[nodiscard]] std::optional<Format> detect_format(std::string_view untrusted);

struct ImportOptions {
  /// Leave malformed rows out and count them; otherwise the first one is the error.
  bool skip_bad_rows{false};
  std::size_t rows_max{std::size_t{1} << 27};
  std::size_t notes_max{10};
};

/// Reads one text (already inflated). Accepts CRLF, a missing last newline, blank lines at the end,
/// unsorted rows. kCorrupt: "FILE:LINE:COLUMN: what"; kLimit beyond rows_max. `file_name` serves
/// for messages and Workload::source. Deterministic; any thread. Sources: shared headers of the
/// public data sets, WfCommons' schema.
///
/// Civil times make the earliest row the epoch; other seconds keep the source's origin. A parent
/// that is no task of the graph counts as a malformed row, of which only the edge is left out; a
/// cycle is always an error. A WfFormat graph is read whole or not at all. Amounts that a format
/// gives in other units than ours: memory of kAlibabaBatch is a fraction of an unknown node, so it
/// stays unknown; avgCPU of kWfFormat is a percentage of one core.
[[nodiscard]] Result<Workload> import_workload(Format format, std::string_view untrusted,
                                               std::string_view file_name,
                                               const ImportOptions& options = {});

/// openb's list of nodes: sn,cpu_milli,memory_mib,gpu,model. Same errors; skip_bad_rows has no part
/// in it, because a cluster without one of its nodes is another cluster.
[[nodiscard]] Result<std::vector<NodeSpec>> import_nodes(std::string_view untrusted,
                                                         std::string_view file_name,
                                                         const ImportOptions& options = {});

/// Which columns of a table describe data sets; `bytes` may be empty: 8 bytes a cell.
struct AssetColumns {
  std::string rows{"rows"}, columns{"columns"}, bytes;
};
/// Data sets from any table with a header line, comma- or tab-separated (told by the first line):
/// n x 3 values (rows, columns, bytes), all above 0. Same errors.
[[nodiscard]] Result<std::vector<double>> import_assets(std::string_view untrusted,
                                                        std::string_view file_name,
                                                        const AssetColumns& columns,
                                                        const ImportOptions& options = {});

/// The text of a workload in a format that import_workload reads back to the same table (as far as
/// the format has columns for it). kUnsupported, naming the job, for values that the format cannot
/// hold: kWfFormat with several graphs, unknown durations in kPhilly and kAlibabaBatch, edges
/// between tasks without names of their own in kPlain, times beyond 133 years or before the epoch.
[[nodiscard]] Result<std::string> export_workload(Format format, const Workload& workload);

}  // namespace kansoku::simulate::import
