// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "store/database.h"
#include "store/parquet.h"
#include "sys/fd.h"

namespace kansoku::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

/// A folder that goes with the test.
class Store : public ::testing::Test {
 protected:
  Store() {
    std::string name = "/tmp/kansoku-store-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Store() override {
    for (const std::string& file : files())
      ::unlink((folder_ + "/" + file).c_str());
    ::rmdir(folder_.c_str());
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(sys::write_file(path(name), text));
    return path(name);
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> out;
    DIR* const folder = ::opendir(folder_.c_str());
    while (const dirent* const entry = ::readdir(folder))
      if (entry->d_name != std::string(".") && entry->d_name != std::string(".."))
        out.emplace_back(entry->d_name);
    ::closedir(folder);
    return out;
  }

 private:
  std::string folder_;
};

/// Tests that need DuckDB: also looked for under the source tree of this test.
class WithDuckDb : public Store {
 protected:
  void SetUp() override {
    std::vector<std::string> places = library_places();
    places.push_back(std::string(KANSOKU_SOURCE_DIR) +
                     "/build/npm/node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so");
    auto opened = Database::open(places);
    if (!opened) GTEST_SKIP() << opened.error().what << "; " << opened.error().hint;
    database_.emplace(std::move(opened).value());
    RecordProperty("duckdb", database_->version());
  }
  [[nodiscard]] Table query(const std::string& sql) {
    auto table = database_->query(sql);
    EXPECT_TRUE(table) << table.error().what;
    return table ? std::move(table).value() : Table{};
  }
  [[nodiscard]] std::vector<std::optional<std::string>> first_row(const std::string& sql) {
    const Table table = query(sql);
    EXPECT_FALSE(table.rows.empty());
    return table.rows.empty() ? std::vector<std::optional<std::string>>{} : table.rows.front();
  }
  std::optional<Database> database_;
};

TEST(SqlText, DoublesQuotes) {
  EXPECT_EQ(sql_text("a"), "'a'");
  EXPECT_EQ(sql_text("a'; DROP TABLE x; --"), "'a''; DROP TABLE x; --'");
}

TEST_F(Store, AMissingLibrarySaysWhereItWasLookedForAndHowToGetIt) {
  const auto opened = Database::open({path("a.so"), path("b.so")});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnavailable);
  EXPECT_THAT(opened.error().what, HasSubstr("a.so, "));
  EXPECT_THAT(opened.error().what, HasSubstr("b.so"));
  EXPECT_THAT(opened.error().hint, HasSubstr("make deps-store"));
}

TEST_F(Store, AnotherLibraryIsRefused) {
  const auto no_library = Database::open({write("libduckdb.so", "not ELF")});
  ASSERT_FALSE(no_library);
  EXPECT_EQ(no_library.error().code, Code::kUnavailable);
  const auto other = Database::open({"/lib/x86_64-linux-gnu/libm.so.6"});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().what, HasSubstr("is not libduckdb.so"));
}

TEST_F(Store, TheVariableIsTheOnlyPlaceIfSet) {
  ::setenv("KANSOKU_DUCKDB", "/nowhere/libduckdb.so", 1);
  EXPECT_THAT(library_places(), ElementsAre("/nowhere/libduckdb.so"));
  ::unsetenv("KANSOKU_DUCKDB");
  EXPECT_GT(library_places().size(), 2U);
}

TEST_F(WithDuckDb, ReadsRowsAsText) {
  const Table table = query("SELECT 1 AS a, NULL AS b, 'x''y' AS c UNION ALL SELECT 2, 2.5, 'ü'");
  EXPECT_THAT(table.columns, ElementsAre("a", "b", "c"));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[0],
              ElementsAre(Optional(std::string("1")), std::nullopt, Optional(std::string("x'y"))));
  EXPECT_THAT(table.rows[1][2], Optional(std::string("ü")));
}

TEST_F(WithDuckDb, PassesItsErrorsOn) {
  const auto failed = database_->query("SELECT nothing FROM nowhere");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().what, HasSubstr("nowhere"));
  EXPECT_FALSE(database_->query(std::string("SELECT 1\0 x", 11)));
  const auto many = database_->query(fmt::format("FROM range({})", Database::kRowsMax + 1));
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, Code::kLimit);
  EXPECT_EQ(first_row("SELECT 1").front(), "1");  // still usable
}

