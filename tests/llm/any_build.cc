// SPDX-License-Identifier: Apache-2.0
// clang-format off
// Generates with any build of llama.cpp since b4753 that lies in a folder, without its headers, and says at its end what it knows of it.
//   any_build FOLDER MODEL [--tokens 40] [--prompt-tokens 70] [--batch 32] [--ubatch 16] [--threads 1]
// Prints "ready PID" when the model is loaded, and begins at a line on standard input. 70 = 32 + 32 + 6 tokens of a prompt are three calls
// and five micro-batches.
// Parameters are structures that grow with each version and are handed over by value: on x86-64 they lie on the stack, so one that is
// larger than any of them serves all; the library gives the defaults and reads its own part.
// clang-format on
#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Parameters {
  std::int32_t words[512];
};
struct Batch {
  std::int32_t n_tokens;
  std::int32_t* token;
  float* embd;
  std::int32_t* pos;
  std::int32_t* n_seq_id;
  std::int32_t** seq_id;
  std::int8_t* logits;
};

constexpr int kVocabulary = 354;  // of tests/llama/make_model.py
constexpr int kContext = 512;
constexpr int kDefaultThreads = 4;  // GGML_DEFAULT_N_THREADS: tells where the threads lie
enum ContextWord { kWordContext, kWordBatch, kWordUbatch, kWordSequences };

std::vector<void*> libraries;

void* symbol(const char* name) {
  for (void* library : libraries)
    if (void* found = dlsym(library, name)) return found;
  std::fprintf(stderr, "any_build: no function %s\n", name);
  std::exit(2);
}

template <class F>
F* function(const char* name) {
  return reinterpret_cast<F*>(symbol(name));
}

void open_all(const std::string& pattern) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      void* library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_GLOBAL);
      if (library != nullptr) libraries.push_back(library);
      if (library == nullptr) std::fprintf(stderr, "any_build: %s\n", dlerror());
    }
  }
  globfree(&found);
}

std::int32_t best(const float* logits) {
  return static_cast<std::int32_t>(std::max_element(logits, logits + kVocabulary) - logits);
}

}  // namespace

int main(int argc, char** argv) {
  int tokens = 40, prompt_tokens = 70, size = 32, micro = 16, threads = 1;
  if (argc < 3) return 2;
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    int* const to = name == "--tokens"          ? &tokens
                    : name == "--prompt-tokens" ? &prompt_tokens
                    : name == "--batch"         ? &size
                    : name == "--ubatch"        ? &micro
                    : name == "--threads"       ? &threads
                                                : nullptr;
    if (to == nullptr) return 2;
    *to = std::atoi(argv[i + 1]);
  }
  const std::string folder = argv[1];
  open_all(folder + "/libggml-base.so");
  open_all(folder + "/libggml.*so");
  open_all(folder + "/libllama.*so");
  using Log = void (*)(int, const char*, void*);
  function<void(Log, void*)>("llama_log_set")([](int, const char*, void*) {}, nullptr);
  function<void(const char*)>("ggml_backend_load_all_from_path")(folder.c_str());
  function<void()>("llama_backend_init")();

  Parameters of_model = function<Parameters()>("llama_model_default_params")();
  void* const model =
      function<void*(const char*, Parameters)>("llama_model_load_from_file")(argv[2], of_model);
  if (model == nullptr) return 3;
  Parameters of_context = function<Parameters()>("llama_context_default_params")();
  of_context.words[kWordContext] = kContext;
  of_context.words[kWordBatch] = size;
  of_context.words[kWordUbatch] = micro;
  of_context.words[kWordSequences] = 1;
  int at = kWordSequences + 1;
  while (at < 12 && of_context.words[at] != kDefaultThreads)
    ++at;
  if (at == 12) return 4;
  of_context.words[at] = of_context.words[at + 1] = threads;
  void* const context =
      function<void*(void*, Parameters)>("llama_init_from_model")(model, of_context);
  if (context == nullptr) return 5;
  Batch batch =
      function<Batch(std::int32_t, std::int32_t, std::int32_t)>("llama_batch_init")(size, 0, 1);
  const auto decode = function<std::int32_t(void*, Batch)>("llama_decode");
  const auto logits = function<float*(void*, std::int32_t)>("llama_get_logits_ith");

  std::printf("ready %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  if (std::getchar() == EOF) return 6;

  long calls = 0, submitted = 0, parts = 0;
  const auto add = [&](std::int32_t token, int position, bool output) {
    const int i = batch.n_tokens++;
    batch.token[i] = token;
    batch.pos[i] = position;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = output ? 1 : 0;
  };
  const auto run = [&] {
    const int result = decode(context, batch);
    if (result != 0) std::exit(7);
    ++calls;
    submitted += batch.n_tokens;
    parts += (batch.n_tokens + micro - 1) / micro;
  };
  int position = 0;
  while (position < prompt_tokens) {
    batch.n_tokens = 0;
    for (; position < prompt_tokens && batch.n_tokens < size; ++position)
      add(3 + position * 7 % (kVocabulary - 3), position, position + 1 == prompt_tokens);
    run();
  }
  std::int32_t next = best(logits(context, batch.n_tokens - 1));
  for (int step = 1; step < tokens && position < kContext; ++step) {
    batch.n_tokens = 0;
    add(next, position++, true);
    run();
    next = best(logits(context, 0));
  }
  std::printf("{\"calls\": %ld, \"tokens\": %ld, \"micro_batches\": %ld}\n", calls, submitted,
              parts);
  function<void(void*)>("llama_free")(context);
  return 0;
}
