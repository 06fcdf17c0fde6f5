/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A file that a program maps and writes a line into at the end of each step, for who measures it:
 * bench/cuda_switch_bench.cc. C and C++. */

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define STEP_LOG_VARIABLE "KANSOKU_STEPS" /* its path */
#define STEP_LOG_SLOTS (1U << 20)

struct step_log {
  uint64_t count; /* steps that are complete; stored last */
  struct {
    uint64_t boot_ns, cpu_ns; /* at its end; of all threads of the process since it began */
  } steps[STEP_LOG_SLOTS];    /* by number modulo STEP_LOG_SLOTS */
};

static inline struct step_log* step_log_map(const char* path) {
  const int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  void* at = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, sizeof(struct step_log)) == 0)
    at = mmap(NULL, sizeof(struct step_log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  return at == MAP_FAILED ? NULL : (struct step_log*)at;
}

static inline uint64_t step_log_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static inline void step_log_add(struct step_log* log) {
  const uint64_t number = log->count;
  log->steps[number % STEP_LOG_SLOTS].boot_ns = step_log_ns(CLOCK_BOOTTIME);
  log->steps[number % STEP_LOG_SLOTS].cpu_ns = step_log_ns(CLOCK_PROCESS_CPUTIME_ID);
  __atomic_store_n(&log->count, number + 1, __ATOMIC_RELEASE);
}
