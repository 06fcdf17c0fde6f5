// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/bytes.h"
#include "common/result.h"
#include "common/stat.h"
#include "trace/import/imported.h"
#include "trace/model.h"

namespace kansoku::trace::import {

struct NsightOptions {
  std::uint64_t rows_max{200'000'000};  // of all tables of a file together
  std::uint64_t strings_bytes_max{std::uint64_t{1} << 31};
  std::uint32_t tracks_max{1U << 20};
  std::size_t text_bytes_max{std::size_t{64} << 10};  // a longer text is cut
  std::size_t row_bytes_max{std::size_t{1} << 20};
};

STAT(import_skipped_tables, kDataLoss, kImport,
     "tables of an Nsight Systems export without a column that is needed were left out; export "
     "again with a newer nsys");
STAT(import_bad_rows, kDataLoss, kImport,
     "rows of an Nsight Systems export without a usable time, device or thread were left out");
STAT(import_missing_names, kDataLoss, kImport,
     "names that the export's table of strings lacks stayed empty");
STAT(import_cut_texts, kDataLoss, kImport, "texts longer than the importer's limit were cut");
STAT(import_odd_values, kNotice, kImport,
     "values of another type than their column's were taken as absent");
STAT(import_bad_texts, kNotice, kImport,
     "texts that are not UTF-8 had their bytes beyond ASCII replaced");
STAT(
    import_other_rows, kInfo, kImport,
    "NVTX rows that are no events of the program (names of categories, threads, domains) were left "
    "out");

/// Appends the events of one Nsight Systems export (`nsys export --type sqlite`) to `into`, under
/// the categories of PyTorch's profiler: "kernel", "gpu_memcpy", "gpu_memset" and "cuda_sync" on
/// the streams of a process of role "device" a GPU; "cuda_runtime", "cuda_driver" and NVTX's
/// "user_annotation" on the threads of the host, plus "os_runtime" (calls of the system's
/// libraries) and "cuda_graph" (graphs traced as a whole). An NVTX mark is an instant, a range
/// without an end stays open. Times are nanoseconds since the session's start, plus that start if
/// the file states it. Which columns exist depends on the release of nsys; the existing ones are
/// read. A process number that another file already used gets a free one. `file_name` serves to
/// find a rank ("rank12.sqlite"). `untrusted` is borrowed for the call and never opened as a file.
/// kCorrupt: a damaged database; kLimit names the limit; kUnsupported: a view instead of a table,
/// or a write-ahead log; kNotFound: a database without any table of nsys. After a failure `into` is
/// to be thrown away. Deterministic; any thread. Source: the schema in NVIDIA's documentation of
/// the export, and the identifiers' layout there: process << 24 | thread.
[[nodiscard]] Result<ImportedFile> import_nsight(ByteSpan untrusted, std::string_view file_name,
                                                 const NsightOptions& options, Trace& into);

}  // namespace kansoku::trace::import
