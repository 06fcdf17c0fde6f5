// SPDX-License-Identifier: Apache-2.0
#include "store/database.h"

#include <cstdlib>
#include <utility>

#include "store/internal/duckdb.h"
#include "sys/process.h"
#include "sys/trust.h"

namespace kansoku::store {
namespace {

constexpr std::string_view kNpmPath = "node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so";

/// 24 MiB of buffers do for 60 columns at these sizes; with the defaults 32 MiB do not (measured).
constexpr std::string_view kFileForm = "BLOCK_SIZE 16384, ROW_GROUP_SIZE 4096";

using Settings = std::vector<std::pair<std::string, std::string>>;

/// Nothing is fetched from the network, and a large file does not spill into the working folder.
Settings common_settings() {
  return {{"autoinstall_known_extensions", "false"},
          {"autoload_known_extensions", "false"},
          {"temp_directory", ""}};
}

/// Kind of failure, by DuckDB's words.
Code code_of(std::string_view words) {
  const auto says = [&](std::string_view part) {
    return words.find(part) != std::string_view::npos;
  };
  if (says("Permission denied") || says("Read-only file system")) return Code::kPermission;
  if (says("Conflicting lock") || says("Could not set lock")) return Code::kUnavailable;
  if (says("No such file or directory") || says("Not a directory")) return Code::kNotFound;
  if (says("Out of Memory") || says("No space left") || says("File too large") ||
      says("Disk quota exceeded") || says("Too many open files"))
    return Code::kLimit;
  return Code::kCorrupt;
}

Result<void> without_rows(const Result<Table>& table) {
  if (!table) return table.error();
  return {};
}

/// DuckDB's appender; writes what it holds when it goes, as the library wants it.
class Appender final : public RowWriter {
 public:
  explicit Appender(const DuckApi& api) : api_(api) {}
  Appender(const Appender&) = delete;
  Appender& operator=(const Appender&) = delete;
  ~Appender() { destroy(); }
  void destroy() {
    if (raw != nullptr) api_.appender_destroy(&raw);
    raw = nullptr;
  }
  void integer(std::int64_t value) override { note(api_.append_int64(raw, value)); }
  void real(float value) override { note(api_.append_float(raw, value)); }
  void text(std::string_view value) override {
    note(api_.append_varchar_length(raw, value.data(), value.size()));
  }
  void null() override { note(api_.append_null(raw)); }
  [[nodiscard]] bool is_good() const { return is_good_; }
  DuckHandle raw{nullptr};

 private:
  void note(DuckState state) { is_good_ = is_good_ && state == DuckState::kSuccess; }
  const DuckApi& api_;
  bool is_good_{true};
};

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
  [[nodiscard]] Result<void> open(const Settings& settings);
  [[nodiscard]] Result<Table> query(const std::string& sql);
  [[nodiscard]] Result<Table> read(DuckResult& result) const;
};

Result<void> Database::Impl::open(const Settings& settings) {
  DuckHandle config = nullptr;
  bool is_set = api.create_config(&config) == DuckState::kSuccess;
  for (const auto& [name, value] : settings)
    is_set = is_set && api.set_config(config, name.c_str(), value.c_str()) == DuckState::kSuccess;
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

Result<Table> Database::Impl::query(const std::string& sql) {
  // The library would see what stands before the zero byte alone.
  if (sql.find('\0') != std::string::npos)
    return Error{Code::kCorrupt, "query: a zero byte in the statement"};
  OwnedResult result(api);
  if (api.query(connection, sql.c_str(), &result.raw) != DuckState::kSuccess) {
    const char* const why = api.result_error(&result.raw);
    const std::string text = why == nullptr ? "failed" : why;
    return Error{code_of(text), "query: " + text};
  }
  return read(result.raw);
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
  if (const auto named = sys::path_from_environment("KANSOKU_DUCKDB")) return {*named};
  std::vector<std::string> places;
  if (const auto program = sys::own_path(); program) {
    const std::string prefix = parent(parent(*program));  // build/<preset>/kansoku: build
    places.push_back(prefix + "/lib/kansoku/libduckdb.so");
    places.push_back(prefix + "/npm/" + std::string(kNpmPath));
    places.push_back(parent(prefix) + "/" + std::string(kNpmPath));
  }
  if (const auto home = sys::path_from_environment("HOME"))
    places.push_back(*home + "/.local/share/kansoku/libduckdb.so");
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
  TRY_VOID(impl->open(common_settings()));
  return Database(std::move(impl));
}

Result<Database> Database::open_file(const std::string& path, const FileOptions& options,
                                     const std::vector<std::string>& places) {
  // Not by its first bytes: what does not begin with a slash might be a scheme to DuckDB.
  if (!path.starts_with('/'))
    return Error{Code::kUnsupported, "open database " + path + ": not an absolute path"};
  TRY(const DuckApi api, load_duckdb(places));
  auto impl = std::make_unique<Impl>(api);
  Settings settings = common_settings();
  settings.emplace_back("threads", "1");
  settings.emplace_back("memory_limit", std::to_string(options.memory_bytes) + "B");
  TRY_VOID(impl->open(settings));
  const std::string how = options.is_read_only ? "READ_ONLY" : std::string(kFileForm);
  for (const std::string& sql : {"ATTACH " + sql_text(path) + " AS file (TYPE duckdb, " + how + ")",
                                 std::string("USE file")})
    if (const auto done = impl->query(sql); !done)
      return Error{done.error().code, "open database " + path + ": " + done.error().what};
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
  return impl_->query(sql);
}

Result<void> Database::append(const std::string& table, std::size_t row_count,
                              const std::function<void(std::size_t, RowWriter&)>& write) {
  const DuckApi& api = impl_->api;
  // Appenders commit every 200,000 rows or so by themselves; inside a transaction they do not.
  TRY_VOID(without_rows(query("BEGIN")));
  Appender appender(api);
  bool is_good = api.appender_create(impl_->connection, nullptr, table.c_str(), &appender.raw) ==
                 DuckState::kSuccess;
  for (std::size_t row = 0; is_good && row < row_count; ++row) {
    write(row, appender);
    is_good = appender.is_good() && api.appender_end_row(appender.raw) == DuckState::kSuccess;
  }
  is_good = is_good && api.appender_flush(appender.raw) == DuckState::kSuccess;
  if (is_good) return without_rows(query("COMMIT"));
  const char* const why = appender.raw == nullptr ? nullptr : api.appender_error(appender.raw);
  const std::string text = why == nullptr ? "failed" : why;
  // Rows left in the appender would be written when it goes; the transaction takes them along.
  appender.destroy();
  (void)query("ROLLBACK");
  return Error{code_of(text), "append to " + table + ": " + text};
}

void Database::close_and_release() && {
  const DuckApi api = impl_->api;
  impl_.reset();
  release_library_pages(api);
}

}  // namespace kansoku::store
