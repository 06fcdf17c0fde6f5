// SPDX-License-Identifier: Apache-2.0
#include "detect/iteration_detector.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kansoku::detect {
namespace {

constexpr std::uint32_t kMeansPerAverage = 10;
constexpr std::uint32_t kUsualMeansMin = 10;  // to know how far means usually swing
constexpr std::uint32_t kStrictWords = 20;    // of the longest length, until a part will do
constexpr std::uint32_t kRegularStrays = 3;   // in a row: the word is a loop inside of another

IterationOptions sane(IterationOptions options) {
  options.period_max = std::clamp<std::uint32_t>(options.period_max, 1, 1024);
  options.repeats = std::clamp<std::uint32_t>(options.repeats, 2, 1000);
  options.average_count = std::clamp<std::uint32_t>(options.average_count, 2, 100'000);
  options.baseline_means =
      std::clamp<std::uint32_t>(options.baseline_means, kMeansPerAverage + kUsualMeansMin, 100'000);
  return options;
}

}  // namespace

IterationDetector::Lengths::Lengths(const IterationOptions& options)
    : options_(options), ring_(options.average_count), means_(options.baseline_means) {}

void IterationDetector::Lengths::clear() {
  count_ = mean_count_ = 0;
  next_ = next_mean_ = 0;
  sum_ = squares_ = 0;
}

void IterationDetector::Lengths::add(double length_ns) {
  if (count_ >= ring_.size()) {
    sum_ -= ring_[next_];
    squares_ -= ring_[next_] * ring_[next_];
  }
  ring_[next_] = length_ns;
  sum_ += length_ns;
  squares_ += length_ns * length_ns;
  next_ = (next_ + 1) % ring_.size();
  ++count_;
  const std::uint64_t every = std::max<std::uint64_t>(ring_.size() / kMeansPerAverage, 1);
  if (count_ < ring_.size() || count_ % every != 0) return;
  if (next_ == 0) {  // running sums drift: once around the ring they are made anew
    sum_ = squares_ = 0;
    for (const double value : ring_) {
      sum_ += value;
      squares_ += value * value;
    }
  }
  means_[next_mean_] = mean();
  next_mean_ = (next_mean_ + 1) % means_.size();
  ++mean_count_;
}

double IterationDetector::Lengths::mean() const {
  const auto count = static_cast<double>(std::min<std::uint64_t>(count_, ring_.size()));
  return count > 0 ? sum_ / count : 0;
}

double IterationDetector::Lengths::baseline() const {
  const std::size_t count = std::min<std::size_t>(mean_count_, means_.size());
  if (count == 0) return 0;
  return *std::min_element(means_.begin(), means_.begin() + static_cast<std::ptrdiff_t>(count));
}

bool IterationDetector::Lengths::is_slow() const {
  // The first whole average is the baseline; it cannot be slow against itself.
  if (count_ < 2 * ring_.size()) return false;
  const double base = baseline();
  if (!(base > 0)) return false;
  const auto n = static_cast<double>(ring_.size());
  const double now = mean();
  if (now / base - 1 <= options_.slow_ratio) return false;
  const double variance = std::max(0.0, squares_ / n - now * now);
  const double error = std::sqrt(variance / n) / base;
  return now / base - 1 > options_.deviation_multiple * error && now > usual_limit();
}

double IterationDetector::Lengths::usual_limit() const {
  const std::size_t kept = std::min<std::size_t>(mean_count_, means_.size());
  // The last average and the means that share iterations with it are judged.
  if (kept < kMeansPerAverage + kUsualMeansMin) return std::numeric_limits<double>::infinity();
  std::vector<double> past;
  past.reserve(kept);
  for (std::size_t back = kMeansPerAverage + 1; back <= kept; ++back)
    past.push_back(means_[(next_mean_ + means_.size() - back) % means_.size()]);
  const auto middle = past.begin() + static_cast<std::ptrdiff_t>(past.size() / 2);
  std::nth_element(past.begin(), middle, past.end());
  const double below = *middle - *std::min_element(past.begin(), past.end());
  return *middle + options_.swing_multiple * below;
}

IterationDetector::IterationDetector(const IterationOptions& options)
    : options_(sane(options)),
      history_(std::size_t{options_.period_max} + 1),
      run_(std::size_t{options_.period_max} + 1),
      wall_(options_),
      inner_(options_) {}

void IterationDetector::start_learning() {
  state_ = State::kLearning;
  history_count_ = 0;
  std::fill(run_.begin(), run_.end(), 0);
  word_.clear();
  forget_times();
  forgotten_ns_ = 0;
}

void IterationDetector::forget_times() {
  forgotten_ns_ = expected_ns();
  wall_.clear();
  inner_.clear();
  has_begin_ = false;
}

/// True if the last `period` events hold every kind of event that the history holds: else they are
/// a loop inside of the iteration, such as gradient accumulation.
bool IterationDetector::is_all(std::uint32_t period) const {
  // If no such word comes, an iteration is longer than the longest word, or other loops run
  // regularly between iterations: then the loop that does repeat is the best there is.
  if (history_count_ > std::uint64_t{kStrictWords} * options_.period_max) return true;
  if (was_inner_loop_ && history_count_ < history_.size()) return false;  // see a whole one first
  const std::uint64_t known = std::min<std::uint64_t>(history_count_, history_.size());
  const auto at = [&](std::uint64_t back) {
    return history_[(history_count_ - back) % history_.size()];
  };
  for (std::uint64_t back = period + std::uint64_t{1}; back <= known; ++back) {
    bool is_in_word = false;
    for (std::uint64_t i = 1; i <= period && !is_in_word; ++i)
      is_in_word = at(i) == at(back);
    if (!is_in_word) return false;
  }
  return true;
}

/// The last `period` events become the word, turned so that the longest pause lies between two
/// words as far as one can tell: events of a word keep the order in which they came.
void IterationDetector::adopt(std::uint32_t period) {
  word_.clear();
  for (std::uint32_t i = 0; i < period; ++i) {
    const std::uint64_t at = history_count_ - period + i;
    word_.push_back(history_[at % history_.size()]);
  }
  // The smallest token begins the word: input comes before the rest in our numbering.
  std::rotate(word_.begin(), std::min_element(word_.begin(), word_.end()), word_.end());
  state_ = State::kTracking;
  is_settled_ = history_count_ > std::uint64_t{kStrictWords} * options_.period_max;
  position_ = 0;
  strays_ = regular_strays_ = 0;
  words_since_stray_ = 0;
  is_whole_ = false;
  has_begin_ = false;
}

IterationSignal IterationDetector::learn(std::uint32_t token, std::int64_t) {
  for (std::uint32_t period = 1; period <= options_.period_max; ++period) {
    const bool repeats =
        history_count_ >= period && history_[(history_count_ - period) % history_.size()] == token;
    run_[period] = repeats ? run_[period] + 1 : 0;
  }
  history_[history_count_ % history_.size()] = token;
  ++history_count_;
  for (std::uint32_t period = 1; period <= options_.period_max; ++period) {
    // One event over and over says only that something runs, so it takes as many of them as the
    // longest word would.
    const std::uint64_t wanted =
        std::uint64_t{options_.repeats - 1} * (period == 1 ? options_.period_max : period);
    // A run of equal events repeats at every distance: only as a period of one does it count.
    const bool is_run = period > 1 && run_[1] >= period;
    if (run_[period] < wanted || is_run || !is_all(period)) continue;
    adopt(period);
    return IterationSignal::kLearned;
  }
  return IterationSignal::kNone;
}

/// A few strays after every few words, again and again: the learned word is an inner loop.
bool IterationDetector::strays_are_regular() {
  const bool is_near = words_since_stray_ * word_.size() + strays_ <= options_.period_max;
  words_since_stray_ = 0;
  regular_strays_ = is_near ? regular_strays_ + 1 : 0;
  return !is_settled_ && regular_strays_ > kRegularStrays;
}

IterationSignal IterationDetector::end_iteration(std::int64_t time_ns) {
  ++iterations_;
  inner_.add(static_cast<double>(time_ns - word_begin_ns_));
  if (!wall_.is_slow() && !inner_.is_slow()) return IterationSignal::kNone;
  forget_times();
  return IterationSignal::kSlow;
}

IterationSignal IterationDetector::track(std::uint32_t token, std::int64_t time_ns) {
  if (token != word_[position_]) {
    // Evaluation, checkpoints and the like: the word in hand does not count. A stray event that may
    // begin a word does.
    is_whole_ = false;
    position_ = 0;
    if (++strays_ >= options_.relearn_events) {
      start_learning();
      return IterationSignal::kForgotten;
    }
    if (token != word_[0]) return IterationSignal::kNone;
  }
  if (position_ == 0) {
    if (has_begin_ && is_whole_) wall_.add(static_cast<double>(time_ns - word_begin_ns_));
    word_begin_ns_ = time_ns;
    has_begin_ = true;
    is_whole_ = true;
  }
  if (++position_ < word_.size()) return IterationSignal::kNone;
  position_ = 0;
  if (strays_ > 0 && strays_are_regular()) {
    start_learning();
    was_inner_loop_ = true;
    return IterationSignal::kForgotten;
  }
  strays_ = 0;
  ++words_since_stray_;
  return is_whole_ ? end_iteration(time_ns) : IterationSignal::kNone;
}

IterationSignal IterationDetector::on_event(std::uint32_t token, std::int64_t time_ns) {
  last_event_ns_ = time_ns;
  has_told_blocked_ = false;
  return state_ == State::kLearning ? learn(token, time_ns) : track(token, time_ns);
}

IterationSignal IterationDetector::on_time(std::int64_t now_ns) {
  const double mean = expected_ns();
  if (state_ != State::kTracking || has_told_blocked_ || !(mean > 0)) return IterationSignal::kNone;
  const auto quiet_ns = static_cast<double>(now_ns - last_event_ns_);
  if (quiet_ns < options_.blocked_multiple * mean ||
      quiet_ns < static_cast<double>(options_.blocked_min_ns))
    return IterationSignal::kNone;
  has_told_blocked_ = true;
  return IterationSignal::kBlocked;
}

}  // namespace kansoku::detect
