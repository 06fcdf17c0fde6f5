// SPDX-License-Identifier: Apache-2.0
// WfFormat 1.5, the task graphs of WfCommons. A task of `specification` says who waits for whom,
// the one of the same id under `execution` how it ran.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include "common/json.h"
#include "common/parse.h"
#include "simulate/import/internal/formats.h"
#include "simulate/import/internal/rows.h"
#include "simulate/import/internal/wfformat.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

namespace ondemand = simdjson::ondemand;

/// A name in the text, and where it stands.
struct Reference {
  std::string_view id;
  std::size_t offset{0};
};

struct Task {
  Reference id;
  std::vector<Reference> parents, children;
  std::optional<std::vector<std::string_view>> inputs, outputs;  // files
};

struct Execution {
  Reference id;
  std::int64_t runtime_ns{-1}, cpu_milli{-1}, memory_bytes{-1}, read_bytes{-1}, written_bytes{-1};
};

/// A member that is a number: where it goes, times 10^digits.
struct Number {
  std::string_view key;
  std::int64_t Execution::*member;
  int digits;
  std::int64_t greatest;
};
// avgCPU is a percentage of one core, so its tenths are thousandths of a core.
constexpr std::array<Number, 5> kNumbers{
    {{"runtimeInSeconds", &Execution::runtime_ns, 9, kTimeNsMax},
     {"avgCPU", &Execution::cpu_milli, 1, kAmountMax},
     {"memoryInBytes", &Execution::memory_bytes, 0, kAmountMax},
     {"readBytes", &Execution::read_bytes, 0, kAmountMax},
     {"writtenBytes", &Execution::written_bytes, 0, kAmountMax}}};

class WfImporter {
 public:
  WfImporter(std::string_view untrusted, std::string_view file_name, const ImportOptions& options)
      : text_(untrusted), file_name_(file_name), options_(options) {}

  [[nodiscard]] Result<Workload> run();

 private:
  using Edges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

  [[nodiscard]] Error error(std::size_t offset, std::string_view what,
                            Code code = Code::kCorrupt) const;
  [[nodiscard]] Result<void> check_syntax() const;
  [[nodiscard]] std::size_t offset_of(ondemand::value value) const {
    return static_cast<std::size_t>(value.raw_json_token().data() - padded_.data());
  }

  template <class Take>
  [[nodiscard]] Result<void> each_member(ondemand::value value, std::string_view what, Take take);
  template <class Take>
  [[nodiscard]] Result<void> each_element(ondemand::value value, std::string_view what, Take take);
  [[nodiscard]] Result<Reference> read_text(ondemand::value value, std::string_view what);
  [[nodiscard]] Result<std::int64_t> read_number(ondemand::value value, std::string_view what,
                                                 int digits, std::int64_t greatest);
  [[nodiscard]] Result<void> read_references(ondemand::value value, std::string_view what,
                                             std::vector<Reference>& out);
  [[nodiscard]] Result<void> read_files(ondemand::value value, std::string_view what,
                                        std::optional<std::vector<std::string_view>>& out);

  [[nodiscard]] Result<void> read_root(ondemand::object root);
  [[nodiscard]] Result<void> read_specification(ondemand::value value);
  [[nodiscard]] Result<void> read_task(ondemand::value value);
  [[nodiscard]] Result<void> read_file(ondemand::value value);
  [[nodiscard]] Result<void> read_execution(ondemand::value value);
  [[nodiscard]] Result<void> read_executed(ondemand::value value);
  [[nodiscard]] Result<void> read_machine(ondemand::value value);

  [[nodiscard]] Result<void> add_jobs();
  [[nodiscard]] Result<void> add_executions();
  [[nodiscard]] std::int64_t bytes_of(
      const std::optional<std::vector<std::string_view>>& files) const;
  [[nodiscard]] Result<void> add_edges();
  [[nodiscard]] Result<std::uint32_t> task_of(const Reference& reference, std::string_view role,
                                              const Task& owner) const;
  [[nodiscard]] Result<void> check_same(const Edges& from_parents,
                                        const Edges& from_children) const;

