// SPDX-License-Identifier: Apache-2.0
#include "export/internal/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "export/internal/page.h"

namespace kansoku::exporter {
namespace {

constexpr std::size_t kNameColumnsMax = 80;

// A number and its unit stay on one line.
std::string unbroken(const std::string& html) {
  constexpr std::array<std::string_view, 6> kUnits{"%", "min", "ms", "s", "h", "d"};
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::string out;
  for (std::size_t i = 0; i < html.size(); ++i) {
    bool joined = false;
    if (html[i] == ' ' && i > 0 && html[i - 1] >= '0' && html[i - 1] <= '9')
      for (const std::string_view unit : kUnits) {
        const std::size_t after = i + 1 + unit.size();
        joined = joined || (std::string_view(html).substr(i + 1).starts_with(unit) &&
                            (after >= html.size() || !is_letter(html[after])));
      }
    out += joined ? "&nbsp;" : std::string(1, html[i]);
  }
  return out;
}

}  // namespace

std::string figure_cell(const Figure& figure) {
  const std::string interval = interval_of(figure);
  return fmt::format("<td class=\"num\">{}{}</td>", escape(shown(figure)),
                     interval.empty() ? "" : "<small>" + escape(interval) + "</small>");
}

std::string number_cell(std::string_view untrusted) {
  return fmt::format("<td class=\"num\">{}</td>", escape(untrusted));
}

std::string text_cell(std::string_view untrusted) {
  return fmt::format("<td class=\"name\">{}</td>",
                     escape(shortened(std::string(untrusted), kNameColumnsMax)));
}

std::string table_head(const std::vector<std::string>& untrusted, std::size_t text_count) {
  std::string out;
  for (std::size_t i = 0; i < untrusted.size(); ++i)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", i < text_count ? "" : " class=\"num\"",
                       escape(shortened(untrusted[i], kNameColumnsMax)));
  return "<tr>" + out + "</tr>";
}

std::string table(const std::string& head, const std::string& rows) {
  return "<div class=\"scroll\" tabindex=\"0\"><table><thead>" + head + "</thead><tbody>" + rows +
         "</tbody></table></div>";
}

std::string left_out(std::size_t count, std::string_view what) {
  if (count == 0) return {};
  return fmt::format("<p class=\"hint\">{} more {} are not shown; the JSON has them all.</p>",
                     count, what);
}

std::string entity_table(std::string_view name, const std::vector<Entity>& entities,
                         std::span<const Column> columns) {
  std::vector<Column> used;
  for (const Column& column : columns)
    if (std::any_of(entities.begin(), entities.end(), [&](const Entity& entity) {
          const Figure& figure = entity.figure(column.metric);
          return figure.known && (!column.only_if_any || figure.mean != 0);
        }))
      used.push_back(column);
  std::vector<std::string> heads{std::string(name)};
  for (const Column& column : used)
    heads.emplace_back(column.title);
  const std::size_t count = std::min(entities.size(), kTableRowsMax);
  std::string rows;
  for (std::size_t i = 0; i < count; ++i) {
    rows += "<tr>" + text_cell(entities[i].name);
    for (const Column& column : used)
      rows += figure_cell(entities[i].figure(column.metric));
    rows += "</tr>";
  }
  return table(table_head(heads, 1), rows) + left_out(entities.size() - count, "rows");
}

std::string cards(const std::vector<Card>& list) {
  std::string out = "<div class=\"figures\">";
  for (const Card& card : list)
    out += fmt::format("<div><b>{}</b><span>{}</span>{}</div>", escape(card.value),
                       escape(shortened(card.name, 60)),
                       card.note.empty() ? "" : "<small>" + escape(card.note) + "</small>");
  return out + "</div>";
}

Card card_of(const Figure& figure, std::string name) {
  const std::string interval = interval_of(figure);
  return {shown(figure), std::move(name), interval};
}

std::string section(std::string_view title, std::string_view hint, const std::string& content) {
  return fmt::format("<section><h2>{}</h2>{}{}</section>", escape(title),
                     hint.empty() ? "" : "<p class=\"hint\">" + escape(hint) + "</p>", content);
}

std::string empty_note(std::string_view why) {
  return fmt::format("<p class=\"empty\">{}</p>", escape(why));
}

std::string warnings(const std::vector<std::string>& untrusted) {
  if (untrusted.empty()) return {};
  std::string out = "<section class=\"warning\" role=\"note\"><b>Before you conclude</b><ul>";
  for (const std::string& text : untrusted)
    out += "<li>" + escape(text) + "</li>";
  return out + "</ul></section>";
}

std::string verdict(std::string_view heading, const std::vector<std::string>& leads,
                    const std::string& content, bool good) {
  std::string out = fmt::format("<section class=\"verdict {}\"><h1>{}</h1>",
                                good ? "clean" : "neutral", unbroken(escape(heading)));
  for (const std::string& lead : leads)
    if (!lead.empty()) out += "<p class=\"lead\">" + unbroken(escape(lead)) + "</p>";
  return out + content + "</section>";
}

void Facts::add(std::string_view name, std::string_view untrusted) {
  if (untrusted.empty()) return;
  rows_ += fmt::format("<dt>{}</dt><dd>{}</dd>", escape(name),
                       escape(shortened(std::string(untrusted), 300)));
}

}  // namespace kansoku::exporter
