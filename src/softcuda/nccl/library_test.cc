// SPDX-License-Identifier: Apache-2.0
// libnccl.so.2 as a program meets it: what it exports, streams, devices, arguments.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include "common/parse.h"
#include "softcuda/nccl/rank_processes_test.h"
#include "sys/wait_for_test.h"

namespace kansoku::softcuda::nccl {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr const char* kLibrary = KANSOKU_SOFTGPU_LIBRARIES "/libnccl.so.2";

std::string output_of(const std::string& command) {
  std::FILE* const stream = popen(command.c_str(), "re");
  std::string text;
  char part[4096];
  while (const std::size_t got = std::fread(part, 1, sizeof(part), stream))
    text.append(part, got);
  EXPECT_EQ(pclose(stream), 0) << command;
  return text;
}

std::set<std::string> functions() {
#define KANSOKU_NCCL_NAME(name, parameters) #name,
  return {KANSOKU_NCCL_FUNCTIONS(KANSOKU_NCCL_NAME, KANSOKU_NCCL_NAME)};
#undef KANSOKU_NCCL_NAME
}

TEST(Library, ExportsItsFunctionsAndNothingElse) {
  std::istringstream lines(output_of(fmt::format("nm -D --defined-only {}", kLibrary)));
  std::set<std::string> exported;
  std::string address, kind, name;
  while (lines >> address >> kind >> name)
    exported.insert(name);
  EXPECT_EQ(exported, functions());
  EXPECT_EQ(exported.size(), 24U);
  EXPECT_THAT(output_of(fmt::format("readelf -dW {}", kLibrary)), HasSubstr("[libnccl.so.2]"));
}

TEST(Library, EntriesDoNotCallEachOther) {
  // A call of an exported function would go through a relocation against its name.
  const auto relocations = output_of(fmt::format("readelf -rW {}", kLibrary));
  EXPECT_NE(relocations.find("getifaddrs"), std::string::npos);  // one that there is
  for (const auto& name : functions())
    EXPECT_EQ(relocations.find(name), std::string::npos) << name;
}

/// The number that a header gives to an enumerator or macro: "name = 7," or "name 7".
std::optional<int> number_in(const std::string& header, const std::string& name) {
  for (std::size_t at = header.find(name); at != std::string::npos;
       at = header.find(name, at + 1)) {
    std::size_t end = at + name.size();
    const std::size_t value = header.find_first_not_of(" =", end);
    if (value == end || value == std::string::npos) continue;
    end = header.find_first_not_of("0123456789", value);
    if (const auto number = parse_int<int>(header.substr(value, end - value))) return number;
  }
  return std::nullopt;
}

/// The numbers of `abi.h` against those of a header for C programs.
void check_header(const std::string& header) {
#define KANSOKU_NCCL_SAME(name) EXPECT_EQ(number_in(header, #name), name) << #name
  KANSOKU_NCCL_SAME(ncclSuccess);
  KANSOKU_NCCL_SAME(ncclUnhandledCudaError);
  KANSOKU_NCCL_SAME(ncclSystemError);
  KANSOKU_NCCL_SAME(ncclInternalError);
  KANSOKU_NCCL_SAME(ncclInvalidArgument);
  KANSOKU_NCCL_SAME(ncclInvalidUsage);
  KANSOKU_NCCL_SAME(ncclRemoteError);
  KANSOKU_NCCL_SAME(ncclInProgress);
  KANSOKU_NCCL_SAME(ncclInt8);
  KANSOKU_NCCL_SAME(ncclUint8);
  KANSOKU_NCCL_SAME(ncclInt32);
  KANSOKU_NCCL_SAME(ncclUint32);
  KANSOKU_NCCL_SAME(ncclInt64);
  KANSOKU_NCCL_SAME(ncclUint64);
  KANSOKU_NCCL_SAME(ncclFloat16);
  KANSOKU_NCCL_SAME(ncclFloat32);
  KANSOKU_NCCL_SAME(ncclFloat64);
  KANSOKU_NCCL_SAME(ncclBfloat16);
  KANSOKU_NCCL_SAME(ncclSum);
  KANSOKU_NCCL_SAME(ncclProd);
  KANSOKU_NCCL_SAME(ncclMax);
  KANSOKU_NCCL_SAME(ncclMin);
  KANSOKU_NCCL_SAME(ncclAvg);
#undef KANSOKU_NCCL_SAME
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Library, NumbersAreThoseOfTheHeaderForPrograms) {
  const auto header = content_of(KANSOKU_SOURCE_DIR "/share/softgpu/toolkit/include/nccl.h");
  check_header(header);
  EXPECT_NE(header.find("char internal[128];"), std::string::npos);
  static_assert(sizeof(ncclUniqueId) == 128);
  // Every declared function is there.
  const auto exported = functions();
  for (std::size_t at = header.find('('); at != std::string::npos; at = header.find('(', at + 1)) {
    const auto begin = header.find_last_of(" *\n", at) + 1;
    const auto name = header.substr(begin, at - begin);
    EXPECT_TRUE(!name.starts_with("nccl") || exported.contains(name)) << name;
  }
}

TEST(Library, NumbersAreThoseOfTheToolkitsHeader) {
  const char* const toolkit = std::getenv("CUDA_HOME");
  if (toolkit == nullptr) GTEST_SKIP() << "CUDA_HOME names no toolkit";
  const auto header = content_of(std::string(toolkit) + "/include/nccl.h");
  if (header.empty()) GTEST_SKIP() << "the toolkit has no nccl.h";
  check_header(header);
  EXPECT_EQ(number_in(header, "NCCL_UNIQUE_ID_BYTES"), int{sizeof(ncclUniqueId)});
}

struct Gate {
  std::atomic<bool> is_open{false}, was_reached{false};
  static void wait(void* raw) {
    auto* const self = static_cast<Gate*>(raw);
    self->was_reached = true;
    self->was_reached.notify_all();
    self->is_open.wait(false);
  }
  void open() {
    is_open = true;
    is_open.notify_all();
  }
};

void check_stream_order(Rank& self) {
  self.join();
  const float one = 1;
  std::byte* const array = self.nccl.device_copy(std::as_bytes(std::span(&one, 1)));
  auto* const value = reinterpret_cast<float*>(array);
  Gate gate;
  EXPECT_EQ(self.nccl.launch_host(self.stream, Gate::wait, &gate), cuda::CUDA_SUCCESS);
  const auto twice = [](void* at) { *static_cast<float*>(at) *= 2; };
  EXPECT_EQ(self.nccl.launch_host(self.stream, twice, value), cuda::CUDA_SUCCESS);
  // The call returns although the stream is held up, and takes what is there when its turn comes.
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(
        self.nccl.ncclAllReduce(array, array, 1, ncclFloat32, ncclSum, self.comm, self.stream),
        ncclSuccess);
    EXPECT_EQ(self.nccl.launch_host(self.stream, twice, value), cuda::CUDA_SUCCESS);
  }
  EXPECT_EQ(self.nccl.stream_query(self.stream), cuda::CUDA_ERROR_NOT_READY);
  EXPECT_EQ(*value, 1);
  gate.open();
  EXPECT_EQ(self.finish(), ncclSuccess);
  EXPECT_EQ(*value, 2 * 64);
  // Flushing waits for what is enqueued.
  EXPECT_EQ(self.nccl.ncclAllReduce(array, array, 1, ncclFloat32, ncclSum, self.comm, self.stream),
            ncclSuccess);
  EXPECT_EQ(self.nccl.ncclCommFinalize(self.comm), ncclSuccess);
  EXPECT_EQ(*value, 4 * 64);
  EXPECT_EQ(self.nccl.ncclAllReduce(array, array, 1, ncclFloat32, ncclSum, self.comm, self.stream),
            ncclInvalidUsage);
  EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
}

