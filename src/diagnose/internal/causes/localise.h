// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnose.h"
#include "diagnose/internal/causes/context.h"

namespace kansoku::diagnose {

/// A frame that holds most of an excess.
struct Location {
  std::string function;  // empty: not located
  std::string file;
  std::uint32_t line{0};
  std::vector<std::string> stack;
  std::string below;             // a library's function that `function` calls, if it has most of it
  double support{0};             // share of resamples whose answer is this frame or below it
  double excess_ms{0};           // per step, culprit over mean of peers, in this frame
  std::int32_t worker_pid{0};    // 0: on the rank's main thread
  std::size_t sample_count{0};   // of the culprit in working time
  double sleeping_share{0};      // of the culprit's samples in this frame
  bool waits_for_worker{false};  // a frame of the path waits for a data-loader worker
};

/// Stack samples of all ranks in working time, merged into one tree of calls with the time of each
/// rank in each node.
class CallTree {
 public:
  /// Samples of main threads inside `phases[r].work`.
  [[nodiscard]] static CallTree of_main_threads(const Context& context);
  /// The same, only the samples of `phase`. Slices tell the time of a phase exactly, so samples
  /// only have to split it: far less noise than over the whole step.
  [[nodiscard]] static CallTree of_phase(const Context& context, Phase phase);
  /// Page faults of main threads within the steps, by the samples that they lie between; in the
  /// milliseconds that go with them.
  [[nodiscard]] static CallTree of_faults(const Context& context);
  /// Samples of worker processes within the steps of their rank, without those that wait for work;
  /// their mean, where a rank has several.
  [[nodiscard]] static CallTree of_workers(const Context& context);

  /// The deepest frame reached by descending while one child holds `descend_share_min` of its
  /// parent's difference between `culprits` and the other ranks, and that enough resamples agree
  /// on; if that is a library's, the job's own that it is called from, if there is one. All ranks
  /// as culprits: no difference, the time itself. Empty function if there is none.
  [[nodiscard]] Location locate(const std::vector<bool>& culprits, const Options& options) const;

  /// Time per step with a function on top of the stack: rank `culprit` against the mean of the
  /// others, or the mean of all ranks if there is none; the `row_count_max` greatest differences
  /// first.
  [[nodiscard]] std::vector<FunctionRow> rows(std::optional<std::size_t> culprit,
                                              std::size_t row_count_max) const;

  [[nodiscard]] std::size_t sample_count(std::size_t rank) const { return sample_counts_[rank]; }

 private:
  struct Node {
    std::uint32_t parent{0};
    std::uint32_t depth{0};  // 0 for the root
    trace::StringId function{};
    trace::StringId file{};
    std::vector<std::uint32_t> children;
  };
  struct Hit {
    std::uint32_t node{0};
    std::uint32_t rank{0};
    std::uint32_t step{0};
    trace::StackId stack{};
    std::int32_t pid{0};
    bool is_asleep{false};
    double weight{1};
  };
  struct NodeKey {
    std::uint32_t parent;
    trace::StringId function;
    trace::StringId file;
    friend auto operator<=>(const NodeKey&, const NodeKey&) = default;
  };

  explicit CallTree(const Context& context);
  std::uint32_t node_of(trace::StackId stack);
  bool has_frame(trace::StackId stack, bool (*wanted)(std::string_view, std::string_view)) const;
  void add_samples(const Context& context, std::size_t rank, std::optional<Phase> only);
  [[nodiscard]] std::vector<double> differences(
      const std::vector<bool>& culprits, const std::vector<std::uint32_t>& step_weights) const;
  [[nodiscard]] std::vector<std::uint32_t> descend(const std::vector<double>& difference_ms,
                                                   double share_min) const;
  [[nodiscard]] std::vector<double> support_of(const std::vector<std::uint32_t>& path,
                                               const std::vector<bool>& culprits,
                                               const Options& options) const;
  [[nodiscard]] Location describe(std::uint32_t node, const std::vector<bool>& culprits) const;
  [[nodiscard]] bool is_own(std::uint32_t node) const;
  [[nodiscard]] bool is_below(std::uint32_t node, std::uint32_t ancestor) const;

  const trace::Trace* trace_;
  std::size_t rank_count_;
  std::size_t step_count_;
  std::vector<Node> nodes_;
  std::map<NodeKey, std::uint32_t> index_;
  std::map<trace::StackId, std::uint32_t> node_of_stack_;
  std::vector<Hit> hits_;
  std::vector<double>
      hit_ms_;  // by rank: milliseconds of the whole window that one of weight stands for
  std::vector<std::size_t> sample_counts_;  // by rank, in working time of any phase
};

/// Locates the page faults of `culprits` beyond the others', on their main threads.
[[nodiscard]] Location locate_faults(const Context& context, const std::vector<bool>& culprits,
                                     const Options& options);

/// Locates the excess of `culprits` (a flag a rank): on their main threads and, if those wait for
/// data-loader workers, in the workers. `phase` (may be nothing) narrows it to one phase.
[[nodiscard]] Location locate_excess(const Context& context, const std::vector<bool>& culprits,
                                     std::optional<Phase> phase, const Options& options);

}  // namespace kansoku::diagnose
