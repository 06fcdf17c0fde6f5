// SPDX-License-Identifier: Apache-2.0
#include "trace/import/nsight.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "trace/import/nsight_for_test.h"
#include "trace/traces_for_test.h"

namespace kansoku::trace::import {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::string whole_file(std::string_view more = "") {
  return sqlite_file_for_test(std::string(kNsightSchemaForTest) + std::string(kNsightRowsForTest) +
                              std::string(more));
}

std::string file_of(std::string_view rows) {
  return sqlite_file_for_test(std::string(kNsightSchemaForTest) + std::string(rows));
}

Result<ImportedFile> import_nsight(std::string_view file, Trace& trace,
                                   const NsightOptions& options = {},
                                   std::string_view name = "run/rank-3.sqlite") {
  return import_nsight(as_bytes(file), name, options, trace);
}

Error error_of(std::string_view file, const NsightOptions& options = {}) {
  Trace trace;
  const auto imported = import_nsight(file, trace, options);
  EXPECT_FALSE(imported.has_value());
  return imported ? Error{} : imported.error();
}

std::uint64_t nsight_loss(const Trace& trace, const StatDef& stat) {
  const auto found = trace.losses.find(std::string(stat.name));
  return found == trace.losses.end() ? 0 : found->second.count;
}

/// "category name start+duration pid/tid key=value ..."
std::string line_of(const Trace& t, std::size_t slice) {
  const SliceTable& s = t.slices;
  const Track& track = t.tracks[s.track[slice].raw];
  std::string line =
      fmt::format("{} {} {}+{} {}/{}", t.str(s.category[slice]), t.str(s.name[slice]),
                  s.start_ns[slice], s.duration_ns[slice], track.pid, track.tid);
  for (std::uint32_t i = 0; i < s.arg_count[slice]; ++i) {
    const ArgValue& arg = t.args[s.arg_begin[slice] + i];
    line += fmt::format(" {}=", t.str(arg.key));
    line +=
        arg.kind == ArgValue::Kind::kInt ? std::to_string(arg.i64) : std::string(t.str(arg.text));
  }
  return line;
}

std::vector<std::string> lines_of(const Trace& trace) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < trace.slices.size(); ++i)
    lines.push_back(line_of(trace, i));
  return lines;
}

TEST(Nsight, ReadsEveryTableUnderTheCategoriesOfKineto) {
  Trace trace;
  const auto imported = import_nsight(whole_file(), trace);
  ASSERT_TRUE(imported.has_value()) << imported.error().what;
  EXPECT_EQ(imported->rank, 3);
  EXPECT_EQ(imported->event_count, 13);
  EXPECT_EQ(problem_of(trace), "");
  EXPECT_THAT(
      lines_of(trace),
      ElementsAre(
          "kernel void gemm<float>(float*) 1000200+60 4711/1073741825 "
          "correlation=41 device=0 stream=7 grid=[16, 2, 1] block=[128, 1, 1]",
          "kernel ncclDevKernel_AllReduce_Sum_f32_RING_LL 1000270+30 "
          "4711/1073741826 correlation=42 device=0 stream=20 grid=[8, 1, 1] block=[512, 1, 1]",
          "gpu_memcpy Memcpy HtoD 1000150+40 4711/1073741825 correlation=40 device=0 "
          "stream=7 bytes=4096",
          "gpu_memset Memset (Device) 1000191+4 4711/1073741825 correlation=39 "
          "device=0 stream=7 bytes=512",
          "cuda_sync Stream Sync 1000300+10 4711/1073741825 correlation=43 device=0 stream=7",
          "cuda_graph CUDA graph 1000320+10 4711/1073741825 correlation=44 device=0 stream=7",
          "cuda_runtime cudaLaunchKernel 1000120+5 4711/4 correlation=41",
          "cuda_driver cuMemcpyHtoD_v2 1000130+10 4711/4 correlation=40",
          "user_annotation forward 1000100+250 4711/4", "user_annotation tail 1000340+-1 4711/4",
          "os_runtime pthread_cond_wait 1000141+8 4711/4"));
  ASSERT_EQ(trace.instants.size(), 1);
  EXPECT_EQ(trace.str(trace.instants.name[0]), "step 1");
  EXPECT_EQ(trace.instants.time_ns[0], 1000101);
  EXPECT_EQ(trace.begin_ns, 1000100);
  EXPECT_EQ(trace.end_ns, 1000350);
  EXPECT_FALSE(trace.is_lossy());
  EXPECT_EQ(nsight_loss(trace, import_other_rows), 1);
}

