// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace kansoku::store {

/// Types of DuckDB's C interface: its opaque pointers, and the head of a result: 48 bytes since
/// version 0.3, of which only the library reads the inside.
/// Source: DuckDB's published C interface; declared here by ourselves.
using DuckHandle = void*;
struct DuckResult {
  std::uint64_t counts[3]{};
  void* pointers[3]{};
};
static_assert(sizeof(DuckResult) == 48, "part of DuckDB's ABI");
enum class DuckState : int { kSuccess = 0, kError = 1 };

/// The functions of libduckdb.so that we call. All are set.
struct DuckApi {
  const char* (*library_version)(){};
  DuckState (*create_config)(DuckHandle* out){};
  DuckState (*set_config)(DuckHandle config, const char* name, const char* value){};
  void (*destroy_config)(DuckHandle* config){};
  DuckState (*open_ext)(const char* path, DuckHandle* out, DuckHandle config, char** error){};
  void (*close)(DuckHandle* database){};
  DuckState (*connect)(DuckHandle database, DuckHandle* out){};
  void (*disconnect)(DuckHandle* connection){};
  DuckState (*query)(DuckHandle connection, const char* sql, DuckResult* out){};
  const char* (*result_error)(DuckResult* result){};
  void (*destroy_result)(DuckResult* result){};
  std::uint64_t (*column_count)(DuckResult* result){};
  std::uint64_t (*row_count)(DuckResult* result){};
  const char* (*column_name)(DuckResult* result, std::uint64_t column){};
  bool (*value_is_null)(DuckResult* result, std::uint64_t column, std::uint64_t row){};
  char* (*value_varchar)(DuckResult* result, std::uint64_t column, std::uint64_t row){};
  void (*free)(void* pointer){};
  DuckState (*appender_create)(DuckHandle connection, const char* schema, const char* table,
                               DuckHandle* out){};
  const char* (*appender_error)(DuckHandle appender){};
  DuckState (*appender_flush)(DuckHandle appender){};
  DuckState (*appender_end_row)(DuckHandle appender){};
  DuckState (*appender_destroy)(DuckHandle* appender){};
  DuckState (*append_int64)(DuckHandle appender, std::int64_t value){};
  DuckState (*append_float)(DuckHandle appender, float value){};
  DuckState (*append_varchar_length)(DuckHandle appender, const char* text, std::uint64_t bytes){};
  DuckState (*append_null)(DuckHandle appender){};
};

/// Loads the first of `places` that exists. kUnavailable with a hint if there is none, or if it is
/// no libduckdb.so. The library stays loaded until the process ends: it has threads of its own.
[[nodiscard]] Result<DuckApi> load_duckdb(const std::vector<std::string>& places);

/// Gives back the memory that the library's code and constants take; the kernel reads them from the
/// file again when they are next used. For a program that asks the library now and then.
void release_library_pages(const DuckApi& api);

}  // namespace kansoku::store
