// SPDX-License-Identifier: Apache-2.0
#include "capture/pack.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "sys/fd.h"

namespace kansoku::capture {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kHead = "schema = 1\nname = \"mine\"\ndescription = \"d\"\n";

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kansoku_pack_XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string write(const std::string& name, std::string_view content) const {
    EXPECT_TRUE(sys::write_file(path + "/" + name, content));
    return path + "/" + name;
  }
  std::string path;
};

Pack parsed(const std::string& body) {
  auto pack = parse_pack(std::string(kHead) + body, "my.toml");
  EXPECT_TRUE(pack) << pack.error().what;
  return pack ? *pack : Pack{};
}

std::string refusal(const std::string& body) {
  const auto pack = parse_pack(std::string(kHead) + body, "my.toml");
  if (pack) return "accepted";
  EXPECT_EQ(pack.error().code, Code::kCorrupt);
  return pack.error().what;
}

std::string probe_with(const std::string& more) {
  return "[[probe]]\nlibrary = \"l\"\nsymbols = [\"f\"]\ncategory = \"c\"\n" + more + "\n";
}

std::vector<std::string> names_of(const std::vector<Pack>& packs) {
  std::vector<std::string> names;
  for (const Pack& pack : packs)
    names.push_back(pack.name);
  return names;
}

constexpr std::string_view kEveryPart = R"(
schema = 1
name = "mine"
description = "what it observes"
default = true
[[probe]]
library = "libmine.so*|mine"
symbols = ["mine::Queue::*", "mine::stop"]
exclude = ["mine::Queue::~*"]
category = "mine"
title = "queue.{1}"
ordinal_by = "pg"
args = { size = "arg1:u32", text = "arg0->16->0:str", result = "ret:i32" }
group = ["result", "size", "size"]
bytes = ["size"]
type = "size"
metric = "step"
steps = true
[[probe.variant]]
parameters = "int, *"
args = { size = "arg2:u32", text = "arg3:pystr", result = "ret:i32" }
[[probe]]
library = "l"
symbols = ["f"]
category = "c"
kind = "instant"
record = "pair"
ordinal_by = ""
[[probe]]
library = "l"
symbols = ["f"]
category = "c"
record = "at_end"
never_throws = true
before_calls = true
[[probe]]
library = "l"
symbols = ["f"]
category = "c"
kind = "scope"
args = { name = "arg1:pystr", arg_count = "arg2" }
scope = [{ prefix = "enumerate(", metric = "input" }, { prefix = "Optimizer.", metric = "optimizer" }]
[[type]]
name = "size"
values = ["int8:1", "float64:8"]
[[usdt]]
library = "python3*"
begin = "python:gc__start"
end = "python:gc__done"
title = "gc"
category = "python"
[[syscall]]
names = ["read", "futex"]
category = "io"
[[tracepoint]]
names = ["tcp:tcp_reset"]
category = "tcp"
host = true
[scheduler]
[python_stacks]
hz = 25
[cpu_samples]
hz = 1000
)";

