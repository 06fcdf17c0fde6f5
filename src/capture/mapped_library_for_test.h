// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <search.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <string>

#include "sys/procfs.h"

namespace kansoku::capture {

/// The C library of this process: with symbols, and functions that begin and end in many ways.
inline std::string libc_path_for_test() {
  Dl_info info{};
  // A function that no sanitizer stands before.
  EXPECT_NE(::dladdr(reinterpret_cast<const void*>(&::lsearch), &info), 0);
  return std::filesystem::canonical(info.dli_fname).string();
}

/// As the maps of a process would show the code of `path`.
inline sys::Mapping mapping_for_test(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  sys::Mapping out;
  out.begin = 0x1000;
  out.end = 0x2000;
  out.inode = info.st_ino;
  out.device_major = major(info.st_dev);
  out.device_minor = minor(info.st_dev);
  out.executable = true;
  out.path = path;
  return out;
}

}  // namespace kansoku::capture
