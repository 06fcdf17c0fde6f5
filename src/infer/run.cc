// SPDX-License-Identifier: Apache-2.0
#include "infer/run.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/parse.h"
#include "infer/internal/drafts.h"
#include "infer/internal/lookup.h"
#include "infer/work.h"

namespace kansoku::infer {
namespace {

constexpr std::size_t kNodesMax = 1U << 16;    // of a definition
constexpr std::size_t kMissingMax = 1U << 16;  // nodes that a recording lacks, of all definitions

/// The categories of this trace.
struct Categories {
  explicit Categories(const trace::Trace& trace)
      : decode(trace.strings.find(trace::kModelDecode)),
        micro_batch(trace.strings.find(trace::kModelMicroBatch)),
        split(trace.strings.find(trace::kModelSplit)),
        graph(trace.strings.find(trace::kModelGraph)),
        op(trace.strings.find(trace::kModelOperator)),
        wait(trace.strings.find(trace::kModelWait)),
        window(trace.strings.find(trace::kModelWindow)),
        node(trace.strings.find(trace::kModelNode)),
        engine(trace.strings.find(trace::kModelEngine)) {}
  trace::StringId decode, micro_batch, split, graph, op, wait, window, node, engine;
};

/// Arguments of one event, by name.
class Args {
 public:
  Args(const trace::Trace& trace, std::uint32_t begin, std::uint32_t count)
      : trace_(trace), begin_(begin), count_(count) {}
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view key) const {
    const trace::ArgValue* const found = find(key);
    if (found == nullptr) return std::nullopt;
    if (found->kind == trace::ArgValue::Kind::kInt) return found->i64;
    if (found->kind == trace::ArgValue::Kind::kUint && found->u64 <= INT64_MAX)
      return static_cast<std::int64_t>(found->u64);
    return std::nullopt;
  }
  template <class T>
  [[nodiscard]] std::optional<T> small(std::string_view key) const {
    const auto wide = number(key);
    if (!wide || !std::in_range<T>(*wide)) return std::nullopt;
    return static_cast<T>(*wide);
  }
  [[nodiscard]] trace::StringId text_id(std::string_view key) const {
    const trace::ArgValue* const found = find(key);
    return found != nullptr && found->kind == trace::ArgValue::Kind::kString ? found->text
                                                                             : trace::StringId{};
  }
  [[nodiscard]] std::string_view text(std::string_view key) const {
    return trace_.str(text_id(key));
  }

 private:
  [[nodiscard]] const trace::ArgValue* find(std::string_view key) const {
    for (std::uint32_t i = 0; i < count_; ++i) {
      const trace::ArgValue& arg = trace_.args.at(begin_ + i);
      if (trace_.str(arg.key) == key) return &arg;
    }
    return nullptr;
  }
  const trace::Trace& trace_;
  std::uint32_t begin_, count_;
};

std::vector<Row> parse_rows(std::string_view text) {
  std::vector<Row> out;
  while (!text.empty()) {
    const std::size_t end = text.find(' ');
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::size_t colon = one.find(':');
    if (colon == std::string_view::npos) break;
    const auto sequence = parse_int<std::int32_t>(one.substr(0, colon));
    const auto position = parse_int<std::int32_t>(one.substr(colon + 1));
    if (!sequence || !position) break;
    out.push_back({*sequence, *position});
  }
  return out;
}

template <class T>
void sort_by_begin(std::vector<T>& list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const T& a, const T& b) { return a.span.begin_ns < b.span.begin_ns; });
}

class RunReader {
 public:
  explicit RunReader(const trace::Trace& trace) : trace_(trace), is_(trace) {}

  Run read() {
    for (std::size_t i = 0; i < trace_.instants.size(); ++i)
      read_instant(i);
    for (std::size_t i = 0; i < trace_.slices.size(); ++i)
      read_slice(i);
    out_.trace = &trace_;
    for (auto& [pid, process] : processes_) {
      finish(process);
      out_.processes.push_back(std::move(process));
    }
    return std::move(out_);
  }

