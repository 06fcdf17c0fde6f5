// SPDX-License-Identifier: Apache-2.0
#include "store/internal/duckdb.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "sys/trust.h"

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
         find(library, "duckdb_free", api.free) &&
         find(library, "duckdb_appender_create", api.appender_create) &&
         find(library, "duckdb_appender_error", api.appender_error) &&
         find(library, "duckdb_appender_flush", api.appender_flush) &&
         find(library, "duckdb_appender_end_row", api.appender_end_row) &&
         find(library, "duckdb_appender_destroy", api.appender_destroy) &&
         find(library, "duckdb_append_int64", api.append_int64) &&
         find(library, "duckdb_append_float", api.append_float) &&
         find(library, "duckdb_append_varchar_length", api.append_varchar_length) &&
         find(library, "duckdb_append_null", api.append_null);
}

/// Drops the pages of the loaded file that `address` lies in, if this is it; 1 ends the search.
int drop_pages(struct dl_phdr_info* file, std::size_t, void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::span parts(file->dlpi_phdr, file->dlpi_phnum);
  const auto begin_of = [&](const ElfW(Phdr) & part) { return file->dlpi_addr + part.p_vaddr; };
  const bool is_it = std::any_of(parts.begin(), parts.end(), [&](const ElfW(Phdr) & part) {
    return part.p_type == PT_LOAD && wanted >= begin_of(part) &&
           wanted < begin_of(part) + part.p_memsz;
  });
  if (!is_it) return 0;
  for (const ElfW(Phdr) & part : parts) {
    // A segment that can be written, or could be while it was relocated, is ours alone and would be
    // lost.
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) != 0) continue;
    const std::uintptr_t begin = (begin_of(part) + page_bytes - 1) / page_bytes * page_bytes;
    const std::uintptr_t end = (begin_of(part) + part.p_memsz) / page_bytes * page_bytes;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 1;
}

}  // namespace

void release_library_pages(const DuckApi& api) {
  ::dl_iterate_phdr(drop_pages, reinterpret_cast<void*>(api.query));
}

Result<DuckApi> load_duckdb(const std::vector<std::string>& places) {
  std::string tried;
  for (const std::string& place : places) {
    if (::access(place.c_str(), F_OK) != 0) {
      tried += (tried.empty() ? "" : ", ") + place;
      continue;
    }
    if (const auto trusted = sys::check_loadable(place); !trusted) return trusted.error();
    void* const library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = ::dlerror();
      return unavailable("load DuckDB: " + std::string(why == nullptr ? place.c_str() : why));
    }
    DuckApi api;
    if (find_all(library, api)) return api;
    ::dlclose(library);
    return unavailable("load DuckDB: " + place + " is not libduckdb.so, or it is too old");
  }
  return unavailable("load DuckDB: no libduckdb.so at " + tried);
}

}  // namespace kansoku::store