TEST(Library, OperationsRunInTheStreamsOrder) {
  EXPECT_THAT(run_ranks(2, check_stream_order), Each(0));
}

TEST(Library, KnowsItself) {
  const auto body = [](Rank& self) {
    self.join();
    int number = 0;
    EXPECT_EQ(self.nccl.ncclGetVersion(&number), ncclSuccess);
    EXPECT_EQ(number, 21805);
    EXPECT_EQ(self.nccl.ncclCommCount(self.comm, &number), ncclSuccess);
    EXPECT_EQ(number, 2);
    EXPECT_EQ(self.nccl.ncclCommUserRank(self.comm, &number), ncclSuccess);
    EXPECT_EQ(number, self.rank);
    EXPECT_EQ(self.nccl.ncclCommCuDevice(self.comm, &number), ncclSuccess);
    EXPECT_EQ(number, 0);
    EXPECT_STREQ(self.nccl.ncclGetErrorString(ncclSuccess), "no error");
    EXPECT_STREQ(self.nccl.ncclGetErrorString(static_cast<ncclResult_t>(77)), "unknown result");
    EXPECT_EQ(self.nccl.ncclCommDestroy(self.comm), ncclSuccess);
  };
  EXPECT_THAT(run_ranks(2, body), Each(0));
}