TEST(Nsight, NamesProcessesThreadsAndStreams) {
  Trace trace;
  ASSERT_TRUE(import_nsight(whole_file(), trace).has_value());
  ASSERT_THAT(trace.processes, SizeIs(1));
  EXPECT_EQ(trace.str(trace.processes[0].name), "/usr/bin/python3");
  EXPECT_EQ(trace.str(trace.processes[0].role), "rank");
  EXPECT_EQ(trace.processes[0].pid, 4711);
  EXPECT_EQ(trace.processes[0].rank, 3);
  std::vector<std::string> names;
  for (const Track& track : trace.tracks) {
    if (track.kind == TrackKind::kThread) names.emplace_back(trace.str(track.name));
  }
  EXPECT_THAT(names, ElementsAre("GPU 0 stream 7", "GPU 0 stream 20", "pt_main_thread"));
}

TEST(Nsight, WithoutARankNoProcessHasARole) {
  Trace trace;
  const auto imported = import_nsight(whole_file(), trace, {}, "report1.sqlite");
  ASSERT_TRUE(imported.has_value());
  EXPECT_EQ(imported->rank, kNoRank);
  EXPECT_EQ(trace.str(trace.processes[0].role), "");
  EXPECT_EQ(trace.processes[0].rank, kNoRank);
}

// Each of two processes calls its device 0.
TEST(Nsight, ADeviceIsAProcessesOwn) {
  const std::string file = file_of(R"(
    INSERT INTO StringIds VALUES (1, 'k');
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
      (100, 110, 0, 1, 7, 41, 67108864, 1, 1, 1, 1, 1, 1, 1, 1),
      (105, 115, 0, 1, 7, 41, 83886080, 1, 1, 1, 1, 1, 1, 1, 1);)");
  Trace trace;
  ASSERT_TRUE(import_nsight(file, trace).has_value());
  ASSERT_THAT(trace.processes, SizeIs(2));
  EXPECT_EQ(trace.processes[0].pid, 4);
  EXPECT_EQ(trace.processes[1].pid, 5);
  EXPECT_NE(trace.slices.track[0], trace.slices.track[1]);
}

// Exports that name no process: a device is one of its own.
TEST(Nsight, WithoutItsProcessADeviceIsOne) {
  const std::string file = whole_file(
      "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid;"
      "ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY DROP COLUMN globalPid;"
      "ALTER TABLE CUPTI_ACTIVITY_KIND_MEMSET DROP COLUMN globalPid;"
      "ALTER TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION DROP COLUMN globalPid;");
  Trace trace;
  ASSERT_TRUE(import_nsight(file, trace).has_value());
  ASSERT_THAT(trace.processes, SizeIs(2));
  EXPECT_EQ(trace.str(trace.processes[0].name), "GPU 0");
  EXPECT_EQ(trace.str(trace.processes[0].role), "device");
}

