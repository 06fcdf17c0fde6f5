// SPDX-License-Identifier: Apache-2.0
// Programs without an interpreter: small MODE [SECONDS]. The runner builds it dynamic and static.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double end;

static void tell_ready(void) {
  const char* path = getenv("FAULT_EVENTS");
  FILE* pipe = path && *path ? fopen(path, "a") : NULL;
  if (pipe == NULL) return;
  fprintf(pipe, "{\"event\": \"ready\", \"pid\": %d, \"rank\": null}\n", (int)getpid());
  fclose(pipe);
}

static void spin(void) {
  volatile unsigned long count = 0;
  while (now() < end)
    for (int i = 0; i < 100000; ++i) ++count;
}

static void pause_shortly(void) {
  const struct timespec ms = {.tv_nsec = 1000000};
  while (now() < end) clock_nanosleep(CLOCK_MONOTONIC, 0, &ms, NULL);
}

static void vforks(void) {
  while (now() < end) {
    const pid_t child = vfork();
    if (child == 0) {
      execl("/bin/true", "true", (char*)NULL);
      _exit(127);
    }
    waitpid(child, NULL, 0);
  }
}

static void* idle(void* nothing) {
  pause_shortly();
  return nothing;
}

static void threads(void) {
  pthread_t all[200];
  for (int i = 0; i < 200; ++i) pthread_create(&all[i], NULL, idle, NULL);
  for (int i = 0; i < 200; ++i) pthread_join(all[i], NULL);
}

// A parent that stops its child at every system call, as a debugger does.
static void trace(void) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    pause_shortly();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  while (!WIFEXITED(status) && !WIFSIGNALED(status)) {
    ptrace(PTRACE_SYSCALL, child, NULL, NULL);
    if (waitpid(child, &status, 0) < 0) break;
  }
}

// The first thread ends; the process lives on in another one.
static void leaderless(void) {
  pthread_t other;
  pthread_create(&other, NULL, idle, NULL);
  pthread_exit(NULL);
}

int main(int count, char** words) {
  static const struct {
    const char* name;
    void (*run)(void);
  } modes[] = {{"spin", spin},       {"sleep", pause_shortly}, {"vfork", vforks},
               {"threads", threads}, {"trace", trace},         {"leaderless", leaderless}};
  const char* seconds = getenv("SECONDS");
  end = now() + (count > 2 ? strtod(words[2], NULL) : seconds ? strtod(seconds, NULL) : 5);  // allowed: a test program without the project's library
  tell_ready();
  for (unsigned long i = 0; count > 1 && i < sizeof modes / sizeof *modes; ++i)
    if (strcmp(words[1], modes[i].name) == 0) {
      modes[i].run();
      return 0;
    }
  return 2;
}
