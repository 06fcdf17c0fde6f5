// SPDX-License-Identifier: Apache-2.0
#include "store/internal/duckdb.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string_view>

namespace kansoku::store {
namespace {

constexpr std::string_view kHint =
    "`make deps-store` installs it; or set KANSOKU_DUCKDB to a libduckdb.so (npm package "
    "@duckdb/node-bindings-linux-x64)";

Error unavailable(std::string what) {
  return {Code::kUnavailable, std::move(what), std::string(kHint)};
}

/// Sets the pointer to the symbol; false if the library lacks it.
template <class Function>
bool find(void* library, const char* symbol, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, symbol));
  return out != nullptr;
}

bool find_all(void* library, DuckApi& api) {
  return find(library, "duckdb_library_version", api.library_version) &&
         find(library, "duckdb_create_config", api.create_config) &&
         find(library, "duckdb_set_config", api.set_config) &&
         find(library, "duckdb_destroy_config", api.destroy_config) &&
         find(library, "duckdb_open_ext", api.open_ext) &&
         find(library, "duckdb_close", api.close) && find(library, "duckdb_connect", api.connect) &&
         find(library, "duckdb_disconnect", api.disconnect) &&
         find(library, "duckdb_query", api.query) &&
         find(library, "duckdb_result_error", api.result_error) &&
         find(library, "duckdb_destroy_result", api.destroy_result) &&
         find(library, "duckdb_column_count", api.column_count) &&
         find(library, "duckdb_row_count", api.row_count) &&
         find(library, "duckdb_column_name", api.column_name) &&
         find(library, "duckdb_value_is_null", api.value_is_null) &&
         find(library, "duckdb_value_varchar", api.value_varchar) &&
         find(library, "duckdb_free", api.free);
}

}  // namespace

Result<DuckApi> load_duckdb(const std::vector<std::string>& places) {
  std::string tried;
  for (const std::string& place : places) {
    if (::access(place.c_str(), F_OK) != 0) {
      tried += (tried.empty() ? "" : ", ") + place;
      continue;
    }
    void* const library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = ::dlerror();
      return unavailable("load DuckDB: " + std::string(why == nullptr ? place.c_str() : why));
    }
    DuckApi api;
    if (find_all(library, api)) return api;
    ::dlclose(library);
    return unavailable("load DuckDB: " + place + " is no libduckdb.so, or one too old");
  }
  return unavailable("load DuckDB: no libduckdb.so at " + tried);
}

}  // namespace kansoku::store
