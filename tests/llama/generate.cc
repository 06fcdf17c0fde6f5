// SPDX-License-Identifier: Apache-2.0
// clang-format off
// Work that the tests ask of llama.cpp, through its library: logits of fixed tokens, a generation without
// chance, a model of another type.
//   generate logits MODEL OUT            logits of every token, as floats, one row a token; --tokens 512 --batch 1
//   generate text MODEL                  the most likely token, again and again; --tokens 64
//   generate quantize MODEL OUT TYPE     TYPE: F32 F16 Q8_0 Q4_0 Q4_K Q6_K
// --gpu-layers N: how many layers go to the GPU [all]; 0: the CPU alone.
// Prints key=value lines; llama.cpp's own log goes to standard error.
// clang-format on
#include <dlfcn.h>
#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llama.h"

namespace {

struct Options {
  std::string verb, model, out, type;
  int tokens{0}, batch{1}, gpu_layers{999}, threads{1};
};

struct Freed {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
};
using Model = std::unique_ptr<llama_model, Freed>;
using Context = std::unique_ptr<llama_context, Freed>;

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// The same tokens in every run: a plain linear congruential generator.
std::vector<llama_token> fixed_tokens(int count, int vocabulary) {
  std::vector<llama_token> tokens(static_cast<std::size_t>(count));
  unsigned state = 12345;
  for (llama_token& token : tokens) {
    state = state * 1664525U + 1013904223U;
    token = static_cast<llama_token>((state >> 8) % static_cast<unsigned>(vocabulary));
  }
  return tokens;
}

/// Decodes tokens [begin, begin + count) and asks for the logits of each.
bool decode(llama_context* context, llama_batch& batch, const llama_token* tokens, int begin,
            int count) {
  batch.n_tokens = count;
  for (int i = 0; i < count; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = begin + i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  return llama_decode(context, batch) == 0;
}

int write_logits(llama_context* context, int vocabulary, const Options& options) {
  const auto tokens = fixed_tokens(options.tokens, vocabulary);
  std::FILE* const file = std::fopen(options.out.c_str(), "wb");
  if (file == nullptr) return 1;
  llama_batch batch = llama_batch_init(options.batch, 0, 1);
  int status = 0;
  for (int begin = 0; begin < options.tokens && status == 0; begin += options.batch) {
    const int count = std::min(options.batch, options.tokens - begin);
    if (!decode(context, batch, tokens.data() + begin, begin, count)) status = 1;
    for (int i = 0; i < count && status == 0; ++i) {
      const auto wanted = static_cast<std::size_t>(vocabulary);
      if (std::fwrite(llama_get_logits_ith(context, i), sizeof(float), wanted, file) != wanted)
        status = 1;
    }
  }
  llama_batch_free(batch);
  if (std::fclose(file) != 0) status = 1;
  std::printf("vocabulary=%d\n", vocabulary);
  return status;
}

int write_text(llama_context* context, int vocabulary, const Options& options, double begun) {
  llama_batch batch = llama_batch_init(16, 0, 1);
  const llama_token prompt[] = {1, 40, 41, 42, 43, 44, 45, 46};
  constexpr int kPrompt = 8;
  int status = decode(context, batch, prompt, 0, kPrompt) ? 0 : 1;
  int row = kPrompt - 1;
  std::string text;
  double first = 0, after_first_cpu = 0, after_first = 0;
  for (int i = 0; i < options.tokens && status == 0; ++i) {
    const float* const logits = llama_get_logits_ith(context, row);
    const auto best =
        static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits);
    float second = -1e30F;
    for (int other = 0; other < vocabulary; ++other) {
      if (other != best) second = std::max(second, logits[other]);
    }
    if (i == 0) {
      first = seconds(CLOCK_BOOTTIME) - begun;
      after_first = seconds(CLOCK_MONOTONIC);
      after_first_cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    }
    char line[64];
    std::snprintf(line, sizeof line, "%s%d:%.4f", i == 0 ? "" : " ", best,
                  static_cast<double>(logits[best] - second));
    text += line;
    if (i + 1 == options.tokens) break;
    status = decode(context, batch, &best, kPrompt + i, 1) ? 0 : 1;
    row = 0;
  }
  const double rest = std::max(options.tokens - 1, 1);
  std::printf("tokens=%s\n", text.c_str());
  std::printf("first_token_s=%.3f\n", first);
  std::printf("token_ms=%.3f\n", (seconds(CLOCK_MONOTONIC) - after_first) * 1e3 / rest);
  std::printf("token_cpu_ms=%.3f\n",
              (seconds(CLOCK_PROCESS_CPUTIME_ID) - after_first_cpu) * 1e3 / rest);
  llama_batch_free(batch);
  return status;
}

int quantize(const Options& options) {
  const std::map<std::string, llama_ftype> types{
      {"F32", LLAMA_FTYPE_ALL_F32},        {"F16", LLAMA_FTYPE_MOSTLY_F16},
      {"Q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},   {"Q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},
      {"Q4_K", LLAMA_FTYPE_MOSTLY_Q4_K_S}, {"Q6_K", LLAMA_FTYPE_MOSTLY_Q6_K},
  };
  const auto found = types.find(options.type);
  if (found == types.end()) return 2;
  auto parameters = llama_model_quantize_default_params();
  parameters.ftype = found->second;
  parameters.allow_requantize = true;
  parameters.pure = options.type != "F32" && options.type != "F16";
  return llama_model_quantize(options.model.c_str(), options.out.c_str(), &parameters) == 0 ? 0 : 1;
}

bool parse(int count, char** words, Options& options) {
  std::vector<std::string> plain;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    int* const number = word == "--tokens"       ? &options.tokens
                        : word == "--batch"      ? &options.batch
                        : word == "--gpu-layers" ? &options.gpu_layers
                        : word == "--threads"    ? &options.threads
                                                 : nullptr;
    if (number == nullptr) {
      plain.push_back(word);
    } else if (++i < count) {
      const std::string_view value = words[i];
      const auto end = value.data() + value.size();
      if (std::from_chars(value.data(), end, *number).ptr != end) return false;
    }
  }
  if (plain.size() < 2) return false;
  plain.resize(4);
  options.verb = plain[0];
  options.model = plain[1];
  options.out = plain[2];
  options.type = plain[3];
  if (options.tokens == 0) options.tokens = options.verb == "logits" ? 512 : 64;
  return true;
}

