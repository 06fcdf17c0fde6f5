// SPDX-License-Identifier: Apache-2.0
#include "softcuda/internal/faults.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <thread>
#include <utility>

#include "common/parse.h"
#include "cuda/abi.h"

namespace kansoku::softcuda {
namespace {

constexpr std::size_t kRulesMax = 64, kSettingBytesMax = 8192;
constexpr std::array<std::string_view, 4> kDirections{"HtoD", "DtoH", "DtoD", "HtoH"};

/// Takes what is in front of the separator off; all if there is none.
std::string_view take(std::string_view& rest, char separator) {
  const std::string_view part = rest.substr(0, rest.find(separator));
  rest.remove_prefix(std::min(rest.size(), part.size() + 1));
  return part;
}

/// "kernel=NAME" -> "NAME"; nothing if the text begins otherwise.
std::optional<std::string_view> after_equals(std::string_view text, std::string_view key) {
  if (!text.starts_with(key)) return std::nullopt;
  text.remove_prefix(key.size());
  if (text.empty()) return text;
  if (text.front() != '=' || text.size() == 1) return std::nullopt;
  return text.substr(1);
}

std::string_view read_where(std::string_view text, FaultRule& rule,
                            const std::function<bool(std::string_view)>& is_function) {
  if (const auto name = after_equals(text, "kernel"); name && !name->empty()) {
    rule.at = FaultAt::kKernel;
    rule.name = *name;
    return {};
  }
  if (const auto direction = after_equals(text, "copy"); direction) {
    rule.at = FaultAt::kCopy;
    rule.name = *direction;
    const bool is_one =
        std::find(kDirections.begin(), kDirections.end(), *direction) != kDirections.end();
    return direction->empty() || is_one ? "" : "a copy is HtoD, DtoH, DtoD or HtoH";
  }
  if (text == "set") {
    rule.at = FaultAt::kFill;
    return {};
  }
  rule.name = text;
  return is_function(text) ? ""
                           : "it begins with a function of the driver that is implemented, by its "
                             "exported name, kernel=NAME, copy, copy=HtoD or set";
}

std::string_view read_when(std::string_view text, FaultRule& rule) {
  rule.goes_on = text.ends_with('+');
  if (rule.goes_on) text.remove_suffix(1);
  const auto number = parse_int<std::uint64_t>(text);
  if (!number || *number == 0) return "the second part is a number from 1, or such a number and +";
  rule.first = *number;
  return {};
}

std::optional<int> error_of(std::string_view text) {
  for (int code = 1; code < 1000; ++code) {
    const char* const name = cuda::error_name(static_cast<cuda::CUresult>(code));
    if (name != nullptr && (text == name || text == std::to_string(code))) return code;
  }
  return std::nullopt;
}

std::string_view read_what(std::string_view text, FaultRule& rule) {
  if (const auto error = after_equals(text, "error"); error) {
    const auto code = error_of(*error);
    if (!code) return "error= takes a code of the driver, by number or name";
    rule.action = FaultAction::kError;
    rule.error = *code;
    return {};
  }
  if (const auto file = after_equals(text, "hang"); file) {
    rule.action = FaultAction::kHang;
    rule.until = *file;
    return {};
  }
  if (const auto time = after_equals(text, "slow"); time) {
    const auto parsed = parse_duration(*time);
    if (!parsed || *parsed <= Nanos{}) return "slow= takes a time, as 5ms";
    rule.action = FaultAction::kSlow;
    rule.time = *parsed;
    return {};
  }
  if (text == "crash" || text == "crash=abort") {
    rule.action = FaultAction::kCrash;
    rule.signal = text == "crash" ? SIGSEGV : SIGABRT;
    return {};
  }
  return "the third part is error=CODE, hang, hang=FILE, slow=TIME, crash or crash=abort";
}

}  // namespace

Result<std::vector<FaultRule>> faults_from(
    std::string_view setting, const std::function<bool(std::string_view)>& is_function) {
  if (setting.size() > kSettingBytesMax) {
    return Error{Code::kLimit, fmt::format("{}: {} bytes, at most {}", kFaultVariable,
                                           setting.size(), kSettingBytesMax)};
  }
  std::vector<FaultRule> rules;
  for (std::string_view rest = setting; !rest.empty();) {
    const std::string_view text = take(rest, ';');
    FaultRule rule;
    rule.text = text;
    std::string_view parts = text;
    const std::string_view where = take(parts, ':'), when = take(parts, ':');
    std::string_view wrong = read_where(where, rule, is_function);
    if (wrong.empty()) wrong = read_when(when, rule);
    if (wrong.empty()) wrong = read_what(parts, rule);
    if (wrong.empty() && rules.size() == kRulesMax) wrong = "there are more than 64 rules";
    if (!wrong.empty())
      return Error{Code::kCorrupt, fmt::format("{}: \"{}\": {}", kFaultVariable, text, wrong)};
    rules.push_back(std::move(rule));
  }
  return rules;
}

Faults::Faults(std::vector<FaultRule> rules) {
  for (FaultRule& rule : rules)
    rules_.emplace_back().rule = std::move(rule);
}

Faults::Due Faults::due(FaultAt at, std::string_view name) {
  Due found;
  for (Counted& each : rules_) {
    const FaultRule& rule = each.rule;
    if (rule.at != at) continue;
    const bool is_it = at == FaultAt::kKernel
                           ? fnmatch(rule.name.c_str(), std::string(name).c_str(), 0) == 0
                           : rule.name.empty() || rule.name == name;
    if (!is_it) continue;
    const std::uint64_t number = ++each.seen;
    const bool is_turn = rule.goes_on ? number >= rule.first : number == rule.first;
    if (is_turn && found.rule == nullptr) found = {&rule, number};
  }
  return found;
}

void wait_for_fault(const FaultRule& rule, const std::atomic<bool>* cancel) {
  constexpr Nanos kSlice = std::chrono::milliseconds{10};
  const bool is_hang = rule.action == FaultAction::kHang;
  for (Nanos left = rule.time; is_hang || left > Nanos{}; left -= kSlice) {
    if (cancel != nullptr && *cancel) return;
    if (is_hang && !rule.until.empty() && access(rule.until.c_str(), F_OK) == 0) return;
    std::this_thread::sleep_for(is_hang ? kSlice : std::min(left, kSlice));
  }
}

}  // namespace kansoku::softcuda
