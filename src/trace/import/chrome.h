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

struct ChromeOptions {
  std::uint64_t events_max{200'000'000};
  std::uint64_t strings_bytes_max{std::uint64_t{1} << 31};
  std::uint32_t tracks_max{1U << 20};
  std::uint32_t args_per_event_max{64};
  std::size_t arg_text_bytes_max{std::size_t{64} << 10};
  std::size_t event_bytes_max{std::size_t{16} << 20};
};

STAT(import_bad_events, kDataLoss, kImport,
     "events that are no JSON or have no usable time, and ends without a begin, were left out; "
     "where their bytes are no UTF-8 they were read, with question marks for those beyond ASCII");
STAT(import_device_operations, kNotice, kImport,
     "events of categories that are not known, with a device and a stream: read as kernels");
STAT(import_bad_members, kDataLoss, kImport,
     "the rank, the groups or the time base of a file are no JSON: they are unknown");
STAT(import_more_text, kDataLoss, kImport, "text behind the end of a trace was left out");
STAT(import_cut_args, kDataLoss, kImport,
     "arguments beyond the importer's limits in number or length were left out");
STAT(import_unclosed_trace, kDataLoss, kImport,
     "a file ends before its trace does (its writer was cut off, or its last event is damaged); "
     "everything before was read");
STAT(import_other_events, kInfo, kImport,
     "events of kinds that Kansoku does not read (flows, async, samples) were left out");

/// Appends the events of one Chrome trace (JSON, or gzip of it: PyTorch's profiler and Kineto,
/// Chrome, StragglerAnalysis timelines) to `into`: complete and begin / end events become slices,
/// instants instants, counters counters; process groups of `distributedInfo` are added to
/// Trace::groups. Times in microseconds become nanoseconds, plus baseTimeNanoseconds. A process
/// number that another file already used gets a free one. Numbers, strings and the text of short
/// arrays are kept as arguments. `file_name` serves to find a rank ("rank-34.pt.trace.json",
/// "rank12"), and for messages. `untrusted` is borrowed for the call. Damaged events are left
/// out and counted. kCorrupt names the byte offset in the inflated text, kLimit the limit,
/// kNotFound is JSON without a list of events; `into` is then to be thrown away. Deterministic; any
/// thread. Source: the Trace Event Format document and Kineto's output.
[[nodiscard]] Result<ImportedFile> import_chrome(ByteSpan untrusted, std::string_view file_name,
                                                 const ChromeOptions& options, Trace& into);

}  // namespace kansoku::trace::import
