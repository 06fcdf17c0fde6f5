// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kansoku::exporter::internal {

/// The text as UTF-8 of at most `bytes_max` bytes: wrong bytes, zero bytes and letters cut in the
/// middle are replaced by U+FFFD or left out. Prometheus and protobuf refuse a whole message for
/// one wrong byte.
[[nodiscard]] std::string clean_utf8(std::string_view untrusted, std::size_t bytes_max);

}  // namespace kansoku::exporter::internal
