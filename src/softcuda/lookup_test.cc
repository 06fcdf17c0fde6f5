// SPDX-License-Identifier: Apache-2.0
// Entry points by name and version, errors by number, and what is not there.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "softcuda/driver_for_test.h"

namespace kansoku::softcuda {
namespace {

class LookupTest : public DriverTest {};

constexpr std::uint64_t kPerThread = 2;

/// The symbol's address, or null.
void* look_up(const std::string& name, int version, std::uint64_t flags = 0,
              int* status = nullptr) {
  void* function = &function;
  int query = -1;
  const CUresult result = cuGetProcAddress_v2(name.c_str(), &function, version, flags, &query);
  EXPECT_EQ(result == CUDA_SUCCESS, function != nullptr);
  EXPECT_EQ(result == CUDA_SUCCESS, query == 0);
  if (status != nullptr) *status = query;
  return function;
}

/// Rows of the reference: a name, and for each form the first version and what follows the name.
struct Forms {
  std::string name;
  std::vector<std::pair<int, std::string>> forms;
};

std::vector<Forms> reference_rows() {
  std::vector<Forms> rows;
  for (const char* const name :
       {"DeviceTotalMem",  "ModuleGetGlobal", "MemGetInfo",         "MemAlloc",
        "MemAllocPitch",   "MemFree",         "MemGetAddressRange", "MemHostGetDevicePointer",
        "MemcpyHtoD",      "MemcpyDtoH",      "MemcpyDtoD",         "MemcpyHtoDAsync",
        "MemcpyDtoHAsync", "MemcpyDtoDAsync", "Memcpy2DUnaligned",  "Memcpy2DAsync",
        "Memcpy3D",        "Memcpy3DAsync",   "MemsetD8",           "MemsetD2D8"})
    rows.push_back({name, {{3020, "_v2"}}});
  for (const char* const name :
       {"CtxPushCurrent", "CtxPopCurrent", "StreamDestroy", "EventDestroy"})
    rows.push_back({name, {{4000, "_v2"}}});
  rows.push_back({"CtxCreate", {{3020, "_v2"}, {11040, "_v3"}, {12050, "_v4"}}});
  rows.push_back({"MemHostRegister", {{6050, "_v2"}}});
  rows.push_back({"DevicePrimaryCtxSetFlags", {{11000, "_v2"}}});
  rows.push_back({"GraphAddKernelNode", {{12000, "_v2"}}});
  rows.push_back({"GraphExecUpdate", {{12000, "_v2"}}});
  rows.push_back({"CtxGetDevice", {{2000, ""}, {13000, "_v2"}}});
  rows.push_back({"CtxSynchronize", {{2000, ""}, {13000, "_v2"}}});
  rows.push_back({"EventElapsedTime", {{2000, ""}, {12080, "_v2"}}});
  rows.push_back({"IpcOpenMemHandle", {{4010, ""}, {11000, "_v2"}}});
  rows.push_back({"MemAdvise", {{8000, ""}, {12020, "_v2"}}});
  rows.push_back({"MemPrefetchAsync", {{8000, ""}, {12020, "_v2"}}});
  rows.push_back({"MemcpyBatchAsync", {{12080, ""}, {13000, "_v2"}}});
  rows.push_back({"StreamBeginCapture", {{10000, ""}, {10010, "_v2"}}});
  rows.push_back({"StreamGetCaptureInfo", {{10010, ""}, {11030, "_v2"}, {12030, "_v3"}}});
  rows.push_back({"StreamUpdateCaptureDependencies", {{11030, ""}, {12030, "_v2"}}});
  rows.push_back({"GraphInstantiate", {{10000, ""}, {11000, "_v2"}}});
  for (const char* const name :
       {"GraphGetEdges", "GraphAddDependencies", "GraphNodeGetDependencies"})
    rows.push_back({name, {{10000, ""}, {12030, "_v2"}}});
  rows.push_back({"GraphAddNode", {{12020, ""}, {12030, "_v2"}}});
  for (const char* const name : {"LibraryLoadData", "LibraryGetKernel", "LibraryUnload",
                                 "LibraryGetGlobal", "LibraryGetModule", "KernelGetFunction"})
    rows.push_back({name, {{12000, ""}}});
  rows.push_back({"FuncGetName", {{12030, ""}}});
  rows.push_back({"KernelGetName", {{12030, ""}}});
  rows.push_back({"FuncGetParamInfo", {{12040, ""}}});
  rows.push_back({"KernelGetParamInfo", {{12040, ""}}});
  rows.push_back({"LaunchKernelEx", {{11060, ""}}});
  rows.push_back({"MemsetD8Async", {{3020, ""}}});
  return rows;
}

TEST_F(LookupTest, TheGreatestFirstVersionNotAboveTheAskedOne) {
  COVERS(cuGetProcAddress_v2);
  for (const Forms& row : reference_rows()) {
    const std::string name = "cu" + row.name;
    for (std::size_t i = 0; i < row.forms.size(); ++i) {
      const auto& [first, suffix] = row.forms[i];
      const int last = i + 1 < row.forms.size() ? row.forms[i + 1].first - 1 : 13000;
      void* const expected = driver_symbol((name + suffix).c_str());
      EXPECT_EQ(look_up(name, first), expected) << name << " " << first;
      EXPECT_EQ(look_up(name, last), expected) << name << " " << last;
      EXPECT_EQ(look_up(name, first, 1), expected) << name;
    }
  }
}

TEST_F(LookupTest, BeforeTheFirstVersionThereIsAnOlderFormOrNone) {
  COVERS(cuGetProcAddress_v2);
  int status = 0;
  EXPECT_EQ(look_up("cuLaunchKernelEx", 11050, 0, &status), nullptr);
  EXPECT_EQ(status, 2);
  EXPECT_EQ(look_up("cuLibraryLoadData", 11080, 0, &status), nullptr);
  EXPECT_EQ(status, 2);
  EXPECT_EQ(look_up("cuNoSuchThing", 13000, 0, &status), nullptr);
  EXPECT_EQ(status, 1);
  EXPECT_EQ(look_up("", 0, 0, &status), nullptr);  // NVIDIA's runtime asks for this first
  EXPECT_EQ(status, 1);
  // A symbol's own name is none to ask for.
  EXPECT_EQ(look_up("cuMemAlloc_v2", 13000, 0, &status), nullptr);
  EXPECT_EQ(status, 1);
}

TEST_F(LookupTest, ForThreadsDefaultStreams) {
  COVERS(cuGetProcAddress_v2);
  EXPECT_EQ(look_up("cuMemcpyHtoD", 3020), driver_symbol("cuMemcpyHtoD_v2"));
  EXPECT_EQ(look_up("cuMemcpyHtoD", 7000, kPerThread), driver_symbol("cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(look_up("cuLaunchKernel", 7000, kPerThread), driver_symbol("cuLaunchKernel_ptsz"));
  EXPECT_EQ(look_up("cuLaunchKernel", 7000, 1), driver_symbol("cuLaunchKernel"));
  EXPECT_EQ(look_up("cuStreamSynchronize", 12000, kPerThread),
            driver_symbol("cuStreamSynchronize_ptsz"));
  EXPECT_EQ(look_up("cuMemAllocAsync", 13000, kPerThread), driver_symbol("cuMemAllocAsync_ptsz"));
  // Those that take no stream have one form.
  EXPECT_EQ(look_up("cuMemAlloc", 13000, kPerThread), driver_symbol("cuMemAlloc_v2"));
  EXPECT_EQ(look_up("cuStreamCreate", 13000, kPerThread), driver_symbol("cuStreamCreate"));
  // Before there was such a form the plain one is it.
  EXPECT_EQ(look_up("cuMemcpyHtoD", 6050, kPerThread), driver_symbol("cuMemcpyHtoD_v2"));
}

TEST_F(LookupTest, ItselfInBothForms) {
  COVERS(cuGetProcAddress, cuGetProcAddress_v2);
  void* const four = look_up("cuGetProcAddress", 11030);
  EXPECT_EQ(four, driver_symbol("cuGetProcAddress"));
  EXPECT_EQ(look_up("cuGetProcAddress", 12000), driver_symbol("cuGetProcAddress_v2"));
  void* function = nullptr;
  OK(cuGetProcAddress("cuInit", &function, 2000, 0));
  EXPECT_EQ(function, driver_symbol("cuInit"));
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNoSuchThing", &function, 12000, 0));
  EXPECT_EQ(function, nullptr);
}

TEST_F(LookupTest, WrongArguments) {
  COVERS(cuGetProcAddress_v2);
  void* function = nullptr;
  int status = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &function, 13010, 0, &status));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &function, 12000, 8, &status));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", nullptr, 12000, 0, &status));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2(nullptr, &function, 12000, 0, &status));
  OK(cuGetProcAddress_v2("cuInit", &function, 12000, 0, nullptr));
}

