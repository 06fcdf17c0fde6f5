// SPDX-License-Identifier: Apache-2.0
// Reads PTX as a corpus; executes nothing.
//
//   check_texts FILE...             PTX, fatbins, programs and libraries (section .nv_fatbin):
//   every text parses, is sound, and
//                                   after printing parses to an equal module, its items in the
//                                   order of the text
//   check_texts --decode 80 FILE... also decodes the texts for sm_80 and counts what the executor
//   refuses, by its first reason
//
// Prints what is wrong and a count by architecture. Exit status: 0 all well, 1 a text is not, 2
// usage. A refusal by the executor is no mistake of a text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/parse.h"
#include "cuda/fatbin.h"
#include "gpu/exec/program.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/printer.h"
#include "gpu/ptx/verifier.h"
#include "sys/elf.h"
#include "sys/fd.h"

namespace {

using namespace kansoku;
namespace ptx = gpu::ptx;

constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 30;
constexpr std::uint64_t kDeviceBytes = std::uint64_t{4} << 30;

/// The statements outside of bodies, found without the parser: braces, strings and comments are all
/// that it knows.
class Outline {
 public:
  explicit Outline(std::string_view text) : text_(text) {}

  /// "function k", "prototype f", "variable x", ".file": in the order of the text.
  std::vector<std::string> items() {
    while (skip_blank()) {
      const std::string_view word = peek_word();
      if (word == ".file" || word == ".loc") {
        items_.emplace_back(word);
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (word == ".version" || word == ".target" || word == ".address_size") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        statement();
      }
    }
    return std::move(items_);
  }

