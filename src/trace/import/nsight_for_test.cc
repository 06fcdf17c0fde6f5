// SPDX-License-Identifier: Apache-2.0
#include "trace/import/nsight_for_test.h"

#include <sqlite3.h>

#include "common/check.h"

namespace kansoku::trace::import {

std::string sqlite_file_for_test(std::string_view sql) {
  sqlite3* db = nullptr;
  CHECK(sqlite3_open(":memory:", &db) == SQLITE_OK);
  // Small pages: more of them, and so more places where a cut file ends.
  const std::string all = "PRAGMA page_size = 1024; " + std::string(sql);
  CHECK(sqlite3_exec(db, all.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_int64 bytes = 0;
  unsigned char* const image = sqlite3_serialize(db, "main", &bytes, 0);
  CHECK(image != nullptr);
  std::string file(reinterpret_cast<const char*>(image), static_cast<std::size_t>(bytes));
  sqlite3_free(image);
  CHECK(sqlite3_close(db) == SQLITE_OK);
  return file;
}

std::string pages_in_circles_for_test() {
  constexpr std::size_t kPageBytes = 1024, kRoot = 2, kReferences = 120;
  std::string file =
      sqlite_file_for_test(std::string(kNsightSchemaForTest) + std::string(kNsightRowsForTest));
  const std::size_t pages = file.size() / kPageBytes;
  const std::string leaf = file.substr((kRoot - 1) * kPageBytes, kPageBytes);
  // Big-endian, as everything in the format.
  const auto put = [](std::string& page, std::size_t at, std::size_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      page[at + i] = static_cast<char>(value >> (8 * (bytes - 1 - i)) & 0xff);
  };
  const auto interior = [&](std::size_t child) {
    constexpr std::size_t kCell = kPageBytes - 5;
    std::string page(kPageBytes, '\0');
    put(page, 0, 5, 1);  // an interior page of a table
    put(page, 3, kReferences, 2);
    put(page, 5, kCell, 2);
    put(page, 8, child, 4);
    for (std::size_t i = 0; i < kReferences; ++i)
      put(page, 12 + 2 * i, kCell, 2);
    put(page, kCell, child, 4);
    put(page, kCell + 4, 1, 1);
    return page;
  };
  file.replace((kRoot - 1) * kPageBytes, kPageBytes, interior(pages + 1));
  file += interior(pages + 2) + interior(pages + 3) + leaf;
  constexpr std::size_t kPageCountOffset = 28;
  put(file, kPageCountOffset, pages + 3, 4);
  return file;
}

}  // namespace kansoku::trace::import
