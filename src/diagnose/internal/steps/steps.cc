// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "diagnose/internal/steps/names.h"
#include "diagnose/internal/steps/word.h"
#include "diagnose/internal/words.h"
#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

// Token classes; the order ranks them as the event that ends a step.
enum class TokenClass : std::uint8_t {
  kOptimizer,
  kSyncedBackward,  // a backward that communicates: the last of an accumulation
  kBackward,
  kInput,
  kZeroGrad,
  kCollective,
};
constexpr std::array<std::string_view, 4> kFoundBy{"optimizer", "backward", "backward", "input"};

struct Token {
  std::uint32_t id{0};
  Interval time;
};

// Token ids shared by all ranks.
class TokenTable {
 public:
  std::uint32_t id_of(TokenClass cls, std::uint64_t detail, std::string text) {
    const auto [found, is_new] =
        ids_.try_emplace({cls, detail}, static_cast<std::uint32_t>(texts_.size()));
    if (is_new) {
      texts_.push_back(std::move(text));
      classes_.push_back(cls);
    }
    return found->second;
  }
  TokenClass class_of(std::uint32_t id) const { return classes_[id]; }
  const std::string& text(std::uint32_t id) const { return texts_[id]; }
  std::vector<std::uint32_t> of_class(TokenClass cls) const {
    std::vector<std::uint32_t> ids;
    for (std::uint32_t id = 0; id < classes_.size(); ++id) {
      if (classes_[id] == cls) ids.push_back(id);
    }
    return ids;
  }

 private:
  std::map<std::pair<TokenClass, std::uint64_t>, std::uint32_t> ids_;
  std::vector<std::string> texts_;
  std::vector<TokenClass> classes_;
};

struct RankTokens {
  std::vector<Token> tokens;
  std::vector<std::uint32_t> ids;
};

class Tokenizer {
 public:
  Tokenizer(const trace::Trace& trace, const JobData& job, const Collectives& collectives)
      : trace_(trace), job_(job), collectives_(collectives) {
    for (const RankData& rank : job.ranks) {
      for (const Event& event : rank.events)
        has_anchor_ = has_anchor_ || (event.on_main && event.kind != EventKind::kFinalize &&
                                      event.kind != EventKind::kPrepareForward);
    }
  }

  bool has_anchor() const { return has_anchor_; }
  TokenTable& table() { return table_; }

