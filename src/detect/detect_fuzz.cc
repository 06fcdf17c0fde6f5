// SPDX-License-Identifier: Apache-2.0
// Any bytes as a table and as a job's model: refused with words, or a table that can be fitted and
// scored without a value that is not a number, and a model whose text reads back to the same bytes.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "detect/job_model.h"
#include "detect/run_score.h"
#include "detect/table.h"

namespace {

using namespace kansoku;
using namespace kansoku::detect;

void check_model(const JobModel& model) {
  const auto back = JobModel::from_text(model.to_text());
  CHECK(back.has_value() && back->to_text() == model.to_text());
  Scorer scorer(model);
  const std::vector<double> row(model.parts().columns.size(), 1.0);
  const double score = scorer.score(row);
  CHECK(std::isnan(score) || std::isfinite(score));
  static_cast<void>(scorer.explain(row, 8));
}

void check_table(std::string_view text) {
  const auto table = read_table(text, "f.csv", {.rows_max = 2000, .columns_max = 16});
  if (!table) {
    CHECK(!table.error().what.empty());
    return;
  }
  CHECK(table->values.size() == table->rows() * table->columns.size());
  CHECK(table->ranks.size() == table->rows());
  const auto cube = make_cube(*table);
  if (!cube || cube->values.size() > 4000) return;
  ModelOptions options;
  options.window_steps = 4;
  options.components_max = 2;
  const auto model = JobModel::fit(*cube, table->columns, options, {});
  if (model) check_model(*model);
  RunOptions run;
  run.window_steps = 4;
  run.long_steps = 8;
  const auto verdict = score_run(*cube, table->columns, model ? &*model : nullptr, run);
  if (verdict) static_cast<void>(verdict->to_json().dump() + verdict->to_text());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 16384) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto model = JobModel::from_text(text); model) check_model(*model);
  check_table(text);
  return 0;
}
