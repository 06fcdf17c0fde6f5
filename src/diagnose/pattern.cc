// SPDX-License-Identifier: Apache-2.0
#include "diagnose/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "common/check.h"

namespace kansoku::diagnose {
namespace {

constexpr std::uint32_t kMagic = 0x4e54504b;  // "KPTN"
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kNameBytesMax = 240;
constexpr std::size_t kRowBytes = 4 + 1 + 3 * 4;  // count, activity, three floats

bool begins_before(const Execution& a, const Execution& b) {
  return a.begin_ns < b.begin_ns;
}

struct Sum {
  Activity activity{Activity::kPython};
  std::uint32_t count{0};
  std::uint64_t owned_ns{0};
  double use{0}, use_squared{0};  // weighted by nanoseconds
};

/// Runs over the window; live executions wait in one stack an activity.
class Sweep {
 public:
  Sweep(std::span<const Execution> sorted, std::int64_t begin_ns, std::int64_t end_ns,
        const Priorities& priorities, const OnOwned& on_owned)
      : executions_(sorted),
        on_owned_(on_owned),
        is_counted_(sorted.size(), false),
        now_(begin_ns),
        end_ns_(end_ns) {
    for (std::size_t i = 0; i < kActivityCount; ++i)
      level_of_[static_cast<std::size_t>(priorities[i])] = i;
  }

  void run() {
    while (now_ < end_ns_) {
      start_due();
      const std::uint32_t* owner = find_owner();
      std::int64_t until = end_ns_;
      if (next_ < executions_.size()) until = std::min(until, executions_[next_].begin_ns);
      if (owner == nullptr) {
        idle_ns += static_cast<std::uint64_t>(until - now_);
      } else {
        until = std::min(until, executions_[*owner].end_ns);
        if (on_owned_) on_owned_(executions_[*owner], now_, until);
        give(*owner, static_cast<std::uint64_t>(until - now_));
      }
      now_ = until;
    }
    settle();
  }

  std::unordered_map<std::uint32_t, Sum> sums;
  std::uint64_t idle_ns{0};

 private:
  void start_due() {
    for (; next_ < executions_.size() && executions_[next_].begin_ns <= now_; ++next_) {
      const Execution& execution = executions_[next_];
      if (execution.end_ns <= now_) continue;
      const std::size_t level = level_of_[static_cast<std::size_t>(execution.activity)];
      live_[level].push_back(static_cast<std::uint32_t>(next_));
      used_levels_ |= 1U << level;
    }
  }

  /// The latest started live execution of the highest activity.
  const std::uint32_t* find_owner() {
    for (std::uint32_t rest = used_levels_; rest != 0; rest &= rest - 1) {
      auto& stack = live_[static_cast<std::size_t>(std::countr_zero(rest))];
      while (!stack.empty() && executions_[stack.back()].end_ns <= now_)
        stack.pop_back();
      if (!stack.empty()) return &stack.back();
      used_levels_ &= ~(rest & (~rest + 1));
    }
    return nullptr;
  }

  /// Pieces of one execution in a row are added up before they go to the table.
  void give(std::uint32_t execution, std::uint64_t ns) {
    if (execution != held_) {
      settle();
      held_ = execution;
    }
    held_ns_ += ns;
  }

  void settle() {
    if (held_ns_ == 0) return;
    const Execution& execution = executions_[held_];
    Sum& sum = sums[execution.function];
    sum.activity = execution.activity;
    if (!is_counted_[held_]) ++sum.count;  // it may have owned time before it was interrupted
    is_counted_[held_] = true;
    sum.owned_ns += held_ns_;
    const double weighted = static_cast<double>(execution.use) * static_cast<double>(held_ns_);
    sum.use += weighted;
    sum.use_squared += weighted * static_cast<double>(execution.use);
    held_ns_ = 0;
  }