  RankTokens read(std::size_t r) {
    std::vector<Token> tokens = has_anchor_ ? anchors(r) : std::vector<Token>{};
    add_collectives(r, tokens);
    std::stable_sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) {
      return a.time.begin_ns < b.time.begin_ns;
    });
    RankTokens out;
    for (const Token& token : tokens) {
      const bool is_repeat = has_anchor_ && !out.ids.empty() && out.ids.back() == token.id &&
                             table_.class_of(token.id) == TokenClass::kCollective;
      if (is_repeat) continue;  // a run of equal collectives is one event of the word
      out.tokens.push_back(token);
      out.ids.push_back(token.id);
    }
    return out;
  }

 private:
  std::vector<Token> anchors(std::size_t r) {
    const RankData& rank = job_.ranks[r];
    std::vector<Token> tokens;
    // By class, not by name: one rank may run its own kind of optimizer or loader.
    const auto add_all = [&](EventKind kind, TokenClass cls) {
      for (const Event& event : outermost(rank, kind)) {
        const std::string_view name = text_of(trace_, event.name);
        tokens.push_back({table_.id_of(cls, 0, std::string(name)), event.time});
      }
    };
    add_all(EventKind::kInput, TokenClass::kInput);
    add_all(EventKind::kOptimizer, TokenClass::kOptimizer);
    add_all(EventKind::kZeroGrad, TokenClass::kZeroGrad);
    const std::vector<std::int64_t> sync_times = sync_times_of(rank);
    for (const Event& event : outermost(rank, EventKind::kBackward)) {
      const auto sync = std::lower_bound(sync_times.begin(), sync_times.end(), event.time.begin_ns);
      const bool is_synced = sync != sync_times.end() && *sync < event.time.end_ns;
      tokens.push_back({is_synced ? table_.id_of(TokenClass::kSyncedBackward, 0, "backward+sync")
                                  : table_.id_of(TokenClass::kBackward, 0, "backward"),
                        event.time});
    }
    return tokens;
  }

  // When this rank issued a collective or waited for its gradients.
  static std::vector<std::int64_t> sync_times_of(const RankData& rank) {
    std::vector<std::int64_t> times;
    for (const CollectiveEvent& event : rank.collectives)
      times.push_back(event.time.begin_ns);
    for (const Event& event : rank.events) {
      if (event.kind == EventKind::kFinalize) times.push_back(event.time.begin_ns);
    }
    std::sort(times.begin(), times.end());
    return times;
  }

  void add_collectives(std::size_t r, std::vector<Token>& tokens) {
    std::vector<Interval> backward;
    for (const Event& event : outermost(job_.ranks[r], EventKind::kBackward))
      backward.push_back(event.time);
    const IntervalSet inside = IntervalSet::of(std::move(backward));
    for (const Instance& instance : collectives_.instances) {
      const Arrival& arrival = instance.ranks[r];
      if (!arrival.is_present || arrival.is_open) continue;
      if (has_anchor_ && inside.contains(arrival.arrive_ns)) continue;
      const std::uint64_t bytes = has_anchor_ ? 0 : instance.bytes;
      const std::string& op = job_.op_names[instance.op];
      const std::string text = has_anchor_ ? op : fmt::format("{} {} B", op, bytes);
      tokens.push_back({table_.id_of(TokenClass::kCollective, (bytes << 8) ^ instance.op, text),
                        {arrival.arrive_ns, arrival.end_ns}});
    }
  }

  const trace::Trace& trace_;
  const JobData& job_;
  const Collectives& collectives_;
  TokenTable table_;
  bool has_anchor_{false};
};

struct LearnedWord {
  Word word;
  std::string found_by;
};

// The class of event that ends a step: the highest that all ranks have often enough.
std::optional<TokenClass> boundary_class(const TokenTable& table,
                                         const std::vector<RankTokens>& ranks,
                                         std::size_t count_min) {
  for (const TokenClass cls : {TokenClass::kOptimizer, TokenClass::kSyncedBackward,
                               TokenClass::kBackward, TokenClass::kInput}) {
    const bool everywhere = std::all_of(ranks.begin(), ranks.end(), [&](const RankTokens& rank) {
      const auto count = std::count_if(rank.ids.begin(), rank.ids.end(),
                                       [&](std::uint32_t id) { return table.class_of(id) == cls; });
      return static_cast<std::size_t>(count) >= count_min;
    });
    if (everywhere) return cls;
  }
  return std::nullopt;
}

// Turns the word so that it ends with a boundary token, preferably one that input follows.
void rotate_word(Word& word, std::optional<TokenClass> boundary, const TokenTable& table) {
  auto& tokens = word.tokens;
  const std::size_t n = tokens.size();
  const auto class_at = [&](std::size_t i) { return table.class_of(tokens[i % n]); };
  std::optional<std::size_t> last;
  for (std::size_t i = 0; boundary && i < n; ++i) {
    if (class_at(i) != *boundary) continue;
    std::size_t next = i + 1;
    while (next < i + n && class_at(next) == TokenClass::kZeroGrad)
      ++next;
    const bool is_end = class_at(next) == TokenClass::kInput;
    if (!last || is_end) last = i;
    if (is_end) break;
  }
  if (last) {
    std::rotate(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>((*last + 1) % n),
                tokens.end());
  } else {  // no anchor: any turn is as good; the smallest is the same on every rank
    std::vector<std::uint32_t> best = tokens;
    for (std::size_t i = 1; i < n; ++i) {
      std::rotate(tokens.begin(), tokens.begin() + 1, tokens.end());
      best = std::min(best, tokens);
    }
    tokens = best;
  }
}

