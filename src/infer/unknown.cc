// SPDX-License-Identifier: Apache-2.0
#include "infer/unknown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "infer/thresholds.h"

namespace kansoku::infer {
namespace {

using Reason = std::optional<std::string>;

constexpr char kNoDecode[] = "its libraries have no function llama_decode";
constexpr char kDecodeUnseen[] =
    "no call of llama_decode was seen to begin, but {} {} ran: it is inlined, or began before "
    "the recording";
constexpr char kNoMicroBatch[] = "its libraries have no function llama_context::process_ubatch";
constexpr char kMicroBatchUnseen[] =
    "{} calls of llama_decode returned, and llama_context::process_ubatch was never seen";
constexpr char kMicroBatchTooLarge[] =
    "micro-batches of {} tokens lie in a call of {}: this build has another layout";
constexpr char kMicroBatchUnread[] =
    "the arguments of {} micro-batches could not be read: no argument is the context of the call "
    "around them";
constexpr char kNoGraph[] = "its libraries have no function ggml_graph_compute";
constexpr char kGraphUnseen[] = "{} calls of llama_decode returned, and no graph was seen";
constexpr char kNoOperator[] = "its libraries have no function ggml_cpu_extra_compute_forward";
constexpr char kOperatorUnseen[] =
    "{} graphs ran, and ggml_cpu_extra_compute_forward was never seen";
constexpr char kNoBarrier[] = "its libraries have no function ggml_barrier";
constexpr char kBarrierUnseen[] =
    "graphs ran on several threads, and ggml_barrier was never seen: it is inlined";
constexpr char kBarrierFew[] =
    "ggml_barrier was seen {} times for {} operators on several threads: it is inlined where "
    "graphs "
    "are computed";
constexpr char kRecordedAt[] = "recorded at the {} level";

class Knowledge {
 public:
  Knowledge(const Run& run, const Process& process) : run_(run), process_(process) {
    for (const Window& window : run.windows)
      level_ = std::max(level_, window.level);
    if (run.windows.empty()) level_ = trace::ModelLevel::kThread;
  }

  [[nodiscard]] Reason of_decodes() const {
    if (!is_probed("decode") && !is_probed("context_decode") && !is_probed("eval"))
      return kNoDecode;
    if (!process_.decodes.empty()) return std::nullopt;
    if (!process_.micro_batches.empty())
      return fmt::format(kDecodeUnseen, process_.micro_batches.size(), "micro-batches");
    if (!process_.graphs.empty())
      return fmt::format(kDecodeUnseen, process_.graphs.size(), "graphs");
    return std::nullopt;
  }

  [[nodiscard]] Reason of_micro_batches() const {
    if (!is_probed("micro_batch")) return kNoMicroBatch;
    if (const auto done = answered(trace::ModelLevel::kToken);
        process_.micro_batches.empty() && done > 0)
      return fmt::format(kMicroBatchUnseen, done);
    std::size_t unread = 0;
    std::vector<std::int64_t> sums(process_.decodes.size());
    for (const MicroBatch& one : process_.micro_batches) {
      if (one.decode == kNone) continue;
      if (!one.has_tokens) ++unread;
      sums[one.decode] += one.tokens;
      const std::int64_t of_call = process_.decodes[one.decode].tokens;
      if (of_call <= 0) continue;  // not read
      if (sums[one.decode] > of_call)
        return fmt::format(kMicroBatchTooLarge, sums[one.decode], of_call);
    }
    if (unread > 0) return fmt::format(kMicroBatchUnread, unread);
    return std::nullopt;
  }

  [[nodiscard]] Reason of_graphs() const {
    if (const Reason why = below(trace::ModelLevel::kGraph)) return why;
    if (!is_probed("graph") && !is_probed("split")) return kNoGraph;
    if (const auto done = answered(trace::ModelLevel::kGraph);
        process_.graphs.empty() && process_.splits.empty() && done > 0)
      return fmt::format(kGraphUnseen, done);
    return std::nullopt;
  }

