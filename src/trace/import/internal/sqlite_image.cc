// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/sqlite_image.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace kansoku::trace::import {
namespace {

constexpr std::size_t kHeaderBytes = 100;
constexpr std::size_t kReadVersionOffset = 19;  // 1: rollback journal, 2: write-ahead log
// A whole row costs one operation a column and two more, and takes at least a byte a column: what
// needs more than this many a byte walks in circles.
constexpr std::uint64_t kStepsPerByte = 8;
constexpr std::uint64_t kStepsFree = 1'000'000;
constexpr std::uint64_t kVisitsPerPage = 16;
constexpr std::uint64_t kVisitsFree = 100'000;
constexpr std::uint64_t kTextPerByte = 4;  // UTF-16 grows when it becomes UTF-8
constexpr std::uint64_t kTextFree = 1U << 20;
constexpr std::uint64_t kPageBytesMin = 512;
constexpr int kStepsPerCheck = 256;

Error failed(int code, std::string_view object) {
  Code kind = Code::kCorrupt;
  const int primary = code & 0xff;
  if (primary == SQLITE_TOOBIG || primary == SQLITE_NOMEM) kind = Code::kLimit;
  if (primary == SQLITE_AUTH || primary == SQLITE_ERROR || primary == SQLITE_CANTOPEN)
    kind = Code::kUnsupported;
  if (primary == SQLITE_MISUSE) kind = Code::kInternal;
  // Not sqlite3_errmsg(): it repeats what stands in the file.
  return Error{kind, fmt::format("read SQLite {}: {}", object, sqlite3_errstr(code))};
}

}  // namespace

struct SqliteImage::State {
  sqlite3* db{nullptr};
  std::span<const std::string_view> tables;
  std::uint64_t steps{0}, steps_max{0}, visits_max{0};
  std::uint64_t text_bytes{0}, text_bytes_max{0};
  bool is_exhausted{false};

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { sqlite3_close(db); }

  [[nodiscard]] Result<void> open(ByteSpan untrusted);
  void configure(const Limits& limits);
  [[nodiscard]] Error error(int code, std::string_view object) const;
  [[nodiscard]] Result<SqliteRows> prepare(const std::string& sql, std::string_view object);
  [[nodiscard]] Result<bool> is_table(std::string_view table);
  [[nodiscard]] bool is_named(const char* table) const;

  static int allows(void* self, int action, const char* object, const char* detail,
                    const char* database, const char* through);
  static int stops(void* self);
};

bool SqliteImage::State::is_named(const char* table) const {
  return table != nullptr &&
         std::find(tables.begin(), tables.end(), std::string_view(table)) != tables.end();
}

/// SQLite asks this for everything a statement would touch while it is compiled.
int SqliteImage::State::allows(void* self, int action, const char* object, const char* detail,
                               const char* /*database*/, const char* through) {
  const auto& state = *static_cast<const State*>(self);
  if (through != nullptr) return SQLITE_DENY;  // from inside a view or trigger
  switch (action) {
    case SQLITE_SELECT:
      return SQLITE_OK;
    case SQLITE_READ:
      return state.is_named(object) || std::string_view(object) == "sqlite_master" ||
                     std::string_view(object) == "sqlite_schema"
                 ? SQLITE_OK
                 : SQLITE_DENY;
    case SQLITE_PRAGMA:
      return std::string_view(object) == "table_info" && state.is_named(detail) ? SQLITE_OK
                                                                                : SQLITE_DENY;
    default:
      return SQLITE_DENY;
  }
}

int SqliteImage::State::stops(void* self) {
  auto& state = *static_cast<State*>(self);
  state.steps += kStepsPerCheck;
  int hits = 0, misses = 0, unused = 0;
  sqlite3_db_status(state.db, SQLITE_DBSTATUS_CACHE_HIT, &hits, &unused, 0);
  sqlite3_db_status(state.db, SQLITE_DBSTATUS_CACHE_MISS, &misses, &unused, 0);
  // The counters are ints that wrap in images of terabytes: then they only stop bounding.
  const auto visits = static_cast<std::uint64_t>(std::max(hits, 0)) +
                      static_cast<std::uint64_t>(std::max(misses, 0));
  state.is_exhausted = state.is_exhausted || state.steps > state.steps_max ||
                       visits > state.visits_max || state.text_bytes > state.text_bytes_max;
  return state.is_exhausted ? 1 : 0;
}