TEST(Pack, ReadsEveryPart) {
  const auto parsed_pack = parse_pack(kEveryPart, "dir/my.toml");
  ASSERT_TRUE(parsed_pack) << parsed_pack.error().what;
  const Pack& pack = *parsed_pack;
  EXPECT_EQ(pack.name, "mine");
  EXPECT_EQ(pack.description, "what it observes");
  EXPECT_EQ(pack.path, "dir/my.toml");
  EXPECT_TRUE(pack.is_default);
  ASSERT_EQ(pack.functions.size(), 4U);
  ASSERT_EQ(pack.functions[0].type_values.size(), 2U);
  EXPECT_EQ(pack.functions[0].type_values[1].name, "float64");
  EXPECT_EQ(pack.functions[0].type_values[1].bytes, 8);
  EXPECT_THAT(pack.functions[0].bytes, ElementsAre("size"));
  EXPECT_TRUE(pack.functions[0].is_metered());
  EXPECT_FALSE(pack.functions[1].is_metered());
  EXPECT_TRUE(pack.functions[3].is_metered());
  ASSERT_EQ(pack.functions[3].scopes.size(), 2U);
  EXPECT_EQ(pack.functions[3].scopes[1].prefix, "Optimizer.");
  EXPECT_EQ(pack.functions[3].scopes[1].metric, "optimizer");
  const FunctionProbes& first = pack.functions[0];
  EXPECT_EQ(first.library, "libmine.so*|mine");
  EXPECT_THAT(first.symbols, ElementsAre("mine::Queue::*", "mine::stop"));
  EXPECT_THAT(first.exclude, ElementsAre("mine::Queue::~*"));
  EXPECT_EQ(first.category, "mine");
  EXPECT_EQ(first.title, "queue.{1}");
  EXPECT_EQ(first.kind, ProbeKind::kCall);
  EXPECT_FALSE(first.at_end);
  EXPECT_EQ(first.ordinal_by, "pg");
  EXPECT_THAT(first.group, ElementsAre("result", "size", "size"));
  EXPECT_EQ(first.captures.size(), 3U);
  ASSERT_EQ(first.variants.size(), 1U);
  EXPECT_EQ(first.variants[0].parameters, "int, *");
  ASSERT_EQ(first.variants[0].captures.size(), 3U);
  EXPECT_EQ(first.variants[0].captures[1].how.source, 2);
  EXPECT_EQ(pack.functions[1].kind, ProbeKind::kInstant);
  EXPECT_EQ(pack.functions[1].ordinal_by, "");
  EXPECT_TRUE(pack.functions[2].at_end);
  EXPECT_TRUE(pack.functions[2].never_throws);
  EXPECT_FALSE(first.never_throws);
  EXPECT_TRUE(pack.functions[2].before_calls);
  EXPECT_FALSE(first.before_calls);
  EXPECT_EQ(pack.functions[2].ordinal_by, std::nullopt);
  ASSERT_EQ(pack.usdt.size(), 1U);
  EXPECT_EQ(pack.usdt[0].begin, "python:gc__start");
  EXPECT_EQ(pack.usdt[0].end, "python:gc__done");
  ASSERT_EQ(pack.syscalls.size(), 1U);
  EXPECT_THAT(pack.syscalls[0].names, ElementsAre("read", "futex"));
  ASSERT_EQ(pack.tracepoints.size(), 1U);
  EXPECT_TRUE(pack.tracepoints[0].host);
  EXPECT_TRUE(pack.scheduler);
  EXPECT_EQ(pack.python_hz, 25U);
  EXPECT_EQ(pack.cpu_hz, 1000U);
}

TEST(Pack, NeedsLittle) {
  const Pack pack = parsed("");
  EXPECT_FALSE(pack.is_default);
  EXPECT_FALSE(pack.scheduler);
  EXPECT_EQ(pack.python_hz, 0U);
  EXPECT_THAT(pack.functions, IsEmpty());
}

TEST(Pack, KnowsTheKindsOfProbes) {
  const auto kind = [](const std::string& text) {
    return parsed(probe_with("kind = \"" + text + "\"")).functions.at(0).kind;
  };
  EXPECT_EQ(kind("call"), ProbeKind::kCall);
  EXPECT_EQ(kind("instant"), ProbeKind::kInstant);
  EXPECT_EQ(kind("annotate"), ProbeKind::kAnnotate);
  EXPECT_EQ(kind("scope"), ProbeKind::kScope);
}

TEST(Pack, KnowsTheRolesOfProbesOfModels) {
  EXPECT_EQ(parsed(probe_with("")).functions.at(0).model_role, 0);
  const std::array<std::string, WIRE_MODEL_ROLES> roles{
      "",         "decode",         "micro_batch", "schedule",       "split", "graph",
      "operator", "fused_operator", "barrier",     "context_decode", "eval"};
  for (std::size_t role = 0; role < roles.size(); ++role) {
    const Pack pack = parsed(probe_with("model = \"" + roles.at(role) + "\""));
    EXPECT_EQ(pack.functions.at(0).model_role, role) << roles.at(role);
  }
}

struct Refused {
  std::string body, error;
};
void expect_refused(std::span<const Refused> cases) {
  for (const Refused& one : cases)
    EXPECT_EQ(refusal(one.body), one.error) << one.body;
}