  const std::string_view text_;
  const std::string_view file_name_;
  const ImportOptions& options_;
  simdjson::padded_string padded_;
  ondemand::parser parser_;
  bool has_specification_{false};
  Workload workload_;
  Graph graph_{.name = std::string(wfformat::kNoName)};
  std::vector<Task> tasks_;
  std::vector<Execution> executions_;
  InternLookup ids_{workload_.names};  // of tasks: name i is job i - 1
  std::vector<std::string> files_{""};
  InternLookup file_ids_{files_};
  std::vector<std::int64_t> file_bytes_{-1};
};

Error WfImporter::error(std::size_t offset, std::string_view what, Code code) const {
  const std::string_view before = text_.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return Error{code, fmt::format("{}:{}:{}: {}", file_name_, line, offset - line_begin + 1, what)};
}

/// The walk below trusts the syntax of what it skips, so all of it is checked first.
Result<void> WfImporter::check_syntax() const {
  simdjson::dom::parser parser;
  simdjson::dom::element unused;
  auto failed = parser.allocate(padded_.size(), Json::kDepthMax);
  if (!failed) failed = parser.parse(padded_).get(unused);
  if (!failed) return {};
  const bool is_limit = failed == simdjson::CAPACITY || failed == simdjson::DEPTH_ERROR;
  const Code code = is_limit ? Code::kLimit : Code::kCorrupt;
  // The slower parser knows the place.
  const auto json = Json::parse(text_);
  const std::string message = json ? std::string() : json.error().what;
  std::uint64_t line = 1, column = 1;
  for (const auto& [mark, number] :
       {std::pair("at line ", &line), std::pair(", column ", &column)}) {
    const std::size_t at = message.find(mark);
    if (at == message.npos) continue;
    const std::size_t begin = at + std::string_view(mark).size();
    const std::size_t end = message.find_first_not_of("0123456789", begin);
    *number = parse_int<std::uint64_t>(message.substr(begin, end - begin)).value_or(1);
  }
  return Error{code, fmt::format("{}:{}:{}: malformed JSON: {}", file_name_, line, column,
                                 simdjson::error_message(failed))};
}

template <class Take>
Result<void> WfImporter::each_member(ondemand::value value, std::string_view what, Take take) {
  const std::size_t offset = offset_of(value);
  ondemand::object object;
  if (value.get_object().get(object)) return error(offset, fmt::format("{}: no object", what));
  for (auto result : object) {
    ondemand::field field;
    std::string_view key;
    if (std::move(result).get(field) || field.unescaped_key().get(key))
      return error(offset, fmt::format("{}: malformed member", what));
    TRY_VOID(take(key, field.value()));
  }
  return {};
}

template <class Take>
Result<void> WfImporter::each_element(ondemand::value value, std::string_view what, Take take) {
  const std::size_t offset = offset_of(value);
  ondemand::array array;
  if (value.get_array().get(array)) return error(offset, fmt::format("{}: no array", what));
  for (auto result : array) {
    ondemand::value element;
    if (result.get(element)) return error(offset, fmt::format("{}: malformed element", what));
    TRY_VOID(take(element));
  }
  return {};
}

Result<Reference> WfImporter::read_text(ondemand::value value, std::string_view what) {
  Reference out{{}, offset_of(value)};
  if (value.get_string().get(out.id)) return error(out.offset, fmt::format("{}: no text", what));
  if (out.id.empty()) return error(out.offset, fmt::format("{}: empty", what));
  if (out.id.size() > kNameBytesMax) {
    return error(out.offset,
                 fmt::format("{}: longer than the limit of {} bytes", what, kNameBytesMax));
  }
  return out;
}

