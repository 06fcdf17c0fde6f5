// SPDX-License-Identifier: Apache-2.0
// clang-format off
// Generates with llama.cpp's C API without chance, and says at its end what it knows of it: the truth for `kansoku llm`.
//   driver --model FILE [--tokens 32] [--prompt-tokens 8] [--batch 512] [--ubatch 512] [--context 512] [--threads 1] [--sequences 1]
//          [--contexts 1] [--reload 0] [--failing 0] [--drafts 0] [--flash 1] [--wait] [--fork] [--nodes FILE] [--shapes FILE] [--counter FILE]
// Each context prefills every sequence by itself: ceil(P / B) calls, outputs of the last token only; then a step decodes one token of every
// sequence in one call, until each has --tokens. A full context is emptied, and the last tokens begin it anew at position 0.
//   --contexts C   C models and contexts in this process, each on its own thread
//   --reload K     frees model and context K times and generates again
//   --fork         a child generates too, from the models that the parent loaded; with --wait it prints "ready PID" as well, and both
//                  begin at the next line: an observer needs a moment to find it
//   --failing N    at the end of a generation fills the context and makes N calls that find no space (status 1)
//   --drafts K     a step decodes K drafts behind the last token of each sequence, as speculative decoding does. The n-th step takes
//                  n % (K + 1) of them and takes the others back
//   --wait         prints "ready PID" when the models are loaded, and begins at a line on standard input
//   --nodes FILE   writes llama.cpp's debug lines of decoding to FILE.0, FILE.1 ...: the nodes, where GGML_SCHED_DEBUG=2
//   --shapes FILE  adds up what ggml itself says of the nodes (FILE.0 ...). It cuts graphs at MUL_MAT_ID, to read the experts' numbers
//   --counter FILE keeps the number of generated tokens in the first 8 bytes of the file
// clang-format on
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

struct Options {
  std::string model, nodes, shapes, counter;
  int tokens{32}, prompt_tokens{8}, batch{512}, ubatch{512}, context{512}, threads{1};
  int sequences{1}, contexts{1}, reload{0}, failing{0}, drafts{0}, flash{1};
  bool wait{false}, fork{false};
};