TEST(Pack, RefusesMistakesAndNamesThem) {
  const std::string probe = "read my.toml [[probe]] entry 1, key ";
  const std::array cases{
      Refused{"defualt = true", "read my.toml, key defualt: unknown key"},
      Refused{"default = 1", "read my.toml, key default: expected true or false"},
      Refused{"probe = 5", "read my.toml, key probe: expected a list of tables"},
      Refused{"[probe]\nlibrary = \"l\"", "read my.toml, key probe: expected a list of tables"},
      Refused{"usdt = \"x\"", "read my.toml, key usdt: expected a list of tables"},
      Refused{"syscall = true", "read my.toml, key syscall: expected a list of tables"},
      Refused{"tracepoint = 1", "read my.toml, key tracepoint: expected a list of tables"},
      Refused{"probe = [1]", probe + "library: expected a text"},
      Refused{"scheduler = true", "read my.toml, key scheduler: expected a table"},
      Refused{"[scheduler]\nhz = 1", "read my.toml [scheduler], key hz: unknown key"},
      Refused{"python_stacks = 25", "read my.toml, key python_stacks: expected a table"},
      Refused{"[[probe]]\nsymbols = [\"f\"]\ncategory = \"c\"", probe + "library: expected a text"},
      Refused{"[[probe]]\nlibrary = \"l\"\ncategory = \"c\"",
              probe + "symbols: expected a list of texts"},
      Refused{"[[probe]]\nlibrary = \"l\"\nsymbols = []\ncategory = \"c\"",
              probe + "symbols: expected at least one text"},
      Refused{"[[probe]]\nlibrary = \"l\"\nsymbols = \"f\"\ncategory = \"c\"",
              probe + "symbols: expected a list of texts"},
      Refused{"[[probe]]\nlibrary = \"l\"\nsymbols = [\"f\", 1]\ncategory = \"c\"",
              probe + "symbols: expected a list of texts"},
      Refused{"[[probe]]\nlibrary = \"l\"\nsymbols = [\"f\"]", probe + "category: expected a text"},
      Refused{probe_with("category2 = \"x\""), probe + "category2: unknown key"},
      Refused{probe_with("title = 1"), probe + "title: expected a text"},
      Refused{probe_with("exclude = \"x\""), probe + "exclude: expected a list of texts"},
      Refused{probe_with("kind = \"calls\""),
              probe + "kind: expected call, instant, annotate or scope"},
      Refused{probe_with("kind = 1"), probe + "kind: expected a text"},
      Refused{probe_with("never_throws = 1"), probe + "never_throws: expected true or false"},
      Refused{probe_with("record = \"end\""), probe + "record: expected pair, at_end or sampled"},
      Refused{probe_with("record = \"sampled\""),
              probe + "record: sampled is for calls that never throw"},
      Refused{probe_with("record = \"at_end\"\nframes = true"),
              probe + "frames: only of calls with a record at their begin, and of instants"},
      Refused{probe_with("record = \"at_end\"\nargs = { a = \"arg0\" }"),
              probe + "record: at_end takes no args"},
      Refused{probe_with("ordinal_by = 1"), probe + "ordinal_by: expected a text"},
      Refused{probe_with("model = \"decoder\""),
              probe + "model: expected decode, context_decode, eval, micro_batch, schedule, split, "
                      "graph, operator, "
                      "fused_operator or barrier"},
      Refused{probe_with("model = 1"), probe + "model: expected a text"},
      Refused{probe_with("args = 1"), probe + "args: expected a table"},
      Refused{probe_with("args = { a = 1 }"),
              probe + "args: read source : expected arg0 to arg31 or ret"},
      Refused{probe_with("args = { a = \"arg32\" }"),
              probe + "args: read source arg32: expected arg0 to arg31 or ret"},
      Refused{probe_with("args = { a = \"arg0:f32\" }"),
              probe + "args: read argument a: unknown type f32"},
      Refused{probe_with("args = { a = \"arg0:str\", b = \"arg1:str\" }"),
              probe + "args: at most one text"},
      Refused{probe_with("args = { a = \"arg0:str\", b = \"arg1:pystr\" }"),
              probe + "args: at most one text"},
      Refused{probe_with("kind = \"annotate\"\nargs = { a = \"arg0:str\" }"),
              probe + "args: annotate takes no text"},
      Refused{probe_with("args = { a = \"arg0\", b = \"arg0\", c = \"arg0\", d = \"arg0\", "
                         "e = \"arg0\", f = \"arg0\", g = \"arg0\", h = \"arg0\", "
                         "i = \"arg0\", j = \"arg0\", k = \"ret\" }"),
              probe + "args: at most 10 arguments"},
      Refused{probe_with("") + probe_with("kind = \"x\""),
              "read my.toml [[probe]] entry 2, key kind: expected call, instant, annotate or "
              "scope"},
  };
  expect_refused(cases);
}

TEST(Pack, RefusesWhatTellsNoProcessGroup) {
  const std::string probe = "read my.toml [[probe]] entry 1, key ";
  const std::array cases{
      Refused{
          probe_with("args = { a = \"arg0\" }\ngroup = [\"a\", \"a\"]"),
          probe +
              "group: expected the names of three args: address, rank and size; or a name, too"},
      Refused{
          probe_with("args = { a = \"arg0\" }\ngroup = [\"a\", \"a\", \"b\"]"),
          probe +
              "group: expected the names of three args: address, rank and size; or a name, too"},
      Refused{probe_with("kind = \"annotate\"\nargs = { a = \"arg0\" }\n"
                         "group = [\"a\", \"a\", \"a\"]"),
              probe + "group: only of calls and instants"},
  };
  expect_refused(cases);
}

