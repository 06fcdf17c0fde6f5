// SPDX-License-Identifier: Apache-2.0
#include "simulate/import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <string>

#include "simulate/import/workload_for_test.h"

namespace kansoku::simulate::import {
namespace {

using testing::ElementsAre;

constexpr std::string_view kPhillyHeader = "timestamp,duration,num_gpus,gpu_time,cluster\n";
constexpr std::string_view kOpenbHeader =
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n";
constexpr std::string_view kBatchHeader =
    ",submit_time,duration,cpu,memory,job_id,task_id,instances_num,disk\n";

Workload imported(Format format, std::string_view text, const ImportOptions& options = {}) {
  auto workload = import_workload(format, text, "f.csv", options);
  EXPECT_TRUE(workload) << workload.error().what;
  return workload ? *std::move(workload) : Workload{};
}

std::string error_of(Format format, std::string_view text, const ImportOptions& options = {}) {
  const auto workload = import_workload(format, text, "f.csv", options);
  return workload ? "accepted" : workload.error().what;
}

std::string philly(std::string_view rows) {
  return std::string(kPhillyHeader) + std::string(rows);
}
std::string openb(std::string_view rows) {
  return std::string(kOpenbHeader) + std::string(rows);
}
std::string batch(std::string_view rows) {
  return std::string(kBatchHeader) + std::string(rows);
}

void expect_read_back(Format format, const Workload& workload) {
  const auto text = export_workload(format, workload);
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_EQ(text_of(imported(format, *text)), text_of(workload)) << *text;
}

TEST(Format, NamesAndDetection) {
  for (int i = 0; i < 7; ++i) {
    const auto format = static_cast<Format>(i);
    EXPECT_EQ(format_from_name(format_name(format)), format);
  }
  EXPECT_EQ(format_from_name("csv"), std::nullopt);
  EXPECT_EQ(detect_format(kPhillyHeader), Format::kPhilly);
  EXPECT_EQ(detect_format(kOpenbHeader), Format::kOpenbPods);
  EXPECT_EQ(detect_format("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"), Format::kOpenbPods);
  EXPECT_EQ(detect_format(kBatchHeader), Format::kAlibabaBatch);
  EXPECT_EQ(detect_format("\xEF\xBB\xBFTIMESTAMP,ContextTokens,GeneratedTokens\r\n"),
            Format::kAzureLlm);
  EXPECT_EQ(detect_format("num_prefill_tokens,num_decode_tokens,x"), Format::kVidur);
  EXPECT_EQ(detect_format(" \n{\"name\": \"x\", \"workflow\": {}}"), Format::kWfFormat);
  EXPECT_EQ(detect_format("# epoch 2017-10-02 00:00:00\nsubmit_s,duration_s\n"), Format::kPlain);
  EXPECT_EQ(detect_format("{}"), std::nullopt);
  EXPECT_EQ(detect_format(""), std::nullopt);
  EXPECT_EQ(detect_format("sn,cpu_milli,memory_mib,gpu,model\n"), std::nullopt);
}

TEST(Philly, UnsortedRowsAndTheEpoch) {
  const Workload workload =
      imported(Format::kPhilly, philly("2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
                                       "2017-10-09 06:13:03,2951.25,8,1,6214e9\n"
                                       "2017-10-09 07:01:55,3,0,0,11cb48\n"));
  EXPECT_EQ(text_of(workload),
            "epoch 2017-10-09 06:13:03 22383\n"
            "0 +2951250000000 @-1  of 6214e9 in - 8x1000  cpu -1 mib -1 bytes -1 -1 tokens -1 -1 "
            "x1\n"
            "2932000000000 +66000000000 @-1  of 11cb48 in - 1x1000  cpu -1 mib -1 bytes -1 -1 "
            "tokens -1 -1 x1\n"
            "2932000000000 +3000000000 @-1  of 11cb48 in - 0x0  cpu -1 mib -1 bytes -1 -1 tokens "
            "-1 -1 x1\n");
  EXPECT_EQ(workload.source, "philly f.csv");
  expect_read_back(Format::kPhilly, workload);
}

TEST(Philly, LineEndsAndBlankLinesMakeNoRows) {
  const std::string rows = "2017-10-09 07:01:55,66.0,1,66.0,a\n2017-10-09 08:01:55,66.0,1,66.0,b\n";
  const std::string whole = text_of(imported(Format::kPhilly, philly(rows)));
  EXPECT_EQ(text_of(imported(Format::kPhilly, philly(rows + "\n\n"))), whole);
  EXPECT_EQ(text_of(imported(Format::kPhilly, philly(rows.substr(0, rows.size() - 1)))), whole);
  std::string crlf;
  for (const char c : philly(rows))
    crlf += c == '\n' ? "\r\n" : std::string(1, c);
  EXPECT_EQ(text_of(imported(Format::kPhilly, crlf)), whole);
}

TEST(Philly, TheReadersZoneHasNoPart) {
  const std::string text = philly("2017-10-29 01:30:00,66.0,1,66.0,a\n");
  const char* before = std::getenv("TZ");
  const std::string saved = before != nullptr ? before : "";
  for (const char* zone : {"UTC", "Asia/Tokyo", "America/New_York"}) {
    setenv("TZ", zone, 1);
    tzset();
    const Workload workload = imported(Format::kPhilly, text);
    EXPECT_EQ(workload.epoch_in_week_s, 6 * 86'400 + 5400) << zone;
    EXPECT_EQ(workload.epoch, "2017-10-29 01:30:00") << zone;
  }
  before != nullptr ? setenv("TZ", saved.c_str(), 1) : unsetenv("TZ");
  tzset();
}

TEST(Philly, Errors) {
  EXPECT_EQ(error_of(Format::kPhilly, "timestamp,num_gpus\n"),
            "f.csv:1:1: column 'duration' is missing");
  EXPECT_EQ(error_of(Format::kPhilly, philly("None,1,1,1,a\n")),
            "f.csv:2:1: not a time like 2017-10-09 07:01:55 in the years 1970 to 2099: 'None'");
  EXPECT_EQ(error_of(Format::kPhilly, philly("2017-10-09 07:01:55,-1,1,1,a\n")),
            "f.csv:2:21: '-1' is outside 0..4200000000");
  EXPECT_EQ(error_of(Format::kPhilly, philly("2017-10-09 07:01:55,,1,1,a\n")),
            "f.csv:2:21: empty field, a number is needed");
  EXPECT_EQ(error_of(Format::kPhilly, philly("2017-10-09 07:01:55,1,1.5,1,a\n")),
            "f.csv:2:23: no number: '1.5'");
  EXPECT_EQ(error_of(Format::kPhilly, philly("2017-10-09 07:01:55,1,1000001,1,a\n")),
            "f.csv:2:23: '1000001' is outside 0..1000000");
  EXPECT_EQ(error_of(Format::kPhilly, philly("2017-10-09 07:01:55,1,2.0,1,\xff\n")),
            "f.csv:2:29: not UTF-8: '\\xff'");
  EXPECT_EQ(error_of(Format::kPhilly, philly("2017-10-09 07:01:55,1,2\n")),
            "f.csv:2:23: 3 fields, the header has 5");
}

TEST(Import, BadRowsAreCounted) {
  const std::string text = philly(
      "2017-10-09 07:01:55,1,1,1,a\nx,1,1,1,a\n\n2017-10-09 07:01:55,1,1,1,b\n1,2\ny,1,1,1,b\n");
  const Workload workload =
      imported(Format::kPhilly, text, {.skip_bad_rows = true, .notes_max = 2});
  EXPECT_EQ(workload.jobs.size(), 2U);
  EXPECT_EQ(workload.bad_rows, 4U);
  EXPECT_THAT(
      workload.bad_row_notes,
      ElementsAre("f.csv:3:1: not a time like 2017-10-09 07:01:55 in the years 1970 to 2099: 'x'",
                  "f.csv:4:1: blank line inside the table"));
}

TEST(Import, RowsHaveALimit) {
  const std::string text = philly("2017-10-09 07:01:55,1,1,1,a\n2017-10-09 07:01:55,1,1,1,a\n");
  EXPECT_EQ(imported(Format::kPhilly, text, {.rows_max = 2}).jobs.size(), 2U);
  const auto refused = import_workload(Format::kPhilly, text, "f.csv", {.rows_max = 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kLimit);
  EXPECT_EQ(refused.error().what, "f.csv:3:1: more rows than the limit of 1");
}

TEST(Import, NamesHaveALimit) {
  const std::string row = "2017-10-09 07:01:55,1,1,1,";
  EXPECT_EQ(error_of(Format::kPhilly, philly(row + std::string(4096, 'x'))), "accepted");
  EXPECT_EQ(error_of(Format::kPhilly, philly(row + std::string(4097, 'x'))),
            "f.csv:2:27: name longer than the limit of 4096 bytes");
}

TEST(Openb, TimesAndCensoring) {
  const Workload workload = imported(
      Format::kOpenbPods, openb("p0,12000,16384,1,460,V100M16|V100M32,LS,Running,10,500,12\n"
                                "p1,100,200,0,0,,BE,Failed,20,30,\n"
                                "p2,100,200,8,1000,T4,BE,Pending,25,,\n"));
  EXPECT_EQ(text_of(workload),
            "epoch  -1\n"
            "10000000000 +488000000000 @12000000000 p0 of  in - 1x460 V100M16|V100M32 cpu 12000 "
            "mib 16384 bytes -1 -1 tokens -1 -1 x1 censored\n"
            "20000000000 +10000000000 @-1 p1 of  in - 0x0  cpu 100 mib 200 bytes -1 -1 tokens -1 "
            "-1 x1\n"
            "25000000000 +-1 @-1 p2 of  in - 8x1000 T4 cpu 100 mib 200 bytes -1 -1 tokens -1 -1 "
            "x1\n");
  expect_read_back(Format::kOpenbPods, workload);
}

TEST(Openb, ListsWithFiveOrSixColumns) {
  const Workload five =
      imported(Format::kOpenbPods, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,2,1,10");
  EXPECT_EQ(five.jobs.size(), 1U);
  EXPECT_EQ(five.jobs[0].duration, Nanos{-1});
  EXPECT_FALSE(five.jobs[0].censored);
  const Workload six = imported(Format::kOpenbPods,
                                "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1,2,1,10,"
                                "P4\n");
  EXPECT_EQ(six.gpu_types[six.jobs[0].gpu_type], "P4");
  expect_read_back(Format::kOpenbPods, six);
}

TEST(Openb, Errors) {
  EXPECT_EQ(error_of(Format::kOpenbPods, openb("p,1,2,2,500,,LS,Running,1,2,1\n")),
            "f.csv:2:9: below 1000 only with one GPU");
  EXPECT_EQ(error_of(Format::kOpenbPods, openb("p,1,2,1,0,,LS,Running,1,2,1\n")),
            "f.csv:2:9: '0' is outside 1..1000");
  EXPECT_EQ(error_of(Format::kOpenbPods, openb("p,1,2,0,500,,LS,Running,1,2,1\n")),
            "f.csv:2:9: '500' is outside 0..0");
  EXPECT_EQ(error_of(Format::kOpenbPods, openb("p,1,2,0,0,,LS,Running,2,3,1\n")),
            "f.csv:2:27: before the creation");
  EXPECT_EQ(error_of(Format::kOpenbPods, openb("p,1,2,0,0,,LS,Running,2,3,4\n")),
            "f.csv:2:25: before the pod was scheduled or created");
}

TEST(OpenbNodes, Rows) {
  const auto nodes =
      import_nodes("sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,1,2,8,G2\n", "n.csv");
  ASSERT_TRUE(nodes) << nodes.error().what;
  ASSERT_EQ(nodes->size(), 2U);
  EXPECT_EQ((*nodes)[0].gpu_model, "");
  EXPECT_EQ((*nodes)[1].name, "n1");
  EXPECT_EQ((*nodes)[1].gpus, 8);
  EXPECT_EQ((*nodes)[1].gpu_model, "G2");
  EXPECT_EQ((*nodes)[1].cpu_milli, 1);
  EXPECT_EQ((*nodes)[1].memory_mib, 2);
  // A cluster without one of its nodes would be another cluster: never skipped.
  const auto refused =
      import_nodes("sn,cpu_milli,memory_mib,gpu\nn0,x,1,1\n", "n.csv", {.skip_bad_rows = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().what, "n.csv:2:4: no number: 'x'");
}

TEST(AlibabaBatch, GraphsByJob) {
  const Workload workload =
      imported(Format::kAlibabaBatch, batch("0,539,116.5,1.0,0.0054,1,1,283,0\n"
                                            "1,7448,73.5,0.5,0.0078,9,23,67,0\n"
                                            "2,7448,2,,,9,24,,0\n"));
  EXPECT_EQ(text_of(workload),
            "epoch  -1\n"
            "539000000000 +116500000000 @-1 1 of  in 1 0x0  cpu 1000 mib -1 bytes -1 -1 tokens -1 "
            "-1 x283\n"
            "7448000000000 +73500000000 @-1 23 of  in 9 0x0  cpu 500 mib -1 bytes -1 -1 tokens -1 "
            "-1 x67\n"
            "7448000000000 +2000000000 @-1 24 of  in 9 0x0  cpu -1 mib -1 bytes -1 -1 tokens -1 -1 "
            "x1\n"
            "graph 1: -1 s, -1 cores\n"
            "graph 9: -1 s, -1 cores\n");
  expect_read_back(Format::kAlibabaBatch, workload);
}

TEST(AlibabaBatch, ParentsInTheName) {
  const Workload workload = imported(Format::kAlibabaBatch,
                                     "submit_time,duration,job_id,task_id,task_id,duration\n"
                                     "0,1,j,J5_3_4,x,y\n0,1,j,M3,x,y\n0,1,j,R4_3_Stg7,x,y\n"
                                     "0,1,j,task_Nzg3,x,y\n0,1,k,3,x,y\n0,1,k,4_3_3,x,y\n");
  ASSERT_EQ(workload.edges.size(), 4U);
  const auto text = [&](std::size_t i) {
    return workload.names[workload.jobs[workload.edges[i].parent].name] + ">" +
           workload.names[workload.jobs[workload.edges[i].child].name];
  };
  EXPECT_EQ(text(0), "M3>J5_3_4");
  EXPECT_EQ(text(1), "R4_3_Stg7>J5_3_4");
  EXPECT_EQ(text(2), "M3>R4_3_Stg7");
  EXPECT_EQ(text(3), "3>4_3_3");
  expect_read_back(Format::kAlibabaBatch, workload);
  expect_read_back(Format::kPlain, workload);
}

TEST(AlibabaBatch, EdgesWithoutCodesAreCoded) {
  Workload workload = imported(Format::kPlain,
                               "submit_s,duration_s,name,graph,parents\n"
                               "0,1,align,g,\n0,2,sort,g,align\n0,3,call,g,sort;"
                               "align\n0,1,alone,,\n");
  const auto text = export_workload(Format::kAlibabaBatch, workload);
  ASSERT_TRUE(text) << text.error().what;
  EXPECT_EQ(*text,
            "submit_time,duration,cpu,memory,job_id,task_id,instances_num,disk\n"
            "0,1,,,g,1,1,0\n0,2,,,g,2_1,1,0\n0,3,,,g,3_1_2,1,0\n0,1,,,job_3,alone,1,0\n");
  EXPECT_EQ(imported(Format::kAlibabaBatch, *text).edges.size(), 3U);
}

TEST(AlibabaBatch, Errors) {
  EXPECT_EQ(error_of(Format::kAlibabaBatch, batch("0,0,1,,,j,2_1,1,0\n")),
            "f.csv:2:11: parent '1' is no task of graph 'j'");
  EXPECT_EQ(error_of(Format::kAlibabaBatch, batch("0,0,1,,,j,M1,1,0\n0,0,1,,,j,R1,1,0\n"
                                                  "0,0,1,,,j,2_1,1,0\n")),
            "f.csv:4:11: parent '1' is more than one task of graph 'j'");
  EXPECT_EQ(error_of(Format::kAlibabaBatch, batch("0,0,1,,,j,1_2,1,0\n0,0,1,,,j,2_1,1,0\n")),
            "f.csv:2:11: task '1_2' waits for itself");
  EXPECT_EQ(error_of(Format::kAlibabaBatch, batch("0,0,1,,,,1,1,0\n")),
            "f.csv:2:9: empty name of a job");
  EXPECT_EQ(error_of(Format::kAlibabaBatch, batch("0,0,1,,,j,1,0,0\n")),
            "f.csv:2:13: '0' is outside 1..1000000000");
  const Workload workload =
      imported(Format::kAlibabaBatch, batch("0,0,1,,,j,2_1,1,0\n"), {.skip_bad_rows = true});
  EXPECT_EQ(workload.jobs.size(), 1U);
  EXPECT_EQ(workload.bad_rows, 1U);
}

TEST(AzureLlm, SevenDecimalsAndNoLastNewline) {
  const Workload workload = imported(Format::kAzureLlm,
                                     "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                                     "2023-11-16 18:17:03.9799600,4808,10\r\n"
                                     "2023-11-16 18:17:04.0319601,3180,8");
  EXPECT_EQ(text_of(workload),
            "epoch 2023-11-16 18:17:03.97996 325023\n"
            "0 +-1 @-1  of  in - 0x0  cpu -1 mib -1 bytes -1 -1 tokens 4808 10 x1\n"
            "52000100 +-1 @-1  of  in - 0x0  cpu -1 mib -1 bytes -1 -1 tokens 3180 8 x1\n");
  expect_read_back(Format::kAzureLlm, workload);
  EXPECT_EQ(error_of(Format::kAzureLlm, "TIMESTAMP,ContextTokens\n"),
            "f.csv:1:1: column 'GeneratedTokens' is missing");
}

TEST(Vidur, WithAndWithoutArrivals) {
  const Workload workload =
      imported(Format::kVidur,
               "arrived_at,num_prefill_tokens,num_decode_tokens\n0.052,3180,8\n0.0,4808,10\n");
  EXPECT_EQ(workload.jobs[1].submit, Nanos{52'000'000});
  EXPECT_EQ(workload.jobs[1].tokens_in, 3180);
  expect_read_back(Format::kVidur, workload);
  const Workload lengths =
      imported(Format::kVidur,
               "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
               "3772,54,3826,69.85\n");
  EXPECT_EQ(lengths.jobs[0].submit, Nanos{0});
  EXPECT_EQ(lengths.jobs[0].tokens_out, 54);
}

TEST(ImportAssets, TakesTheNamedColumns) {
  const auto sizes = import_assets("name\tn\tm\na\t10\t3\nb\t200\t5\n", "t.tsv", {"n", "m", ""});
  ASSERT_TRUE(sizes) << sizes.error().what;
  EXPECT_EQ(*sizes, (std::vector<double>{10, 3, 240, 200, 5, 8000}));
  EXPECT_EQ(
      import_assets("rows,columns,size\n1,2,3\n", "t.csv", {"rows", "columns", "size"}).value(),
      (std::vector<double>{1, 2, 3}));
  const auto wrong = import_assets("rows,columns\n1,0\n", "t.csv", {});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().what.substr(0, 10), "t.csv:2:3:");
  EXPECT_FALSE(import_assets("rows\n1\n", "t.csv", {}));
}

}  // namespace
}  // namespace kansoku::simulate::import
