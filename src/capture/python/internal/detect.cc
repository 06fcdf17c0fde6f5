// SPDX-License-Identifier: Apache-2.0
#include "capture/python/internal/detect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "common/parse.h"

namespace kansoku::capture::python {
namespace {

constexpr std::int32_t kMinorMin = 8;
constexpr std::int32_t kMinorMax = 14;
constexpr std::size_t kRodataBytesMax = std::size_t{32} << 20;
constexpr std::string_view kDeleted = " (deleted)";

std::string_view file_name_of(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

/// A mapped file that may hold an interpreter.
struct Candidate {
  std::string path;  // as in the maps
  bool is_library{false};
  std::vector<sys::Mapping> mappings;
};

std::string without_deleted(const std::string& path) {
  return path.ends_with(kDeleted) ? path.substr(0, path.size() - kDeleted.size()) : path;
}

/// Libraries first: with a libpython, the executable is only a launcher.
std::vector<Candidate> candidates_in(const std::vector<sys::Mapping>& mappings,
                                     std::uint64_t inside_executable) {
  std::map<std::string, Candidate> by_path;
  std::string executable;
  for (const sys::Mapping& mapping : mappings) {
    if (mapping.path.empty() || mapping.path[0] != '/') continue;
    Candidate& candidate = by_path[mapping.path];
    candidate.path = mapping.path;
    candidate.mappings.push_back(mapping);
    if (mapping.begin <= inside_executable && inside_executable < mapping.end) {
      executable = mapping.path;
    }
  }
  std::vector<Candidate> found;
  for (auto& [path, candidate] : by_path) {
    const std::string bare = without_deleted(path);
    candidate.is_library = file_name_of(bare).starts_with("libpython3.");
    if (candidate.is_library) found.push_back(candidate);
  }
  if (!executable.empty() && !by_path[executable].is_library) found.push_back(by_path[executable]);
  return found;
}

/// The path by which we can open the candidate's file, also after it was deleted.
std::string path_to_open(std::int32_t pid, const sys::Procfs& procfs, const Candidate& candidate) {
  if (!candidate.is_library) return fmt::format("{}/{}/exe", procfs.root(), pid);
  if (!candidate.path.ends_with(kDeleted)) return procfs.through_root(pid, candidate.path);
  return procfs.map_file(pid, candidate.mappings.front());
}

/// Some address inside of the main executable: its program headers, as the kernel tells the loader.
std::uint64_t executable_address(const std::string& auxv) {
  constexpr std::uint64_t kAtPhdr = 3;
  for (std::size_t at = 0; at + 16 <= auxv.size(); at += 16) {
    std::array<std::uint64_t, 2> entry{};
    std::memcpy(entry.data(), auxv.data() + at, sizeof entry);
    if (entry[0] == kAtPhdr) return entry[1];
  }
  return 0;
}

std::optional<Version> version_of(sys::ElfFile& file, const Candidate& candidate) {
  const sys::Symbol* symbol = file.find_symbol("Py_Version");
  if (symbol != nullptr) {
    const std::vector<std::byte> bytes = file.bytes_at(symbol->address, 8);
    std::uint64_t hex = 0;
    if (bytes.size() == sizeof hex) std::memcpy(&hex, bytes.data(), sizeof hex);
    return version_from_hex(hex);
  }
  const auto minor = minor_from_name(file_name_of(without_deleted(candidate.path)));
  const auto rodata = file.section(".rodata");
  if (rodata) {
    const auto bytes =
        file.bytes_at(rodata->address, std::min<std::uint64_t>(rodata->bytes, kRodataBytesMax));
    auto version = version_from_strings(as_text(bytes), minor);
    if (version) return version;
  }
  if (!minor) return std::nullopt;
  Version version;
  version.minor = *minor;
  return version;
}

/// The interpreter in one file; nothing if that file holds none.
std::optional<Result<Interpreter>> interpreter_in(const Candidate& candidate, sys::ElfFile& file) {
  const sys::Symbol* symbol = file.find_symbol("_PyRuntime");
  const auto section = file.section(".PyRuntime");
  if (symbol == nullptr && !section) return std::nullopt;
  const auto bias = sys::load_bias(file, candidate.mappings);
  if (!bias) {
    return Error{Code::kUnsupported,
                 fmt::format("find Python in {}: mapped in an unknown way", candidate.path)};
  }
  Interpreter found;
  found.path = candidate.path;
  found.runtime = *bias + (symbol != nullptr ? symbol->address : section->address);
  found.runtime_bytes = symbol != nullptr ? symbol->bytes : section->bytes;
  auto version = version_of(file, candidate);
  if (!version) {
    return Error{Code::kUnsupported,
                 fmt::format("find Python in {}: its version is unknown", candidate.path)};
  }
  found.version = std::move(*version);
  return found;
}

}  // namespace

std::string version_text(const Version& version) {
  if (version.micro < 0) return fmt::format("3.{}", version.minor);
  return fmt::format("3.{}.{}{}", version.minor, version.micro, version.suffix);
}

std::optional<Version> version_from_hex(std::uint64_t untrusted_hex) {
  if ((untrusted_hex >> 24) != 3) return std::nullopt;
  Version version;
  version.minor = static_cast<std::int32_t>((untrusted_hex >> 16) & 0xff);
  version.micro = static_cast<std::int32_t>((untrusted_hex >> 8) & 0xff);
  const std::uint64_t level = (untrusted_hex >> 4) & 0xf;
  const std::string_view name = level == 0xa ? "a" : level == 0xb ? "b" : level == 0xc ? "rc" : "";
  if (!name.empty()) version.suffix = fmt::format("{}{}", name, untrusted_hex & 0xf);
  return version;
}

std::optional<std::int32_t> minor_from_name(std::string_view file_name) {
  for (const std::string_view prefix : {"libpython3.", "python3."}) {
    if (!file_name.starts_with(prefix)) continue;
    const std::string_view rest = file_name.substr(prefix.size());
    const std::size_t end = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const auto minor = parse_int<std::int32_t>(rest.substr(0, end));
    if (minor && *minor < 100) return minor;
  }
  return std::nullopt;
}

std::optional<Version> version_from_strings(std::string_view untrusted,
                                            std::optional<std::int32_t> minor) {
  // Alone, or as the merged tail of "Python 3.8.18".
  constexpr std::string_view kStart("3.");
  constexpr std::size_t kLengthMax = 16;
  for (std::size_t at = untrusted.find(kStart, 1); at != std::string_view::npos;
       at = untrusted.find(kStart, at + 1)) {
    if (untrusted[at - 1] != '\0' && untrusted[at - 1] != ' ') continue;
    std::string_view text = untrusted.substr(at + kStart.size(), kLengthMax);
    if (text.find('\0') == std::string_view::npos) continue;
    text = text.substr(0, text.find('\0'));
    const std::size_t dot = text.find('.');
    if (dot == std::string_view::npos) continue;
    const auto found_minor = parse_int<std::int32_t>(text.substr(0, dot));
    std::string_view rest = text.substr(dot + 1);
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const auto micro = parse_int<std::int32_t>(rest.substr(0, digits));
    rest.remove_prefix(digits);
    if (!found_minor || !micro || (minor && *minor != *found_minor)) continue;
    if (rest.find_first_of(". ") != std::string_view::npos || *found_minor > 99) continue;
    return Version{.minor = *found_minor, .micro = *micro, .suffix = std::string(rest)};
  }
  return std::nullopt;
}

Result<Interpreter> find_interpreter(std::int32_t pid, const sys::Procfs& procfs) {
  TRY(const auto mappings, procfs.maps(pid));
  constexpr std::size_t kAuxvBytesMax = 65536;
  const auto auxv = sys::read_file(fmt::format("{}/{}/auxv", procfs.root(), pid), kAuxvBytesMax);
  const std::uint64_t executable = auxv ? executable_address(*auxv) : 0;
  std::optional<Error> first_error;
  for (const Candidate& candidate : candidates_in(mappings, executable)) {
    auto file = sys::ElfFile::open(path_to_open(pid, procfs, candidate));
    if (!file) {
      if (!first_error) first_error = file.error();
      continue;
    }
    auto found = interpreter_in(candidate, **file);
    if (found) return std::move(*found);
  }
  if (first_error) return *first_error;
  return Error{Code::kNotFound,
               fmt::format("find Python in pid {}: no interpreter is loaded", pid)};
}

Result<Layout> layout_of(const Interpreter& interpreter, RemoteMemory& memory) {
  const std::string name = version_text(interpreter.version);
  if (interpreter.version.minor < kMinorMin || interpreter.version.minor > kMinorMax) {
    return Error{Code::kUnsupported, fmt::format("read stacks of Python {}: unknown release", name),
                 "3.8 to 3.14 are known"};
  }
  const Layout* table = static_layout(interpreter.version.minor);
  if (table != nullptr) {
    const std::int32_t end =
        std::max(table->runtime_interpreters_head, table->runtime_tstate_current) + 8;
    if (interpreter.runtime_bytes < static_cast<std::uint64_t>(end)) {
      return Error{Code::kUnsupported,
                   fmt::format("read stacks of Python {}: _PyRuntime has only {} bytes", name,
                               interpreter.runtime_bytes)};
    }
    return *table;
  }
  std::vector<std::byte> bytes(
      std::min<std::uint64_t>(interpreter.runtime_bytes, kDebugOffsetsBytes));
  if (!memory.read({{interpreter.runtime, bytes.data(), bytes.size()}})) {
    return Error{Code::kNotFound, fmt::format("read stacks of Python {}: memory unreadable", name)};
  }
  return parse_debug_offsets(bytes, interpreter.version.minor);
}

}  // namespace kansoku::capture::python