TEST(Pack, RefusesMistakesInMetering) {
  const std::string probe = "read my.toml [[probe]] entry 1, key ";
  const std::string scope = "read my.toml [[probe]] entry 1 scope 1, key ";
  const std::string scoped =
      "kind = \"scope\"\nargs = { n = \"arg0:pystr\", arg_count = \"arg1\" }\n";
  const std::array cases{
      Refused{probe_with("bytes = [\"a\"]"), probe + "bytes: expected names of args"},
      Refused{probe_with("args = { a = \"arg0:str\" }\nbytes = [\"a\"]"),
              probe + "bytes: expected names of args"},
      Refused{probe_with("type = \"a\""), probe + "type: expected the name of an arg"},
      Refused{probe_with("args = { a = \"arg0\" }\ntype = \"a\""),
              probe + "type: expected a [[type]] of that name"},
      Refused{probe_with("steps = true"), probe + "metric: steps needs one"},
      Refused{probe_with("kind = \"annotate\"\nmetric = \"m\""),
              probe + "metric: annotate counts no calls"},
      Refused{probe_with(scoped + "metric = \"m\""),
              probe + "metric: scopes have theirs in [[probe.scope]]"},
      Refused{probe_with("scope = [{ prefix = \"p\", metric = \"m\" }]"),
              probe + "scope: only kind scope has them"},
      Refused{probe_with("kind = \"scope\"\nscope = [{ prefix = \"p\", metric = \"m\" }]"),
              probe + "args: scopes are metered by a pystr and arg_count"},
      Refused{probe_with(scoped + "scope = [{ prefix = \"12345678901234567\", metric = \"m\" }]"),
              scope + "prefix: expected 1 to 16 characters"},
      Refused{probe_with(scoped + "scope = [{ prefix = \"\", metric = \"m\" }]"),
              scope + "prefix: expected 1 to 16 characters"},
      Refused{probe_with(scoped + "scope = [{ prefix = \"p\" }]"),
              scope + "metric: expected a text"},
      Refused{"[[type]]\nname = \"t\"\nvalues = [\"int8\"]",
              "read my.toml [[type]] entry 1, key values: expected name:bytes"},
      Refused{"[[type]]\nname = \"t\"\nvalues = [\"int8:300\"]",
              "read my.toml [[type]] entry 1, key values: expected name:bytes"},
      Refused{"[[type]]\nname = \"t\"\nvalues = [" +
                  fmt::format("{}", fmt::join(std::vector<std::string>(17, "\"a:1\""), ", ")) + "]",
              "read my.toml [[type]] entry 1, key values: at most 16"},
  };
  expect_refused(cases);
}

TEST(Pack, RefusesMistakesInVariants) {
  const std::string variant = "read my.toml [[probe]] entry 1 variant 1, key ";
  const std::array cases{
      Refused{probe_with("variant = 1"),
              "read my.toml [[probe]] entry 1, key variant: expected a list of tables"},
      Refused{probe_with("variant = [{ args = {} }]"), variant + "parameters: expected a text"},
      Refused{probe_with("variant = [{ parameters = \"*\", arg = {} }]"),
              variant + "arg: unknown key"},
      Refused{probe_with("args = { a = \"arg0\" }\nvariant = [{ parameters = \"*\" }]"),
              variant + "args: expected the names and types of the probe's args"},
      Refused{probe_with("args = { a = \"arg0\" }\n"
                         "variant = [{ parameters = \"*\", args = { b = \"arg0\" } }]"),
              variant + "args: expected the names and types of the probe's args"},
      Refused{probe_with("args = { a = \"arg0\" }\n"
                         "variant = [{ parameters = \"*\", args = { a = \"arg0:u32\" } }]"),
              variant + "args: expected the names and types of the probe's args"},
      Refused{probe_with("args = { a = \"arg0\" }\n"
                         "variant = [{ parameters = \"*\", args = { a = \"arg0:str\" } }]"),
              variant + "args: expected the names and types of the probe's args"},
  };
  expect_refused(cases);
}

