// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/load_log.h"

#include <bpf/libbpf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

#include "common/text.h"

namespace kansoku::capture::bpf {
namespace {

constexpr std::size_t kReasonMax = 300;  // bytes

LoadLog*& listening() {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  thread_local LoadLog* of_thread = nullptr;
  return of_thread;
}

[[gnu::format(printf, 2, 0)]] int on_message(libbpf_print_level level, const char* format,
                                             va_list arguments) {
  if (listening() == nullptr || level != LIBBPF_WARN) return 0;
  va_list again;
  va_copy(again, arguments);
  const int bytes = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (bytes <= 0) return 0;
  std::string text(static_cast<std::size_t>(bytes) + 1, '\0');  // libbpf's logs end at 16 MiB
  (void)std::vsnprintf(text.data(), text.size(), format, arguments);
  text.pop_back();
  listening()->add(text);
  return 0;
}

bool is_statistics(std::string_view line) {
  constexpr std::array<std::string_view, 3> kBegins{"processed ", "verification time ",
                                                    "stack depth "};
  return line.find_first_not_of(' ') == std::string_view::npos ||
         std::any_of(kBegins.begin(), kBegins.end(),
                     [&](std::string_view begin) { return line.starts_with(begin); });
}

std::string_view last_line_that_tells(std::string_view log) {
  while (!log.empty()) {
    const std::size_t end_of_line_before = log.rfind('\n');
    const bool is_first = end_of_line_before == std::string_view::npos;
    const std::string_view line = is_first ? log : log.substr(end_of_line_before + 1);
    if (!is_statistics(line)) return line;
    log = is_first ? std::string_view{} : log.substr(0, end_of_line_before);
  }
  return {};
}

// libbpf says "libbpf: prog 'NAME': ...".
std::string_view program_of(std::string_view warning) {
  constexpr std::string_view kBegin = "prog '";
  const std::size_t begin = warning.find(kBegin);
  if (begin == std::string_view::npos) return "program";
  const std::string_view rest = warning.substr(begin + kBegin.size());
  return rest.substr(0, rest.find('\''));
}

std::string bounded(std::string_view text) {
  return printable(text.substr(0, kReasonMax));
}

}  // namespace

LoadLog::LoadLog() {
  libbpf_set_print(on_message);
  listening() = this;
}

LoadLog::~LoadLog() {
  listening() = nullptr;
}

void LoadLog::add(std::string_view warning) {
  constexpr std::string_view kLibrary = "libbpf: ", kBegin = "-- BEGIN PROG LOAD LOG --\n",
                             kEnd = "-- END PROG LOAD LOG --";
  if (warning.starts_with(kLibrary)) warning.remove_prefix(kLibrary.size());
  if (const std::size_t begin = warning.find(kBegin); begin != std::string_view::npos) {
    std::string_view log = warning.substr(begin + kBegin.size());
    log = log.substr(0, log.rfind(kEnd));
    const std::string_view line = last_line_that_tells(log);
    if (!line.empty()) refused_ = bounded(fmt::format("{}: {}", program_of(warning), line));
    return;
  }
  warning = warning.substr(0, warning.find('\n'));
  const bool says_more = warning.find("load failed") == std::string_view::npos &&
                         warning.find("failed to load") == std::string_view::npos;
  if (first_.empty() && says_more) first_ = bounded(warning);
}

const std::string& LoadLog::reason() const {
  return refused_.empty() ? first_ : refused_;
}

Error LoadLog::error(int failed, std::string_view what) const {
  Error error = errno_error(failed, "load", what);
  if (!reason().empty()) error.what += fmt::format(": {}", reason());
  error.hint = "needs CAP_BPF and CAP_PERFMON; `kansoku doctor` shows what is missing";
  return error;
}

}  // namespace kansoku::capture::bpf
