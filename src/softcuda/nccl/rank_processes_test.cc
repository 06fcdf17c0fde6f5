// SPDX-License-Identifier: Apache-2.0
#include "softcuda/nccl/rank_processes_test.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

/// gloo and the exceptions that it passes between threads are not built with the thread sanitizer,
/// which sees their locks but not their atomics; a process may end without ending its
/// communicators.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT
  return "race:libgloo.so\nrace:std::__exception_ptr\nrace:caught<\nthread:start_watching\n";
}

/// gloo forgets its look-ups when it finds that an address is not its own.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT
  return "leak:libgloo.so\n";
}

namespace kansoku::softcuda::nccl {
namespace {

constexpr unsigned kSecondsMax = 600;

template <class Function>
void find(void* library, const char* symbol, Function*& into) {
  into = reinterpret_cast<Function*>(dlsym(library, symbol));
  if (into != nullptr) return;
  std::fprintf(stderr, "no %s: %s\n", symbol, dlerror());
  _exit(3);
}

[[noreturn]] void run_rank(int rank, int ranks, const std::vector<std::array<int, 2>>& pipes,
                           const std::function<void(Rank&)>& body) {
  alarm(kSecondsMax);
  std::vector<int> read_ends, write_ends;
  for (int i = 0; i < ranks; ++i) {
    const auto& pipe = pipes[static_cast<std::size_t>(i)];
    write_ends.push_back(pipe[1]);
    read_ends.push_back(pipe[0]);
  }
  Rank self(rank, ranks, read_ends, write_ends);
  body(self);
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

Nccl Nccl::load() {
  Nccl made;
  // As a program that looks for a driver does; the library finds the same one by its name.
  void* const driver = dlopen(KANSOKU_SOFTGPU_LIBRARIES "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    _exit(3);
  }
  find(driver, "cuDeviceGetCount", made.device_count);
  find(driver, "cuDevicePrimaryCtxRetain", made.primary_retain);
  find(driver, "cuCtxSetCurrent", made.ctx_set_current);
  find(driver, "cuStreamCreate", made.stream_create);
  find(driver, "cuStreamSynchronize", made.stream_synchronize);
  find(driver, "cuStreamQuery", made.stream_query);
  find(driver, "cuStreamBeginCapture_v2", made.stream_capture);
  find(driver, "cuModuleLoadData", made.module_load);
  find(driver, "cuModuleGetFunction", made.module_function);
  find(driver, "cuLaunchKernel", made.launch_kernel);
  find(driver, "cuLaunchHostFunc", made.launch_host);
  find(driver, "cuMemAlloc_v2", made.mem_alloc);
  cuda::CUresult (*init)(unsigned) = nullptr;
  find(driver, "cuInit", init);
  EXPECT_EQ(init(0), cuda::CUDA_SUCCESS);
  cuda::CUcontext context = nullptr;
  EXPECT_EQ(made.primary_retain(&context, 0), cuda::CUDA_SUCCESS);
  EXPECT_EQ(made.ctx_set_current(context), cuda::CUDA_SUCCESS);
  void* const library = dlopen(KANSOKU_SOFTGPU_LIBRARIES "/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    _exit(3);
  }
#define KANSOKU_NCCL_FIND(name, parameters) find(library, #name, made.name);
  KANSOKU_NCCL_FUNCTIONS(KANSOKU_NCCL_FIND, KANSOKU_NCCL_FIND)
#undef KANSOKU_NCCL_FIND
  return made;
}

cuda::CUstream Nccl::make_stream() const {
  cuda::CUstream made = nullptr;
  EXPECT_EQ(stream_create(&made, 0), cuda::CUDA_SUCCESS);
  return made;
}

std::byte* Nccl::device_copy(std::span<const std::byte> from) const {
  cuda::CUdeviceptr pointer = 0;
  EXPECT_EQ(mem_alloc(&pointer, from.size() + 1), cuda::CUDA_SUCCESS);
  auto* const made = reinterpret_cast<std::byte*>(pointer);
  if (!from.empty()) std::memcpy(made, from.data(), from.size());
  return made;
}

void Rank::load() {
  nccl = Nccl::load();
}

ncclUniqueId Rank::share_id() {
  ncclUniqueId id{};
  if (rank == 0) {
    EXPECT_EQ(nccl.ncclGetUniqueId(&id), ncclSuccess) << nccl.ncclGetLastError(nullptr);
    for (int peer = 1; peer < ranks; ++peer)
      send(peer, std::as_bytes(std::span(&id, 1)));
  } else {
    hear(std::as_writable_bytes(std::span(&id, 1)));
  }
  return id;
}

void Rank::join() {
  load();
  const auto id = share_id();
  const auto made = nccl.ncclCommInitRank(&comm, ranks, id, rank);
  stream = nccl.make_stream();
  if (made == ncclSuccess) return;
  std::fprintf(stderr, "rank %d: %s\n", rank, nccl.ncclGetLastError(nullptr));
  _exit(4);
}

ncclResult_t Rank::finish() {
  EXPECT_EQ(nccl.stream_synchronize(stream), cuda::CUDA_SUCCESS);
  ncclResult_t error = ncclInternalError;
  EXPECT_EQ(nccl.ncclCommGetAsyncError(comm, &error), ncclSuccess);
  return error;
}

void Rank::send(int peer, std::span<const std::byte> bytes) const {
  const auto written =
      write(write_ends_[static_cast<std::size_t>(peer)], bytes.data(), bytes.size());
  EXPECT_EQ(written, static_cast<ssize_t>(bytes.size()));
}

void Rank::hear(std::span<std::byte> into) const {
  while (!into.empty()) {
    const auto got = read(read_ends_[static_cast<std::size_t>(rank)], into.data(), into.size());
    if (got <= 0) _exit(5);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

void Rank::meet() const {
  std::byte one{};
  if (rank != 0) {
    send(0, {&one, 1});
    return hear({&one, 1});
  }
  for (int peer = 1; peer < ranks; ++peer)
    hear({&one, 1});
  for (int peer = 1; peer < ranks; ++peer)
    send(peer, {&one, 1});
}

std::vector<int> run_ranks(int ranks, const std::function<void(Rank&)>& body,
                           const std::vector<std::string>& environment) {
  std::vector<std::array<int, 2>> pipes(static_cast<std::size_t>(ranks));
  for (auto& ends : pipes)
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  // The devices of these ranks, which nobody else uses or slows down.
  std::string folder = (std::filesystem::temp_directory_path() / "kansoku-nccl-XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    EXPECT_GE(pid, 0);
    if (pid == 0) {
      setenv("KANSOKU_SOFTGPU_DIR", folder.c_str(), 1);
      for (const auto& variable : environment) {
        const auto equals = variable.find('=');
        setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
      }
      run_rank(rank, ranks, pipes, body);
    }
    pids.push_back(pid);
  }
  for (const auto& ends : pipes) {
    close(ends[0]);
    close(ends[1]);
  }
  std::vector<int> statuses;
  for (const pid_t pid : pids) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : kKilled + WTERMSIG(status));
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return statuses;
}

}  // namespace kansoku::softcuda::nccl