TEST(Pack, RefusesMistakesInOtherProbesThanFunctions) {
  const std::array cases{
      Refused{"[[usdt]]\nlibrary = \"l\"\nbegin = \"a:b\"\ntitle = \"t\"",
              "read my.toml [[usdt]] entry 1, key category: expected a text"},
      Refused{"[[usdt]]\nlibrary = \"l\"\nbegin = \"a:b\"\ntitle = \"t\"\ncategory = \"c\"\n"
              "provider = \"x\"",
              "read my.toml [[usdt]] entry 1, key provider: unknown key"},
      Refused{"[[syscall]]\ncategory = \"c\"",
              "read my.toml [[syscall]] entry 1, key names: expected a list of texts"},
      Refused{"[[syscall]]\nnames = []\ncategory = \"c\"",
              "read my.toml [[syscall]] entry 1, key names: expected at least one text"},
      Refused{"[[tracepoint]]\nnames = [\"tcp_reset\"]\ncategory = \"c\"",
              "read my.toml [[tracepoint]] entry 1, key names: expected group:name"},
      Refused{"[[tracepoint]]\nnames = [\"a:b\"]\ncategory = \"c\"\nhost = \"yes\"",
              "read my.toml [[tracepoint]] entry 1, key host: expected true or false"},
      Refused{"[python_stacks]",
              "read my.toml [python_stacks], key hz: expected a rate from 1 "
              "to 1000"},
      Refused{"[python_stacks]\nhz = 25\nrate = 1",
              "read my.toml [python_stacks], key rate: unknown key"},
  };
  expect_refused(cases);
}

TEST(Pack, RefusesRatesBeyondTheLimits) {
  for (const char* section : {"python_stacks", "cpu_samples"}) {
    for (const char* hz : {"0", "-1", "1001", "99999999999", "2.5", "\"25\"", "true"}) {
      EXPECT_EQ(refusal(fmt::format("[{}]\nhz = {}", section, hz)),
                fmt::format("read my.toml [{}], key hz: expected a rate from 1 to 1000", section))
          << hz;
    }
    for (const char* hz : {"1", "2", "999", "1000"})
      EXPECT_EQ(refusal(fmt::format("[{}]\nhz = {}", section, hz)), "accepted") << hz;
  }
}

TEST(Pack, RefusesAHeadThatIsIncomplete) {
  const auto error = [](const char* text) {
    const auto pack = parse_pack(text, "p");
    return pack ? std::string("accepted") : pack.error().what;
  };
  EXPECT_EQ(error(""), "read p, key schema: expected 1");
  EXPECT_EQ(error("schema = 2\nname = \"n\"\ndescription = \"d\""),
            "read p, key schema: expected 1");
  EXPECT_EQ(error("schema = \"1\"\nname = \"n\"\ndescription = \"d\""),
            "read p, key schema: expected 1");
  EXPECT_EQ(error("schema = 1\ndescription = \"d\""), "read p, key name: expected a text");
  EXPECT_EQ(error("schema = 1\nname = \"n\""), "read p, key description: expected a text");
  EXPECT_THAT(error("schema = 1\nname = \"n"), HasSubstr("parse p:2:"));
  EXPECT_FALSE(parse_pack("", "p").error().hint.empty());
}

// A name that --probes could not mean.
TEST(Pack, RefusesNamesThatNoListCanHold) {
  for (const char* name : {"", "default", "-sched", "a,b", "a/b", "a b", "./x", "naïve"}) {
    const auto pack =
        parse_pack(fmt::format("schema = 1\nname = \"{}\"\ndescription = \"d\"", name), "p");
    ASSERT_FALSE(pack) << name;
    EXPECT_THAT(pack.error().what, HasSubstr("key name: expected letters")) << name;
  }
}

TEST(Capture, ReadsSourcesOffsetsAndTypes) {
  struct Case {
    const char* text;
    int source, size;
    bool is_signed;
    int kind_of_text;
    std::vector<int> offsets;
  };
  const std::array cases{
      Case{"arg0", WIRE_ARG0, 8, false, WIRE_TEXT_NONE, {}},
      Case{"arg5", WIRE_ARG5, 8, false, WIRE_TEXT_NONE, {}},
      Case{"ret:u32", WIRE_RETURN, 4, false, WIRE_TEXT_NONE, {}},
      Case{"ret:i32", WIRE_RETURN, 4, true, WIRE_TEXT_NONE, {}},
      Case{"arg1:i64", 1, 8, true, WIRE_TEXT_NONE, {}},
      Case{"arg1:u16", 1, 2, false, WIRE_TEXT_NONE, {}},
      Case{"arg1->8->0:u8", 1, 1, false, WIRE_TEXT_NONE, {8, 0}},
      Case{"arg2->0->24->48:str", 2, 8, false, WIRE_TEXT_C, {0, 24, 48}},
      Case{"arg1:str", 1, 8, false, WIRE_TEXT_C, {0}},
      Case{"arg2->0->24:pystr", 2, 8, false, WIRE_TEXT_PYTHON, {0, 24}},
      Case{"arg1:pystr", 1, 8, false, WIRE_TEXT_PYTHON, {}},
      Case{"arg6:u32", WIRE_STACK_POINTER, 4, false, WIRE_TEXT_NONE, {8}},
      Case{"arg31->16", WIRE_STACK_POINTER, 8, false, WIRE_TEXT_NONE, {208, 16}},
      Case{"arg7:str", WIRE_STACK_POINTER, 8, false, WIRE_TEXT_C, {16, 0}},
      Case{"out:arg0->0", WIRE_SOURCE_OUT, 8, false, WIRE_TEXT_NONE, {0}},
      Case{"out:arg2->0:longstr", WIRE_SOURCE_OUT | 2, 8, false, WIRE_TEXT_C, {0}},
      Case{"out:arg0->0->0:str", WIRE_SOURCE_OUT, 8, false, WIRE_TEXT_C, {0, 0}},
      Case{"arg1->65535->1->2->3:u64", 1, 8, false, WIRE_TEXT_NONE, {65535, 1, 2, 3}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.text);
    const auto capture = parse_capture("name", one.text);
    ASSERT_TRUE(capture) << capture.error().what;
    EXPECT_EQ(capture->name, "name");
    EXPECT_EQ(capture->how.source, one.source);
    EXPECT_EQ(capture->how.size, one.size);
    EXPECT_EQ(capture->is_signed, one.is_signed);
    EXPECT_EQ(capture->how.is_text, one.kind_of_text);
    ASSERT_EQ(capture->how.step_count, one.offsets.size());
    for (std::size_t i = 0; i < one.offsets.size(); ++i)
      EXPECT_EQ(capture->how.offset[i], one.offsets[i]);
  }
}