struct Freed {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using Model = std::unique_ptr<llama_model, Freed>;
using Context = std::unique_ptr<llama_context, Freed>;
using File = std::unique_ptr<std::FILE, Freed>;

struct Known {
  std::map<int, std::int64_t> results;
  std::int64_t submitted{0}, micro_batches{0}, micro_batch_tokens{0}, generated{0}, reused{0};
  std::vector<llama_token> text;
};

/// Counts of ggml for one kind of operator in one phase.
struct Shape {
  std::int64_t count{0}, empty{0}, flops{0}, bytes{0}, bytes_bound{0};
};

/// The thread's part of the debug lines and shapes; a context is decoded by one thread.
struct Listener {
  std::FILE* nodes{nullptr};
  bool in_decode{false};
  std::int64_t sequences{1};
  std::string phase;
  std::map<std::pair<std::string, std::string>, Shape> shapes;
};
thread_local Listener* listener = nullptr;

void on_log(ggml_log_level level, const char* text, void*) {
  if (listener != nullptr && listener->nodes != nullptr && listener->in_decode)
    std::fputs(text, listener->nodes);
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

std::int64_t mul_mat_flops(const ggml_tensor& t) {
  return 2 * t.src[0]->ne[0] * t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3];
}

std::int64_t bytes_of(const ggml_tensor* t) {
  return t == nullptr ? 0 : static_cast<std::int64_t>(ggml_nbytes(t));
}

/// The experts that the numbers name; they are in the host's memory once their node was computed.
std::int64_t distinct_experts(const ggml_tensor& ids) {
  std::set<std::int32_t> found;
  for (std::int64_t row = 0; row < ids.ne[1]; ++row) {
    for (std::int64_t i = 0; i < ids.ne[0]; ++i) {
      const auto at =
          static_cast<std::size_t>(row) * ids.nb[1] + static_cast<std::size_t>(i) * ids.nb[0];
      std::int32_t id = 0;
      std::memcpy(&id, static_cast<const char*>(ids.data) + at, sizeof id);
      found.insert(id);
    }
  }
  return static_cast<std::int64_t>(found.size());
}

/// A micro-batch begins with the rows of its tokens' embeddings.
void note_phase(const ggml_tensor& t, Listener& to) {
  if (t.op == GGML_OP_GET_ROWS && std::string_view(t.src[0]->name) == "token_embd.weight")
    to.phase = t.ne[1] > to.sequences ? "prefill" : "decode";
}

void add_shape(const ggml_tensor& t, Listener& to) {
  note_phase(t, to);
  Shape& shape = to.shapes[{ggml_op_name(t.op), to.phase}];
  ++shape.count;
  if (ggml_nelements(&t) == 0) {
    ++shape.empty;
    return;
  }
  const std::int64_t rest = bytes_of(t.src[1]) + bytes_of(&t);
  std::int64_t bytes = 0, bound = 0;
  if (t.op == GGML_OP_MUL_MAT) {
    shape.flops += mul_mat_flops(t);
    bytes = bound = bytes_of(t.src[0]) + rest;
  } else if (t.op == GGML_OP_MUL_MAT_ID) {
    shape.flops += mul_mat_flops(t);  // ne1 and ne2 are experts used and tokens
    const std::int64_t expert = bytes_of(t.src[0]) / t.src[0]->ne[2];
    bytes = expert * distinct_experts(*t.src[2]) + rest;
    bound = expert * std::min(t.src[0]->ne[2], t.src[2]->ne[0] * t.src[2]->ne[1]) + rest;
  } else if (t.op == GGML_OP_FLASH_ATTN_EXT) {
    const std::int64_t pairs =
        t.src[1]->ne[1] * t.src[0]->ne[1] * t.src[0]->ne[2] * t.src[0]->ne[3];
    shape.flops += 2 * (t.src[0]->ne[0] + t.src[2]->ne[0]) * pairs;
    bytes = bound = bytes_of(t.src[0]) + rest + bytes_of(t.src[2]) + bytes_of(t.src[3]);
  }
  shape.bytes += bytes;
  shape.bytes_bound += bound;
}

bool on_node(ggml_tensor* t, bool ask, void*) {
  const bool cut = t->op == GGML_OP_MUL_MAT_ID;
  if (listener != nullptr && cut != ask) add_shape(*t, *listener);
  return !ask || cut;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// One model and its context, and the generation in it.
class Worker {
 public:
  Worker(const Options& options, int index) : options_(options), index_(index) {
    if (!options.nodes.empty()) {
      nodes_.reset(std::fopen((options.nodes + "." + std::to_string(index)).c_str(), "w"));
      heard_.nodes = nodes_.get();
    }
  }

  bool load() {
    auto of_model = llama_model_default_params();
    of_model.n_gpu_layers = 0;
    model_.reset(llama_model_load_from_file(options_.model.c_str(), of_model));
    if (model_ == nullptr) return false;
    auto of_context = llama_context_default_params();
    of_context.n_ctx = static_cast<std::uint32_t>(options_.context * options_.sequences);
    of_context.n_batch = static_cast<std::uint32_t>(options_.batch);
    of_context.n_ubatch = static_cast<std::uint32_t>(options_.ubatch);
    of_context.n_seq_max = static_cast<std::uint32_t>(options_.sequences);
    of_context.n_threads = of_context.n_threads_batch = options_.threads;
    of_context.flash_attn_type =
        options_.flash != 0 ? LLAMA_FLASH_ATTN_TYPE_AUTO : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    of_context.no_perf = false;
    if (!options_.shapes.empty()) of_context.cb_eval = on_node;
    context_.reset(llama_init_from_model(model_.get(), of_context));
    if (context_ == nullptr) return false;
    vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    size_ = static_cast<int>(llama_n_ctx_seq(context_.get()));
    return size_ == options_.context && options_.prompt_tokens <= size_;
  }

  void unload() {
    context_.reset();
    model_.reset();
  }

  bool generate(Known& known) {
    listener = &heard_;
    batch_ = llama_batch_init(std::max(options_.batch, options_.sequences), 0, 1);
    const bool good = prefill_all(known) && steps(known) && fail(known);
    known.reused += llama_perf_context(context_.get()).n_reused;
    llama_batch_free(batch_);
    listener = nullptr;
    return good;
  }

  bool write_shapes() const {
    if (options_.shapes.empty()) return true;
    const File file(std::fopen((options_.shapes + "." + std::to_string(index_)).c_str(), "w"));
    if (file == nullptr) return false;
    for (const auto& [key, s] : heard_.shapes) {
      std::fprintf(
          file.get(), "%s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n",
          key.first.c_str(), key.second.c_str(), s.count, s.empty, s.flops, s.bytes, s.bytes_bound);
    }
    return true;
  }

 private:
  void add(llama_token token, int position, int sequence, bool output) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = token;
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = output ? 1 : 0;
  }

  int decode(Known& known, int expected_micro_batches) {
    heard_.sequences = is_verifying_ || batch_.seq_id[0][0] != batch_.seq_id[batch_.n_tokens - 1][0]
                           ? batch_.n_tokens
                           : 1;
    heard_.in_decode = true;
    const int result = llama_decode(context_.get(), batch_);
    heard_.in_decode = false;
    ++known.results[result];
    known.submitted += batch_.n_tokens;
    if (result == 0) {
      known.micro_batches += expected_micro_batches;
      known.micro_batch_tokens += batch_.n_tokens;
    }
    return result;
  }

  llama_token best(int row) const {
    const float* const logits = llama_get_logits_ith(context_.get(), row);
    return static_cast<llama_token>(std::max_element(logits, logits + vocabulary_) - logits);
  }

  bool fill(Known& known, int sequence, int begin, int end, bool output) {
    unsigned state =
        12345U + 7919U * static_cast<unsigned>(index_) + 104729U * static_cast<unsigned>(sequence);
    for (int at = begin; at < end;) {
      batch_.n_tokens = 0;
      const int stop = std::min(end, at + options_.batch);
      for (; at < stop; ++at) {
        state = state * 1664525U + 1013904223U;
        add(3 + static_cast<llama_token>((state >> 8) % static_cast<unsigned>(vocabulary_ - 3)), at,
            sequence, output && at + 1 == end);
      }
      const auto parts =
          static_cast<int>(ceil_div(batch_.n_tokens, std::min(options_.ubatch, options_.batch)));
      if (decode(known, parts) != 0) return false;
    }
    return true;
  }

  bool prefill_all(Known& known) {
    last_.assign(static_cast<std::size_t>(options_.sequences), 0);
    for (int sequence = 0; sequence < options_.sequences; ++sequence) {
      if (!fill(known, sequence, 0, options_.prompt_tokens, true)) return false;
      take(known, sequence, best(batch_.n_tokens - 1));
    }
    position_ = options_.prompt_tokens;
    return true;
  }

  void take(Known& known, int sequence, llama_token token) {
    last_[static_cast<std::size_t>(sequence)] = token;
    known.text.push_back(token);
    ++known.generated;
    if (counter_ && pwrite(fileno(counter_.get()), &known.generated, sizeof known.generated, 0) < 0)
      counter_.reset();
  }

  bool steps(Known& known) {
    for (int step = 1; step < options_.tokens; ++step) {
      if (position_ == size_) {
        llama_memory_clear(llama_get_memory(context_.get()), true);
        position_ = 0;
      }
      batch_.n_tokens = 0;
      for (int sequence = 0; sequence < options_.sequences; ++sequence)
        add_last_and_drafts(sequence);
      is_verifying_ = options_.drafts > 0;
      const bool good = decode(known, 1) == 0;
      is_verifying_ = false;
      if (!good) return false;
      const int taken = step % (options_.drafts + 1) + 1;
      for (int sequence = 0; sequence < options_.sequences; ++sequence) {
        for (int i = 0; i < taken; ++i)
          take(known, sequence, best(sequence * (options_.drafts + 1) + i));
        if (options_.drafts > 0)
          llama_memory_seq_rm(llama_get_memory(context_.get()), sequence, position_ + taken, -1);
      }
      position_ += taken;
    }
    return true;
  }

  void add_last_and_drafts(int sequence) {
    const llama_token last = last_[static_cast<std::size_t>(sequence)];
    for (int i = 0; i <= options_.drafts; ++i)
      add((last + 7 * i) % vocabulary_, position_ + i, sequence, true);
  }

  bool fail(Known& known) {
    if (options_.failing == 0) return true;
    if (!fill(known, 0, position_, size_, false)) return false;
    for (int i = 0; i < options_.failing; ++i) {
      batch_.n_tokens = 0;
      add(3, size_, 0, true);
      if (decode(known, 0) != 1) return false;
    }
    return true;
  }

  const Options& options_;
  int index_;
  File nodes_;
  Listener heard_;
  Model model_;
  Context context_;
  llama_batch batch_{};
  std::vector<llama_token> last_;
  File counter_{options_.counter.empty() ? nullptr : std::fopen(options_.counter.c_str(), "wb")};
  int vocabulary_{0}, size_{0}, position_{0};
  bool is_verifying_{false};
};

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void merge(Known& all, const Known& one) {
  for (const auto& [result, count] : one.results)
    all.results[result] += count;
  all.submitted += one.submitted;
  all.micro_batches += one.micro_batches;
  all.micro_batch_tokens += one.micro_batch_tokens;
  all.generated += one.generated;
  all.reused += one.reused;
  all.text.insert(all.text.end(), one.text.begin(), one.text.end());
}

std::uint64_t fnv(const std::vector<llama_token>& tokens) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const llama_token token : tokens) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((static_cast<std::uint32_t>(token) >> shift) & 0xffU)) * 0x100000001b3U;
    }
  }
  return hash;
}

