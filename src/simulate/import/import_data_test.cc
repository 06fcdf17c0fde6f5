// SPDX-License-Identifier: Apache-2.0
// The importers on the public data sets themselves, where they lie beside the source tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "simulate/import/import.h"
#include "simulate/workload/number.h"

namespace kansoku::simulate::import {
namespace {

/// Text of a file of the data sets, inflated if need be; empty if it is not there.
std::string data_file(const std::string& name) {
  const std::string path = KANSOKU_SOURCE_DIR "/../shared/data/" + name;
  if (!std::filesystem::exists(path)) return "";
  const bool is_gzip = path.size() > 3 && path.substr(path.size() - 3) == ".gz";
  const std::string command = (is_gzip ? "zcat '" : "cat '") + path + "'";
  std::FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return "";
  std::string text;
  std::vector<char> buffer(65536);
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  pclose(pipe);
  return text;
}

#define DATA_OR_SKIP(text, name)            \
  const std::string text = data_file(name); \
  if (text.empty()) GTEST_SKIP() << name << " is not here"

Workload imported_data(Format format, const std::string& text) {
  EXPECT_EQ(detect_format(text), format);
  auto workload = import_workload(format, text, "data");
  EXPECT_TRUE(workload) << workload.error().what;
  return workload ? *std::move(workload) : Workload{};
}

std::int64_t count_if(const Workload& workload, bool (*is_one)(const Job&)) {
  return std::count_if(workload.jobs.begin(), workload.jobs.end(), is_one);
}

TEST(ImportData, Philly) {
  DATA_OR_SKIP(text, "philly/philly_jobs_train.csv.gz");
  const Workload workload = imported_data(Format::kPhilly, text);
  EXPECT_EQ(workload.jobs.size(), 57526U);
  EXPECT_EQ(workload.groups.size(), 13U + 1);
  EXPECT_TRUE(std::is_sorted(workload.jobs.begin(), workload.jobs.end(),
                             [](const Job& a, const Job& b) { return a.submit < b.submit; }));
  EXPECT_EQ(workload.jobs.front().submit, Nanos{0});
  std::int32_t most = 0;
  for (const Job& job : workload.jobs)
    most = std::max(most, job.gpus);
  EXPECT_EQ(most, 32);
}

TEST(ImportData, PhillySessionsOfSixWeeks) {
  DATA_OR_SKIP(text, "philly/philly_jobs_train.csv.gz");
  Workload workload = imported_data(Format::kPhilly, text);
  const std::int64_t epoch = parse_civil_ns(workload.epoch).value();
  const Nanos first{*parse_civil_ns("2017-09-25 00:00:00") - epoch};
  const Nanos last{*parse_civil_ns("2017-11-06 00:00:00") - epoch};
  std::vector<Job> jobs;
  for (const Job& job : workload.jobs) {
    if (job.submit >= first && job.submit < last) jobs.push_back(job);
  }
  workload.jobs = std::move(jobs);
  EXPECT_EQ(workload.jobs.size(), 54784U);
  const std::vector<std::uint32_t> numbers =
      sessions(workload, std::chrono::duration_cast<Nanos>(std::chrono::seconds(120)));
  EXPECT_EQ(*std::max_element(numbers.begin(), numbers.end()) + 1, 10713U);
}

TEST(ImportData, OpenbPods) {
  DATA_OR_SKIP(text, "alibaba_openb_v2023/openb_pod_list_default.csv");
  const Workload workload = imported_data(Format::kOpenbPods, text);
  EXPECT_EQ(workload.jobs.size(), 8152U);
  EXPECT_EQ(count_if(workload, [](const Job& job) { return job.censored; }), 5193);
  EXPECT_EQ(count_if(workload, [](const Job& job) { return job.scheduled < Nanos{0}; }), 897);
  EXPECT_EQ(count_if(workload, [](const Job& job) { return job.gpus == 0; }), 1088);
  std::int64_t gpus = 0;
  for (const Job& job : workload.jobs)
    gpus += std::int64_t{job.gpus} * job.gpu_milli;
  EXPECT_EQ((gpus + 500) / 1000, 6087);
}

TEST(ImportData, OtherOpenbPods) {
  for (const auto& [name, count] : {std::pair("gpushare100", 8152U), std::pair("gpushare40", 8152U),
                                    std::pair("cpu100", 7853U)}) {
    DATA_OR_SKIP(text, std::string("alibaba_openb_v2023/openb_pod_list_") + name + ".csv");
    EXPECT_EQ(imported_data(Format::kOpenbPods, text).jobs.size(), count);
  }
}

TEST(ImportData, OpenbNodes) {
  for (const auto& [name, count] : {std::pair("all_node", 1523U), std::pair("gpu_node", 1213U)}) {
    DATA_OR_SKIP(text, std::string("alibaba_openb_v2023/openb_node_list_") + name + ".csv");
    const auto nodes = import_nodes(text, name);
    ASSERT_TRUE(nodes) << nodes.error().what;
    EXPECT_EQ(nodes->size(), count);
    std::int32_t gpus = 0;
    for (const NodeSpec& node : *nodes)
      gpus += node.gpus;
    EXPECT_EQ(gpus, 6212);
  }
}

TEST(ImportData, AzureAndVidurAreTheSameRequests) {
  DATA_OR_SKIP(azure_text, "azure_llm_2023/AzureLLMInferenceTrace_code.csv.gz");
  DATA_OR_SKIP(vidur_text, "vidur_processed/splitwise_code.csv.gz");
  const Workload azure = imported_data(Format::kAzureLlm, azure_text);
  const Workload vidur = imported_data(Format::kVidur, vidur_text);
  ASSERT_EQ(azure.jobs.size(), 8819U);
  ASSERT_EQ(vidur.jobs.size(), 8819U);
  EXPECT_EQ(azure.epoch, "2023-11-16 18:17:03.97996");
  EXPECT_EQ(azure.jobs.back().submit, Nanos{3'435'948'056'000});
  for (std::size_t i = 0; i < azure.jobs.size(); ++i) {
    // Vidur's times have six decimals.
    EXPECT_LE(std::abs((azure.jobs[i].submit - vidur.jobs[i].submit).count()), 1000) << i;
    EXPECT_EQ(azure.jobs[i].tokens_in, vidur.jobs[i].tokens_in);
    EXPECT_EQ(azure.jobs[i].tokens_out, vidur.jobs[i].tokens_out);
  }
}

TEST(ImportData, VidurLengthsOnly) {
  DATA_OR_SKIP(text,
               "vidur_processed/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz");
  EXPECT_EQ(imported_data(Format::kVidur, text).jobs.size(), 28257U);
}

TEST(ImportData, AlibabaBatch) {
  DATA_OR_SKIP(text, "alibaba_batch_v2018_sample/jobs.csv.gz");
  const Workload workload = imported_data(Format::kAlibabaBatch, text);
  EXPECT_EQ(workload.jobs.size(), 31756U);
  EXPECT_EQ(workload.graphs.size(), 5216U);
  EXPECT_TRUE(workload.edges.empty());
  std::int64_t instances = 0;
  for (const Job& job : workload.jobs)
    instances += job.instances;
  EXPECT_EQ(instances / 10000, 255);
}

TEST(ImportData, AlibabaBatchWithEdges) {
  DATA_OR_SKIP(text, "alibaba_batch_v2018_sample/job_dag_example.csv.gz");
  const Workload workload = imported_data(Format::kAlibabaBatch, text);
  ASSERT_EQ(workload.jobs.size(), 6U);
  ASSERT_EQ(workload.edges.size(), 7U);
  EXPECT_EQ(workload.edges[3].parent, 2U);  // task 5 waits for 3 and 4
  EXPECT_EQ(workload.edges[3].child, 4U);
  EXPECT_EQ(workload.edges[4].parent, 3U);
  EXPECT_EQ(workload.edges[4].child, 4U);
}

struct Recorded {
  const char* name;
  std::size_t tasks, edges;
  int makespan_s, runtimes_s, critical_path_s;
};

/// Seconds of the longest chain of runtimes.
double critical_path_s(const Workload& workload) {
  std::vector<double> end(workload.jobs.size());
  double longest = 0;
  for (std::size_t round = 0; round < end.size(); ++round) {
    bool changed = round == 0;
    std::vector<double> start(end.size());
    for (const Edge& edge : workload.edges)
      start[edge.child] = std::max(start[edge.child], end[edge.parent]);
    for (std::size_t i = 0; i < end.size(); ++i) {
      const double at = start[i] + static_cast<double>(workload.jobs[i].duration.count()) / 1e9;
      changed |= at != end[i];
      end[i] = at;
      longest = std::max(longest, at);
    }
    if (!changed) break;
  }
  return longest;
}

TEST(ImportData, WfInstances) {
  for (const Recorded& run :
       {Recorded{"airrflow", 212, 327, 4706, 3330, 438},
        Recorded{"atacseq", 265, 593, 8549, 7800, 936},
        Recorded{"bacass", 11, 14, 4243, 3962, 2150},
        Recorded{"cutandrun", 120, 196, 1544, 904, 317}, Recorded{"hic", 38, 47, 1507, 577, 275},
        Recorded{"mag", 157, 282, 4104, 3692, 526}, Recorded{"methylseq", 36, 70, 528, 446, 203},
        Recorded{"rnaseq", 197, 451, 3131, 2580, 759}}) {
    SCOPED_TRACE(run.name);
    DATA_OR_SKIP(text, std::string("wfinstances/") + run.name + "-dirt02-001.json.gz");
    const Workload workload = imported_data(Format::kWfFormat, text);
    EXPECT_EQ(workload.jobs.size(), run.tasks);
    EXPECT_EQ(workload.edges.size(), run.edges);
    ASSERT_EQ(workload.graphs.size(), 1U);
    EXPECT_EQ(workload.graphs[0].machine_cores, 1);
    EXPECT_DOUBLE_EQ(workload.graphs[0].makespan_s, run.makespan_s);
    double sum = 0;
    for (const Job& job : workload.jobs)
      sum += static_cast<double>(job.duration.count()) / 1e9;
    EXPECT_NEAR(sum, run.runtimes_s, 1);
    EXPECT_NEAR(critical_path_s(workload), run.critical_path_s, 1);
    EXPECT_GE(workload.graphs[0].makespan_s, sum);  // one core: tasks ran one after another
  }
}

TEST(ImportData, EveryFileIsReadBack) {
  for (const auto& [name, format] :
       {std::pair("philly/philly_jobs_train.csv.gz", Format::kPhilly),
        std::pair("alibaba_openb_v2023/openb_pod_list_default.csv", Format::kOpenbPods),
        std::pair("azure_llm_2023/AzureLLMInferenceTrace_code.csv.gz", Format::kAzureLlm),
        std::pair("vidur_processed/splitwise_code.csv.gz", Format::kVidur),
        std::pair("alibaba_batch_v2018_sample/jobs.csv.gz", Format::kAlibabaBatch),
        std::pair("wfinstances/rnaseq-dirt02-001.json.gz", Format::kWfFormat)}) {
    SCOPED_TRACE(name);
    DATA_OR_SKIP(text, name);
    const Workload workload = imported_data(format, text);
    for (const Format other : {format, Format::kPlain}) {
      const auto written = export_workload(other, workload);
      ASSERT_TRUE(written) << written.error().what;
      const Workload back = imported_data(other, *written);
      const auto again = export_workload(other, back);
      ASSERT_TRUE(again) << again.error().what;
      EXPECT_EQ(*written == *again, true);
      EXPECT_EQ(back.jobs.size(), workload.jobs.size());
      EXPECT_EQ(back.edges.size(), workload.edges.size());
      EXPECT_EQ(back.epoch, workload.epoch);
    }
  }
}

}  // namespace
}  // namespace kansoku::simulate::import