TEST(Capture, RefusesEverythingElse) {
  for (const char* text :
       {"",         "arg",        "arg32",       "arg300",     "arg-1",
        "out:arg0", "out:ret->0", "out:arg6->0", "out:",       "arg6->1->2->3->4",
        "Arg0",     " arg0",      "ret ",        "rdi",        "arg0->",
        "arg0->x",  "arg0->-1",   "arg0->65536", "arg0->0x10", "arg0->1->2->3->4->5",
        "->0",      "arg0:",      "arg0:u",      "arg0:U32",   "arg0:u32:u32",
        ":u32",     "arg0>8",     "arg0->8->"}) {
    const auto capture = parse_capture("name", text);
    ASSERT_FALSE(capture) << text;
    EXPECT_EQ(capture.error().code, Code::kCorrupt);
    EXPECT_THAT(capture.error().what, HasSubstr("read "));
  }
  EXPECT_EQ(parse_capture("n", "arg0->70000").error().what,
            "read argument n: expected at most 4 offsets from 0 to 65535 after ->");
}

TEST(Glob, MatchesStarsOnly) {
  struct Case {
    const char *glob, *text;
    bool matches;
    const char* first;
  };
  const std::array cases{
      Case{"", "", true, "-"},
      Case{"", "a", false, "-"},
      Case{"a", "", false, "-"},
      Case{"abc", "abc", true, "-"},
      Case{"abc", "abcd", false, "-"},
      Case{"abc", "ab", false, "-"},
      Case{"*", "", true, ""},
      Case{"*", "anything", true, "anything"},
      Case{"ab*", "ab", true, ""},
      Case{"ab*", "abcd", true, "cd"},
      Case{"ab*", "xab", false, "-"},
      Case{"*cd", "abcd", true, "ab"},
      Case{"*cd", "abcde", false, "-"},
      Case{"a*d", "abcd", true, "bc"},
      Case{"a*a", "a", false, "-"},
      Case{"a*b*c", "aXbYbZc", true, "X"},
      Case{"a*b*c", "aXbYbZ", false, "-"},
      Case{"*b*b", "abab", true, "a"},
      Case{"*aab", "aaab", true, "a"},
      Case{"a**b", "aXb", true, ""},
      Case{"**", "x", true, ""},
      Case{"at::_ops::*::call", "at::_ops::add_Tensor::call", true, "add_Tensor"},
      Case{"at::_ops::*::call", "at::_ops::add::redispatch", false, "-"},
      Case{"a?c", "abc", false, "-"},
      Case{"a?c", "a?c", true, "-"},
      Case{"[ab]", "a", false, "-"},
      Case{"a.c", "abc", false, "-"},
      Case{"operator*", "operator*", true, "*"},
      Case{"libx.so*", "libx.so.1.2", true, ".1.2"},
  };
  for (const Case& one : cases) {
    std::string_view star = "-";
    EXPECT_EQ(glob_match(one.glob, one.text, &star), one.matches) << one.glob << " " << one.text;
    EXPECT_EQ(star, one.first) << one.glob << " " << one.text;
    EXPECT_EQ(glob_match(one.glob, one.text), one.matches);
  }
}