struct Row {
  std::string base, symbol;
  int version{0};
  bool is_per_thread{false};
};

std::vector<Row> all_rows() {
  std::ifstream file(KANSOKU_SOURCE_DIR "/src/cuda/interface/driver.txt");
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    Row row;
    std::string kind;
    words >> row.base >> row.version >> row.symbol >> kind;
    row.is_per_thread = kind == "per-thread";
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST_F(LookupTest, EveryFormIsExportedAndFound) {
  COVERS(cuGetProcAddress_v2);
  const auto rows = all_rows();
  EXPECT_GT(rows.size(), 600U);
  for (const Row& row : rows) {
    void* const symbol = driver_symbol(row.symbol.c_str());
    ASSERT_NE(symbol, nullptr) << row.symbol;
    EXPECT_EQ(look_up(row.base, row.version, row.is_per_thread ? kPerThread : 1), symbol)
        << row.symbol << " " << row.version;
  }
}

/// Calls everything that is not implemented twice, whatever its parameters are.
int call_what_is_missing() {
  const std::set<std::string> implemented(std::begin(kImplemented), std::end(kImplemented));
  std::set<std::string> missing;
  for (const Row& row : all_rows()) {
    if (implemented.count(row.symbol) == 0) missing.insert(row.symbol);
  }
  for (const std::string& symbol : missing) {
    const auto call = reinterpret_cast<int (*)()>(driver_symbol(symbol.c_str()));
    if (call() != CUDA_ERROR_NOT_SUPPORTED || call() != CUDA_ERROR_NOT_SUPPORTED) return 1;
  }
  std::printf("%zu", missing.size());
  return 0;
}
const Child kMissing("call_what_is_missing", call_what_is_missing);

std::vector<std::string> log_lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  return lines;
}