 private:
  static bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
           c == '.';
  }
  bool skip_blank() {
    while (at_ < text_.size()) {
      if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        at_ = std::min(text_.find("*/", at_) + 2, text_.size());
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        ++at_;
      } else {
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] std::string_view peek_word() const {
    std::size_t end = at_;
    while (end < text_.size() && is_word(text_[end]))
      ++end;
    return text_.substr(at_, end - at_);
  }

  /// To the `}` that belongs to the `{` at hand.
  void skip_braces() {
    for (int depth = 0; skip_blank(); ++at_) {
      if (text_[at_] == '"') at_ = std::min(text_.find('"', at_ + 1), text_.size() - 1);
      depth += text_[at_] == '{' ? 1 : text_[at_] == '}' ? -1 : 0;
      if (depth == 0) break;
    }
    ++at_;
  }

  /// A name is the last word before the parameters, the dimensions or the value.
  void statement() {
    std::string first, name;
    bool is_function = false, is_named = false;
    int parentheses = 0;
    while (skip_blank()) {
      const char c = text_[at_];
      if (is_word(c)) {
        const std::string word(peek_word());
        at_ += word.size();
        if (first.empty()) first = word;
        is_function = is_function || word == ".func" || word == ".entry";
        const bool is_name = word[0] != '.' && parentheses == 0 && !is_named &&
                             std::isdigit(static_cast<unsigned char>(word[0])) == 0;
        if (is_name) name = word;
        if (is_name && is_function) is_named = true;
        continue;
      }
      parentheses += c == '(' ? 1 : c == ')' ? -1 : 0;
      is_named = is_named || c == '[' || c == '=';
      if (c == '{') {
        skip_braces();
        if (is_function) return add("function " + name);
        if (first == ".section") return add(first);
        continue;
      }
      ++at_;
      if (c == ',' && parentheses == 0 && !is_function) {
        add("variable " + name);
        is_named = false;
      }
      if (c == ';')
        return add(is_function ? "prototype " + name : name.empty() ? first : "variable " + name);
    }
  }
  void add(std::string item) { items_.push_back(std::move(item)); }

  std::string_view text_;
  std::size_t at_{0};
  std::vector<std::string> items_;
};

struct Count {
  std::size_t texts{0}, bytes{0}, kernels{0}, wrong{0}, interleaved{0};
  std::size_t decoded{0}, kernels_refused{0};
  std::map<std::string, std::size_t> reasons;  // first of a text
};

/// True if a variable stands behind a function: grouping by kind would have changed the order.
bool is_interleaved(const std::vector<std::string>& items) {
  const auto is_code = [](const std::string& item) { return !item.starts_with("variable"); };
  const auto code = std::find_if(items.begin(), items.end(), is_code);
  return std::any_of(code, items.end(), [](const auto& item) { return item[0] == 'v'; });
}

/// The first mistake of a text; empty: none.
std::string check(const ptx::Module& module, std::string_view text, Count& count) {
  const auto problems = ptx::verify(module);
  if (!problems.empty())
    return fmt::format("line {}: {}", problems[0].place.line, problems[0].message);
  const std::string printed = ptx::print_module(module);
  const auto again = ptx::parse_module(printed);
  if (!again) return "printed: " + again.error().what;
  if (!(*again == module)) return "printing gives another module";
  const auto items = Outline(text).items(), after = Outline(printed).items();
  count.interleaved += is_interleaved(items) ? 1 : 0;
  if (items.size() != module.items.size())
    return fmt::format("{} items in the text, {} in the module", items.size(), module.items.size());
  const auto differs = std::mismatch(items.begin(), items.end(), after.begin(), after.end());
  if (differs.first == items.end() && differs.second == after.end()) return "";
  return fmt::format("item {}: {} became {}", differs.first - items.begin(),
                     differs.first == items.end() ? "nothing" : *differs.first,
                     differs.second == after.end() ? "nothing" : *differs.second);
}

/// "kernel k: ptx line 7: ...: why" without what is this text's own.
std::string reason_of(std::string_view refusal) {
  const std::size_t tick = refusal.find('`');
  const std::size_t end = refusal.find('`', tick + 1);
  if (tick == std::string_view::npos || end == std::string_view::npos) return std::string(refusal);
  const std::string_view instruction = refusal.substr(tick + 1, end - tick - 1);
  const std::size_t name = instruction.starts_with('@') ? instruction.find(' ') + 1 : 0;
  return fmt::format("{}{}", instruction.substr(name, instruction.find(' ', name) - name),
                     refusal.substr(end + 1));
}

void decode(ptx::Module module, Count& count) {
  auto memory = gpu::exec::Memory::create(kDeviceBytes);
  if (!memory) return;
  const auto program = gpu::exec::Program::load(std::move(module), *memory);
  if (!program) {
    ++count.reasons[program.error().what];
    return;
  }
  std::string first;
  for (const gpu::exec::KernelInfo& kernel : program->kernels()) {
    if (kernel.refusal.empty()) continue;
    ++count.kernels_refused;
    if (first.empty()) first = kernel.refusal;
  }
  count.decoded += first.empty() ? 1 : 0;
  if (!first.empty()) ++count.reasons[reason_of(first)];
}

struct Text {
  std::string name, text;
  std::uint32_t architecture{0};
};

Result<std::vector<Text>> texts_of(const std::string& path) {
  TRY(const auto bytes, sys::read_file(path, kFileBytesMax));
  std::string container = bytes;
  if (bytes.starts_with("\x7f"
                        "ELF")) {
    TRY(const auto elf, sys::ElfFile::open(path));
    const auto section = elf->section(".nv_fatbin");
    if (!section) return Error{Code::kNotFound, fmt::format("{}: no .nv_fatbin", path)};
    container = as_text(elf->bytes_at(section->address, section->bytes));
  } else if (!bytes.starts_with("\x50\xed\x55\xba")) {
    return std::vector<Text>{{path, bytes.substr(0, bytes.find('\0')), 0}};
  }
  TRY(const auto entries, cuda::read_fatbin(as_bytes(container)));
  std::vector<Text> texts;
  for (const cuda::FatbinEntry& entry : entries) {
    if (entry.kind != cuda::FatbinEntry::Kind::kPtx) continue;
    TRY(auto text, cuda::unpack(entry));
    texts.push_back({fmt::format("{} text {} for sm_{}", path, texts.size(), entry.architecture),
                     std::move(text), entry.architecture});
  }
  return texts;
}

void look_at(const Text& text, std::uint32_t decoded, std::map<std::uint32_t, Count>& counts) {
  Count& count = counts[text.architecture];
  ++count.texts;
  count.bytes += text.text.size();
  auto module = ptx::parse_module(text.text);
  const std::string wrong = module ? check(*module, text.text, count) : module.error().what;
  if (!wrong.empty()) {
    ++count.wrong;
    fmt::print("{}: {}\n", text.name, wrong);
    return;
  }
  for (const ptx::Function& function : module->functions)
    count.kernels += function.is_entry ? 1 : 0;
  if (decoded != 0 && text.architecture == decoded) decode(std::move(*module), count);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> paths(argv + 1, argv + argc);
  std::uint32_t decoded = 0;
  if (paths.size() > 2 && paths[0] == "--decode") {
    decoded = parse_int<std::uint32_t>(paths[1]).value_or(0);
    paths.erase(paths.begin(), paths.begin() + 2);
  }
  if (paths.empty() || paths[0].starts_with("-")) {
    fmt::print(stderr, "usage: check_texts [--decode 80] FILE...\n");
    return 2;
  }
  std::map<std::uint32_t, Count> counts;
  std::size_t wrong = 0;
  for (const std::string& path : paths) {
    const auto texts = texts_of(path);
    if (!texts) {
      fmt::print("{}: {}\n", path, texts.error().what);
      ++wrong;
      continue;
    }
    for (const Text& text : *texts)
      look_at(text, decoded, counts);
  }
  for (const auto& [architecture, count] : counts) {
    wrong += count.wrong;
    fmt::print(
        "sm_{}: {} texts ({} MB) with {} kernels, {} wrong; {} have variables behind functions\n",
        architecture, count.texts, count.bytes / 1'000'000, count.kernels, count.wrong,
        count.interleaved);
    if (decoded == 0 || architecture != decoded) continue;
    fmt::print("sm_{}: {} texts decode whole, {} kernels are refused\n", architecture,
               count.decoded, count.kernels_refused);
    for (const auto& [reason, texts] : count.reasons)
      fmt::print("  {} texts: {}\n", texts, reason);
  }
  return wrong == 0 ? 0 : 1;
}
