// SPDX-License-Identifier: Apache-2.0
#include "capture/llm/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "capture/bpf/references.h"
#include "sys/process_memory.h"

namespace kansoku::capture::llm {
namespace {

constexpr std::size_t kOpsMax = 512, kNameMax = 48;
constexpr std::string_view kFirst = "NONE";
constexpr std::string_view kEveryHas = "MUL_MAT";  // every version, behind many others

bool is_op_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool is_version(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == '+';
  });
}

// Up to the first entry that is no name of an operator, or the name of an earlier one: behind the
// table lie others. `is_filled`: no entry was empty, as they are until the dynamic linker has
// relocated them.
struct Table {
  std::vector<std::string> names;
  bool is_filled{true};
};

Table read_table(std::int32_t pid, std::uint64_t address, std::uint64_t bias) {
  std::array<std::uint64_t, kOpsMax> pointers{};
  const std::size_t count =
      sys::read_process_memory(pid, address, std::as_writable_bytes(std::span(pointers))) /
      sizeof(std::uint64_t);
  Table out;
  for (std::size_t i = 0; i < count; ++i) {
    out.is_filled = pointers.at(i) != 0;
    if (!out.is_filled) break;
    std::string name = sys::read_process_text(pid, pointers.at(i), kNameMax);
    // Some linkers leave the address in the file there.
    if (i == 0 && name != kFirst)
      out.is_filled = sys::read_process_text(pid, pointers.at(i) + bias, kNameMax) != kFirst;
    if (!is_op_name(name) || std::find(out.names.begin(), out.names.end(), name) != out.names.end())
      break;
    out.names.push_back(std::move(name));
  }
  return out;
}

}  // namespace

Result<EngineNames> read_engine_names(std::int32_t pid, sys::ElfFile& file, std::uint64_t bias) {
  const sys::Symbol* const of_ops = file.find_symbol("ggml_op_name");
  if (of_ops == nullptr)
    return Error{Code::kNotFound,
                 fmt::format("find ggml_op_name in {}: no such function", file.path())};
  EngineNames out;
  if (const auto table = bpf::first_address_taken(file, *of_ops)) {
    Table read = read_table(pid, *table + bias, bias);
    out.ops = std::move(read.names);
    if (!read.is_filled && !out.op(kEveryHas)) {
      return Error{Code::kUnavailable,
                   fmt::format("read the names of operators in {}: the dynamic linker has not "
                               "relocated them",
                               file.path())};
    }
  }
  if (out.ops.empty() && !sys::has_memory(pid)) {
    return Error{Code::kUnavailable,
                 fmt::format("read the names of operators: process {} has ended", pid)};
  }
  if (out.ops.empty() || out.ops.front() != kFirst || !out.op(kEveryHas)) {
    return Error{Code::kUnsupported,
                 fmt::format("read the names of operators in {}: ggml_op_name has no table that is "
                             "understood",
                             file.path())};
  }
  if (const sys::Symbol* const of_version = file.find_symbol("ggml_version")) {
    if (const auto text = bpf::first_address_taken(file, *of_version))
      out.version = sys::read_process_text(pid, *text + bias, kNameMax);
    if (!is_version(out.version)) out.version.clear();
  }
  return out;
}

}  // namespace kansoku::capture::llm
