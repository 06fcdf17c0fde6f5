// SPDX-License-Identifier: Apache-2.0
// Any bytes as a workload in any format, or as a list of nodes: the import fails, naming a place,
// or gives a table that is the same every time, that holds together, and that comes back whole from
// its own format and from ours.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "simulate/import/import.h"
#include "simulate/import/workload_for_test.h"

namespace {

using namespace kansoku;
using namespace kansoku::simulate;
using namespace kansoku::simulate::import;

constexpr std::size_t kFormatCount = 7;
constexpr std::uint8_t kSkipBit = 0x40;

void check_error(const Error& error) {
  CHECK(error.code == Code::kCorrupt || error.code == Code::kLimit);
  CHECK(error.what.rfind("f.csv:", 0) == 0);
}

void check_table(const Workload& workload) {
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    const Job& job = workload.jobs[i];
    CHECK(job.name < workload.names.size() && job.group < workload.groups.size());
    CHECK(job.graph <= workload.graphs.size() && job.gpu_type < workload.gpu_types.size());
    CHECK(i == 0 || workload.jobs[i - 1].submit <= job.submit);
    CHECK(job.submit >= Nanos{0} && job.instances >= 1);
    CHECK(job.gpus > 0 ? job.gpu_milli > 0 && job.gpu_milli <= 1000 : job.gpu_milli == 0);
  }
  CHECK(!job_on_cycle(workload));
  CHECK(workload.epoch.empty() == (workload.epoch_in_week_s < 0));
  CHECK(workload.bad_row_notes.size() <= workload.bad_rows);
}

void check_read_back(Format format, const Workload& workload, bool with_graphs) {
  const auto text = export_workload(format, workload);
  CHECK(text.has_value());
  CHECK(workload.jobs.empty() || detect_format(*text) == format);
  const auto back = import_workload(format, *text, "f.csv");
  CHECK(back.has_value());
  CHECK(text_of(*back, with_graphs) == text_of(workload, with_graphs));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 32768) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t which = data[0] % (kFormatCount + 1);
  const ImportOptions options{
      .skip_bad_rows = (data[0] & kSkipBit) != 0, .rows_max = 1000, .notes_max = 3};
  static_cast<void>(detect_format(text));
  if (which == kFormatCount) {
    const auto nodes = import_nodes(text, "f.csv", options);
    if (!nodes) check_error(nodes.error());
    return 0;
  }
  const auto format = static_cast<Format>(which);
  const auto workload = import_workload(format, text, "f.csv", options);
  const auto again = import_workload(format, text, "f.csv", options);
  CHECK(workload.has_value() == again.has_value());
  if (!workload) {
    check_error(workload.error());
    CHECK(workload.error().what == again.error().what);
    return 0;
  }
  check_table(*workload);
  CHECK(text_of(*workload) == text_of(*again));
  CHECK(options.skip_bad_rows || workload->bad_rows == 0);
  check_read_back(Format::kPlain, *workload, false);
  // A task whose parent was left out has a name that says more than its edges.
  if (format != Format::kAlibabaBatch || workload->bad_rows == 0)
    check_read_back(format, *workload, true);
  return 0;
}
