/* SPDX-License-Identifier: Apache-2.0
 * barrier_ranks RANKS SECONDS SLOW FACTOR: processes with a rank and no steps that Kansoku knows.
 * Each computes for 10 ms of its own processor time, rank SLOW (-1: none) FACTOR times as long,
 * then all meet at a barrier in shared memory, and sleep there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((noinline)) static void compute(double seconds) {
  static volatile unsigned long sum;
  for (const double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;
       now(CLOCK_THREAD_CPUTIME_ID) < end;)
    for (unsigned long i = 0; i < 10000; ++i)
      sum += i;
}

struct shared {
  pthread_barrier_t barrier;
  volatile long last_round; /* 0: not known yet */
};

static int work(int rank, struct shared* shared, double seconds, int slow, double factor) {
  const double end = now(CLOCK_MONOTONIC) + seconds;
  for (long round = 1;; ++round) {
    compute(rank == slow ? 0.010 * factor : 0.010);
    if (rank == 0 && now(CLOCK_MONOTONIC) > end) shared->last_round = round;
    pthread_barrier_wait(&shared->barrier);
    if (shared->last_round == round) return 0;
  }
}

static int whole(const char* text) {
  return (int)strtol(text, NULL, 10);  // allowed: a test program
}
static double number(const char* text) {
  return strtod(text, NULL);  // allowed: a test program
}

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return 2;
  const int count = whole(argv[1]), slow = whole(argv[3]);
  if (argc == 6) { /* a rank: the descriptor of the shared memory comes last */
    struct shared* shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, whole(argv[5]), 0);
    return shared == MAP_FAILED
               ? 1
               : work(whole(getenv("RANK")), shared, number(argv[2]), slow, number(argv[4]));
  }
  const int fd = memfd_create("barrier", 0);
  if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) return 1;
  struct shared* shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared == MAP_FAILED) return 1;
  pthread_barrierattr_t attr;
  pthread_barrierattr_init(&attr);
  pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attr, (unsigned)count);
  char text[16], world[16], number[16];
  snprintf(text, sizeof text, "%d", fd);
  snprintf(world, sizeof world, "%d", count);
  setenv("WORLD_SIZE", world, 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "29499", 1);
  for (int rank = 0; rank < count; ++rank) {
    snprintf(number, sizeof number, "%d", rank);
    setenv("RANK", number, 1);
    if (fork() == 0) {
      execl("/proc/self/exe", "barrier_ranks", argv[1], argv[2], argv[3], argv[4], text,
            (char*)NULL);
      _exit(127);
    }
  }
  int status = 0, worst = 0;
  while (wait(&status) > 0)
    worst |= status;
  return worst ? 1 : 0;
}
