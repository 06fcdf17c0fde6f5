// SPDX-License-Identifier: Apache-2.0
// An application that looks at the status of every call, for bad_input.py: each call and the name
// of its error goes to standard error; it ends with 1 if there was one, as programs with a
// CUDA_CHECK do.
//   bad_input image         launches a kernel of its own image, twice
//   bad_input file PATH     a module from a file, and from memory that ends where the file does
//   bad_input memory        an image that does not fit beside what is allocated
//   bad_input fault KIND    a kernel that fails, and calls behind it
//   bad_input beside BYTES  holds memory, computes when told to by a line of standard input
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

cudaError_t launch_big(int value);  // of bad_input_big.cu, whose variables are large

namespace {

int errors = 0;

cudaError_t told(const char* call, cudaError_t error) {
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorName(error));
  errors += error == cudaSuccess ? 0 : 1;
  return error;
}
cudaError_t told(const char* call, CUresult status) {
  return told(call, static_cast<cudaError_t>(status));
}

__global__ void answer(int* out) {
  *out = 42;
}
__global__ void squares(unsigned* out, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = i * i;
}
__global__ void stop() {
  __trap();
}
__global__ void wild(int* pointer) {
  pointer[1 << 20] = 1;
}
__global__ void skewed(int* pointer) {
  *reinterpret_cast<volatile int*>(reinterpret_cast<char*>(pointer) + 2) = 1;
}
__global__ void assure(const int* pointer) {
  assert(*pointer == 3);
}
__device__ int deeper(int depth) {
  volatile int kept[64];
  kept[depth & 63] = depth;
  return depth < 0 ? 0 : deeper(depth + 1) + kept[depth & 63];
}
__global__ void recurse(int* out) {
  *out = deeper(0);
}
__global__ void spin(volatile int* flag) {
  while (*flag == 0)
    continue;
}