TEST(Nsight, TwoFilesOfOneTraceShareNoProcess) {
  Trace trace;
  const std::string file = whole_file();
  ASSERT_TRUE(import_nsight(file, trace, {}, "rank-0.sqlite").has_value());
  const auto second = import_nsight(file, trace, {}, "rank-1.sqlite");
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(problem_of(trace), "");
  EXPECT_EQ(second->event_count, 13);
  ASSERT_THAT(trace.processes, SizeIs(2));
  std::vector<std::int32_t> pids, ranks;
  for (const Process& process : trace.processes) {
    pids.push_back(process.pid);
    ranks.push_back(process.rank);
  }
  EXPECT_THAT(pids, ElementsAre(4711, 1073741824));
  EXPECT_THAT(ranks, ElementsAre(0, 1));
  EXPECT_EQ(trace.str(trace.processes[1].role), "rank");
  ASSERT_EQ(trace.slices.size(), 22);
  EXPECT_THAT(line_of(trace, 17),
              HasSubstr("cudaLaunchKernel 1000120+5 1073741824/4 correlation=41"));
}

TEST(Nsight, TimesOfAFileWithoutASessionStartAsTheyStand) {
  Trace trace;
  ASSERT_TRUE(
      import_nsight(file_of("INSERT INTO NVTX_EVENTS VALUES (5, 9, 59, 'a', 1, NULL, 0)"), trace));
  EXPECT_THAT(lines_of(trace), ElementsAre("user_annotation a 5+4 0/1"));
}

TEST(Nsight, ATableThatLacksANeededColumnIsSkippedAndCounted) {
  const std::string file = whole_file(
      "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId;"
      "ALTER TABLE NVTX_EVENTS DROP COLUMN text; ALTER TABLE NVTX_EVENTS DROP COLUMN textId;");
  Trace trace;
  ASSERT_TRUE(import_nsight(file, trace).has_value());
  EXPECT_EQ(nsight_loss(trace, import_skipped_tables), 2);
  EXPECT_TRUE(trace.is_lossy());
  EXPECT_EQ(trace.slices.size(), 7);
}

TEST(Nsight, ColumnsThatAreNotNeededMayBeMissing) {
  const std::string file = whole_file(
      "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN demangledName;"
      "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN gridY;"
      "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN correlationId;"
      "ALTER TABLE NVTX_EVENTS DROP COLUMN eventType; ALTER TABLE NVTX_EVENTS DROP COLUMN textId;"
      "DROP TABLE OSRT_API; DROP TABLE ThreadNames; DROP TABLE PROCESSES;");
  Trace trace;
  ASSERT_TRUE(import_nsight(file, trace).has_value());
  EXPECT_EQ(line_of(trace, 0),
            "kernel gemm 1000200+60 4711/1073741825 device=0 stream=7 block=[128, 1, 1]");
  EXPECT_EQ(trace.instants.size(), 3);  // without types, what has no end is a mark
  EXPECT_FALSE(trace.is_lossy());
}

