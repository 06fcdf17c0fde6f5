// SPDX-License-Identifier: Apache-2.0
#include "sys/trust.h"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string_view>

#include "sys/capabilities.h"

namespace kansoku::sys {
namespace {

constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr int kLinksMax = 40;  // as the kernel follows

/// One file or folder, not what it links to.
Result<void> check_one(const std::string& path, const struct stat& is) {
  const bool is_link = S_ISLNK(is.st_mode);  // its own mode says nothing
  // Nobody else can rename or delete root's files there.
  const bool is_shared = S_ISDIR(is.st_mode) && (is.st_mode & S_ISVTX) != 0;
  if (is.st_uid == 0 && (is_link || is_shared || (is.st_mode & kOthersWrite) == 0)) return {};
  return Error{Code::kPermission,
               is.st_uid != 0 ? fmt::format("{} belongs to user {}", path, is.st_uid)
                              : fmt::format("{} is writable by users other than root", path)};
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<void> check_path(std::string path, int links) {
  for (;;) {
    struct stat is {};
    if (::lstat(path.c_str(), &is) != 0) return errno_error(errno, "stat", path);
    TRY_VOID(check_one(path, is));
    if (S_ISLNK(is.st_mode)) {
      std::string to(PATH_MAX, '\0');
      const ssize_t length = ::readlink(path.c_str(), to.data(), to.size());
      if (length <= 0) return errno_error(errno, "read link", path);
      to.resize(static_cast<std::size_t>(length));
      if (links >= kLinksMax) return Error{Code::kPermission, path + ": too many symbolic links"};
      if (to.front() != '/') to.insert(0, parent_of(path) + "/");
      TRY_VOID(check_path(std::move(to), links + 1));
    }
    if (path == "/") return {};
    path = parent_of(path);
  }
}

Result<void> untrusted(const std::string& library, const Error& why) {
  return Error{Code::kPermission,
               fmt::format("load {}: this process has more rights than an ordinary user, and {}",
                           library, why.what),
               "install it where only root can write, or run without these rights"};
}

}  // namespace

bool has_borrowed_rights() {
  return ::getauxval(AT_SECURE) != 0;
}

bool is_privileged() {
  const auto capabilities = effective_capabilities();
  return ::geteuid() == 0 || has_borrowed_rights() || !capabilities || *capabilities != 0;
}

Result<void> check_environment() {
  if (!has_borrowed_rights()) return {};
  for (const char* const name : kPathVariables) {
    const char* const value = std::getenv(name);  // allowed: only whether it is there
    if (value == nullptr || *value == '\0') continue;
    return Error{Code::kPermission,
                 fmt::format("{} is set, and this program has more rights than its user", name),
                 "unset it, or start the program as the user with the rights that it needs"};
  }
  return {};
}

std::optional<std::string> path_from_environment(const char* name) {
  const char* const value = ::secure_getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

Result<void> check_only_root_writes(const std::string& path) {
  std::string absolute = path;
  if (path.empty() || path.front() != '/') {
    std::string here(PATH_MAX, '\0');
    if (::getcwd(here.data(), here.size()) == nullptr)
      return errno_error(errno, "find the working folder of", path);
    absolute = here.substr(0, here.find('\0')) + "/" + path;
  }
  return check_path(std::move(absolute), 0);
}

Result<void> check_loadable(const std::string& library) {
  if (!is_privileged()) return {};
  if (library.find('/') != std::string::npos) {
    const auto checked = check_only_root_writes(library);
    return checked ? Result<void>() : untrusted(library, checked.error());
  }
  const char* const folders = std::getenv("LD_LIBRARY_PATH");  // allowed: looked at, not used
  std::string_view rest = folders == nullptr ? "" : folders;
  while (!rest.empty()) {
    const auto end = rest.find_first_of(":;");
    const std::string folder(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (folder.empty() || ::access(folder.c_str(), F_OK) != 0) continue;
    if (const auto checked = check_only_root_writes(folder); !checked)
      return untrusted(library, checked.error());
  }
  return {};
}

}  // namespace kansoku::sys
