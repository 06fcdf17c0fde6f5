// SPDX-License-Identifier: Apache-2.0
// Our own table, docs/formats/workload.md: it can say all that a workload holds of its jobs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "simulate/import/internal/formats.h"
#include "simulate/import/internal/rows.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

enum PlainColumn : std::size_t {
  kSubmit,
  kDuration,
  kName,
  kGroup,
  kGpus,
  kGpuMilli,
  kGpuType,
  kCpuMilli,
  kMemoryMib,
  kGraph,
  kParents,
  kReadBytes,
  kWrittenBytes,
  kTokensIn,
  kTokensOut,
  kScheduled,
  kCensored,
  kInstances,
  kColumnCount,
};
constexpr std::array<CsvColumn, kColumnCount> kPlainColumns{{{"submit_s", true},
                                                             {"duration_s"},
                                                             {"name"},
                                                             {"group"},
                                                             {"gpus"},
                                                             {"gpu_milli"},
                                                             {"gpu_type"},
                                                             {"cpu_milli"},
                                                             {"memory_mib"},
                                                             {"graph"},
                                                             {"parents"},
                                                             {"read_bytes"},
                                                             {"written_bytes"},
                                                             {"tokens_in"},
                                                             {"tokens_out"},
                                                             {"scheduled_s"},
                                                             {"censored"},
                                                             {"instances"}}};
/// Columns that are an amount, negative = not known.
struct Amount {
  PlainColumn column;
  std::int64_t Job::*member;
};
constexpr std::array<Amount, 6> kAmounts{{{kCpuMilli, &Job::cpu_milli},
                                          {kMemoryMib, &Job::memory_mib},
                                          {kReadBytes, &Job::read_bytes},
                                          {kWrittenBytes, &Job::written_bytes},
                                          {kTokensIn, &Job::tokens_in},
                                          {kTokensOut, &Job::tokens_out}}};
constexpr std::string_view kEpochMark = "# epoch ";

Result<void> take_epoch(CsvReader& csv, Workload& into) {
  const auto comment = csv.take_comment();
  if (!comment) return {};
  if (comment->substr(0, kEpochMark.size()) == kEpochMark) {
    if (const auto ns = parse_civil_ns(comment->substr(kEpochMark.size()))) {
      into.epoch = civil_text(*ns);
      into.epoch_in_week_s = second_of_week(*ns);
      return {};
    }
  }
  return Error{Code::kCorrupt, fmt::format("{}: not a line like '{}2017-10-02 00:00:00': {}",
                                           csv.text_of({1, 1}), kEpochMark, in_quotes(*comment))};
}

/// One import: its lookups, and what one row says.
class PlainImporter {
 public:
  PlainImporter(CsvReader& csv, Workload& into)
      : csv_(csv),
        into_(into),
        names_(into.names),
        groups_(into.groups),
        types_(into.gpu_types),
        graphs_(graph_names_) {}

  void take_row();
  [[nodiscard]] Result<void> finish(const ImportOptions& options) {
    return links_.finish(csv_, options, into_);
  }

 private:
  void read_numbers(Job& job);
  void read_gpus(Job& job);
  /// The name that ends at the next ';' of `rest`; '\' takes the next character as it is.
  [[nodiscard]] bool next_parent(std::string_view& rest, std::string& name);
  [[nodiscard]] bool read_parents(std::string_view graph, std::vector<std::string>& out);

  CsvReader& csv_;
  Workload& into_;
  std::vector<std::string> graph_names_{""};
  InternLookup names_, groups_, types_, graphs_;
  TaskLinks links_{TaskLinks::Keys::kNames};
  std::vector<std::string> parents_;
};

void PlainImporter::read_gpus(Job& job) {
  job.gpus = static_cast<std::int32_t>(read_optional_integer(csv_, kGpus, 0, kGpusMax, 0));
  const std::int64_t least = job.gpus > 0 ? 1 : 0, greatest = job.gpus > 0 ? 1000 : 0;
  job.gpu_milli =
      static_cast<std::int32_t>(read_optional_integer(csv_, kGpuMilli, least, greatest, greatest));
  if (job.gpus > 1 && job.gpu_milli < 1000) csv_.fail(kGpuMilli, "below 1000 only with one GPU");
}

void PlainImporter::read_numbers(Job& job) {
  job.submit = read_seconds(csv_, kSubmit);
  job.duration = read_optional_seconds(csv_, kDuration, Nanos{-1});
  read_gpus(job);
  for (const Amount& amount : kAmounts)
    job.*amount.member = read_optional_integer(csv_, amount.column, 0, kAmountMax, -1);
  job.scheduled = read_optional_seconds(csv_, kScheduled, Nanos{-1});
  if (job.scheduled >= Nanos{0} && job.scheduled < job.submit)
    csv_.fail(kScheduled, "before the submission");
  job.censored = read_optional_integer(csv_, kCensored, 0, 1, 0) == 1;
  job.instances =
      static_cast<std::int32_t>(read_optional_integer(csv_, kInstances, 1, kInstancesMax, 1));
}