 private:
  Process& process_of(trace::TrackId track) {
    const std::int32_t pid = trace::process_of_track(trace_, track);
    Process& out = processes_[pid];
    out.pid = pid;
    return out;
  }
  [[nodiscard]] std::string_view track_name(trace::TrackId track) const {
    return track.raw < trace_.tracks.size() ? trace_.str(trace_.tracks[track.raw].name) : "";
  }

  void read_instant(std::size_t i) {
    const trace::InstantTable& table = trace_.instants;
    if (table.category[i].raw == 0) return;
    const Args args(trace_, table.arg_begin[i], table.arg_count[i]);
    if (table.category[i] == is_.engine) read_engine(process_of(table.track[i]), args);
    if (table.category[i] != is_.node) return;
    const auto graph = args.small<std::uint32_t>("graph");
    const auto index = args.small<std::uint32_t>("node");
    const auto shape = trace::parse_shape(args.text("shape"));
    if (!graph || !index || *index >= kNodesMax || !shape) {
      ++out_.unreadable;
      return;
    }
    auto& definitions = process_of(table.track[i]).definitions;
    const auto known = definitions.find(*graph);
    const std::size_t count = known == definitions.end() ? 0 : known->second.nodes.size();
    const std::size_t missing = *index > count ? *index - count : 0;
    if (missing_ + missing > kMissingMax) {
      ++out_.unreadable;
      return;
    }
    missing_ += missing;
    auto& nodes = definitions[*graph].nodes;
    if (nodes.size() <= *index) nodes.resize(*index + 1);
    nodes[*index] = read_node(args, trace_.str(table.name[i]), *shape);
  }

  static void read_engine(Process& process, const Args& args) {
    process.ggml = args.text("ggml");
    const auto level = trace::model_level_from_name(args.text("level"));
    if (level)
      process.reach = {std::string(args.text("functions")), *level, std::string(args.text("why"))};
  }

  static Node read_node(const Args& args, std::string_view name, const trace::TensorShape& shape) {
    Node node;
    node.op = args.text("op");
    node.name = name;
    node.shape = shape;
    node.variant = args.small<std::uint32_t>("variant").value_or(0);
    for (const std::string_view key : {"source0", "source1", "source2", "source3", "source4"}) {
      const auto source = trace::parse_source(args.text(key));
      if (!source) break;
      node.sources.push_back(*source);
    }
    node.is_view = trace::is_view_operator(node.op);
    estimate_work(node);
    return node;
  }

  void read_slice(std::size_t i) {
    const trace::SliceTable& table = trace_.slices;
    const trace::StringId category = table.category[i];
    if (category.raw == 0 || table.duration_ns[i] == trace::kOpenDuration) return;
    const Span span{table.start_ns[i], table.start_ns[i] + table.duration_ns[i]};
    const Args args(trace_, table.arg_begin[i], table.arg_count[i]);
    if (category == is_.window) return read_window(span, trace_.str(table.name[i]), args);
    const trace::TrackId track = table.track[i];
    if (category == is_.op || category == is_.wait) {
      const auto thread = trace::parse_graph_thread_track(track_name(track));
      if (!thread || thread->ith > UINT16_MAX) return count_unreadable();
      read_of_thread(process_of(track), span, *thread, category == is_.wait, i, args);
      return;
    }
    const bool is_call = category == is_.decode || category == is_.micro_batch ||
                         category == is_.graph || category == is_.split;
    if (!is_call) return;
    const auto caller = trace::parse_model_calls_track(track_name(track));
    if (!caller) return count_unreadable();
    read_call(process_of(track), category, span, *caller, args);
  }
  void count_unreadable() { ++out_.unreadable; }

  void read_window(const Span& span, std::string_view name, const Args& args) {
    const auto level = trace::model_level_from_name(name);
    if (!level) return count_unreadable();
    out_.windows.push_back({span, *level, args.small<std::uint64_t>("hits").value_or(0),
                            static_cast<double>(args.number("cost_ns").value_or(0)),
                            static_cast<double>(args.number("switching_ns").value_or(0))});
  }