std::optional<LearnedWord> learn_word(Tokenizer& tokenizer, const std::vector<RankTokens>& ranks,
                                      const Options& options) {
  const auto boundary = boundary_class(tokenizer.table(), ranks, kRepeatCountFloor);
  WordOptions word_options;
  word_options.period_max = options.period_tokens_max;
  word_options.repeat_count_min = kRepeatCountFloor;
  // Without anchors nothing marks a step, and equal buckets in a row must not look like one.
  word_options.slack = boundary ? kNearlyAllShare : kCollectiveWordShare;
  if (boundary) word_options.must_have = tokenizer.table().of_class(*boundary);
  std::optional<Word> best;
  for (const RankTokens& rank : ranks) {
    auto word = find_word(rank.ids, word_options);
    if (word && (!best || word->repeat_count > best->repeat_count)) best = std::move(word);
  }
  if (!best) return std::nullopt;
  rotate_word(*best, boundary, tokenizer.table());
  const std::string_view found_by =
      boundary ? kFoundBy[static_cast<std::size_t>(*boundary)] : "collectives";
  return LearnedWord{std::move(*best), std::string(found_by)};
}

std::vector<std::int64_t> boundary_times(const RankTokens& rank, const Word& word) {
  std::vector<std::int64_t> times;
  for (const std::size_t end : word_ends(rank.ids, word.tokens)) {
    const std::int64_t time_ns = rank.tokens[end].time.end_ns;
    if (times.empty() || time_ns > times.back()) times.push_back(time_ns);
  }
  return times;
}

// A boundary by the newest whole collective that its rank had joined by then, and by its number
// since then.
using Label = std::pair<std::size_t, std::size_t>;
using Labelled = std::map<Label, std::int64_t>;

Labelled label_boundaries(const Collectives& collectives, std::size_t r,
                          const std::vector<std::int64_t>& times) {
  std::vector<std::pair<std::int64_t, std::size_t>> arrivals;
  for (std::size_t i = 0; i < collectives.instances.size(); ++i) {
    if (collectives.instances[i].is_complete && collectives.instances[i].is_of_all)
      arrivals.emplace_back(collectives.instances[i].ranks[r].arrive_ns, i);
  }
  std::sort(arrivals.begin(), arrivals.end());
  Labelled labelled;
  std::size_t next = 0, number = 0;
  std::optional<std::size_t> newest;
  for (const std::int64_t time_ns : times) {
    const std::optional<std::size_t> before = newest;
    for (; next < arrivals.size() && arrivals[next].first <= time_ns; ++next)
      newest = std::max(newest.value_or(0), arrivals[next].second);
    number = newest == before ? number + 1 : 0;
    if (newest) labelled[{*newest, number}] = time_ns;
  }
  return labelled;
}

// Two boundaries without a collective between them are one: the last.
Labelled last_of_each(const Labelled& labelled) {
  Labelled out;
  for (const auto& [label, time_ns] : labelled)
    out[{label.first, 0}] = time_ns;
  return out;
}

using Boundaries = std::vector<std::vector<std::int64_t>>;  // [rank][boundary], aligned

Boundaries common_of(const std::vector<Labelled>& labelled) {
  Boundaries aligned(labelled.size());
  for (const auto& boundary : labelled.front()) {
    const Label label = boundary.first;
    const bool everywhere = std::all_of(labelled.begin(), labelled.end(),
                                        [&](const auto& map) { return map.contains(label); });
    if (!everywhere) continue;
    for (std::size_t r = 0; r < labelled.size(); ++r)
      aligned[r].push_back(labelled[r].at(label));
  }
  return aligned;
}