bool PlainImporter::next_parent(std::string_view& rest, std::string& name) {
  name.clear();
  std::size_t i = 0;
  for (; i < rest.size() && rest[i] != ';'; ++i) {
    if (rest[i] == '\\' && ++i == rest.size()) {
      csv_.fail(kParents, "a backslash ends the list");
      return false;
    }
    name += rest[i];
  }
  if (name.empty() || name.size() > kNameBytesMax || !csv_.is_utf8(name)) {
    csv_.fail(kParents, fmt::format("not a name of a task: {}", in_quotes(name)));
    return false;
  }
  // The list is at its end where no ';' was; one that ends with ';' has an empty last name.
  const bool was_last = i == rest.size();
  rest.remove_prefix(was_last ? i : i + 1);
  if (!was_last && rest.empty()) csv_.fail(kParents, "';' ends the list");
  return !was_last && !rest.empty();
}

bool PlainImporter::read_parents(std::string_view graph, std::vector<std::string>& out) {
  out.clear();
  std::string_view rest = csv_.text(kParents);
  if (rest.empty()) return true;
  if (graph.empty()) {
    csv_.fail(kParents, "parents without a graph");
    return false;
  }
  std::string name;
  bool more = true;
  while (more) {
    more = next_parent(rest, name);
    out.push_back(name);
  }
  return !csv_.failed();
}

void PlainImporter::take_row() {
  Job job;
  read_numbers(job);
  const std::string_view name = read_name(csv_, kName), group = read_name(csv_, kGroup);
  const std::string_view type = read_name(csv_, kGpuType), graph = read_name(csv_, kGraph);
  if (!read_parents(graph, parents_) || csv_.failed()) return;
  job.name = intern(into_.names, name, names_);
  job.group = intern(into_.groups, group, groups_);
  job.gpu_type = intern(into_.gpu_types, type, types_);
  job.graph = intern(graph_names_, graph, graphs_);
  if (job.graph > into_.graphs.size()) into_.graphs.push_back({.name = std::string(graph)});
  const auto index = static_cast<std::uint32_t>(into_.jobs.size());
  if (job.graph != 0 && job.name != 0) links_.add_task(job.graph, job.name, index);
  for (const std::string& parent : parents_) {
    const std::uint32_t key = intern(into_.names, parent, names_);
    links_.add_parent(job.graph, key, index, csv_.place_of(kParents));
  }
  into_.jobs.push_back(job);
}

/// One export: which columns are needed, and the rows.
class PlainExporter {
 public:
  explicit PlainExporter(const Workload& workload) : workload_(workload) {}
  [[nodiscard]] Result<std::string> text();

 private:
  void choose_columns();
  [[nodiscard]] std::vector<std::string_view> header() const;
  [[nodiscard]] Result<void> check_names() const;
  void write_row(CsvWriter& csv, const Job& job, std::span<const Edge> from);
  void write_name(CsvWriter& csv, PlainColumn column, const std::string& text) const {
    if (used_[column]) csv.text(text);
  }
  void write_integer(CsvWriter& csv, PlainColumn column, std::int64_t value, bool known) const;
  void write_seconds(CsvWriter& csv, PlainColumn column, Nanos value) const;

  const Workload& workload_;
  std::array<bool, kColumnCount> used_{};
  std::vector<Edge> edges_;  // sorted by child
};

void PlainExporter::choose_columns() {
  used_[kSubmit] = used_[kDuration] = true;
  for (const Job& job : workload_.jobs) {
    used_[kName] |= job.name != 0;
    used_[kGroup] |= job.group != 0;
    used_[kGpus] |= job.gpus != 0;
    used_[kGpuMilli] |= job.gpus != 0 && job.gpu_milli != 1000;
    used_[kGpuType] |= job.gpu_type != 0;
    used_[kGraph] |= job.graph != 0;
    used_[kScheduled] |= job.scheduled >= Nanos{0};
    used_[kCensored] |= job.censored;
    used_[kInstances] |= job.instances != 1;
    for (const Amount& amount : kAmounts)
      used_[amount.column] |= job.*amount.member >= 0;
  }
  used_[kParents] = !edges_.empty();
}

std::vector<std::string_view> PlainExporter::header() const {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < kColumnCount; ++i) {
    if (used_[i]) names.push_back(kPlainColumns[i].name);
  }
  return names;
}

