// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate/simulate_records.h"

#include <unistd.h>

#include <array>

#include "simulate/records.h"
#include "store/database.h"
#include "store/parquet.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr std::array<store::Column, 12> kRecordColumns{{{"replication", "INTEGER"},
                                                        {"run", "BIGINT"},
                                                        {"pipeline", "VARCHAR"},
                                                        {"task", "VARCHAR"},
                                                        {"cluster", "VARCHAR"},
                                                        {"queued_s", "DOUBLE"},
                                                        {"started_s", "DOUBLE"},
                                                        {"ended_s", "DOUBLE"},
                                                        {"wait_s", "DOUBLE"},
                                                        {"restarts", "INTEGER"},
                                                        {"units", "BIGINT"},
                                                        {"end", "VARCHAR"}}};

bool is_parquet(const std::string& path) {
  return path.ends_with(".parquet");
}

Result<void> write_csv(const std::string& path, const simulate::Experiment& experiment,
                       const simulate::Replications& replications) {
  TRY(const auto sink, sys::FileSink::create(path, {true, UINT64_MAX}));
  simulate::RecordWriter writer(*sink);
  for (const simulate::Replication& replication : replications.finished)
    TRY_VOID(writer.write(experiment, replication.index, *replication.records));
  return sink->finish();
}

}  // namespace

Result<void> check_records_path(const std::string& path) {
  if (!is_parquet(path)) return {};
  if (const auto database = store::Database::open(); !database)
    return Error{database.error().code, "write " + path + ": " + database.error().what,
                 database.error().hint + "; --records NAME.csv needs no DuckDB"};
  return {};
}

Result<void> write_simulation_records(const std::string& path,
                                      const simulate::Experiment& experiment,
                                      const simulate::Replications& replications) {
  if (!is_parquet(path)) return write_csv(path, experiment, replications);
  const std::string csv = path + ".csv-" + std::to_string(::getpid());
  auto written = write_csv(csv, experiment, replications);
  if (written) written = store::csv_to_parquet(csv, path, kRecordColumns);
  ::unlink(csv.c_str());
  return written;
}

}  // namespace kansoku::cli
