// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kansoku {

/// `untrusted` with a '?' for bytes that a terminal might obey or a reader of UTF-8 refuse: control
/// characters (C0, DEL, C1; line feeds too) and bytes that are no UTF-8.
[[nodiscard]] std::string printable(std::string_view untrusted);

/// %XX as the byte it stands for; nothing if malformed or a byte that ends C strings.
[[nodiscard]] std::optional<std::string> percent_decoded(std::string_view untrusted);

/// The word of `known` that a slip of the fingers turns into `word`: at most two letters are
/// missing, too many, other ones or swapped, and fewer than half of them. "" if there is none.
[[nodiscard]] std::string nearest_word(std::string_view word, std::span<const std::string> known);

/// Without the blanks and tabs at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text);

/// Last part of a path: all after the last '/', or all of it if there is none. Borrows from `path`.
[[nodiscard]] constexpr std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace kansoku