/// -1 for null.
Result<std::int64_t> WfImporter::read_number(ondemand::value value, std::string_view what,
                                             int digits, std::int64_t greatest) {
  const std::size_t offset = offset_of(value);
  std::string_view token = value.raw_json_token();
  token = token.substr(0, token.find_first_of(" \t\r\n"));
  if (token == "null") return -1;
  const auto number = parse_decimal(token, digits);
  if (!number) return error(offset, fmt::format("{}: no number: {}", what, in_quotes(token)));
  if (*number < 0 || *number > greatest)
    return error(offset, fmt::format("{}: {} is out of range", what, in_quotes(token)));
  return *number;
}

Result<void> WfImporter::read_references(ondemand::value value, std::string_view what,
                                         std::vector<Reference>& out) {
  return each_element(value, what, [&](ondemand::value element) -> Result<void> {
    TRY(const Reference reference, read_text(element, what));
    out.push_back(reference);
    return {};
  });
}

Result<void> WfImporter::read_files(ondemand::value value, std::string_view what,
                                    std::optional<std::vector<std::string_view>>& out) {
  std::vector<Reference> files;
  TRY_VOID(read_references(value, what, files));
  out.emplace();
  for (const Reference& file : files)
    out->push_back(file.id);
  return {};
}

Result<void> WfImporter::read_task(ondemand::value value) {
  Task task;
  const std::size_t offset = offset_of(value);
  if (tasks_.size() >= std::min(options_.rows_max, kRowsMax))
    return error(offset, fmt::format("more tasks than the limit of {}", tasks_.size()),
                 Code::kLimit);
  TRY_VOID(
      each_member(value, "task", [&](std::string_view key, ondemand::value member) -> Result<void> {
        if (key == "parents") return read_references(member, key, task.parents);
        if (key == "children") return read_references(member, key, task.children);
        if (key == "inputFiles") return read_files(member, key, task.inputs);
        if (key == "outputFiles") return read_files(member, key, task.outputs);
        if (key != "id") return {};
        TRY(task.id, read_text(member, "id of a task"));
        return {};
      }));
  if (task.id.id.empty()) return error(offset, "task without an id");
  if (ids_.find(workload_.names, task.id.id))
    return error(task.id.offset, fmt::format("task {} twice", in_quotes(task.id.id)));
  static_cast<void>(intern(workload_.names, task.id.id, ids_));
  tasks_.push_back(std::move(task));
  return {};
}

Result<void> WfImporter::read_file(ondemand::value value) {
  Reference id;
  std::int64_t bytes = -1;
  TRY_VOID(
      each_member(value, "file", [&](std::string_view key, ondemand::value member) -> Result<void> {
        if (key == "id") {
          TRY(id, read_text(member, "id of a file"));
        } else if (key == "sizeInBytes") {
          TRY(bytes, read_number(member, key, 0, kAmountMax));
        }
        return {};
      }));
  const std::uint32_t index = intern(files_, id.id, file_ids_);
  if (index != 0) {
    file_bytes_.resize(files_.size(), -1);
    file_bytes_[index] = bytes;
  }
  return {};
}

Result<void> WfImporter::read_specification(ondemand::value value) {
  return each_member(value, "workflow.specification",
                     [&](std::string_view key, ondemand::value member) -> Result<void> {
                       if (key == "tasks") {
                         has_specification_ = true;
                         return each_element(member, key, [&](ondemand::value element) {
                           return read_task(element);
                         });
                       }
                       if (key != "files") return {};
                       return each_element(member, key, [&](ondemand::value element) {
                         return read_file(element);
                       });
                     });
}

Result<void> WfImporter::read_executed(ondemand::value value) {
  Execution execution;
  const std::size_t offset = offset_of(value);
  TRY_VOID(each_member(
      value, "executed task", [&](std::string_view key, ondemand::value member) -> Result<void> {
        if (key == "id") {
          TRY(execution.id, read_text(member, "id of an executed task"));
          return {};
        }
        for (const Number& number : kNumbers) {
          if (number.key != key) continue;
          TRY(execution.*number.member, read_number(member, key, number.digits, number.greatest));
        }
        return {};
      }));
  if (execution.id.id.empty()) return error(offset, "executed task without an id");
  executions_.push_back(execution);
  return {};
}