  [[nodiscard]] Reason of_operators() const {
    if (const Reason why = below(trace::ModelLevel::kOperator)) return why;
    if (!is_probed("operator")) return kNoOperator;
    if (const auto whole = whole_graphs(); process_.operators.empty() && whole > 0)
      return fmt::format(kOperatorUnseen, whole);
    return std::nullopt;
  }

  [[nodiscard]] Reason of_threads() const {
    if (const Reason why = below(trace::ModelLevel::kThread)) return why;
    if (!is_probed("barrier")) return kNoBarrier;
    if (!process_.waits.empty()) return of_barriers();
    const bool has_threads =
        std::any_of(process_.operators.begin(), process_.operators.end(),
                    [](const Operator& one) { return one.ith != 0 && one.graph != kNone; });
    return has_threads ? Reason(kBarrierUnseen) : std::nullopt;
  }

 private:
  /// Every thread of a graph meets the others behind each operator.
  [[nodiscard]] Reason of_barriers() const {
    std::vector<bool> has_threads(process_.graphs.size());
    for (const Operator& one : process_.operators)
      if (one.graph != kNone && one.ith != 0)
        has_threads[one.graph] =
            is_within(process_.graphs[one.graph].span, trace::ModelLevel::kThread);
    const auto count = [&](const auto& list) {
      return std::count_if(list.begin(), list.end(), [&](const auto& one) {
        return one.graph != kNone && has_threads[one.graph];
      });
    };
    const auto operators = count(process_.operators), waits = count(process_.waits);
    const bool are_few =
        static_cast<double>(waits) < kBarrierShareMin * static_cast<double>(operators);
    if (operators < kBarrierOperatorsMin || !are_few) return std::nullopt;
    return fmt::format(kBarrierFew, waits, operators);
  }

  /// Recordings of older versions do not say: then it counts as probed.
  [[nodiscard]] bool is_probed(std::string_view role) const {
    if (!process_.reach) return true;
    return (" " + process_.reach->functions + " ").find(fmt::format(" {} ", role)) !=
           std::string::npos;
  }

  [[nodiscard]] Reason below(trace::ModelLevel level) const {
    if (process_.reach && process_.reach->level < level) return process_.reach->why;
    if (level_ < level) return fmt::format(kRecordedAt, trace::model_level_name(level_));
    return std::nullopt;
  }

  /// Decode calls that returned 0 while the probes of that level were attached.
  [[nodiscard]] std::size_t answered(trace::ModelLevel level) const {
    return static_cast<std::size_t>(std::count_if(
        process_.decodes.begin(), process_.decodes.end(),
        [&](const Decode& one) { return one.result == 0 && is_within(one.span, level); }));
  }
  [[nodiscard]] std::size_t whole_graphs() const {
    return static_cast<std::size_t>(
        std::count_if(process_.graphs.begin(), process_.graphs.end(),
                      [](const Graph& one) { return one.is_whole && one.definition; }));
  }
  [[nodiscard]] bool is_within(const Span& span, trace::ModelLevel level) const {
    return run_.windows.empty() ||
           std::any_of(run_.windows.begin(), run_.windows.end(), [&](const Window& window) {
             return window.level >= level && window.span.begin_ns <= span.begin_ns &&
                    span.end_ns <= window.span.end_ns;
           });
  }

  const Run& run_;
  const Process& process_;
  trace::ModelLevel level_{trace::ModelLevel::kNone};  // the highest one that was attached
};

}  // namespace

std::map<std::string, std::string> unknown_figures(const Run& run, const Process& process) {
  const Knowledge knowledge(run, process);
  std::map<std::string, std::string> out;
  const auto add = [&](const char* figure, const Reason& reason) {
    if (reason) out.emplace(figure, *reason);
  };
  add("decode", knowledge.of_decodes());
  add("micro_batches", knowledge.of_micro_batches());
  add("graphs", knowledge.of_graphs());
  add("operators", knowledge.of_operators());
  add("threads", knowledge.of_threads());
  return out;
}

}  // namespace kansoku::infer
