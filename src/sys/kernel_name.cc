// SPDX-License-Identifier: Apache-2.0
#include "sys/kernel_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "common/parse.h"
#include "sys/elf.h"

namespace kansoku::sys {
namespace {

constexpr std::size_t kLengthMax = 72;

/// Values of ggml_type, as ggml.h numbers them; "" is not in use.
constexpr std::array<std::string_view, 41> kGgmlTypes{
    "F32",     "F16",   "Q4_0",   "Q4_1",  "",      "",       "Q5_0", "Q5_1",    "Q8_0",
    "Q8_1",    "Q2_K",  "Q3_K",   "Q4_K",  "Q5_K",  "Q6_K",   "Q8_K", "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",   "I16",     "I32",
    "I64",     "F64",   "IQ1_M",  "BF16",  "",      "",       "",     "TQ1_0",   "TQ2_0",
    "",        "",      "",       "MXFP4", "NVFP4"};

/// Position of the bracket that closes the one at `open`; npos: none does.
std::size_t closing(std::string_view text, std::size_t open) {
  const char begin = text[open], end = begin == '<' ? '>' : ')';
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == begin) ++depth;
    const bool is_arrow = text[at] == '>' && at > 0 && text[at - 1] == '-';
    if (text[at] == end && !is_arrow && --depth == 0) return at;
  }
  return std::string_view::npos;
}

/// Without the parameter list: the first bracket at the top level that is no "(anonymous ...)" and
/// no "(enum)value".
std::string_view without_parameters(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '<' && text[at] != '(') continue;
    const std::size_t end = closing(text, at);
    if (end == std::string_view::npos) return text;
    const bool is_scope = text.substr(end + 1).starts_with("::");
    if (text[at] == '(' && !is_scope) return text.substr(0, at);
    at = end;
  }
  return text;
}

/// Behind the last blank and the last "::" of the top level.
std::string_view last_name(std::string_view text) {
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '<' || text[at] == '(') {
      const std::size_t end = closing(text, at);
      if (end == std::string_view::npos) break;
      at = end;
    } else if (text[at] == ' ' || (text[at] == ':' && text.substr(at).starts_with("::"))) {
      begin = at + (text[at] == ' ' ? 1 : 2);
    }
  }
  return text.substr(begin);
}

std::vector<std::string_view> arguments_of(std::string_view inside) {
  std::vector<std::string_view> out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at <= inside.size(); ++at) {
    if (at < inside.size() && (inside[at] == '<' || inside[at] == '(')) {
      const std::size_t end = closing(inside, at);
      if (end == std::string_view::npos) break;
      at = end;
    } else if (at == inside.size() || inside[at] == ',') {
      std::string_view one = inside.substr(begin, at - begin);
      while (one.starts_with(' '))
        one.remove_prefix(1);
      while (one.ends_with(' '))
        one.remove_suffix(1);
      out.push_back(one);
      begin = at + 1;
    }
  }
  return out;
}

std::string short_name(std::string_view text);

/// A type, such as "ns::name const*", without its scopes.
std::string without_scopes(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!text.substr(at).starts_with("::")) {
      out += text[at];
      continue;
    }
    while (!out.empty() &&
           (std::isalnum(static_cast<unsigned char>(out.back())) != 0 || out.back() == '_'))
      out.pop_back();
    ++at;
  }
  return out;
}

/// "(ggml_type)12" is "Q4_K", "(kind)3" is "kind 3", "&(void f<int>(float))" is "f<int>".
std::string short_argument(std::string_view text) {
  if (text.starts_with("&(") && text.ends_with(')'))
    return short_name(without_parameters(text.substr(2, text.size() - 3)));
  if (!text.starts_with('('))
    return text.find('<') == std::string_view::npos ? without_scopes(text) : short_name(text);
  const std::size_t end = closing(text, 0);
  if (end == std::string_view::npos) return std::string(text);
  const std::string_view type = text.substr(1, end - 1), value = text.substr(end + 1);
  const auto number = parse_int<std::uint32_t>(value);
  if (type == "ggml_type" && number && *number < kGgmlTypes.size() && !kGgmlTypes[*number].empty())
    return std::string(kGgmlTypes[*number]);
  return number ? std::string(last_name(type)) + " " + std::string(value) : std::string(text);
}

std::string short_name(std::string_view text) {
  const std::string_view name = last_name(text);
  const std::size_t open = name.find('<');
  const std::size_t end = open == std::string_view::npos ? open : closing(name, open);
  if (open == 0 || end == std::string_view::npos) return std::string(name);
  std::vector<std::string_view> arguments = arguments_of(name.substr(open + 1, end - open - 1));
  while (!arguments.empty() && arguments.back() == "false")
    arguments.pop_back();
  std::string out(name.substr(0, open));
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string one = short_argument(arguments[i]);
    if (out.size() + one.size() > kLengthMax) {
      out += i == 0 ? "<..." : ", ...";
      break;
    }
    out += (i == 0 ? "<" : ", ") + one;
  }
  if (!arguments.empty()) out += ">";
  return out + std::string(name.substr(end + 1));
}

}  // namespace

std::string short_kernel_name(const std::string& mangled) {
  const std::string full = demangle(mangled);
  std::string out = short_name(without_parameters(full));
  return out.empty() ? mangled : out;
}

}  // namespace kansoku::sys