Result<void> WfImporter::read_machine(ondemand::value value) {
  return each_member(
      value, "machine", [&](std::string_view key, ondemand::value cpu) -> Result<void> {
        if (key != "cpu") return {};
        return each_member(
            cpu, key, [&](std::string_view name, ondemand::value member) -> Result<void> {
              if (name != "coreCount") return {};
              const std::size_t offset = offset_of(member);
              TRY(const std::int64_t cores, read_number(member, name, 0, wfformat::kCoresMax));
              if (cores < 0) return {};
              const std::int64_t sum = std::max(graph_.machine_cores, 0) + cores;
              if (sum > wfformat::kCoresMax) return error(offset, "more cores than the limit");
              graph_.machine_cores = static_cast<int>(sum);
              return {};
            });
      });
}

Result<void> WfImporter::read_execution(ondemand::value value) {
  return each_member(value, "workflow.execution",
                     [&](std::string_view key, ondemand::value member) -> Result<void> {
                       if (key == "makespanInSeconds") {
                         const std::size_t offset = offset_of(member);
                         double seconds = 0;
                         if (member.is_null()) return {};
                         if (member.get_double().get(seconds) ||
                             !(seconds >= 0 && seconds <= wfformat::kMakespanMaxS))
                           return error(offset, "makespanInSeconds: not a number of seconds");
                         graph_.makespan_s = seconds;
                         return {};
                       }
                       if (key == "tasks") {
                         return each_element(member, key, [&](ondemand::value element) {
                           return read_executed(element);
                         });
                       }
                       if (key != "machines") return {};
                       return each_element(member, key, [&](ondemand::value element) {
                         return read_machine(element);
                       });
                     });
}

Result<void> WfImporter::read_root(ondemand::object root) {
  for (auto result : root) {
    ondemand::field field;
    std::string_view key;
    if (std::move(result).get(field) || field.unescaped_key().get(key))
      return error(0, "malformed member");
    if (key == "name") {
      TRY(const Reference name, read_text(field.value(), key));
      graph_.name = std::string(name.id);
    }
    if (key != "workflow") continue;
    TRY_VOID(each_member(field.value(), key,
                         [&](std::string_view part, ondemand::value member) -> Result<void> {
                           if (part == "specification") return read_specification(member);
                           if (part == "execution") return read_execution(member);
                           return {};
                         }));
  }
  if (!has_specification_)
    return error(0, "workflow.specification.tasks is missing: not WfFormat 1.5");
  return {};
}

/// Sum of the sizes; -1 if one is not known.
std::int64_t WfImporter::bytes_of(const std::optional<std::vector<std::string_view>>& files) const {
  if (!files) return -1;
  std::int64_t sum = 0;
  for (const std::string_view id : *files) {
    const auto index = file_ids_.find(files_, id);
    if (!index || file_bytes_[*index] < 0) return -1;
    if (file_bytes_[*index] > kAmountMax - sum) return -1;
    sum += file_bytes_[*index];
  }
  return sum;
}

Result<void> WfImporter::add_executions() {
  std::vector<bool> seen(tasks_.size());
  for (const Execution& execution : executions_) {
    const auto index = ids_.find(workload_.names, execution.id.id);
    if (!index) {
      return error(execution.id.offset,
                   fmt::format("executed task {} is not a task", in_quotes(execution.id.id)));
    }
    if (seen[*index - 1]) {
      return error(execution.id.offset,
                   fmt::format("task {} was executed twice", in_quotes(execution.id.id)));
    }
    seen[*index - 1] = true;
    Job& job = workload_.jobs[*index - 1];
    job.duration = Nanos{execution.runtime_ns};
    job.cpu_milli = execution.cpu_milli;
    if (execution.memory_bytes >= 0)
      job.memory_mib =
          (execution.memory_bytes + wfformat::kBytesPerMib - 1) / wfformat::kBytesPerMib;
    job.read_bytes = execution.read_bytes;
    job.written_bytes = execution.written_bytes;
  }
  return {};
}

