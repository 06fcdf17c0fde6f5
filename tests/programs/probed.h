/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a program wait until it is probed: its code in memory then differs from that in its file. */
#pragma once
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Waits until `count` of the `bytes` from `code` on are breakpoints. */
static inline void wait_until_probed(const void* code, size_t bytes, size_t count) {
  unsigned char in_file[4096];
  char line[4400], path[4096];
  FILE* maps = fopen("/proc/self/maps", "r");
  unsigned long begin = 0, end = 0, offset = 0;
  const unsigned long at = (unsigned long)(uintptr_t)code;
  while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
    if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095s", &begin, &end, &offset, path) == 4 &&
        begin <= at && at < end)
      break;
  }
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (bytes > sizeof(in_file) ||
      pread(file, in_file, bytes, (off_t)(at - begin + offset)) != (ssize_t)bytes)
    abort();
  for (size_t changed = 0; changed < count;) {
    usleep(1000); /* allowed: between two looks */
    changed = 0;
    for (size_t i = 0; i < bytes; ++i)
      changed += ((const volatile unsigned char*)code)[i] != in_file[i];
  }
  close(file);
  fclose(maps);
}