// Without collectives only time is left: the shift at which the ranks' boundaries lie closest.
Boundaries align_by_time(const Boundaries& times) {
  constexpr int kShiftMax = 64;
  const auto words = [](const std::vector<std::int64_t>& rank) {
    std::vector<TimedWord> out;
    out.reserve(rank.size());
    for (const std::int64_t time_ns : rank)
      out.push_back({0, time_ns});
    return out;
  };
  std::vector<std::int64_t> from_end;  // of each rank: boundaries to skip at its end
  for (const auto& rank : times)
    from_end.push_back(best_shift(words(times.front()), words(rank), kShiftMax));
  const std::int64_t lowest = *std::min_element(from_end.begin(), from_end.end());
  std::size_t count = std::numeric_limits<std::size_t>::max();
  for (std::size_t r = 0; r < times.size(); ++r) {
    const auto skip = static_cast<std::size_t>(from_end[r] - lowest);
    count = std::min(count, times[r].size() - std::min(skip, times[r].size()));
  }
  Boundaries aligned(times.size());
  for (std::size_t r = 0; r < times.size(); ++r) {
    const auto end =
        times[r].size() - std::min(times[r].size(), static_cast<std::size_t>(from_end[r] - lowest));
    for (std::size_t i = end - count; i < end; ++i)
      aligned[r].push_back(times[r][i]);
  }
  return aligned;
}

// How many more boundaries each rank has than the first one before the same step: a message is
// received, and a collective joined, in the step that it is sent or begun in. Nothing unless these
// join all ranks.
std::optional<std::vector<std::ptrdiff_t>> shifts_by_messages(const Collectives& collectives,
                                                              const Boundaries& times,
                                                              const JobData& job) {
  const auto step_of = [&](std::size_t r, std::int64_t time_ns) {
    return std::upper_bound(times[r].begin(), times[r].end(), time_ns) - times[r].begin();
  };
  std::map<std::pair<std::size_t, std::size_t>, std::map<std::ptrdiff_t, std::size_t>> counts;
  for (const Message& message : job.messages)
    ++counts[{message.from, message.to}]
            [step_of(message.to, message.received_ns) - step_of(message.from, message.sent_ns)];
  for (const Instance& instance : collectives.instances) {
    if (!instance.is_complete) continue;
    std::optional<std::size_t> before;
    for (std::size_t r = 0; r < times.size(); ++r) {
      if (!instance.is_member[r]) continue;
      if (before)
        ++counts[{*before, r}][step_of(r, instance.ranks[r].arrive_ns) -
                               step_of(*before, instance.ranks[*before].arrive_ns)];
      before = r;
    }
  }
  std::vector<std::optional<std::ptrdiff_t>> shifts(times.size());
  shifts.front() = 0;
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (const auto& [edge, by_shift] : counts) {
      const auto most =
          std::max_element(by_shift.begin(), by_shift.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      const auto [from, to] = edge;
      has_changed = has_changed || shifts[from].has_value() != shifts[to].has_value();
      if (shifts[from] && !shifts[to]) shifts[to] = *shifts[from] + most->first;
      if (shifts[to] && !shifts[from]) shifts[from] = *shifts[to] - most->first;
    }
  }
  std::vector<std::ptrdiff_t> out;
  for (const auto& shift : shifts) {
    if (!shift) return std::nullopt;
    out.push_back(*shift);
  }
  return out;
}

Boundaries shifted_by(const Boundaries& times, const std::vector<std::ptrdiff_t>& shifts) {
  const std::ptrdiff_t least = *std::min_element(shifts.begin(), shifts.end());
  std::size_t count = std::numeric_limits<std::size_t>::max();
  const auto skip = [&](std::size_t r) {
    return std::min(static_cast<std::size_t>(shifts[r] - least), times[r].size());
  };
  for (std::size_t r = 0; r < times.size(); ++r)
    count = std::min(count, times[r].size() - skip(r));
  Boundaries aligned(times.size());
  for (std::size_t r = 0; r < times.size(); ++r)
    aligned[r].assign(times[r].begin() + static_cast<std::ptrdiff_t>(skip(r)),
                      times[r].begin() + static_cast<std::ptrdiff_t>(skip(r) + count));
  return aligned;
}

