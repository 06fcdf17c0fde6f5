// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdio.h>

#include <array>
#include <charconv>
#include <map>
#include <string>
#include <string_view>

#include "common/result.h"

namespace kansoku::bench {

/// Figures that a peer printed: `key=value` pairs on one line.
struct PeerFigures {
  std::map<std::string, std::string> texts;
  std::map<std::string, double> numbers;  // those of the texts that are some

  /// 0 for one that the peer did not print.
  [[nodiscard]] double at(const std::string& key) const {
    const auto found = numbers.find(key);
    return found == numbers.end() ? 0 : found->second;
  }
};

/// Runs a shell command and reads its first line. kUnavailable with `hint` if it fails. Blocks.
inline Result<PeerFigures> run_peer(const std::string& command, const std::string& hint) {
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return Error{Code::kUnavailable, "run " + command + ": popen failed"};
  std::array<char, 1024> line{};
  const bool read = std::fgets(line.data(), line.size(), pipe) != nullptr;
  if (::pclose(pipe) != 0 || !read)
    return Error{Code::kUnavailable, "run " + command + ": failed", hint};
  PeerFigures figures;
  const std::string text(line.data());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::size_t equals = text.find('=', at);
    if (equals < end) {
      const std::string key = text.substr(at, equals - at);
      figures.texts[key] = text.substr(equals + 1, end - equals - 1);
      double value = 0;
      if (std::from_chars(&text[equals + 1], &text[end], value).ec == std::errc())
        figures.numbers[key] = value;
    }
    at = end + 1;
  }
  return figures;
}

}  // namespace kansoku::bench