int image() {
  int* out = nullptr;
  int value = 0;
  told("malloc", cudaMalloc(&out, sizeof(int)));
  for (int i = 0; i < 2; ++i) {
    answer<<<1, 1>>>(out);
    told("launch", cudaGetLastError());
  }
  // An image that cannot be loaded is no fault: the context goes on.
  told("synchronize", cudaDeviceSynchronize());
  told("copy", cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
  told("free", cudaFree(out));
  std::fprintf(stderr, "answer: %d\n", value);
  return 0;
}

/// The bytes of a file, with nothing readable behind them.
void* at_the_end_of_a_page(const char* path) {
  const int file = open(path, O_RDONLY);
  struct stat about {};
  if (file < 0 || fstat(file, &about) != 0) return nullptr;
  const auto bytes = static_cast<size_t>(about.st_size);
  const size_t page = 4096, pages = (bytes + page - 1) / page * page;
  char* const area = static_cast<char*>(
      mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(area + pages, page, PROT_NONE);
  char* const begin = area + pages - bytes;
  const bool is_read = read(file, begin, bytes) == about.st_size;
  close(file);
  return is_read ? begin : nullptr;
}

int file(const char* path) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  told("context", cudaFree(nullptr));
  told("load", cuModuleLoad(&module, path));
  void* const bytes = at_the_end_of_a_page(path);
  if (bytes == nullptr) return 2;
  if (told("load data", cuModuleLoadData(&module, bytes)) == cudaSuccess)
    told("function", cuModuleGetFunction(&function, module, "k"));
  told("synchronize", cudaDeviceSynchronize());
  return 0;
}

size_t free_bytes() {
  size_t bytes = 0, total = 0;
  told("memory", cudaMemGetInfo(&bytes, &total));
  return bytes;
}

int memory() {
  void* held = nullptr;
  int *out = nullptr, value = 0;
  told("malloc", cudaMalloc(&held, size_t{40} << 20));
  const size_t before = free_bytes();
  for (int i = 0; i < 2; ++i)
    told("launch big", launch_big(1));
  std::fprintf(stderr, "as before: %d\n", free_bytes() == before ? 1 : 0);
  told("malloc", cudaMalloc(&out, sizeof(int)));
  answer<<<1, 1>>>(out);
  told("launch small", cudaGetLastError());
  told("copy", cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
  std::fprintf(stderr, "answer: %d\n", value);
  told("free", cudaFree(held));
  told("launch big at last", launch_big(7));
  told("synchronize", cudaDeviceSynchronize());
  return 0;
}

bool launch_fault(const std::string& kind, int* memory) {
  if (kind == "trap") stop<<<1, 1>>>();
  if (kind == "address") wild<<<1, 32>>>(memory);
  if (kind == "misaligned") skewed<<<1, 1>>>(memory);
  if (kind == "assert") assure<<<2, 4>>>(memory);
  if (kind == "stack") recurse<<<1, 1>>>(memory);
  if (kind == "time") spin<<<1, 1>>>(memory);
  return cudaGetLastError() == cudaSuccess;
}

int fault(const std::string& kind, bool ends_at_once) {
  int* memory = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  cudaMalloc(&memory, 4096);
  cudaMemset(memory, 0, 4096);
  cudaStreamCreate(&stream);
  if (!launch_fault(kind, memory)) return 2;
  if (ends_at_once) return 3;  // while the kernel runs
  told("synchronize", cudaDeviceSynchronize());
  told("last error", cudaGetLastError());
  void* more = nullptr;
  int value = 0;
  told("malloc", cudaMalloc(&more, 64));
  told("copy", cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
  told("copy async", cudaMemcpyAsync(&value, memory, sizeof value, cudaMemcpyDeviceToHost, stream));
  told("memset", cudaMemset(memory, 0, 64));
  answer<<<1, 1>>>(memory);
  told("launch", cudaGetLastError());
  told("event", cudaEventCreate(&event));
  told("stream", cudaStreamSynchronize(stream));
  told("query", cudaStreamQuery(nullptr));
  told("memory", cudaMemGetInfo(nullptr, nullptr));
  told("free", cudaFree(memory));
  told("once more", cudaDeviceSynchronize());
  return 0;
}

bool is_right(unsigned* device, unsigned count) {
  unsigned* const host = static_cast<unsigned*>(std::malloc(count * sizeof(unsigned)));
  told("clear", cudaMemset(device, 0, count * sizeof(unsigned)));
  squares<<<(count + 127) / 128, 128>>>(device, count);
  told("copy", cudaMemcpy(host, device, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
  bool is_right = true;
  for (unsigned i = 0; i < count; ++i)
    is_right = is_right && host[i] == i * i;
  std::free(host);
  return is_right;
}

/// Lines of input: "compute", "spin" (a kernel that does not end), anything else ends.
int beside(size_t bytes) {
  unsigned* device = nullptr;
  int* flag = nullptr;
  char line[32];
  if (told("malloc", cudaMalloc(&device, bytes)) != cudaSuccess) return 0;
  told("malloc", cudaMalloc(&flag, sizeof(int)));
  told("clear", cudaMemset(flag, 0, sizeof(int)));
  std::printf("ready\n");
  while (std::fflush(stdout), std::fgets(line, sizeof line, stdin) != nullptr) {
    if (std::strncmp(line, "compute", 7) == 0) {
      std::printf("%s\n", is_right(device, 10000) ? "right" : "wrong");
    } else if (std::strncmp(line, "spin", 4) == 0) {
      spin<<<1, 1>>>(flag);
      std::printf("%s\n", cudaStreamQuery(nullptr) == cudaErrorNotReady ? "spins" : "ends");
    } else {
      break;
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "", with = count > 2 ? arguments[2] : "";
  int status = 2;
  if (what == "image") status = image();
  if (what == "file") status = file(with.c_str());
  if (what == "memory") status = memory();
  if (what == "fault") status = fault(with, count > 3);
  if (what == "beside") status = beside(std::strtoull(with.c_str(), nullptr, 10));
  return status != 0 ? status : errors == 0 ? 0 : 1;
}
