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
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
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

struct Options {
  std::string folder, model;
  int tokens{40}, prompt_tokens{70}, batch{32}, ubatch{16}, threads{1};
};

bool parse(int argc, char** argv, Options& out) {
  if (argc < 3) return false;
  out.folder = argv[1];
  out.model = argv[2];
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    int* const to = name == "--tokens"          ? &out.tokens
                    : name == "--prompt-tokens" ? &out.prompt_tokens
                    : name == "--batch"         ? &out.batch
                    : name == "--ubatch"        ? &out.ubatch
                    : name == "--threads"       ? &out.threads
                                                : nullptr;
    if (to == nullptr) return false;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), *to);
    if (read.ec != std::errc() || read.ptr != value.data() + value.size()) return false;
  }
  return true;
}

void load_libraries(const std::string& folder) {
  open_all(folder + "/libggml-base.so");
  open_all(folder + "/libggml.*so");
  open_all(folder + "/libllama.*so");
  using Log = void (*)(int, const char*, void*);
  function<void(Log, void*)>("llama_log_set")([](int, const char*, void*) {}, nullptr);
  function<void(const char*)>("ggml_backend_load_all_from_path")(folder.c_str());
  function<void()>("llama_backend_init")();
}

/// Null without a model, or where the parameters are none that are understood.
void* make_context(const Options& options) {
  const Parameters of_model = function<Parameters()>("llama_model_default_params")();
  void* const model = function<void*(const char*, Parameters)>("llama_model_load_from_file")(
      options.model.c_str(), of_model);
  if (model == nullptr) return nullptr;
  Parameters parameters = function<Parameters()>("llama_context_default_params")();
  parameters.words[kWordContext] = kContext;
  parameters.words[kWordBatch] = options.batch;
  parameters.words[kWordUbatch] = options.ubatch;
  parameters.words[kWordSequences] = 1;
  int at = kWordSequences + 1;
  while (at < 12 && parameters.words[at] != kDefaultThreads)
    ++at;
  if (at == 12) return nullptr;
  parameters.words[at] = parameters.words[at + 1] = options.threads;
  return function<void*(void*, Parameters)>("llama_init_from_model")(model, parameters);
}

/// One generation, and what it asked for.
class Generation {
 public:
  Generation(const Options& options, void* context) : options_(options), context_(context) {}

  bool run() {
    int position = 0;
    while (position < options_.prompt_tokens) {
      batch_.n_tokens = 0;
      for (; position < options_.prompt_tokens && batch_.n_tokens < options_.batch; ++position)
        add(3 + position * 7 % (kVocabulary - 3), position, position + 1 == options_.prompt_tokens);
      if (!decode()) return false;
    }
    std::int32_t next = best(logits_(context_, batch_.n_tokens - 1));
    for (int step = 1; step < options_.tokens && position < kContext; ++step) {
      batch_.n_tokens = 0;
      add(next, position++, true);
      if (!decode()) return false;
      next = best(logits_(context_, 0));
    }
    return true;
  }
  void print() const {
    std::printf("{\"calls\": %ld, \"tokens\": %ld, \"micro_batches\": %ld}\n", calls_, submitted_,
                parts_);
  }

 private:
  void add(std::int32_t token, int position, bool output) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = token;
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = 0;
    batch_.logits[i] = output ? 1 : 0;
  }
  bool decode() {
    if (decode_(context_, batch_) != 0) return false;
    ++calls_;
    submitted_ += batch_.n_tokens;
    parts_ += (batch_.n_tokens + options_.ubatch - 1) / options_.ubatch;
    return true;
  }

  const Options& options_;
  void* context_;
  Batch batch_{function<Batch(std::int32_t, std::int32_t, std::int32_t)>("llama_batch_init")(
      options_.batch, 0, 1)};
  std::int32_t (*decode_)(void*, Batch){function<std::int32_t(void*, Batch)>("llama_decode")};
  float* (*logits_)(void*,
                    std::int32_t){function<float*(void*, std::int32_t)>("llama_get_logits_ith")};
  long calls_{0}, submitted_{0}, parts_{0};
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return 2;
  load_libraries(options.folder);
  void* const context = make_context(options);
  if (context == nullptr) return 3;
  Generation generation(options, context);
  std::printf("ready %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  if (std::getchar() == EOF || !generation.run()) return 4;
  generation.print();
  function<void(void*)>("llama_free")(context);
  return 0;
}