/// One process, a communicator and a stream for each device.
struct Devices {
  explicit Devices(const Nccl& library) : nccl(library) {
    for (int device = 0; device < 3; ++device) {
      choose(device);
      streams.push_back(nccl.make_stream());
      const std::int64_t number = device + 1;
      arrays.push_back(nccl.device_copy(std::as_bytes(std::span(&number, 1))));
    }
  }
  void choose(int device) const {
    cuda::CUcontext context = nullptr;
    EXPECT_EQ(nccl.primary_retain(&context, device), cuda::CUDA_SUCCESS);
    EXPECT_EQ(nccl.ctx_set_current(context), cuda::CUDA_SUCCESS);
  }
  void sum(std::size_t i) const {
    EXPECT_EQ(nccl.ncclAllReduce(arrays[i], arrays[i], 1, ncclInt64, ncclSum, comms[i], streams[i]),
              ncclSuccess)
        << nccl.ncclGetLastError(comms[i]);
  }
  void expect(std::int64_t number) const {
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(nccl.stream_synchronize(streams[i]), cuda::CUDA_SUCCESS);
      EXPECT_EQ(*reinterpret_cast<std::int64_t*>(arrays[i]), number);
    }
  }
  const Nccl& nccl;
  std::vector<cuda::CUstream> streams;
  std::vector<std::byte*> arrays;
  std::vector<ncclComm_t> comms{nullptr, nullptr, nullptr};
};

void check_devices(Rank& self) {
  self.load();
  Devices devices(self.nccl);
  ASSERT_EQ(self.nccl.ncclCommInitAll(devices.comms.data(), 3, nullptr), ncclSuccess)
      << self.nccl.ncclGetLastError(nullptr);
  int number = 0;
  EXPECT_EQ(self.nccl.ncclCommCuDevice(devices.comms[2], &number), ncclSuccess);
  EXPECT_EQ(number, 2);
  ASSERT_EQ(self.nccl.ncclGroupStart(), ncclSuccess);
  for (std::size_t i = 0; i < 3; ++i)
    devices.sum(i);
  ASSERT_EQ(self.nccl.ncclGroupEnd(), ncclSuccess);
  devices.expect(6);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i)
    threads.emplace_back([&devices, i] { devices.sum(i); });
  for (auto& thread : threads)
    thread.join();
  devices.expect(18);
  // The default stream of each communicator's own device, although device 2 is current.
  devices.streams.assign(3, nullptr);
  for (std::size_t i = 0; i < 3; ++i)
    devices.sum(i);
  for (std::size_t i = 0; i < 3; ++i) {
    devices.choose(static_cast<int>(i));
    EXPECT_EQ(self.nccl.stream_synchronize(nullptr), cuda::CUDA_SUCCESS);
    EXPECT_EQ(*reinterpret_cast<std::int64_t*>(devices.arrays[i]), 54);
  }
  for (const auto comm : devices.comms)
    EXPECT_EQ(self.nccl.ncclCommDestroy(comm), ncclSuccess);
}

TEST(Library, SeveralRanksInOneProcess) {
  EXPECT_THAT(run_ranks(1, check_devices, {"KANSOKU_SOFTGPU_DEVICES=3"}), Each(0));
}

void check_group_of_inits(Rank& self) {
  self.load();
  Devices devices(self.nccl);
  const auto id = self.share_id();
  ncclConfig_t config{sizeof(config), kConfigMagic, 22000};
  ASSERT_EQ(self.nccl.ncclGroupStart(), ncclSuccess);
  for (int device = 0; device < 3; ++device) {
    devices.choose(device);
    EXPECT_EQ(self.nccl.ncclCommInitRankConfig(&devices.comms[static_cast<std::size_t>(device)], 3,
                                               id, 2 - device, device == 1 ? nullptr : &config),
              ncclSuccess);
  }
  ASSERT_EQ(self.nccl.ncclGroupEnd(), ncclSuccess) << self.nccl.ncclGetLastError(nullptr);
  int rank = 0;
  EXPECT_EQ(self.nccl.ncclCommUserRank(devices.comms[0], &rank), ncclSuccess);
  EXPECT_EQ(rank, 2);
  for (std::size_t i = 0; i < 3; ++i)
    devices.sum(i);
  devices.expect(6);
}

