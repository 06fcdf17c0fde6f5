/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program that generates with libllama: each llama_decode is a step, a line of the
 * file that KANSOKU_STEPS names. The program itself stays as it is. */
#include <dlfcn.h>

#include "step_log.h"

struct llama_context;
struct batch { /* llama_batch, passed by value: on the stack, by its size alone */
  int32_t count;
  void* parts[6];
};

__attribute__((visibility("default"))) int32_t llama_decode(struct llama_context* context,
                                                            struct batch batch) {
  static int32_t (*real)(struct llama_context*, struct batch);
  static struct step_log* log;
  if (real == NULL) {
    *(void**)&real = dlsym(RTLD_NEXT, "llama_decode");
    log = step_log_map(getenv(STEP_LOG_VARIABLE));
  }
  const int32_t status = real(context, batch);
  if (log != NULL) step_log_add(log);
  return status;
}
