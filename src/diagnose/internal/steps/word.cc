// SPDX-License-Identifier: Apache-2.0
#include "diagnose/internal/steps/word.h"

#include <algorithm>

#include "diagnose/thresholds.h"

namespace kansoku::diagnose {
namespace {

struct Fit {
  std::size_t period{0};
  std::size_t coverage{0};
  std::size_t repeat_count{0};
  std::size_t longest_begin{0};  // first token of the longest run
  std::size_t longest_count{0};
};

void close_run(Fit& fit, std::size_t end, std::size_t equal_count) {
  const std::size_t count = equal_count + fit.period;
  if (count < kRunRepeatsMin * fit.period) return;
  fit.coverage += count;
  fit.repeat_count += count / fit.period;
  if (count > fit.longest_count) {
    fit.longest_count = count;
    fit.longest_begin = end - count;
  }
}

Fit fit_period(std::span<const std::uint32_t> tokens, std::size_t period) {
  Fit fit;
  fit.period = period;
  std::size_t equal_count = 0;
  for (std::size_t i = period; i < tokens.size(); ++i) {
    if (tokens[i] == tokens[i - period]) {
      ++equal_count;
    } else {
      close_run(fit, i, equal_count);
      equal_count = 0;
    }
  }
  close_run(fit, tokens.size(), equal_count);
  return fit;
}

bool contains_any(std::span<const std::uint32_t> word, std::span<const std::uint32_t> wanted) {
  return wanted.empty() ||
         std::find_first_of(word.begin(), word.end(), wanted.begin(), wanted.end()) != word.end();
}

}  // namespace

std::optional<Word> find_word(std::span<const std::uint32_t> tokens, const WordOptions& options) {
  std::vector<Fit> fits;
  std::size_t best_coverage = 0;
  const std::size_t period_max = std::min(options.period_max, tokens.size() / kRunRepeatsMin);
  for (std::size_t period = 1; period <= period_max; ++period) {
    const Fit fit = fit_period(tokens, period);
    if (fit.repeat_count < options.repeat_count_min) continue;
    if (!contains_any(tokens.subspan(fit.longest_begin, period), options.must_have)) continue;
    best_coverage = std::max(best_coverage, fit.coverage);
    fits.push_back(fit);
  }
  for (const Fit& fit : fits) {  // shortest period first
    if (static_cast<double>(fit.coverage) < options.slack * static_cast<double>(best_coverage))
      continue;
    const auto word = tokens.subspan(fit.longest_begin, fit.period);
    return Word{{word.begin(), word.end()}, fit.repeat_count};
  }
  return std::nullopt;
}

std::vector<std::size_t> word_ends(std::span<const std::uint32_t> tokens,
                                   std::span<const std::uint32_t> word) {
  std::vector<std::size_t> ends;
  if (word.empty()) return ends;
  const bool is_unique = std::count(word.begin(), word.end(), word.back()) == 1;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != word.back()) continue;
    const bool is_whole =
        i + 1 >= word.size() &&
        std::equal(word.begin(), word.end(),
                   tokens.begin() + static_cast<std::ptrdiff_t>(i + 1 - word.size()));
    if (is_unique || is_whole) ends.push_back(i);
  }
  return ends;
}

}  // namespace kansoku::diagnose