std::string json(const Known& known, double took, const std::string& children) {
  std::string results;
  std::int64_t calls = 0;
  for (const auto& [result, count] : known.results) {
    results +=
        (results.empty() ? "\"" : ",\"") + std::to_string(result) + "\":" + std::to_string(count);
    calls += count;
  }
  std::array<char, 640> text{};
  std::snprintf(
      text.data(), text.size(),
      R"({"pid":%d,"decode":{"calls":%)" PRId64 R"(,"results":{%s},"tokens":%)" PRId64
      R"(},"micro_batches":{"count":%)" PRId64 R"(,"tokens":%)" PRId64 R"(},"generated":%)" PRId64
      R"(,"n_reused":%)" PRId64 R"(,"hash":"%016)" PRIx64 R"(","seconds":%.6f,"children":[)",
      static_cast<int>(getpid()), calls, results.c_str(), known.submitted, known.micro_batches,
      known.micro_batch_tokens, known.generated, known.reused, fnv(known.text), took);
  return text.data() + children + "]}";
}

using Workers = std::vector<std::unique_ptr<Worker>>;

bool generate_in_all(const Options& options, Workers& workers, Known& known) {
  std::vector<Known> each(workers.size());
  std::vector<char> good(workers.size(), 0);
  const auto one = [&](std::size_t i) {
    for (int round = 0; round <= options.reload; ++round) {
      if (round > 0) {
        workers[i]->unload();
        if (!workers[i]->load()) return;
      }
      if (!workers[i]->generate(each[i])) return;
    }
    good[i] = 1;
  };
  if (workers.size() == 1) {
    one(0);
  } else {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < workers.size(); ++i)
      threads.emplace_back(one, i);
    for (std::thread& thread : threads)
      thread.join();
  }
  for (const Known& of_one : each)
    merge(known, of_one);
  return std::find(good.begin(), good.end(), 0) == good.end();
}

