// SPDX-License-Identifier: Apache-2.0
#include "softcuda/runtime/runtime_for_test.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>

#include "cuda/fatbin.h"
#include "softcuda/kernels_for_test.h"

namespace kansoku::cudart {

std::uint32_t g_counter = 0;
std::uint32_t g_table[4] = {};

namespace {

constexpr char kChildVariable[] = "KANSOKU_TEST_CHILD";
constexpr const char* kKernels[] = {
    "iota",  "store",   "append", "next", "await",     "variables", "shared_end", "shared_static",
    "of_64", "nothing", "meet",   "stop", "up_to_128", "sum",       "missing",    "for_ever"};

std::map<std::string, int (*)()>& children() {
  static std::map<std::string, int (*)()> all;
  return all;
}
/// By the kernel's number. Nothing to destroy: global objects launch behind main.
char g_stubs[std::size(kKernels)];

/// As the code that compilers make does, before main.
struct Registered {
  Registered() : wrapped(softcuda::kTestKernels) {
    handle = __cudaRegisterFatBinary(wrapped.get());
    for (std::size_t i = 0; i < std::size(kKernels); ++i)
      __cudaRegisterFunction(handle, &g_stubs[i], nullptr, kKernels[i], -1, nullptr, nullptr,
                             nullptr, nullptr, nullptr);
    __cudaRegisterVar(handle, reinterpret_cast<char*>(&g_counter), nullptr, "counter", 0, 4, 0, 0);
    __cudaRegisterVar(handle, reinterpret_cast<char*>(g_table), nullptr, "table", 0, 16, 1, 0);
    __cudaRegisterFatBinaryEnd(handle);
  }
  Wrapped wrapped;
  void** handle{nullptr};
};
const Registered kRegistered;

}  // namespace

Wrapped::Wrapped(std::string text) {
  const auto made = cuda::write_fatbin({{text}}, cuda::Compression::kNone);
  if (!made) std::abort();
  fatbin_ = *made;
  wrapper_ = {cuda::kWrapperMagic, 1, fatbin_.data(), nullptr};
}

const void* stub(const std::string& kernel) {
  const auto* const found = std::find(std::begin(kKernels), std::end(kKernels), kernel);
  if (found == std::end(kKernels)) std::abort();
  return &g_stubs[found - std::begin(kKernels)];
}

void RuntimeTest::TearDown() {
  for (const int device : {1, 0}) {
    EXPECT_CUDA(cudaSuccess, cudaSetDevice(device));
    EXPECT_CUDA(cudaSuccess, cudaDeviceReset());
    EXPECT_CUDA(cudaSuccess, cudaSetDeviceFlags(0));
  }
  static_cast<void>(cudaGetLastError());
}

std::uint32_t* RuntimeTest::allocate(std::size_t count) {
  void* pointer = nullptr;
  EXPECT_CUDA(cudaSuccess, cudaMalloc(&pointer, count * sizeof(std::uint32_t)));
  EXPECT_CUDA(cudaSuccess, cudaMemset(pointer, 0, count * sizeof(std::uint32_t)));
  return static_cast<std::uint32_t*>(pointer);
}
std::uint32_t* RuntimeTest::pinned(std::size_t count) {
  void* pointer = nullptr;
  EXPECT_CUDA(cudaSuccess, cudaMallocHost(&pointer, count * sizeof(std::uint32_t)));
  return static_cast<std::uint32_t*>(pointer);
}
std::vector<std::uint32_t> RuntimeTest::read(const void* from, std::size_t count) {
  std::vector<std::uint32_t> values(count);
  EXPECT_CUDA(cudaSuccess, cudaMemcpy(values.data(), from, count * sizeof(std::uint32_t),
                                      cudaMemcpyDeviceToHost));
  return values;
}
cudaStream_t RuntimeTest::make_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_CUDA(cudaSuccess, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
cudaEvent_t RuntimeTest::make_event() {
  cudaEvent_t event = nullptr;
  EXPECT_CUDA(cudaSuccess, cudaEventCreate(&event));
  return event;
}

Child::Child(const char* name, int (*body)()) {
  children().emplace(name, body);
}

int run_child(const std::string& name) {
  const std::string command =
      fmt::format("timeout 60 env {}={} /proc/{}/exe", kChildVariable, name, getpid());
  const int status = std::system(command.c_str());  // NOLINT(concurrency-mt-unsafe)
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace kansoku::cudart

int main(int argc, char** argv) {
  using namespace kansoku::cudart;
  std::string folder;
  if (std::getenv("KANSOKU_SOFTGPU_DIR") == nullptr || std::getenv(kChildVariable) == nullptr) {
    folder = (std::filesystem::temp_directory_path() / "kansoku-cudart-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return 1;
    setenv("KANSOKU_SOFTGPU_DIR", folder.c_str(), 1);
  }
  setenv("KANSOKU_SOFTGPU_DEVICES", "2", 0);
  setenv("KANSOKU_SOFTGPU_MEMORY", "64M", 0);
  setenv("KANSOKU_SOFTGPU_LOG", "off", 0);
  if (const char* const child = std::getenv(kChildVariable); child != nullptr) {
    const auto found = children().find(child);
    return found == children().end() ? 127 : found->second();
  }
  ::testing::InitGoogleTest(&argc, argv);
  const int code = RUN_ALL_TESTS();
  std::error_code error;
  if (!folder.empty()) std::filesystem::remove_all(folder, error);
  return code;
}