TEST_F(WithDuckDb, KeepsQuotesUnicodeAndEveryRow) {
  constexpr int kRows = 100'000;
  std::string csv = "id,name,seconds\n";
  double sum = 0;
  const std::array<std::string, 5> names{"plain", "\"with \"\"quotes\"\"\"", "\"comma, comma\"",
                                         "\"two\nlines\"", "観測 naïve 🐢"};
  for (int i = 0; i < kRows; ++i) {
    csv += fmt::format("{},{},{}.5\n", i, names[static_cast<std::size_t>(i) % names.size()], i % 7);
    sum += i % 7 + 0.5;
  }
  constexpr std::array<Column, 3> kColumns{
      {{"id", "BIGINT"}, {"name", "VARCHAR"}, {"seconds", "DOUBLE"}}};
  ASSERT_TRUE(csv_to_parquet(*database_, write("a.csv", csv), path("a.parquet"), kColumns));
  const std::string from = " FROM read_parquet(" + sql_text(path("a.parquet")) + ")";
  const auto totals =
      first_row(fmt::format("SELECT count(*), sum(id), sum(seconds)::DOUBLE = {}", sum) + from);
  EXPECT_EQ(totals[0], "100000");
  EXPECT_EQ(totals[1], "4999950000");
  EXPECT_EQ(totals[2], "true");
  const Table kinds = query("SELECT name" + from + " WHERE id < 5 ORDER BY id");
  ASSERT_EQ(kinds.rows.size(), 5U);
  EXPECT_EQ(kinds.rows[1][0], "with \"quotes\"");
  EXPECT_EQ(kinds.rows[2][0], "comma, comma");
  EXPECT_EQ(kinds.rows[3][0], "two\nlines");
  EXPECT_EQ(kinds.rows[4][0], "観測 naïve 🐢");
  // In the order of the file: row groups hold it.
  EXPECT_EQ(first_row("SELECT count(*) FROM (SELECT id, row_number() OVER () - 1 AS n" + from +
                      ") WHERE id <> n")
                .front(),
            "0");
  struct stat status {};
  ASSERT_EQ(::stat(path("a.parquet").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(files().size(), 2U);  // no draft left
}

TEST_F(WithDuckDb, ParquetComesBackAsCsv) {
  const std::string text = "step,rank,a_ms,name\n1,0,0.5,\"x, y\"\n2,0,,z\n1,3,1e-05,\n";
  ASSERT_TRUE(csv_to_parquet(*database_, write("a.csv", text), path("it's *.parquet")));
  const auto back = parquet_to_csv(*database_, path("it's *.parquet"));
  ASSERT_TRUE(back) << back.error().what;
  EXPECT_EQ(*back, text);
  const auto damaged = parquet_to_csv(*database_, write("b.parquet", "PAR1 and nothing else"));
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, Code::kCorrupt);
  EXPECT_EQ(parquet_to_csv(*database_, path("none")).error().code, Code::kNotFound);
}

TEST_F(WithDuckDb, GuessesTypesOnlyIfNotTold) {
  const std::string csv = write("a.csv", "name,n\n9,1\n10,2\n");
  constexpr std::array<Column, 2> kColumns{{{"name", "VARCHAR"}, {"n", "INTEGER"}}};
  ASSERT_TRUE(csv_to_parquet(*database_, csv, path("told.parquet"), kColumns));
  ASSERT_TRUE(csv_to_parquet(*database_, csv, path("guessed.parquet")));
  const std::string sql = "SELECT min(name) FROM read_parquet(";
  EXPECT_EQ(first_row(sql + sql_text(path("told.parquet")) + ")").front(), "10");
  EXPECT_EQ(first_row(sql + sql_text(path("guessed.parquet")) + ")").front(), "9");
}

TEST_F(WithDuckDb, TakesAnyPath) {
  for (const std::string name : {"it's", "a*b", "[x]?", "semi;colon--", "s3:", "{uuid}",
                                 "new\nline", "ü", "\xff\xfe", "-"}) {
    const std::string csv = write(name + ".csv", "a\n1\n2\n");
    const std::string parquet = path(name + ".parquet");
    const auto done = csv_to_parquet(*database_, csv, parquet);
    ASSERT_TRUE(done) << name << ": " << done.error().what;
    ASSERT_EQ(std::rename(parquet.c_str(), path("plain").c_str()), 0) << name;
    EXPECT_EQ(first_row("SELECT sum(a) FROM read_parquet(" + sql_text(path("plain")) + ")").front(),
              "3");
  }
}

TEST_F(WithDuckDb, ReplacesWhatWasThereOrLeavesItAlone) {
  const std::string old = write("a.parquet", "old");
  const auto missing = csv_to_parquet(*database_, path("none.csv"), old);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  constexpr std::array<Column, 1> kNumbers{{{"a", "INTEGER"}}};
  const auto bad = csv_to_parquet(*database_, write("a.csv", "a\nx\n"), old, kNumbers);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::kCorrupt);
  EXPECT_EQ(sys::read_file(old, 100).value(), "old");
  EXPECT_EQ(files().size(), 2U);
  ASSERT_TRUE(csv_to_parquet(*database_, write("a.csv", "a\n5\n"), old, kNumbers));
  EXPECT_EQ(first_row("SELECT a FROM read_parquet(" + sql_text(old) + ")").front(), "5");
}

}  // namespace
}  // namespace kansoku::store
