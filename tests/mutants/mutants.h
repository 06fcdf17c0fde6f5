// SPDX-License-Identifier: Apache-2.0
// Compiled into every file of a tree with mutants (run.py): one of them is active, by the number in
// a file, or none. -1 there: each place that a test reaches leaves an empty file of the
// test's number and its own.
#pragma once

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace kansoku_mutants {

inline int read_active() {
  const int saved = errno;
  char text[16] = {};
  const int file = ::open(KANSOKU_MUTANTS "/active", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    if (::read(file, text, sizeof text - 1) < 0) text[0] = 0;
    ::close(file);
  }
  errno = saved;
  return std::atoi(text);  // allowed: no code of the tree here; bad is none
}

inline const int active = read_active();

inline void reach(int number) {
  static bool reached[KANSOKU_MUTANTS_COUNT + 1];
  const char* const test = std::getenv("KANSOKU_MUTANTS_TEST");
  if (reached[number] || test == nullptr) return;
  reached[number] = true;
  const int saved = errno;
  char path[512];
  std::snprintf(path, sizeof path, "%s/reached/%s.%d", KANSOKU_MUTANTS, test, number);
  const int file = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0) ::close(file);
  errno = saved;
}

inline bool on(int number) {
  if (active == -1) reach(number);
  return active == number;
}

}  // namespace kansoku_mutants
