// SPDX-License-Identifier: Apache-2.0
#include "store/database.h"

#include <array>
#include <cstdlib>
#include <utility>

#include "store/internal/duckdb.h"
#include "sys/process.h"

namespace kansoku::store {
namespace {

constexpr std::string_view kNpmPath = "node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so";

std::string parent(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// Frees a result however its reader ends.
class OwnedResult {
 public:
  explicit OwnedResult(const DuckApi& api) : api_(api) {}
  OwnedResult(const OwnedResult&) = delete;
  OwnedResult& operator=(const OwnedResult&) = delete;
  ~OwnedResult() { api_.destroy_result(&raw); }
  DuckResult raw;

 private:
  const DuckApi& api_;
};

}  // namespace

struct Database::Impl {
  DuckApi api;
  DuckHandle database{nullptr}, connection{nullptr};

  explicit Impl(const DuckApi& its_api) : api(its_api) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (connection != nullptr) api.disconnect(&connection);
    if (database != nullptr) api.close(&database);
  }
  [[nodiscard]] Result<void> open();
  [[nodiscard]] Result<Table> read(DuckResult& result) const;
};

Result<void> Database::Impl::open() {
  // Nothing is fetched from the network, and a large file does not spill into the working folder.
  constexpr std::array<std::pair<const char*, const char*>, 3> kSettings{
      {{"autoinstall_known_extensions", "false"},
       {"autoload_known_extensions", "false"},
       {"temp_directory", ""}}};
  DuckHandle config = nullptr;
  bool is_set = api.create_config(&config) == DuckState::kSuccess;
  for (const auto& [name, value] : kSettings)
    is_set = is_set && api.set_config(config, name, value) == DuckState::kSuccess;
  char* why = nullptr;
  const bool is_open =
      is_set && api.open_ext(nullptr, &database, config, &why) == DuckState::kSuccess;
  api.destroy_config(&config);
  std::string text = why == nullptr ? "no reason given" : why;
  if (why != nullptr) api.free(why);
  if (!is_open) return Error{Code::kUnavailable, "open DuckDB: " + text};
  if (api.connect(database, &connection) != DuckState::kSuccess)
    return Error{Code::kUnavailable, "connect to DuckDB: failed"};
  return {};
}

Result<Table> Database::Impl::read(DuckResult& result) const {
  Table table;
  const std::uint64_t columns = api.column_count(&result), rows = api.row_count(&result);
  if (rows > kRowsMax)
    return Error{Code::kLimit, "query: more than " + std::to_string(kRowsMax) + " rows",
                 "aggregate, or add LIMIT"};
  for (std::uint64_t c = 0; c < columns; ++c)
    table.columns.emplace_back(api.column_name(&result, c));
  for (std::uint64_t r = 0; r < rows; ++r) {
    table.rows.emplace_back(columns);
    for (std::uint64_t c = 0; c < columns; ++c) {
      if (api.value_is_null(&result, c, r)) continue;
      char* const text = api.value_varchar(&result, c, r);
      if (text == nullptr)
        return Error{Code::kUnsupported, "query: column " + table.columns[c] + " has no text form",
                     "cast it to VARCHAR"};
      table.rows.back()[c] = text;
      api.free(text);
    }
  }
  return table;
}

std::vector<std::string> library_places() {
  if (const char* named = std::getenv("KANSOKU_DUCKDB"); named != nullptr) return {named};
  std::vector<std::string> places;
  if (const auto program = sys::own_path(); program) {
    const std::string prefix = parent(parent(*program));  // build/<preset>/kansoku: build
    places.push_back(prefix + "/lib/kansoku/libduckdb.so");
    places.push_back(prefix + "/npm/" + std::string(kNpmPath));
    places.push_back(parent(prefix) + "/" + std::string(kNpmPath));
  }
  if (const char* home = std::getenv("HOME"); home != nullptr)
    places.push_back(std::string(home) + "/.local/share/kansoku/libduckdb.so");
  return places;
}

std::string sql_text(std::string_view text) {
  std::string out = "'";
  for (const char c : text)
    out.append(c == '\'' ? 2 : 1, c);
  return out + "'";
}

Result<Database> Database::open(const std::vector<std::string>& places) {
  TRY(const DuckApi api, load_duckdb(places));
  auto impl = std::make_unique<Impl>(api);
  TRY_VOID(impl->open());
  return Database(std::move(impl));
}

Database::Database(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Database::Database(Database&& other) noexcept = default;
Database& Database::operator=(Database&& other) noexcept = default;
Database::~Database() = default;

std::string Database::version() const {
  return impl_->api.library_version();
}

Result<Table> Database::query(const std::string& sql) {
  // The library would see what stands before the zero byte alone.
  if (sql.find('\0') != std::string::npos)
    return Error{Code::kCorrupt, "query: a zero byte in the statement"};
  OwnedResult result(impl_->api);
  if (impl_->api.query(impl_->connection, sql.c_str(), &result.raw) != DuckState::kSuccess) {
    const char* const why = impl_->api.result_error(&result.raw);
    return Error{Code::kCorrupt, "query: " + std::string(why == nullptr ? "failed" : why)};
  }
  return impl_->read(result.raw);
}

}  // namespace kansoku::store