Result<void> WfImporter::add_jobs() {
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    Job job;
    job.name = static_cast<std::uint32_t>(i + 1);
    job.graph = 1;
    workload_.jobs.push_back(job);
  }
  TRY_VOID(add_executions());
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    Job& job = workload_.jobs[i];
    if (job.read_bytes < 0) job.read_bytes = bytes_of(tasks_[i].inputs);
    if (job.written_bytes < 0) job.written_bytes = bytes_of(tasks_[i].outputs);
  }
  return {};
}

Result<std::uint32_t> WfImporter::task_of(const Reference& reference, std::string_view role,
                                          const Task& owner) const {
  if (const auto index = ids_.find(workload_.names, reference.id)) return *index - 1;
  return error(reference.offset, fmt::format("{} {} of task {} is not a task", role,
                                             in_quotes(reference.id), in_quotes(owner.id.id)));
}

/// Either list may be missing throughout; where both are there they say the same.
Result<void> WfImporter::check_same(const Edges& from_parents, const Edges& from_children) const {
  if (from_parents.empty() || from_children.empty()) return {};
  Edges odd;
  std::set_symmetric_difference(from_parents.begin(), from_parents.end(), from_children.begin(),
                                from_children.end(), std::back_inserter(odd));
  if (odd.empty()) return {};
  const Task &parent = tasks_[odd.front().first], &child = tasks_[odd.front().second];
  const bool parent_says =
      std::binary_search(from_children.begin(), from_children.end(), odd.front());
  const Task &one = parent_says ? parent : child, &other = parent_says ? child : parent;
  return error(one.id.offset,
               fmt::format("task {} names {} as its {}, which does not name it as its {}",
                           in_quotes(one.id.id), in_quotes(other.id.id),
                           parent_says ? "child" : "parent", parent_says ? "parent" : "child"));
}

Result<void> WfImporter::add_edges() {
  Edges from_parents, from_children;
  for (std::uint32_t i = 0; i < tasks_.size(); ++i) {
    for (const Reference& reference : tasks_[i].parents) {
      TRY(const std::uint32_t parent, task_of(reference, "parent", tasks_[i]));
      from_parents.emplace_back(parent, i);
    }
    for (const Reference& reference : tasks_[i].children) {
      TRY(const std::uint32_t child, task_of(reference, "child", tasks_[i]));
      from_children.emplace_back(i, child);
    }
  }
  for (Edges* edges : {&from_parents, &from_children}) {
    std::sort(edges->begin(), edges->end());
    edges->erase(std::unique(edges->begin(), edges->end()), edges->end());
  }
  TRY_VOID(check_same(from_parents, from_children));
  for (const auto& [parent, child] : from_parents.empty() ? from_children : from_parents)
    workload_.edges.push_back({parent, child});
  if (const auto on_cycle = job_on_cycle(workload_)) {
    const Reference& id = tasks_[*on_cycle].id;
    return error(id.offset, fmt::format("task {} waits for itself", in_quotes(id.id)));
  }
  sort_jobs(workload_);
  return {};
}

Result<Workload> WfImporter::run() {
  padded_ = simdjson::padded_string(text_);
  TRY_VOID(check_syntax());
  ondemand::document document;
  ondemand::object root;
  if (parser_.iterate(padded_).get(document) || document.get_object().get(root))
    return error(0, "not a JSON object");
  TRY_VOID(read_root(root));
  TRY_VOID(add_jobs());
  TRY_VOID(add_edges());
  workload_.source = workload_from(Format::kWfFormat, file_name_).source;
  workload_.graphs.push_back(std::move(graph_));
  return std::move(workload_);
}

}  // namespace

Result<Workload> import_wfformat(std::string_view untrusted, std::string_view file_name,
                                 const ImportOptions& options) {
  return WfImporter(untrusted, file_name, options).run();
}

}  // namespace kansoku::simulate::import
