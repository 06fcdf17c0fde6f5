// SPDX-License-Identifier: Apache-2.0
#include "capture/bpf/internal/load_log.h"

#include <bpf/libbpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace kansoku::capture::bpf {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* kRefusal =
    "libbpf: prog 'meter_entry': -- BEGIN PROG LOAD LOG --\n"
    "0: R1=ctx(off=0,imm=0) R10=fp0\n"
    "; bucket = 63 - leading_zeros(duration);\n"
    "91: (0f) r2 += r1\n"
    "R2 unbounded memory access, make sure to bounds check any such access\n"
    "processed 1204 insns (limit 1000000) max_states_per_insn 4 total_states 61\n"
    "-- END PROG LOAD LOG --\n";

TEST(LoadLog, TellsTheVerifiersLastLineBeforeItsStatistics) {
  LoadLog log;
  log.add("libbpf: prog 'meter_entry': BPF program load failed: Permission denied\n");
  log.add(kRefusal);
  log.add("libbpf: failed to load object 'meter_bpf'\n");
  EXPECT_EQ(log.reason(),
            "meter_entry: R2 unbounded memory access, make sure to bounds check any such access");
}

TEST(LoadLog, TellsTheFirstWarningWhereThereIsNoLog) {
  LoadLog log;
  log.add("libbpf: map 'totals': failed to create: Operation not permitted(-1)\n");
  log.add("libbpf: failed to load object 'meter_bpf'\n");
  EXPECT_EQ(log.reason(), "map 'totals': failed to create: Operation not permitted(-1)");
}

TEST(LoadLog, SaysNothingWhereOnlyTheFailureIsKnown) {
  LoadLog log;
  log.add("libbpf: prog 'meter_entry': BPF program load failed: Invalid argument\n");
  EXPECT_EQ(log.reason(), "");
  EXPECT_EQ(log.error(EINVAL, "BPF programs").what, "load BPF programs: Invalid argument");
}

TEST(LoadLog, BoundsWhatItKeeps) {
  LoadLog log;
  log.add("libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n" + std::string(1 << 20, 'a') +
          "\n-- END PROG LOAD LOG --\n");
  EXPECT_THAT(log.reason(), SizeIs(300));
}

TEST(LoadLog, CleansWhatItKeeps) {
  LoadLog log;
  log.add("libbpf: map '\x1b[31mred': no\n");
  EXPECT_EQ(log.reason(), "map '?[31mred': no");
}

TEST(LoadLog, ALogOfStatisticsOrWithoutAnEndIsNoReason) {
  LoadLog log;
  log.add("libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\nprocessed 0 insns\n\n");
  EXPECT_EQ(log.reason(), "");
  log.add("libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n");
  EXPECT_EQ(log.reason(), "");
}

// libbpf itself is asked for a program that no kernel has.
TEST(LoadLog, HearsLibbpfWhileItLives) {
  std::string heard;
  {
    LoadLog log;
    EXPECT_EQ(bpf_object__open_file("/proc/self/no_such_object", nullptr), nullptr);
    heard = log.reason();
  }
  EXPECT_THAT(heard, HasSubstr("/proc/self/no_such_object"));
  LoadLog next;
  EXPECT_EQ(next.reason(), "");
  EXPECT_THAT(next.error(EPERM, "BPF programs").what, EndsWith("Operation not permitted"));
}

}  // namespace
}  // namespace kansoku::capture::bpf