  void read_of_thread(Process& process, const Span& span, const trace::GraphThread& thread,
                      bool is_wait, std::size_t i, const Args& args) {
    const auto ith = static_cast<std::uint16_t>(thread.ith);
    if (is_wait) {
      process.waits.push_back({span, ith, kNone});
      wait_callers_[process.pid].push_back(thread.caller);
      return;
    }
    const auto graph = args.small<std::uint32_t>("graph");
    const auto node = args.small<std::uint32_t>("node");
    if (!graph || !node || *node >= kNodesMax) return count_unreadable();
    const auto tid = ith == 0 ? static_cast<std::int32_t>(thread.caller)
                              : args.small<std::int32_t>("tid").value_or(0);
    process.operators.push_back(
        {span, *graph, *node, ith, tid, kNone, trace_.slices.name[i], args.text_id("experts")});
    operator_callers_[process.pid].push_back(thread.caller);
  }

  void read_call(Process& process, trace::StringId category, const Span& span, std::uint32_t caller,
                 const Args& args) const {
    if (category == is_.split) {
      process.splits.push_back({span, args.small<std::uint32_t>("graph"), caller, kNone, false});
    } else if (category == is_.decode) {
      process.decodes.push_back({span, args.small<std::int32_t>("tokens").value_or(0),
                                 args.number("result"),
                                 args.small<std::uint32_t>("context").value_or(0), caller});
    } else if (category == is_.micro_batch) {
      MicroBatch made{span, args.small<std::int32_t>("tokens").value_or(0),
                      args.small<std::int32_t>("unique").value_or(0),
                      parse_rows(args.text("rows"))};
      made.caller = caller;
      made.has_tokens = made.tokens > 0;
      made.is_prefill = made.tokens > std::max<std::int64_t>(made.sequences, 1);
      made.generated = made.is_prefill ? 0 : made.tokens;
      made.outputs = args.small<std::uint32_t>("outputs");
      process.micro_batches.push_back(std::move(made));
    } else {
      process.graphs.push_back({span, args.small<std::uint32_t>("graph"),
                                args.number("uid").value_or(0), kNone, caller, false});
    }
  }

  void finish(Process& process) {
    for (const trace::Process& one : trace_.processes)
      if (one.pid == process.pid) process.name = trace_.str(one.name);
    sort_by_begin(process.decodes);
    sort_by_begin(process.micro_batches);
    sort_by_begin(process.graphs);
    sort_by_begin(process.splits);
    const ByCaller decodes(process.decodes);
    for (MicroBatch& one : process.micro_batches)
      one.decode = decodes.enclosing(one.caller, one.span);
    find_drafts(process);
    const ByCaller micro_batches(process.micro_batches);
    for (Split& one : process.splits)
      one.micro_batch = micro_batches.enclosing(one.caller, one.span);
    const ByCaller splits(process.splits);
    for (Graph& one : process.graphs) {
      const std::size_t split = splits.enclosing(one.caller, one.span);
      if (split != kNone) process.splits[split].is_on_cpu = true;
      one.micro_batch = micro_batches.enclosing(one.caller, one.span);
      one.is_whole =
          std::any_of(out_.windows.begin(), out_.windows.end(), [&](const Window& window) {
            return window.level >= trace::ModelLevel::kOperator &&
                   window.span.begin_ns <= one.span.begin_ns &&
                   one.span.end_ns <= window.span.end_ns;
          });
    }
    place(process, process.operators, operator_callers_[process.pid]);
    place(process, process.waits, wait_callers_[process.pid]);
  }

  template <class T>
  static void place(const Process& process, std::vector<T>& list,
                    const std::vector<std::uint32_t>& callers) {
    const ByCaller graphs(process.graphs);
    for (std::size_t i = 0; i < list.size(); ++i)
      list[i].graph = graphs.enclosing(callers[i], list[i].span);
    sort_by_begin(list);
  }

  const trace::Trace& trace_;
  const Categories is_;
  Run out_;
  std::size_t missing_{0};  // nodes
  std::map<std::int32_t, Process> processes_;
  std::map<std::int32_t, std::vector<std::uint32_t>> operator_callers_, wait_callers_;  // by pid
};

}  // namespace

Run read_run(const trace::Trace& untrusted) {
  return RunReader(untrusted).read();
}

}  // namespace kansoku::infer