// By trying all that each star can take. Returns the least match of the first one.
std::optional<std::string_view> slow_match(std::string_view glob, std::string_view text) {
  if (glob.empty()) return text.empty() ? std::optional(std::string_view()) : std::nullopt;
  if (glob[0] != '*') {
    const bool is_equal = !text.empty() && glob[0] == text[0];
    return is_equal ? slow_match(glob.substr(1), text.substr(1)) : std::nullopt;
  }
  for (std::size_t taken = 0; taken <= text.size(); ++taken) {
    if (slow_match(glob.substr(1), text.substr(taken))) return text.substr(0, taken);
  }
  return std::nullopt;
}

TEST(Glob, DoesWhatTryingEverythingDoes) {
  const auto word = [](unsigned number, std::string_view letters) {
    std::string text;
    for (; number != 0; number /= static_cast<unsigned>(letters.size() + 1)) {
      const unsigned digit = number % static_cast<unsigned>(letters.size() + 1);
      if (digit != 0) text += letters[digit - 1];
    }
    return text;
  };
  std::set<std::string> globs;
  std::set<std::string> texts;
  for (unsigned i = 0; i < 1024; ++i)
    globs.insert(word(i, "ab*"));
  for (unsigned i = 0; i < 243; ++i)
    texts.insert(word(i, "ab"));
  for (const std::string& glob : globs) {
    for (const std::string& text : texts) {
      std::string_view star;
      const auto expected = slow_match(glob, text);
      ASSERT_EQ(glob_match(glob, text, &star), expected.has_value()) << glob << " " << text;
      if (glob.empty() || glob[0] != '*' || !expected) continue;
      ASSERT_EQ(star, *expected) << glob << " " << text;
    }
  }
}

TEST(Glob, DoesNotExplode) {
  std::string glob;
  for (int i = 0; i < 40; ++i)
    glob += "a*";
  EXPECT_FALSE(glob_match(glob + "b", std::string(4000, 'a')));
  EXPECT_TRUE(glob_match(glob, std::string(4000, 'a')));
}

TEST(Glob, TakesAnyOfSeveral) {
  EXPECT_TRUE(any_glob_match("libx.so*|x", "x"));
  EXPECT_TRUE(any_glob_match("libx.so*|x", "libx.so.1"));
  EXPECT_FALSE(any_glob_match("libx.so*|x", "y"));
  EXPECT_TRUE(any_glob_match("|x", ""));
  EXPECT_FALSE(any_glob_match("x|", "libx"));
  EXPECT_TRUE(any_glob_match("a|b|c*", "cd"));
}

TEST(Packs, OfALaterFolderReplaceThoseOfAnEarlierOne) {
  const TempFolder shared;
  const TempFolder own;
  const auto text = [](const std::string& name, const std::string& description) {
    return fmt::format("schema = 1\nname = \"{}\"\ndescription = \"{}\"\n", name, description);
  };
  shared.write("b.toml", text("beta", "shared"));
  shared.write("a.toml", text("alpha", "shared"));
  shared.write("notes.txt", "no pack");
  own.write("zzz.toml", text("beta", "own"));
  own.write("gamma.toml", text("gamma", "own"));
  const auto packs = load_packs({shared.path, "/no/such/folder", own.path});
  ASSERT_TRUE(packs) << packs.error().what;
  EXPECT_THAT(names_of(*packs), ElementsAre("alpha", "beta", "gamma"));
  EXPECT_EQ((*packs)[1].description, "own");
  EXPECT_EQ((*packs)[1].path, own.path + "/zzz.toml");
  EXPECT_THAT(*load_packs({}), IsEmpty());
}

