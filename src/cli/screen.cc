// SPDX-License-Identifier: Apache-2.0
#include "cli/screen.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace kansoku::cli {
namespace {

/// The first `width` characters of UTF-8 text.
std::string_view cut(std::string_view line, std::size_t width) {
  std::size_t characters = 0, at = 0;
  for (; at < line.size(); ++at) {
    const bool begins_one = (static_cast<unsigned char>(line[at]) & 0xc0U) != 0x80U;
    if (begins_one && ++characters > width) break;
  }
  return line.substr(0, at);
}

/// Lines that fit a terminal, or all if there is none or it does not tell its size.
std::string fitted(const Lines& lines, const winsize& terminal) {
  const std::size_t room = terminal.ws_row > 1 ? terminal.ws_row - 1U : lines.size();
  const bool is_too_long = lines.size() > room;
  const std::size_t count = is_too_long ? room - 1 : lines.size();
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    out += terminal.ws_col > 0 ? cut(lines[i], terminal.ws_col) : std::string_view(lines[i]);
    out += '\n';
  }
  if (is_too_long)
    out += fmt::format("... {} more lines; --once prints all\n", lines.size() - count);
  return out;
}

}  // namespace

void show_screen(const Lines& lines, bool is_live) {
  winsize terminal{};
  if (is_live) {
    static_cast<void>(::ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal));
    fmt::print("\x1b[H\x1b[2J");
  }
  fmt::print("{}", fitted(lines, terminal));
  std::fflush(stdout);
}

}  // namespace kansoku::cli
