// SPDX-License-Identifier: Apache-2.0
#include "simulate/records.h"

#include <array>
#include <charconv>
#include <string_view>

#include "simulate/experiment.h"

namespace kansoku::simulate {
namespace {

constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

/// Text that grows, numbers appended without allocation.
class Line {
 public:
  void text(std::string_view value) { out_.append(value); }
  void number(std::uint64_t value) {
    std::array<char, 24> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    out_.append(digits.data(), end);
  }
  /// Seconds with nine decimals.
  void seconds(Nanos time) {
    const auto ns = static_cast<std::uint64_t>(time.count());
    number(ns / 1'000'000'000);
    std::array<char, 10> digits;
    digits[0] = '.';
    std::uint64_t rest = ns % 1'000'000'000;
    for (std::size_t i = 9; i > 0; --i, rest /= 10)
      digits[i] = static_cast<char>('0' + rest % 10);
    out_.append(digits.data(), digits.size());
  }
  [[nodiscard]] std::string& all() { return out_; }

 private:
  std::string out_;
};

std::string quoted(const std::string& name) {
  if (name.find_first_of(",\"\n\r") == std::string::npos) return name;
  std::string out = "\"";
  for (const char c : name)
    out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string_view task_end_name(TaskEnd end) {
  static constexpr std::array<std::string_view, 3> kNames{"done", "failed", "refused"};
  return kNames.at(static_cast<std::size_t>(end));
}

Result<void> RecordWriter::write(const Experiment& experiment, int replication,
                                 const Records& records) {
  Line line;
  if (!std::exchange(header_written_, true))
    line.text(
        "replication,run,pipeline,task,cluster,queued_s,started_s,ended_s,wait_s,restarts,"
        "units,end\n");
  std::vector<std::vector<std::string>> names;  // ",pipeline,task,cluster,"
  for (const PipelineSpec& pipeline : experiment.pipelines) {
    names.emplace_back();
    for (const TaskSpec& task : pipeline.tasks)
      names.back().push_back("," + quoted(pipeline.name) + "," + quoted(task.name) + "," +
                             quoted(experiment.clusters[task.cluster].name) + ",");
  }
  for (std::uint64_t i = 0; i < records.size(); ++i) {
    const TaskRecord& record = records[i];
    line.number(static_cast<std::uint64_t>(replication));
    line.text(",");
    line.number(record.run);
    line.text(names[record.pipeline][record.task]);
    for (const Nanos time :
         {record.queued, record.started, record.ended, record.started - record.queued}) {
      line.seconds(time);
      line.text(",");
    }
    line.number(record.restarts);
    line.text(",");
    line.number(record.units);
    line.text(",");
    line.text(task_end_name(record.end));
    line.text("\n");
    if (line.all().size() < kFlushBytes) continue;
    TRY_VOID(sink_.append(as_bytes(line.all())));
    line.all().clear();
  }
  return sink_.append(as_bytes(line.all()));
}

}  // namespace kansoku::simulate