TEST(Nsight, RowsOfWrongTypesAndTimesAreCounted) {
  const std::string file = file_of(R"(
    INSERT INTO StringIds VALUES (1, 'k'), (2, x'00ff');
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
      ('soon', 260, 0, 1, 7, 41, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      (200, 199, 0, 1, 7, 41, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      (0, 0, 0, 1, 7, 41, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      (1, 9223372036854775807, 0, 1, 7, 41, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      (-9223372036854775807, 1, 0, 1, 7, 41, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      (1, 2, -1, 1, 7, 41, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      (1, 2, 4294967296, 1, 7, 41, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      (1, 2, 0, 1, 'x', 41, 0, 1, 1, 1, 1, 1, 1, 1, 1),
      (1, 2, 0, 1, 9223372036854775807, 1.5, 0, 1, 1, NULL, 1, 1, x'01', 1, 1);
    INSERT INTO OSRT_API VALUES (1, 2, NULL, 0, 1), (1, 2, 5, 0, 99);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 0, 5, 6, 98);
    INSERT INTO NVTX_EVENTS VALUES (1, 'later', 59, 'a', 5, NULL, 0), (1, 2, 59, NULL, 5, NULL, 0);
  )");
  Trace trace;
  ASSERT_TRUE(import_nsight(file, trace).has_value());
  EXPECT_EQ(problem_of(trace), "");
  EXPECT_THAT(lines_of(trace), ElementsAre("kernel k 1+1 1073741824/1073741825 device=0 "
                                           "stream=9223372036854775807",
                                           "cuda_runtime  1+1 0/5 correlation=6",
                                           "user_annotation  1+1 0/5", "os_runtime  1+1 0/5"));
  EXPECT_EQ(nsight_loss(trace, import_bad_rows), 1 + 8 + 1 + 1);
  EXPECT_EQ(nsight_loss(trace, import_missing_names), 2);
  EXPECT_GE(nsight_loss(trace, import_odd_values), 5);
}

TEST(Nsight, TextsAreCutAndMadeUtf8) {
  const std::string file = file_of(
      "INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, CAST(x'61ff62' AS TEXT), 5, NULL, 0),"
      "(3, 4, 59, 'abcdefgh\xc3\xa9', 5, NULL, 0);");
  Trace trace;
  ASSERT_TRUE(import_nsight(file, trace, {.text_bytes_max = 9}).has_value());
  EXPECT_THAT(lines_of(trace),
              ElementsAre("user_annotation a?b 1+1 0/5", "user_annotation abcdefgh 3+1 0/5"));
  EXPECT_EQ(nsight_loss(trace, import_bad_texts), 1);
  EXPECT_EQ(nsight_loss(trace, import_cut_texts), 1);
}

TEST(Nsight, ReadsUtf16) {
  Trace plain, wide;
  const std::string file =
      sqlite_file_for_test("PRAGMA encoding = 'UTF-16le';" + std::string(kNsightSchemaForTest) +
                           std::string(kNsightRowsForTest));
  ASSERT_TRUE(import_nsight(whole_file(), plain).has_value());
  ASSERT_TRUE(import_nsight(file, wide).has_value());
  EXPECT_EQ(dump(plain), dump(wide));
}

TEST(Nsight, RowsUpToTheLimit) {
  const std::string file = file_of(
      "INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, 'a', 5, NULL, 0),"
      "(3, 4, 59, 'a', 5, NULL, 0), (5, 6, 59, 'a', 5, NULL, 0);");
  for (const std::uint64_t rows_max : {3U, 4U}) {
    Trace trace;
    ASSERT_TRUE(import_nsight(file, trace, {.rows_max = rows_max}).has_value());
    EXPECT_EQ(trace.slices.size(), 3);
  }
  const Error error = error_of(file, {.rows_max = 2});
  EXPECT_EQ(error.code, Code::kLimit);
  EXPECT_EQ(error.what, "read Nsight export, table NVTX_EVENTS: more rows than the limit");
}

TEST(Nsight, OtherLimitsHaveNames) {
  const std::string file = whole_file();
  EXPECT_THAT(error_of(file, {.strings_bytes_max = 50}).what, HasSubstr("more bytes of text"));
  EXPECT_THAT(error_of(file, {.tracks_max = 3}).what, HasSubstr("more tracks"));
  Trace trace;
  EXPECT_TRUE(import_nsight(file, trace, {.tracks_max = 4}).has_value());
  EXPECT_THAT(trace.tracks, SizeIs(4));
  const std::string wide =
      file_of("INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, printf('%5000d', 1), 5, NULL, 0);");
  EXPECT_EQ(error_of(wide, {.row_bytes_max = 2000}).code, Code::kLimit);
}

TEST(Nsight, AViewOrVirtualTableInPlaceOfATableIsRefused) {
  const std::string view = whole_file(
      "ALTER TABLE NVTX_EVENTS RENAME TO Other; CREATE VIEW NVTX_EVENTS AS SELECT * FROM Other;");
  const Error error = error_of(view);
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_EQ(error.what, "read SQLite schema of NVTX_EVENTS: not an ordinary table");
  // A row of the schema that lies about it; SQLite finds out.
  const std::string lie = whole_file(
      "CREATE TABLE Other (start, end, text, globalTid); DROP TABLE NVTX_EVENTS;"
      "CREATE VIEW NVTX_EVENTS AS SELECT * FROM Other; PRAGMA writable_schema = ON;"
      "UPDATE sqlite_schema SET type = 'table', rootpage = 3 WHERE name = 'NVTX_EVENTS';");
  EXPECT_EQ(error_of(lie).code, Code::kCorrupt);
  const std::string imagined = whole_file(
      "DROP TABLE NVTX_EVENTS; PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES "
      "('table', 'NVTX_EVENTS', 'NVTX_EVENTS', 0, "
      "'CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start, end, text, globalTid)');");
  EXPECT_EQ(error_of(imagined).code, Code::kUnsupported);
}

TEST(Nsight, ColumnsThatTheFileComputesAreNotRead) {
  const std::string file = whole_file(
      "DROP TABLE OSRT_API; CREATE TABLE OSRT_API (start INT, end INT, nameId INT, "
      "globalTid INT AS (length(hex(zeroblob(100000000)))));"
      "INSERT INTO OSRT_API VALUES (1, 2, 3);");
  Trace trace;
  ASSERT_TRUE(import_nsight(file, trace).has_value());
  EXPECT_EQ(nsight_loss(trace, import_skipped_tables), 1);
}

TEST(Nsight, TriggersAndIndicesOfTheFileDoNotMatter) {
  const std::string file = whole_file(
      "CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM NVTX_EVENTS; END;"
      "CREATE INDEX i ON NVTX_EVENTS (start DESC, end, text, globalTid, textId, eventType);");
  Trace plain, other;
  ASSERT_TRUE(import_nsight(whole_file(), plain).has_value());
  ASSERT_TRUE(import_nsight(file, other).has_value());
  EXPECT_EQ(dump(plain), dump(other));
}

TEST(Nsight, WhatIsNoExportIsRefused) {
  EXPECT_EQ(error_of("").code, Code::kCorrupt);
  EXPECT_EQ(error_of(std::string(4096, 'x')).code, Code::kCorrupt);
  EXPECT_EQ(error_of(whole_file().substr(0, 99)).code, Code::kCorrupt);
  EXPECT_EQ(error_of(sqlite_file_for_test("CREATE TABLE t (a)")).code, Code::kNotFound);
  std::string logged = whole_file();
  logged[18] = logged[19] = 2;
  EXPECT_EQ(error_of(logged).code, Code::kUnsupported);
  EXPECT_THAT(error_of(logged).hint, HasSubstr("journal_mode"));
}

TEST(Nsight, ACutFileIsAnErrorOrBounded) {
  const std::string file = whole_file();
  for (std::size_t bytes = 0; bytes < file.size(); bytes += 512) {
    Trace trace;
    const auto imported = import_nsight(file.substr(0, bytes), trace);
    if (imported) {
      EXPECT_EQ(problem_of(trace), "") << bytes;
      EXPECT_LE(trace.slices.size(), 11) << bytes;
    } else {
      EXPECT_EQ(imported.error().code, Code::kCorrupt) << bytes << ": " << imported.error().what;
    }
  }
}

TEST(Nsight, PagesInCirclesEnd) {
  const std::string file = pages_in_circles_for_test();
  const Error error = error_of(file);
  EXPECT_EQ(error.code, Code::kLimit);
  EXPECT_THAT(error.what, HasSubstr("more work than an image of this size can need"));
}

TEST(RankOfFileName, TheLastOneWithDigits) {
  EXPECT_EQ(rank_of_file_name("rank1/run.rank-12.sqlite"), 12);
  EXPECT_EQ(rank_of_file_name("rank1/report.sqlite"), kNoRank);
}

}  // namespace
}  // namespace kansoku::trace::import
