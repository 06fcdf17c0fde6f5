// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kansoku {

/// `untrusted` with a '?' for what a terminal might obey or a reader of UTF-8 refuse: control
/// characters (C0, DEL, C1; line feeds too) and bytes that are no UTF-8.
[[nodiscard]] std::string printable(std::string_view untrusted);

}  // namespace kansoku