/// Kernels that the software device was given by this process; -1 on another device.
long long launches() {
  void* const count = dlsym(RTLD_DEFAULT, "kansoku_softgpu_launches");
  void* const driver = count == nullptr ? dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) : nullptr;
  void* const found = driver == nullptr ? count : dlsym(driver, "kansoku_softgpu_launches");
  return found == nullptr ? -1
                          : static_cast<long long>(reinterpret_cast<unsigned long (*)()>(found)());
}

double ticks_at(const char* field) {
  unsigned long long ticks = 0;
  static_cast<void>(std::from_chars(field + 1, field + std::strlen(field), ticks));
  return static_cast<double>(ticks);
}

/// When this process began, on the boot clock.
double process_begin() {
  std::FILE* const file = std::fopen("/proc/self/stat", "r");
  char text[2048] = "";
  if (file != nullptr) {
    if (std::fread(text, 1, sizeof text - 1, file) == 0) text[0] = 0;
    std::fclose(file);
  }
  const char* field = std::strrchr(text, ')');
  for (int i = 0; i < 20 && field != nullptr; ++i)
    field = std::strchr(field + 1, ' ');
  return field == nullptr ? 0 : ticks_at(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

int main(int count, char** words) {
  Options options;
  const double begun = process_begin();
  if (!parse(count, words, options)) {
    std::fprintf(stderr,
                 "usage: generate logits|text|quantize MODEL [OUT] [TYPE] [--tokens N] [--batch N] "
                 "[--gpu-layers N]\n");
    return 2;
  }
  if (options.gpu_layers > 0 || options.verb == "quantize") {
    ggml_backend_load_all();
  } else {
    // CPU alone: what asks for the GPU's library is not loaded.
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    ggml_backend_load_all();
  }
  if (options.verb == "quantize") return quantize(options);
  auto model_parameters = llama_model_default_params();
  model_parameters.n_gpu_layers = options.gpu_layers;
  const Model model(llama_model_load_from_file(options.model.c_str(), model_parameters));
  if (model == nullptr) return 1;
  auto context_parameters = llama_context_default_params();
  context_parameters.n_ctx = 1024;
  context_parameters.n_batch = context_parameters.n_ubatch = 512;
  context_parameters.n_threads = context_parameters.n_threads_batch = options.threads;
  context_parameters.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  const Context context(llama_init_from_model(model.get(), context_parameters));
  if (context == nullptr) return 1;
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));
  const int status = options.verb == "logits"
                         ? write_logits(context.get(), vocabulary, options)
                         : write_text(context.get(), vocabulary, options, begun);
  std::printf("launches=%lld\n", launches());
  return status;
}