/// The child's line, read to its end; empty if it failed.
std::string child_line(int from, pid_t child) {
  std::string line;
  std::array<char, 512> part{};
  for (ssize_t count = 0; (count = read(from, part.data(), part.size())) > 0;)
    line.append(part.data(), static_cast<std::size_t>(count));
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) return {};
  return line;
}

void wait_for_line() {
  std::printf("ready %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  for (int c = std::getchar(); c != '\n' && c != EOF;)
    c = std::getchar();
}

int run(const Options& options, Workers& workers) {
  std::array<int, 2> pipe_ends{-1, -1};
  // Before anything was computed: OpenMP's threads do not survive a fork.
  const pid_t child = options.fork && pipe(pipe_ends.data()) == 0 ? fork() : -1;
  if (options.fork && child < 0) return 1;
  if (child == 0 && options.wait) wait_for_line();
  if (child == 0 && write(pipe_ends[1], "\n", 1) != 1) _exit(1);
  char begun_too = 0;
  if (child > 0 && (close(pipe_ends[1]) != 0 || read(pipe_ends[0], &begun_too, 1) != 1)) return 1;
  const double begun = seconds();
  Known known;
  const bool good = generate_in_all(options, workers, known);
  const double took = seconds() - begun;
  for (const auto& worker : workers) {
    if (child != 0 && !worker->write_shapes()) return 1;
  }
  if (child == 0) {
    const std::string line = json(known, took, "");
    _exit(good && write(pipe_ends[1], line.data(), line.size()) == static_cast<ssize_t>(line.size())
              ? 0
              : 1);
  }
  std::string children;
  if (child > 0) {
    children = child_line(pipe_ends[0], child);
    if (children.empty()) return 1;
  }
  std::puts(json(known, took, children).c_str());
  return good ? 0 : 1;
}

bool parse(int count, char** words, Options& options) {
  const std::map<std::string_view, int*> numbers{
      {"--tokens", &options.tokens},       {"--prompt-tokens", &options.prompt_tokens},
      {"--batch", &options.batch},         {"--ubatch", &options.ubatch},
      {"--context", &options.context},     {"--threads", &options.threads},
      {"--sequences", &options.sequences}, {"--contexts", &options.contexts},
      {"--reload", &options.reload},       {"--failing", &options.failing},
      {"--drafts", &options.drafts},       {"--flash", &options.flash}};
  const std::map<std::string_view, std::string*> texts{{"--model", &options.model},
                                                       {"--nodes", &options.nodes},
                                                       {"--shapes", &options.shapes},
                                                       {"--counter", &options.counter}};
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--wait") {
      options.wait = true;
    } else if (word == "--fork") {
      options.fork = true;
    } else if (++i == count) {
      return false;
    } else if (const auto number = numbers.find(word); number != numbers.end()) {
      const std::string_view value = words[i];
      const auto [end, error] =
          std::from_chars(value.data(), value.data() + value.size(), *number->second);
      if (error != std::errc{} || end != value.data() + value.size() || *number->second < 0)
        return false;
    } else if (const auto text = texts.find(word); text != texts.end()) {
      *text->second = words[i];
    } else {
      return false;
    }
  }
  return !options.model.empty() && options.tokens > 0 && options.prompt_tokens > 0 &&
         options.batch > 0 && options.ubatch > 0 && options.sequences > 0 && options.contexts > 0 &&
         options.batch >= options.sequences && options.ubatch >= options.sequences;
}

}  // namespace

int main(int count, char** words) {
  Options options;
  if (!parse(count, words, options)) {
    std::fprintf(stderr, "usage: driver --model FILE [options; see driver.cc]\n");
    return 2;
  }
  llama_log_set(on_log, nullptr);
  const char* const folder = std::getenv("GGML_DIR");
  if (folder != nullptr && *folder != 0) ggml_backend_load_all_from_path(folder);
  Workers workers;
  for (int i = 0; i < options.contexts; ++i) {
    workers.push_back(std::make_unique<Worker>(options, i));
    if (!workers.back()->load()) {
      std::fprintf(
          stderr,
          "driver: %s cannot be loaded into a context of %d (a multiple of 256) and prompt %d\n",
          options.model.c_str(), options.context, options.prompt_tokens);
      return 1;
    }
  }
  if (options.wait) wait_for_line();
  return run(options, workers);
}