TEST(Packs, ThatAreBrokenAreNamed) {
  const TempFolder folder;
  const std::string path = folder.write("broken.toml", "schema = 1\nname = \"x\"\n");
  const auto packs = load_packs({folder.path});
  ASSERT_FALSE(packs);
  EXPECT_EQ(packs.error().what, "read " + path + ", key description: expected a text");
  folder.write("broken.toml", std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(load_packs({folder.path}).error().code, Code::kLimit);
}

TEST(Packs, OfThisRepositoryAreWhole) {
  const auto packs = load_packs({std::string(KANSOKU_SOURCE_DIR) + "/share/probes"});
  ASSERT_TRUE(packs) << packs.error().what;
  std::set<std::string> names;
  for (const Pack& pack : *packs) {
    EXPECT_TRUE(names.insert(pack.name).second) << pack.name;
    EXPECT_EQ(pack.name, std::filesystem::path(pack.path).stem().string());
    EXPECT_FALSE(pack.description.empty());
  }
  EXPECT_TRUE(names.contains("torch"));
  EXPECT_TRUE(names.contains("sched"));
}

/// A mapping has the name of the file, not that of the link by which it was loaded.
TEST(Packs, OfThisRepositoryKnowLibrariesByTheNamesOfTheirFiles) {
  const auto packs = load_packs({std::string(KANSOKU_SOURCE_DIR) + "/share/probes"});
  ASSERT_TRUE(packs) << packs.error().what;
  const auto knows = [&](std::string_view name, std::string_view file) {
    return std::any_of(packs->begin(), packs->end(), [&](const Pack& pack) {
      const auto is_of = [&](const auto& probes) { return any_glob_match(probes.library, file); };
      return pack.name == name &&
             (std::any_of(pack.functions.begin(), pack.functions.end(), is_of) ||
              std::any_of(pack.usdt.begin(), pack.usdt.end(), is_of));
    });
  };
  const std::vector<std::pair<const char*, const char*>> loaded{
      {"watch", "libcuda.so.550.54.15"},
      {"watch", "libcuda.so.1"},
      {"watch", "libnccl.so.2.20.5"},
      {"watch", "libgloo.so.0"},
      {"watch", "libtorch_cpu.so"},
      {"watch", "libtorch_cpu.so.1.13.1"},
      {"watch", "libpython3.11.so.1.0"},
      {"watch", "python3.11"},
      {"watch", "libllama.so"},
      {"cuda", "libcuda.so.550.54.15"},
      {"cuda-names", "libcudart.so.12.4.127"},
      {"nccl", "libnccl.so.2.20.5"},
      {"cuda-names", "libcudart-80664282.so.10.2"},
      {"cublas", "libcublas.so.12.4.5.8"},
      {"gloo", "libtorch_cpu.so"},
      {"nccl", "libtorch_cuda.so"},
      {"watch", "libtorch_cuda.so"},
      {"watch", "llama-server"}};
  for (const auto& [pack, file] : loaded)
    EXPECT_TRUE(knows(pack, file)) << pack << " " << file;
}

class SelectPacks : public ::testing::Test {
 protected:
  SelectPacks() {
    for (const auto& [name, is_default] :
         {std::pair("alpha", true), std::pair("beta", false), std::pair("gamma", true)}) {
      Pack pack;
      pack.name = name;
      pack.is_default = is_default;
      known_.push_back(pack);
    }
  }
  [[nodiscard]] std::vector<std::string> select(std::string_view list) const {
    const auto packs = select_packs(known_, list);
    EXPECT_TRUE(packs) << packs.error().what;
    return packs ? names_of(*packs) : std::vector<std::string>();
  }
  std::vector<Pack> known_;
};

TEST_F(SelectPacks, TakesNamesAndTheDefault) {
  EXPECT_THAT(select("default"), ElementsAre("alpha", "gamma"));
  EXPECT_THAT(select("default,beta"), ElementsAre("alpha", "gamma", "beta"));
  EXPECT_THAT(select("beta,default"), ElementsAre("beta", "alpha", "gamma"));
  EXPECT_THAT(select("default,-alpha"), ElementsAre("gamma"));
  EXPECT_THAT(select("default,-alpha,alpha"), ElementsAre("gamma", "alpha"));
  EXPECT_THAT(select("-alpha"), IsEmpty());
  EXPECT_THAT(select(""), IsEmpty());
  EXPECT_THAT(select(",,beta,"), ElementsAre("beta"));
}

TEST_F(SelectPacks, TakesEachOnce) {
  EXPECT_THAT(select("alpha,alpha"), ElementsAre("alpha"));
  EXPECT_THAT(select("alpha,default"), ElementsAre("alpha", "gamma"));
  EXPECT_THAT(select("default,default"), ElementsAre("alpha", "gamma"));
}

TEST_F(SelectPacks, NamesWhatIsUnknownAndWhatThereIs) {
  for (const char* list : {"delta", "default,delta", "-delta", "alpha, beta"}) {
    const auto packs = select_packs(known_, list);
    ASSERT_FALSE(packs) << list;
    EXPECT_EQ(packs.error().code, Code::kNotFound);
    EXPECT_EQ(packs.error().hint,
              "known packs: alpha, beta, gamma; or name a file, e.g. ./my.toml");
  }
  EXPECT_EQ(select_packs(known_, "delta").error().what, "select probe pack delta: unknown");
}

TEST_F(SelectPacks, TakesFiles) {
  const TempFolder folder;
  const std::string path = folder.write("x.toml", kHead);
  EXPECT_THAT(select("alpha," + path), ElementsAre("alpha", "mine"));
  EXPECT_THAT(select(path + ",-" + path), IsEmpty());
  const auto missing = select_packs(known_, folder.path + "/none.toml");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_THAT(missing.error().what, HasSubstr("/none.toml"));
}

}  // namespace
}  // namespace kansoku::capture