TEST(LookupProcessTest, WhatIsNotSupportedSaysSoOnce) {
  const std::string log =
      (std::filesystem::temp_directory_path() / ("softcuda_log_" + std::to_string(getpid())))
          .string();
  const ChildRun run = run_child("call_what_is_missing", {"KANSOKU_SOFTGPU_LOG=" + log});
  EXPECT_EQ(run.exit_code, 0);
  auto lines = log_lines_of(log);
  std::filesystem::remove(log);
  EXPECT_GT(lines.size(), 100U);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(std::adjacent_find(lines.begin(), lines.end()), lines.end());
  EXPECT_EQ(std::to_string(lines.size()), run.output);
  EXPECT_THAT(lines, ::testing::Contains(::testing::HasSubstr(
                         "cuTexRefCreate is not supported by the software device")));
}

int ask_for_tables() {
  if (cuInit(0) != CUDA_SUCCESS) return 1;
  for (unsigned i = 0; i < 200; ++i) {
    CUuuid id{};
    for (unsigned j = 0; j < 16; ++j)
      id.bytes[j] = static_cast<char>(i * 31 + j * 7);
    const void* table = &id;
    if (cuGetExportTable(&table, &id) != CUDA_ERROR_NOT_FOUND || table != nullptr) return 2;
  }
  return cuGetExportTable(nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE ? 0 : 3;
}
const Child kTables("ask_for_tables", ask_for_tables);

TEST(LookupProcessTest, TablesOfNvidiasRuntimeAreNotThere) {
  COVERS(cuGetExportTable);
  const std::string log =
      (std::filesystem::temp_directory_path() / ("softcuda_tables_" + std::to_string(getpid())))
          .string();
  EXPECT_EQ(run_child("ask_for_tables", {"KANSOKU_SOFTGPU_LOG=" + log}).exit_code, 0);
  const auto lines = log_lines_of(log);
  std::filesystem::remove(log);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], ::testing::HasSubstr("NVIDIA's runtime needs NVIDIA's driver; link "
                                             "Kansoku's stand-in libcudart"));
}

TEST_F(LookupTest, ErrorsHaveNamesAndTexts) {
  COVERS(cuGetErrorName, cuGetErrorString);
  const char* text = nullptr;
  OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  OK(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "an illegal memory access was encountered");
  OK(cuGetErrorString(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, &text));
  EXPECT_STREQ(text, "capturing stream has unjoined work");
  OK(cuGetErrorString(CUDA_SUCCESS, &text));
  EXPECT_STREQ(text, "no error");
  for (const int code : {-1, 12, 398, 12345}) {
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(static_cast<CUresult>(code), &text));
    EXPECT_EQ(text, nullptr);
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGetErrorString(static_cast<CUresult>(code), &text));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(CUDA_SUCCESS, nullptr));
}

}  // namespace
}  // namespace kansoku::softcuda