TEST(Library, CommunicatorsAreMadeInAGroup) {
  EXPECT_THAT(run_ranks(1, check_group_of_inits, {"KANSOKU_SOFTGPU_DEVICES=3"}), Each(0));
}

void check_wrong_inits(Rank& self) {
  self.load();
  const Nccl& nccl = self.nccl;
  ncclComm_t comm = nullptr;
  auto id = self.share_id();
  EXPECT_EQ(nccl.ncclGetUniqueId(nullptr), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclGetVersion(nullptr), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitRank(&comm, 257, id, 0), ncclInvalidArgument);
  EXPECT_THAT(nccl.ncclGetLastError(nullptr), HasSubstr("ncclCommInitRank: 257 ranks"));
  EXPECT_EQ(nccl.ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0), ncclInvalidArgument);
  ncclConfig_t config{};
  EXPECT_EQ(nccl.ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommInitAll(&comm, 0, nullptr), ncclInvalidArgument);
  const int none = 9;
  EXPECT_EQ(nccl.ncclCommInitAll(&comm, 1, &none), ncclInvalidArgument);
  ncclComm_t comms[2]{};
  EXPECT_EQ(nccl.ncclCommInitAll(comms, 2, nullptr), ncclInvalidArgument);
  const int twice[2]{0, 0};
  EXPECT_EQ(nccl.ncclCommInitAll(comms, 2, twice), ncclInvalidUsage);
  EXPECT_EQ(nccl.ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(nccl.ncclCommDestroy(nullptr), ncclSuccess);
  EXPECT_EQ(nccl.ncclCommAbort(nullptr), ncclSuccess);
  EXPECT_EQ(nccl.ncclCommDestroy(reinterpret_cast<ncclComm_t>(&comm)), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommCount(comm, nullptr), ncclInvalidArgument);
  setenv("KANSOKU_NCCL_TIMEOUT", "soon", 1);
  EXPECT_EQ(nccl.ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
  EXPECT_THAT(nccl.ncclGetLastError(nullptr), HasSubstr("KANSOKU_NCCL_TIMEOUT=soon"));
  setenv("NCCL_SOCKET_IFNAME", "no_such", 1);
  EXPECT_EQ(nccl.ncclGetUniqueId(&id), ncclSystemError);
  EXPECT_EQ(comm, nullptr);
}

TEST(Library, WrongCommunicatorsAreRefused) {
  EXPECT_THAT(run_ranks(1, check_wrong_inits), Each(0));
}

void check_wrong_operations(Rank& self) {
  self.join();
  const Nccl& nccl = self.nccl;
  const auto comm = self.comm;
  const auto stream = self.stream;
  std::byte* const array = nccl.device_copy(std::vector<std::byte>(64));
  const auto all_reduce = [&](const void* from, void* to, std::size_t count, int type, int op) {
    return nccl.ncclAllReduce(from, to, count, static_cast<ncclDataType_t>(type),
                              static_cast<ncclRedOp_t>(op), comm, stream);
  };
  EXPECT_EQ(all_reduce(array, array, 4, 10, 0), ncclInvalidArgument);
  EXPECT_EQ(all_reduce(array, array, 4, -1, 0), ncclInvalidArgument);
  EXPECT_EQ(all_reduce(array, array, 4, 7, 5), ncclInvalidArgument);
  EXPECT_EQ(all_reduce(nullptr, array, 4, 7, 0), ncclInvalidArgument);
  EXPECT_EQ(all_reduce(array, nullptr, 4, 7, 0), ncclInvalidArgument);
  EXPECT_EQ(all_reduce(array, array, SIZE_MAX / 4, 7, 0), ncclInvalidArgument);
  // Beyond the memory's end, and memory that is not the device's at all.
  EXPECT_EQ(all_reduce(array, array, std::size_t{1} << 40, 7, 0), ncclInvalidArgument);
  EXPECT_THAT(nccl.ncclGetLastError(nullptr), HasSubstr("is not in the device's memory"));
  EXPECT_EQ(all_reduce(&self, &self, 1, 7, 0), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclSend(array, 1, ncclInt8, 1, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclRecv(array, 1, ncclInt8, -1, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclBcast(array, 1, ncclInt8, 1, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclReduce(array, array, 1, ncclInt8, ncclSum, 3, comm, stream),
            ncclInvalidArgument);
  // A send to oneself that nobody receives would wait for ever.
  EXPECT_EQ(nccl.ncclSend(array, 1, ncclInt8, 0, comm, stream), ncclInvalidUsage);
  EXPECT_EQ(nccl.ncclAllReduce(array, array, 1, ncclInt8, ncclSum, comm,
                               reinterpret_cast<cuda::CUstream>(&self)),
            ncclUnhandledCudaError);
  EXPECT_THAT(nccl.ncclGetLastError(nullptr), HasSubstr("CUDA_ERROR_INVALID_HANDLE"));
  EXPECT_EQ(nccl.ncclCommGetAsyncError(comm, nullptr), ncclInvalidArgument);
  // A failed call of a group: nothing of the group is done, the next one is.
  array[0] = std::byte{1};
  EXPECT_EQ(nccl.ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(nccl.ncclSend(array, 1, ncclInt8, 0, comm, stream), ncclSuccess);
  EXPECT_EQ(nccl.ncclRecv(array + 1, 1, ncclInt8, 7, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(nccl.ncclRecv(array + 2, 1, ncclInt8, 0, comm, stream), ncclSuccess);
  EXPECT_EQ(nccl.ncclSend(array, 1, ncclInt8, 0, comm, stream), ncclSuccess);
  EXPECT_EQ(nccl.ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(self.finish(), ncclSuccess);
  EXPECT_EQ(array[1], std::byte{0});
  EXPECT_EQ(array[2], std::byte{1});
  EXPECT_EQ(nccl.stream_capture(stream, 0), cuda::CUDA_SUCCESS);
  EXPECT_EQ(nccl.ncclBcast(array, 1, ncclInt8, 0, comm, stream), ncclInvalidUsage);
  EXPECT_EQ(nccl.ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(nccl.ncclBcast(array, 1, ncclInt8, 0, comm, stream), ncclInvalidArgument);
  EXPECT_EQ(nccl.ncclCommDestroy(comm), ncclInvalidArgument);
}

TEST(Library, WrongOperationsAreRefused) {
  EXPECT_THAT(run_ranks(1, check_wrong_operations), Each(0));
}

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(
      std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}
std::size_t threads_here() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                    std::filesystem::directory_iterator()));
}

TEST(Library, CommunicatorsLeaveNothingBehind) {
  const auto body = [](Rank& self) {
    self.join();
    std::byte* const array = self.nccl.device_copy(std::vector<std::byte>(64));
    std::size_t files = 0, threads = 0;
    for (int round = 0; round < 10; ++round) {
      const auto id = self.share_id();
      ncclComm_t comm = nullptr;
      ASSERT_EQ(self.nccl.ncclCommInitRank(&comm, self.ranks, id, self.rank), ncclSuccess);
      EXPECT_EQ(self.nccl.ncclAllReduce(array, array, 8, ncclInt64, ncclSum, comm, self.stream),
                ncclSuccess);
      EXPECT_EQ(self.nccl.ncclCommDestroy(comm), ncclSuccess);
      self.meet();
      // One meeting's connections may be closing while the next one's begin.
      if (round == 2) files = open_files() + 1, threads = threads_here();
    }
    // Files that are closed elsewhere, and threads that have just ended, take a moment to go.
    EXPECT_TRUE(sys::poll_for_test([&] { return open_files() <= files; })) << open_files();
    EXPECT_TRUE(sys::poll_for_test([&] { return threads_here() <= threads; })) << threads_here();
  };
  EXPECT_THAT(run_ranks(2, body), Each(0));
}

std::multiset<std::string> thread_names() {
  std::multiset<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    names.insert(name);
  }
  return names;
}

TEST(Library, ThreadsHaveNames) {
  const auto body = [](Rank& self) {
    self.join();
    std::multiset<std::string> names;
    // One that made another and has ended is still seen for a moment.
    EXPECT_TRUE(sys::poll_for_test([&] {
      names = thread_names();
      return names.count("nccl-network") == 1;
    }));
    EXPECT_EQ(names.count("nccl-monitor"), 1U);
    EXPECT_EQ(names.count("nccl-rendezvous"), self.rank == 0 ? 1U : 0U);
    self.meet();
  };
  EXPECT_THAT(run_ranks(2, body), Each(0));
}

}  // namespace
}  // namespace kansoku::softcuda::nccl