/// Graphs and parents are told by their names, so these must be told apart.
Result<void> PlainExporter::check_names() const {
  const auto refuse = [](std::string_view what, const std::string& name) {
    return Error{Code::kUnsupported, fmt::format("export plain: {} {}", what, in_quotes(name))};
  };
  std::vector<std::string_view> graphs;
  for (const Graph& graph : workload_.graphs)
    graphs.push_back(graph.name);
  std::sort(graphs.begin(), graphs.end());
  if (!graphs.empty() && graphs.front().empty()) return refuse("a graph has no name:", "");
  const auto twice = std::adjacent_find(graphs.begin(), graphs.end());
  if (twice != graphs.end()) return refuse("two graphs are named", std::string(*twice));

  using Task = std::pair<std::uint32_t, std::uint32_t>;  // graph, name
  std::vector<Task> tasks;
  for (const Job& job : workload_.jobs)
    tasks.emplace_back(job.graph, job.name);
  std::sort(tasks.begin(), tasks.end());
  for (const Edge& edge : edges_) {
    const Job& parent = workload_.jobs[edge.parent];
    const std::string& name = workload_.names[parent.name];
    if (parent.graph == 0 || parent.graph != workload_.jobs[edge.child].graph)
      return refuse("an edge leads out of its graph, from task", name);
    const auto range =
        std::equal_range(tasks.begin(), tasks.end(), Task{parent.graph, parent.name});
    if (parent.name == 0 || range.second - range.first != 1)
      return refuse("several tasks have the name of a parent:", name);
  }
  return {};
}

void PlainExporter::write_integer(CsvWriter& csv, PlainColumn column, std::int64_t value,
                                  bool known) const {
  if (!used_[column]) return;
  if (known) {
    csv.integer(value);
  } else {
    csv.empty();
  }
}

void PlainExporter::write_seconds(CsvWriter& csv, PlainColumn column, Nanos value) const {
  if (!used_[column]) return;
  if (value >= Nanos{0}) {
    csv.decimal(value.count(), 9);
  } else {
    csv.empty();
  }
}

void PlainExporter::write_row(CsvWriter& csv, const Job& job, std::span<const Edge> from) {
  write_seconds(csv, kSubmit, job.submit);
  write_seconds(csv, kDuration, job.duration);
  write_name(csv, kName, workload_.names[job.name]);
  write_name(csv, kGroup, workload_.groups[job.group]);
  write_integer(csv, kGpus, job.gpus, true);
  write_integer(csv, kGpuMilli, job.gpu_milli, job.gpus > 0);
  write_name(csv, kGpuType, workload_.gpu_types[job.gpu_type]);
  write_integer(csv, kCpuMilli, job.cpu_milli, job.cpu_milli >= 0);
  write_integer(csv, kMemoryMib, job.memory_mib, job.memory_mib >= 0);
  write_name(csv, kGraph, job.graph == 0 ? std::string() : workload_.graphs[job.graph - 1].name);
  std::string parents;
  for (const Edge& edge : from) {
    if (!parents.empty()) parents += ';';
    for (const char c : workload_.names[workload_.jobs[edge.parent].name]) {
      if (c == ';' || c == '\\') parents += '\\';
      parents += c;
    }
  }
  write_name(csv, kParents, parents);
  write_integer(csv, kReadBytes, job.read_bytes, job.read_bytes >= 0);
  write_integer(csv, kWrittenBytes, job.written_bytes, job.written_bytes >= 0);
  write_integer(csv, kTokensIn, job.tokens_in, job.tokens_in >= 0);
  write_integer(csv, kTokensOut, job.tokens_out, job.tokens_out >= 0);
  write_seconds(csv, kScheduled, job.scheduled);
  write_integer(csv, kCensored, job.censored ? 1 : 0, true);
  write_integer(csv, kInstances, job.instances, true);
  csv.end_row();
}

Result<std::string> PlainExporter::text() {
  edges_ = workload_.edges;
  std::sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) {
    return std::pair(a.child, a.parent) < std::pair(b.child, b.parent);
  });
  TRY_VOID(check_names());
  choose_columns();
  const std::vector<std::string_view> names = header();
  CsvWriter csv(names);
  std::size_t edge = 0;
  for (std::uint32_t i = 0; i < workload_.jobs.size(); ++i) {
    const std::size_t first = edge;
    while (edge < edges_.size() && edges_[edge].child == i)
      ++edge;
    write_row(csv, workload_.jobs[i], std::span(edges_).subspan(first, edge - first));
  }
  if (!workload_.epoch.empty()) {
    TRY(const std::int64_t epoch, epoch_for_export(workload_));
    return fmt::format("{}{}\n{}", kEpochMark, civil_text(epoch), csv.take());
  }
  return csv.take();
}

}  // namespace

Result<Workload> import_plain(std::string_view untrusted, std::string_view file_name,
                              const ImportOptions& options) {
  CsvReader csv(untrusted, file_name);
  Workload workload = workload_from(Format::kPlain, file_name);
  TRY_VOID(take_epoch(csv, workload));
  TRY_VOID(csv.read_header(kPlainColumns));
  reserve_jobs(untrusted, workload);
  PlainImporter importer(csv, workload);
  TRY_VOID(for_each_row(csv, options, workload, [&] { importer.take_row(); }));
  TRY_VOID(importer.finish(options));
  return workload;
}

Result<std::string> export_plain(const Workload& workload) {
  return PlainExporter(workload).text();
}

}  // namespace kansoku::simulate::import