  static constexpr std::uint32_t kNone = 0xffffffff;
  std::span<const Execution> executions_;
  const OnOwned& on_owned_;
  std::vector<bool> is_counted_;
  std::array<std::size_t, kActivityCount> level_of_{};
  std::array<std::vector<std::uint32_t>, kActivityCount> live_;
  std::uint32_t used_levels_{0};
  std::size_t next_{0};
  std::uint32_t held_{kNone};
  std::uint64_t held_ns_{0};
  std::int64_t now_, end_ns_;
};

void put(std::string& out, const void* bytes, std::size_t count) {
  out.append(static_cast<const char*>(bytes), count);
}
template <class T>
void put(std::string& out, T value) {
  put(out, &value, sizeof value);
}

void put_row(std::string& out, const PatternRow& row, std::string_view name) {
  put(out, row.count);
  put(out, static_cast<std::uint8_t>(row.activity));
  put(out, static_cast<float>(row.beta));
  put(out, static_cast<float>(row.mu));
  put(out, static_cast<float>(row.sigma));
  put(out, static_cast<std::uint8_t>(name.size()));
  out.append(name);
}

}  // namespace

std::string_view activity_name(Activity activity) {
  static constexpr std::array<std::string_view, kActivityCount> kNames{
      "gpu_compute", "gpu_memory", "collective", "input", "cpu_op", "copy", "io_wait", "python"};
  return kNames[static_cast<std::size_t>(activity)];
}

Pattern build_pattern(std::span<const Execution> executions, std::int64_t begin_ns,
                      std::int64_t end_ns, const Priorities& priorities, const OnOwned& on_owned) {
  Pattern out;
  if (end_ns <= begin_ns) return out;
  out.window_ns = end_ns - begin_ns;
  std::vector<Execution> sorted;
  if (!std::is_sorted(executions.begin(), executions.end(), begins_before)) {
    sorted.assign(executions.begin(), executions.end());
    std::stable_sort(sorted.begin(), sorted.end(), begins_before);
    executions = sorted;
  }
  Sweep sweep(executions, begin_ns, end_ns, priorities, on_owned);
  sweep.run();
  const auto window = static_cast<double>(out.window_ns);
  out.idle = static_cast<double>(sweep.idle_ns) / window;
  for (const auto& [function, sum] : sweep.sums) {
    const auto owned = static_cast<double>(sum.owned_ns);
    const double mean = sum.use / owned;
    out.rows.push_back({.function = function,
                        .activity = sum.activity,
                        .count = sum.count,
                        .beta = owned / window,
                        .mu = mean,
                        .sigma = std::sqrt(std::max(0.0, sum.use_squared / owned - mean * mean))});
  }
  std::sort(out.rows.begin(), out.rows.end(), [](const PatternRow& a, const PatternRow& b) {
    return a.beta != b.beta ? a.beta > b.beta : a.function < b.function;
  });
  return out;
}

CriticalUse critical_use(std::span<const double> levels, std::span<const double> lengths,
                         double share) {
  CHECK(levels.size() == lengths.size());
  double whole = 0;
  for (std::size_t i = 0; i < levels.size(); ++i)
    whole += levels[i] * lengths[i];
  CriticalUse best;
  if (!(whole > 0)) return best;
  // Pieces are taken whole: the shortest run of them that holds the share.
  double held = 0, length = 0, best_length = -1;
  std::size_t from = 0, best_from = 0, best_to = 0;
  for (std::size_t to = 0; to < levels.size(); ++to) {
    held += levels[to] * lengths[to];
    length += lengths[to];
    while (from <= to && held - levels[from] * lengths[from] >= share * whole) {
      held -= levels[from] * lengths[from];
      length -= lengths[from];
      ++from;
    }
    if (held >= share * whole && (best_length < 0 || length < best_length)) {
      best_length = length;
      best_from = from;
      best_to = to + 1;
    }
  }
  double sum = 0, squares = 0, total = 0;
  for (std::size_t i = best_from; i < best_to; ++i) {
    sum += levels[i] * lengths[i];
    squares += levels[i] * levels[i] * lengths[i];
    total += lengths[i];
  }
  if (!(total > 0)) return best;
  best.length = total;
  best.mean = sum / total;
  best.deviation = std::sqrt(std::max(0.0, squares / total - best.mean * best.mean));
  return best;
}

std::string encode_pattern(const Pattern& pattern, std::span<const std::string> names_by_function,
                           std::size_t bytes_max) {
  CHECK(bytes_max >= kPatternBytesMin);
  std::string out;
  put(out, kMagic);
  put(out, kVersion);
  put(out, pattern.rank);
  put(out, pattern.window_ns);
  put(out, static_cast<float>(pattern.idle));
  const std::size_t count_at = out.size();
  put(out, std::uint32_t{0});
  constexpr std::string_view kOthers = "(others)";
  PatternRow others{.function = 0};
  std::uint32_t rows = 0;
  const auto name_of = [&](const PatternRow& row) {
    CHECK(row.function < names_by_function.size());
    return std::string_view(names_by_function[row.function]).substr(0, kNameBytesMax);
  };
  std::size_t bytes_of_all = out.size();
  for (const PatternRow& row : pattern.rows)
    bytes_of_all += kRowBytes + 1 + name_of(row).size();
  // Unless every row fits, room for the sum of the others is kept.
  const std::size_t reserve = bytes_of_all <= bytes_max ? 0 : kRowBytes + 1 + kOthers.size();
  bool is_full = false;
  for (const PatternRow& row : pattern.rows) {
    const std::string_view name = name_of(row);
    is_full = is_full || out.size() + kRowBytes + 1 + name.size() + reserve > bytes_max;
    if (is_full) {
      others.beta += row.beta;
      others.count += row.count;
      continue;
    }
    put_row(out, row, name);
    ++rows;
  }
  if (is_full) {
    put_row(out, others, kOthers);
    ++rows;
  }
  std::memcpy(out.data() + count_at, &rows, sizeof rows);
  return out;
}

Result<NamedPattern> decode_pattern(ByteSpan untrusted) {
  ByteReader reader(untrusted);
  NamedPattern out;
  TRY(const auto magic, reader.read<std::uint32_t>("pattern header"));
  if (magic != kMagic) return Error{Code::kCorrupt, "read pattern at offset 0: not a pattern"};
  TRY(const auto version, reader.read<std::uint16_t>("pattern version"));
  if (version != kVersion)
    return Error{Code::kUnsupported, fmt::format("read pattern: version {}", version)};
  TRY(out.pattern.rank, reader.read<std::int32_t>("pattern rank"));
  TRY(out.pattern.window_ns, reader.read<std::int64_t>("pattern window"));
  TRY(const auto idle, reader.read<float>("pattern idle share"));
  if (!std::isfinite(idle)) {
    return Error{Code::kCorrupt, fmt::format("read pattern at offset {}: impossible idle share",
                                             reader.offset() - sizeof idle)};
  }
  out.pattern.idle = idle;
  TRY(const auto count, reader.read<std::uint32_t>("pattern row count"));
  if (count > reader.remaining() / (kRowBytes + 1)) {
    return Error{Code::kCorrupt, fmt::format("read pattern at offset {}: {} rows in {} bytes",
                                             reader.offset(), count, reader.remaining())};
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    PatternRow row;
    row.function = i;
    TRY(row.count, reader.read<std::uint32_t>("row count"));
    TRY(const auto activity, reader.read<std::uint8_t>("row activity"));
    TRY(const auto beta, reader.read<float>("row beta"));
    TRY(const auto mu, reader.read<float>("row mu"));
    TRY(const auto sigma, reader.read<float>("row sigma"));
    TRY(const auto name_bytes, reader.read<std::uint8_t>("name length"));
    TRY(const ByteSpan name, reader.take(name_bytes, "row name"));
    const bool is_sound = activity < kActivityCount && std::isfinite(beta) && std::isfinite(mu) &&
                          std::isfinite(sigma) && beta >= 0 && sigma >= 0;
    if (!is_sound) {
      return Error{Code::kCorrupt,
                   fmt::format("read pattern at offset {}: impossible row", reader.offset())};
    }
    row.activity = static_cast<Activity>(activity);
    row.beta = beta;
    row.mu = mu;
    row.sigma = sigma;
    out.pattern.rows.push_back(row);
    out.names.emplace_back(as_text(name));
  }
  if (reader.remaining() > 0)
    return Error{Code::kCorrupt,
                 fmt::format("read pattern at offset {}: more bytes than rows", reader.offset())};
  return out;
}

}  // namespace kansoku::diagnose
