// SPDX-License-Identifier: Apache-2.0
#include "store/parquet.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "sys/fd.h"

namespace kansoku::store {
namespace {

constexpr std::size_t kTextMax = std::size_t{4} << 30;

/// A file beside the one it will become; removed unless it was put in its place.
class Draft {
 public:
  static Result<Draft> create(const std::string& becomes) {
    Draft draft;
    draft.becomes_ = becomes;
    draft.path_ = becomes + ".part-" + std::to_string(::getpid());
    const int raw = ::open(draft.path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (raw < 0) return errno_error(errno, "create", std::exchange(draft.path_, ""));
    draft.fd_ = sys::Fd::adopt(raw);
    return draft;
  }
  Draft(Draft&& other) noexcept
      : fd_(std::move(other.fd_)),
        path_(std::exchange(other.path_, "")),
        becomes_(std::move(other.becomes_)) {}
  Draft& operator=(Draft&&) = delete;
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  [[nodiscard]] int raw() const { return fd_.raw(); }
  [[nodiscard]] Result<void> put_in_place() {
    if (::fsync(fd_.raw()) != 0) return errno_error(errno, "sync", path_);
    if (::rename(path_.c_str(), becomes_.c_str()) != 0)
      return errno_error(errno, "rename to", becomes_);
    path_.clear();
    return {};
  }

 private:
  Draft() = default;
  sys::Fd fd_;
  std::string path_, becomes_;
};

/// A name of an open file that holds digits only. DuckDB would take characters of a real path for
/// patterns, schemes and placeholders.
std::string name_of(int raw) {
  return "'/proc/self/fd/" + std::to_string(raw) + "'";
}

std::string types_of(std::span<const Column> columns) {
  if (columns.empty()) return ", auto_detect = true, sample_size = -1";
  std::string out = ", auto_detect = false, columns = {";
  for (const Column& column : columns) {
    if (&column != columns.data()) out += ", ";
    out += sql_text(column.name) + ": " + sql_text(column.type);
  }
  return out + "}";
}

}  // namespace

Result<void> csv_to_parquet(Database& database, const std::string& csv_path,
                            const std::string& parquet_path, std::span<const Column> columns) {
  TRY(const sys::Fd csv, sys::Fd::open_read(csv_path));
  TRY(Draft draft, Draft::create(parquet_path));
  const std::string sql =
      "COPY (SELECT * FROM read_csv(" + name_of(csv.raw()) +
      ", header = true, delim = ',', quote = '\"', escape = '\"', compression = 'none'" +
      types_of(columns) + ")) TO " + name_of(draft.raw()) +
      " (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)";
  if (const auto done = database.query(sql); !done)
    return Error{done.error().code,
                 "convert " + csv_path + " to " + parquet_path + ": " + done.error().what,
                 done.error().hint};
  return draft.put_in_place();
}

Result<std::string> parquet_to_csv(const std::string& parquet_path) {
  TRY(Database database, Database::open());
  return parquet_to_csv(database, parquet_path);
}

Result<std::string> parquet_to_csv(Database& database, const std::string& parquet_path) {
  TRY(const sys::Fd parquet, sys::Fd::open_read(parquet_path));
  const int raw = ::memfd_create("kansoku-csv", MFD_CLOEXEC);
  if (raw < 0) return errno_error(errno, "create", "memory for " + parquet_path);
  const sys::Fd csv = sys::Fd::adopt(raw);
  const std::string sql = "COPY (SELECT * FROM read_parquet(" + name_of(parquet.raw()) + ")) TO " +
                          name_of(csv.raw()) + " (FORMAT csv, HEADER true, USE_TMP_FILE false)";
  if (const auto done = database.query(sql); !done)
    return Error{done.error().code, "read " + parquet_path + ": " + done.error().what,
                 done.error().hint};
  return sys::read_file("/proc/self/fd/" + std::to_string(csv.raw()), kTextMax);
}

Result<void> csv_to_parquet(const std::string& csv_path, const std::string& parquet_path,
                            std::span<const Column> columns) {
  TRY(Database database, Database::open());
  return csv_to_parquet(database, csv_path, parquet_path, columns);
}

}  // namespace kansoku::store