// By the collectives that steps hold; where most steps hold none, by messages that join all ranks,
// by count from the newest collective that all ranks joined, else by time. Says which, if it is not
// the first.
Boundaries align_steps(const Collectives& collectives, const Boundaries& times, JobData& job) {
  std::vector<Labelled> labelled, ends;
  bool hold_one = false;
  for (std::size_t r = 0; r < times.size(); ++r) {
    labelled.push_back(label_boundaries(collectives, r, times[r]));
    ends.push_back(last_of_each(labelled.back()));
    hold_one = hold_one || 2 * ends[r].size() > times[r].size();
  }
  if (hold_one) return common_of(ends);
  if (const auto shifts = shifts_by_messages(collectives, times, job);
      shifts && !job.messages.empty()) {
    job.notes.emplace_back(words::kAlignedByMessages);
    return shifted_by(times, *shifts);
  }
  const bool is_alone = times.size() == 1;
  if (Boundaries by_count = common_of(labelled); by_count.front().size() > kRepeatCountFloor) {
    if (!is_alone) job.notes.emplace_back(words::kAlignedByCount);
    return by_count;
  }
  if (!is_alone) job.notes.emplace_back(words::kAlignedByTime);
  return align_by_time(times);
}

StepTable to_steps(const Boundaries& aligned) {
  StepTable table;
  table.ranks.resize(aligned.size());
  for (std::size_t k = 0; k + 1 < aligned.front().size(); ++k) {
    const bool is_forward = std::all_of(aligned.begin(), aligned.end(),
                                        [k](const auto& rank) { return rank[k] < rank[k + 1]; });
    if (!is_forward) continue;
    for (std::size_t r = 0; r < aligned.size(); ++r)
      table.ranks[r].push_back({aligned[r][k], aligned[r][k + 1]});
  }
  const std::size_t count = table.count();
  const std::size_t spare = count - std::min<std::size_t>(count, kRepeatCountFloor);
  const auto warmup = static_cast<std::ptrdiff_t>(std::min<std::size_t>(kWarmupStepCount, spare));
  for (auto& rank : table.ranks)
    rank.erase(rank.begin(), rank.begin() + warmup);
  return table;
}

}  // namespace

std::vector<Event> outermost(const RankData& rank, EventKind kind) {
  std::vector<Event> found;
  for (const Event& event : rank.events) {
    if (event.kind != kind || !event.on_main || event.is_open) continue;
    if (!found.empty() && event.time.begin_ns < found.back().time.end_ns) continue;
    found.push_back(event);
  }
  return found;
}

std::optional<std::size_t> step_at(const std::vector<Interval>& steps, std::int64_t time_ns) {
  const auto after =
      std::upper_bound(steps.begin(), steps.end(), time_ns,
                       [](std::int64_t t, const Interval& step) { return t < step.begin_ns; });
  if (after == steps.begin() || time_ns >= (after - 1)->end_ns) return std::nullopt;
  return static_cast<std::size_t>(after - 1 - steps.begin());
}

StepTable find_steps(const trace::Trace& trace, const Collectives& collectives,
                     const Options& options, JobData& job) {
  if (job.ranks.empty()) return {};
  Tokenizer tokenizer(trace, job, collectives);
  std::vector<RankTokens> ranks;
  for (std::size_t r = 0; r < job.ranks.size(); ++r)
    ranks.push_back(tokenizer.read(r));
  const auto learned = learn_word(tokenizer, ranks, options);
  if (!learned) {
    job.notes.emplace_back(words::kNoRepeats);
    return {};
  }
  Boundaries times;
  for (const RankTokens& rank : ranks)
    times.push_back(boundary_times(rank, learned->word));
  StepTable table = to_steps(align_steps(collectives, times, job));
  if (table.count() < kRepeatCountFloor) {
    job.notes.push_back(fmt::format(words::kFewCommonSteps, table.count(), kRepeatCountFloor));
    return {};
  }
  table.found_by = learned->found_by;
  for (const std::uint32_t id : learned->word.tokens)
    table.word.push_back(tokenizer.table().text(id));
  table.is_short = table.count() < kRepeatCountMin;
  if (table.count() < kBlocksMin) {
    job.notes.push_back(fmt::format(words::kTooFewToName, table.count(), kBlocksMin));
  } else if (table.is_short) {
    job.notes.push_back(fmt::format(words::kFewSteps, table.count()));
  }
  return table;
}

}  // namespace kansoku::diagnose
