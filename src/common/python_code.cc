// SPDX-License-Identifier: Apache-2.0
#include "common/python_code.h"

#include <algorithm>
#include <array>

#include "common/parse.h"

namespace kansoku {
namespace {

constexpr std::array<std::string_view, 4> kInstalled{"/dist-packages/", "/site-packages/",
                                                     "/lib/python3", "/lib64/python3"};
// First parts of shortened paths. Modules that compute nothing themselves, or wait.
constexpr std::array<std::string_view, 26> kShortened{
    "asyncio", "concurrent",      "contextlib",   "copy",    "functools",  "gzip",     "http",
    "json",    "multiprocessing", "pickle",       "queue",   "random",     "select",   "selectors",
    "shutil",  "socket",          "socketserver", "ssl",     "subprocess", "tempfile", "threading",
    "torch",   "torchvision",     "urllib",       "zipfile", "numpy"};

}  // namespace

std::optional<PythonName> parse_python_name(std::string_view name) {
  constexpr std::string_view kFileEnd = ".py(", kLineEnd = "): ";
  const std::size_t file = name.find(kFileEnd);
  if (file == std::string_view::npos) return std::nullopt;
  const std::size_t begin = file + kFileEnd.size(), end = name.find(kLineEnd, begin);
  if (end == std::string_view::npos) return std::nullopt;
  const auto line = parse_int<std::uint32_t>(name.substr(begin, end - begin));
  if (!line) return std::nullopt;
  return PythonName{name.substr(0, begin - 1), name.substr(end + kLineEnd.size()), *line};
}

bool is_own_python_file(std::string_view file) {
  // "<frozen runpy>" starts a program, and is Python's.
  if (file.empty() || file.starts_with('<')) return false;
  if (file.starts_with('/'))
    return std::none_of(kInstalled.begin(), kInstalled.end(), [&](std::string_view part) {
      return file.find(part) != std::string_view::npos;
    });
  std::string_view first = file.substr(0, file.find('/'));
  if (first.ends_with(".py")) first.remove_suffix(3);
  return std::find(kShortened.begin(), kShortened.end(), first) == kShortened.end() &&
         file.find("/site-packages/") == std::string_view::npos;
}

}  // namespace kansoku
