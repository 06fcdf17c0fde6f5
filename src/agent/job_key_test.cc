// SPDX-License-Identifier: Apache-2.0
#include "agent/job_key.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace kansoku::agent {
namespace {

std::vector<std::string> words(std::string_view line) {
  std::vector<std::string> out;
  while (!line.empty()) {
    const auto blank = line.find(' ');
    if (blank != 0) out.emplace_back(line.substr(0, blank));
    line = blank == std::string_view::npos ? std::string_view{} : line.substr(blank + 1);
  }
  return out;
}

std::string command_key(std::string_view line) {
  return agent::command_key(words(line));
}

TEST(CommandKey, KeepsWhatMakesAJobAndDropsWhatMakesARun) {
  EXPECT_EQ(command_key("/usr/bin/python3 /home/me/train.py --model gpt2 --batch 32"),
            "python3 train.py --model gpt2 --batch 32");
  EXPECT_EQ(command_key("python3 train.py --port 29511 --seed=7 --batch=32"),
            "python3 train.py --port --seed --batch=32");
  EXPECT_EQ(command_key("python3 train.py --data /mnt/a --master 10.0.0.1:500"),
            "python3 train.py --data --master");
  EXPECT_EQ(command_key("/usr/bin/python3.11 -u -OO /home/me/train.py -u /mnt/a"),
            "python3.11 -u -OO train.py -u")
      << "the script is not the value of Python's flag";
  EXPECT_EQ(command_key("python3 -u -X importtime /home/me/train.py"),
            "python3 -u -X importtime train.py");
  EXPECT_EQ(command_key("prog --lr -0.5 run"), "prog --lr -0.5 run");
}

TEST(CommandKey, SecretsStayOut) {
  for (const char* line : {"python3 serve.py --api-key sk-abc1 --model a",
                           "python3 serve.py --hf_token=hf-abc1",
                           "prog --password hunter2",
                           "prog api.SECRET=hunter2",
                           "prog --wandb-key abc1",
                           "prog --Authorization Bearer",
                           "prog sk-proj-0123456789abcdef",
                           "prog run 0123456789abcdef0",
                           "prog --x=0123456789abcdef0",
                           "prog --x 0123456789abcdef0",
                           "prog --password=hunter2 --secret a=hunter2",
                           "prog 0123456789abcdef0==",
                           "prog redis://:hunter2@redis:6379",
                           "prog http://hunter2.example/",
                           "prog me:hunter2@host",
                           "prog postgres://me:hunter2@h/db?password=hunter2",
                           "prog --password -hunter2",
                           "prog --password --token hunter2",
                           "prog --no-auth --token hunter2",
                           "prog a/me:hunter2@h/db",
                           "prog --user=me:hunter2@x",
                           "prog --user=hunter2@x",
                           "prog --user hunter2@x",
                           "prog -umehunter2@x",
                           "prog -umehunter2@x=1",
                           "prog --login --pass -hunter2",
                           "prog x=redis://hunter2"}) {
    const std::string key = command_key(line);
    for (const char* secret : {"abc1", "hunter2", "Bearer", "0123456789abcdef"})
      EXPECT_EQ(key.find(secret), std::string::npos) << key;
  }
  EXPECT_EQ(command_key("python3 serve.py --api-key sk-abc1 --model a"),
            "python3 serve.py --api-key --model a");
  EXPECT_EQ(
      agent::command_key(std::vector<std::string>{"prog", "--password", "correct horse", "a b"}),
      "prog --password a b");
  EXPECT_EQ(command_key("prog --add_special_tokens --batch=32 --no-auth --model a"),
            "prog --add_special_tokens --batch=32 --no-auth --model a");
  EXPECT_EQ(command_key("prog redis://:hunter2@redis:6379 s3://bucket/model"), "prog ~ s3://");
  EXPECT_EQ(command_key("prog model.name=tiny data.path=/x seed=7"),
            "prog model.name=tiny data.path seed");
  EXPECT_EQ(command_key("prog 550e8400-e29b-41d4-a716-446655440000").find("550e8400"),
            std::string::npos);
  // Two secrets are two keys all the same; names of scripts and models are none.
  EXPECT_NE(command_key("prog abcdef0123456789"), command_key("prog abcdef0123456780"));
  for (const char* line : {"python3 train_gpt2_small_v3.py --model bert-base-uncased-2019",
                           "prog --lr 0.000012345678901", "prog pretraining-configuration"})
    EXPECT_EQ(command_key(line), line);
}

TEST(JobKey, AProcessThatWasSpawnedHasTheCommandOfWhoeverSpawnedIt) {
  capture::JobProcess process;
  process.arguments = {"python3", "-c",
                       "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, "
                       "pipe_handle=7)",
                       "--multiprocessing-fork"};
  process.started_by = words("/usr/bin/python3 /x/train.py --batch 32");
  EXPECT_EQ(job_key(process, 1, "").command, "python3 train.py --batch 32 (spawned)");
}

TEST(CommandKey, TwoRunsOfOneJobAreOneKey) {
  EXPECT_EQ(command_key("python3 train.py --out /tmp/a --steps 100"),
            command_key("/opt/bin/python3 /x/train.py --out /tmp/b --steps 999"));
  EXPECT_NE(command_key("python3 train.py --batch 32"), command_key("python3 train.py --batch 64"));
}

TEST(CommandKey, CodeOnTheCommandLineIsItsHash) {
  const std::string one = command_key("python3 -c import torch; train(1)");
  EXPECT_EQ(one.substr(0, 11), "python3 -c ");
  EXPECT_EQ(one.size(), 11U + 16U);
  EXPECT_NE(one, command_key("python3 -c import torch; train(2)"));
}

TEST(CommandKey, IsBounded) {
  std::string a = "prog";
  for (int i = 0; i < 1000; ++i)
    a += " word";
  const std::string b = a + " other";
  EXPECT_EQ(command_key(a).size(), 256U);
  EXPECT_EQ(command_key(b).size(), 256U);
  EXPECT_NE(command_key(a), command_key(b));
  EXPECT_EQ(command_key(""), "");
  EXPECT_EQ(command_key("  -c"), "-c " + command_key("x -c").substr(5));
}

TEST(HardwareText, CountsEqualDevices) {
  const std::string none = hardware_text({});
  EXPECT_NE(none.find("; no GPU"), std::string::npos);
  const std::string some = hardware_text({"A", "A", "B"});
  EXPECT_NE(some.find("; 2 x A; 1 x B"), std::string::npos) << some;
}

}  // namespace
}  // namespace kansoku::agent