Error SqliteImage::State::error(int code, std::string_view object) const {
  if (!is_exhausted) return failed(code, object);
  return Error{Code::kLimit,
               fmt::format("read SQLite {}: more work than an image of this size can need", object),
               "the file is damaged or built to keep its readers busy"};
}

Result<void> SqliteImage::State::open(ByteSpan untrusted) {
  const int opened = sqlite3_open_v2(
      ":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX, nullptr);
  if (opened != SQLITE_OK) return failed(opened, "database");
  sqlite3_extended_result_codes(db, 1);
  // Read-only: SQLite asks for a pointer that it could write to, and does not.
  auto* bytes =
      const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(untrusted.data()));
  const auto size = static_cast<sqlite3_int64>(untrusted.size());
  const int loaded =
      sqlite3_deserialize(db, "main", bytes, size, size, SQLITE_DESERIALIZE_READONLY);
  if (loaded != SQLITE_OK) return failed(loaded, "database");
  steps_max = kStepsFree + kStepsPerByte * untrusted.size();
  visits_max = kVisitsFree + kVisitsPerPage * (untrusted.size() / kPageBytesMin);
  text_bytes_max = kTextFree + kTextPerByte * untrusted.size();
  return {};
}

/// Settings that SQLite's page "Defense Against The Dark Arts" advises for files of others, and
/// more.
void SqliteImage::State::configure(const Limits& limits) {
  constexpr std::array<std::pair<int, int>, 8> kSwitches{{
      {SQLITE_DBCONFIG_DEFENSIVE, 1},
      {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
      {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
      {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
      {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
      {SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0},
      {SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0},
      {SQLITE_DBCONFIG_DQS_DML, 0},
  }};
  for (const auto& [option, value] : kSwitches)
    sqlite3_db_config(db, option, value, nullptr);
  const int row_bytes_max = static_cast<int>(
      std::min<std::uint64_t>(limits.row_bytes_max, std::numeric_limits<int>::max()));
  const std::array<std::pair<int, int>, 11> numbers{{
      {SQLITE_LIMIT_LENGTH, row_bytes_max},
      {SQLITE_LIMIT_SQL_LENGTH, 100'000},
      {SQLITE_LIMIT_COLUMN, 512},
      {SQLITE_LIMIT_EXPR_DEPTH, 32},
      {SQLITE_LIMIT_COMPOUND_SELECT, 4},
      {SQLITE_LIMIT_VDBE_OP, 25'000},
      {SQLITE_LIMIT_FUNCTION_ARG, 8},
      {SQLITE_LIMIT_ATTACHED, 0},
      {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64},
      {SQLITE_LIMIT_VARIABLE_NUMBER, 4},
      {SQLITE_LIMIT_WORKER_THREADS, 0},
  }};
  for (const auto& [limit, value] : numbers)
    sqlite3_limit(db, limit, value);
  sqlite3_drop_modules(db, nullptr);  // no virtual tables at all
  sqlite3_exec(db, "PRAGMA cell_size_check = ON", nullptr, nullptr, nullptr);
  sqlite3_exec(db, "PRAGMA mmap_size = 0", nullptr, nullptr, nullptr);
  sqlite3_set_authorizer(db, &allows, this);
  sqlite3_progress_handler(db, kStepsPerCheck, &stops, this);
}

Result<SqliteRows> SqliteImage::State::prepare(const std::string& sql, std::string_view object) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(db, sql.c_str(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_NO_VTAB, &statement, nullptr);
  SqliteRows rows(*this, statement);
  if (code != SQLITE_OK) return error(code, object);
  return rows;
}

Result<bool> SqliteImage::State::is_table(std::string_view table) {
  const std::string object = fmt::format("schema of {}", table);
  TRY(auto rows,
      prepare(fmt::format("SELECT type, rootpage FROM sqlite_master WHERE name = '{}'", table),
              object));
  bool is_found = false;
  for (;;) {
    TRY(const bool is_row, rows.next());
    if (!is_row) break;
    const auto type = rows.text(0);
    // Page 1 is the schema itself, a virtual table has page 0.
    if (!type || *type != "table" || rows.integer(1).value_or(0) < 2) {
      return Error{Code::kUnsupported, fmt::format("read SQLite {}: not an ordinary table", object),
                   "Kansoku does not run views or virtual tables of a file"};
    }
    is_found = true;
  }
  return is_found;
}

SqliteImage::SqliteImage(std::unique_ptr<State> state) : state_(std::move(state)) {}
SqliteImage::~SqliteImage() = default;
SqliteImage::SqliteImage(SqliteImage&&) noexcept = default;
SqliteImage& SqliteImage::operator=(SqliteImage&&) noexcept = default;

Result<SqliteImage> SqliteImage::open(ByteSpan untrusted, std::span<const std::string_view> tables,
                                      const Limits& limits) {
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  if (untrusted.size() < kHeaderBytes || !as_text(untrusted).starts_with(kMagic))
    return Error{Code::kCorrupt, "read SQLite header at offset 0: not a database"};
  if (untrusted[kReadVersionOffset] == std::byte{2}) {
    return Error{Code::kUnsupported,
                 "read SQLite header at offset 19: the database needs its write-ahead log",
                 "run `sqlite3 FILE 'PRAGMA journal_mode=DELETE'` on a copy of it"};
  }
  auto state = std::make_unique<State>();
  state->tables = tables;
  TRY_VOID(state->open(untrusted));
  state->configure(limits);
  return SqliteImage(std::move(state));
}

Result<std::optional<std::vector<std::string>>> SqliteImage::columns_of(std::string_view table) {
  using Columns = std::optional<std::vector<std::string>>;
  TRY(const bool is_there, state_->is_table(table));
  if (!is_there) return Columns{};
  const std::string name(table);
  // The row of the schema may call a view a table; this looks at what its text declares.
  if (sqlite3_table_column_metadata(state_->db, "main", name.c_str(), nullptr, nullptr, nullptr,
                                    nullptr, nullptr, nullptr) != SQLITE_OK) {
    return Error{Code::kUnsupported,
                 fmt::format("read SQLite schema of {}: it declares no table of that name", table)};
  }
  TRY(auto rows, state_->prepare(fmt::format("PRAGMA main.table_info('{}')", table), table));
  std::vector<std::string> columns;
  for (;;) {
    TRY(const bool is_row, rows.next());
    if (!is_row) return Columns(std::move(columns));
    columns.emplace_back(rows.text(1).value_or(""));
  }
}

Result<SqliteRows> SqliteImage::rows_of(std::string_view table,
                                        std::span<const std::string_view> columns) {
  std::string sql = "SELECT ";
  for (const std::string_view column : columns)
    sql += column.empty() ? std::string("NULL,") : fmt::format("\"{}\",", column);
  sql.pop_back();
  sql += fmt::format(" FROM main.\"{}\" NOT INDEXED", table);
  return state_->prepare(sql, table);
}

SqliteRows::~SqliteRows() {
  sqlite3_finalize(statement_);
}
SqliteRows::SqliteRows(SqliteRows&& other) noexcept
    : image_(other.image_),
      statement_(std::exchange(other.statement_, nullptr)),
      odd_count_(other.odd_count_) {}
SqliteRows& SqliteRows::operator=(SqliteRows&& other) noexcept {
  SqliteRows moved(std::move(other));
  std::swap(image_, moved.image_);
  std::swap(statement_, moved.statement_);
  std::swap(odd_count_, moved.odd_count_);
  return *this;
}

Result<bool> SqliteRows::next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return image_->error(code, "table");
}

bool SqliteRows::is_null(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

std::optional<std::int64_t> SqliteRows::integer(int column) {
  const int type = sqlite3_column_type(statement_, column);
  if (type == SQLITE_INTEGER) return sqlite3_column_int64(statement_, column);
  if (type != SQLITE_NULL) ++odd_count_;
  return std::nullopt;
}

std::optional<std::string_view> SqliteRows::text(int column) {
  const int type = sqlite3_column_type(statement_, column);
  if (type != SQLITE_TEXT) {
    if (type != SQLITE_NULL) ++odd_count_;
    return std::nullopt;
  }
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return std::nullopt;  // out of memory
  const auto bytes = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
  image_->text_bytes += bytes;
  return std::string_view(text, bytes);
}

}  // namespace kansoku::trace::import
