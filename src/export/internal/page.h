// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kansoku::exporter {

/// Text for element content and quoted attributes.
[[nodiscard]] std::string escape(std::string_view untrusted);

/// A value with its name below it, of a row of them (class "figures"); both are escaped here.
[[nodiscard]] std::string figure(std::string_view value, std::string_view name);

/// Fills the {name} places of a page in one pass, so that inserted text is never searched again. A
/// place that has no value becomes empty.
[[nodiscard]] std::string fill(std::string_view page,
                               const std::vector<std::pair<std::string_view, std::string>>& values);

/// The first letter, if ASCII, as a capital.
[[nodiscard]] std::string capitalised(std::string text);

/// At most `columns_max` columns, an ellipsis at the end where something was cut. A character that
/// is not ASCII counts as two: it may be a wide one. Whole UTF-8 sequences only.
[[nodiscard]] std::string shortened(const std::string& text, std::size_t columns_max);
[[nodiscard]] std::size_t columns_of(std::string_view text);

/// A page on its own: title, css, more_css, what (behind the name, on top), body and js are filled
/// in.
inline constexpr std::string_view kPage = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{css}{more_css}</style>
</head>
<body>
<main>
<header class="top"><span>Kansoku · {what}</span><button id="theme" type="button" hidden>Dark</button></header>
{body}
</main>
<script>
{js}</script>
</body>
</html>
)";

}  // namespace kansoku::exporter
