// SPDX-License-Identifier: Apache-2.0
#include "capture/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sys/procfs.h"

// Functions to find in this very program. Short names, so that the words of the language in them
// are the longest.
#define KEPT __attribute__((noinline, used))
namespace krt {
struct Box {
  int value{0};
  KEPT void open() { ++value; }
  KEPT void shut() { value += 2; }
  KEPT int operator()(int more) { return value += more; }
  KEPT explicit operator bool() const { return value != 0; }
  KEPT bool operator<(const Box& other) const { return value < other.value; }
};
template <class T>
KEPT T twice(T number) {
  return number + number;
}
template unsigned long twice<unsigned long>(unsigned long);
template int twice<int>(int);
KEPT bool contains(const std::string& text) {
  return !text.empty();
}
KEPT int taken(int first, int second) {
  return first - second;
}
KEPT int taken(const std::string& text, int second) {
  return static_cast<int>(text.size()) - second;
}
namespace {
KEPT int hidden(int number) {
  return number + 3;
}
}  // namespace
struct Base {
  virtual ~Base() = default;
  virtual int call() = 0;
};
struct Other {
  virtual ~Other() = default;
  virtual int poke() = 0;
};
struct Both : Base, Other {
  KEPT int call() override { return 1; }
  KEPT int poke() override { return 2; }  // called through a thunk as an Other
};
KEPT void run() {
  asm volatile("nop");  // before the loop
  for (;;)
    asm volatile("");
}
KEPT int use() {
  Both both;
  Other& other = both;
  Box box;
  box.open();
  box.shut();
  const int sum = other.poke() + hidden(box(1)) + (box < Box{} ? 1 : 0) + (box ? 1 : 0);
  return sum + (contains("x") ? twice<int>(2) : 0) + taken(2, 1) + taken("x", 1);
}
}  // namespace krt

// They begin with the first instruction of a loop; the second one never returns.
asm(".text\n.globl resolve_loop\n.type resolve_loop, @function\nresolve_loop:\ndec %rdi\n"
    "jg resolve_loop\nret\n.size resolve_loop, . - resolve_loop\n"
    ".globl resolve_endless\n.type resolve_endless, @function\nresolve_endless:\n"
    "jmp resolve_endless\n.size resolve_endless, . - resolve_endless\n");

namespace kansoku::capture {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

TEST(BareName, IsWhatAUserWouldCallTheFunction) {
  struct Case {
    const char *demangled, *bare;
  };
  const std::array cases{
      Case{"main", "main"},
      Case{"", ""},
      Case{"c10d::Reducer::finalize_backward()", "c10d::Reducer::finalize_backward"},
      Case{"a::b(int, char const*) const", "a::b"},
      Case{"a::b(int) &&", "a::b"},
      Case{"a::b(int (*)(char), long)", "a::b"},
      Case{"a::b(std::function<void (int)>)", "a::b"},
      Case{"void a::b<int>(int)", "a::b<int>"},
      Case{"std::vector<int, std::allocator<int> > a::b<c::d>(e f)", "a::b<c::d>"},
      Case{"a::b<void (int)>::c(int)", "a::b<void (int)>::c"},
      Case{"decltype (x + y) a::b<int, long>(int, long)", "a::b<int, long>"},
      Case{"(anonymous namespace)::f(int)", "(anonymous namespace)::f"},
      Case{"int (anonymous namespace)::f<int>(int)", "(anonymous namespace)::f<int>"},
      Case{"std::function<void ()>::operator()() const", "std::function<void ()>::operator()"},
      Case{"a::operator()(int)", "a::operator()"},
      Case{"a::operator<(b) const", "a::operator<"},
      Case{"bool a::operator< <int>(b)", "a::operator< <int>"},
      Case{"a::operator->() const", "a::operator->"},
      Case{"a::operator bool() const", "a::operator bool"},
      Case{"operator new(unsigned long)", "operator new"},
      Case{"operator delete[](void*)", "operator delete[]"},
      Case{"a::my_operator b(int)", "b"},
      Case{"a::operators(int)", "a::operators"},
      Case{"main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()"},
      Case{"f(", "f("},
      Case{")", ")"},
      Case{"f)(", "f)("},
      Case{"a b c", "c"},
      Case{"char const (&a::f<3>(int)) [3]", "char const (&a::f<3>(int)) [3]"},
  };
  for (const Case& one : cases)
    EXPECT_EQ(bare_name(one.demangled), one.bare) << one.demangled;
}

class ResolveTest : public ::testing::Test {
 protected:
  ResolveTest() : file_(sys::ElfFile::open("/proc/self/exe").value()) { krt::use(); }
  static FunctionProbes function(std::vector<std::string> symbols) {
    FunctionProbes probes;
    probes.library = "self*";
    probes.symbols = std::move(symbols);
    probes.category = "c";
    return probes;
  }
  Resolution resolve(const FunctionProbes& probes) {
    pack_.functions = {probes};
    return resolve_pack(pack_, *file_, "self-1");
  }
  static std::vector<std::string> titles(const Resolution& found) {
    std::vector<std::string> out;
    for (const ResolvedProbe& probe : found.probes)
      out.push_back(probe.title);
    std::sort(out.begin(), out.end());
    return out;
  }
  std::unique_ptr<sys::ElfFile> file_;
  Pack pack_;
};

TEST_F(ResolveTest, FindsAFunctionByItsDemangledName) {
  const Resolution found = resolve(function({"krt::Box::open"}));
  EXPECT_THAT(found.missing, IsEmpty());
  ASSERT_EQ(found.probes.size(), 1U);
  const ResolvedProbe& probe = found.probes[0];
  EXPECT_EQ(probe.title, "krt::Box::open");
  EXPECT_EQ(probe.symbol, "_ZN3krt3Box4openEv");
  EXPECT_EQ(probe.source, &pack_.functions[0]);
  const sys::Symbol* symbol = file_->find_symbol(probe.symbol);
  ASSERT_NE(symbol, nullptr);
  EXPECT_GE(probe.site.address, symbol->address);
  EXPECT_LT(probe.site.address, symbol->address + symbol->bytes);
  EXPECT_EQ(probe.file_offset, file_->file_offset(probe.site.address));
}

TEST_F(ResolveTest, FindsAllThatAGlobMatches) {
  FunctionProbes probes = function({"krt::Box::*"});
  EXPECT_THAT(titles(resolve(probes)),
              ElementsAre("krt::Box::open", "krt::Box::operator bool", "krt::Box::operator()",
                          "krt::Box::operator<", "krt::Box::shut"));
  probes.exclude = {"krt::Box::operator*", "*::shut"};
  EXPECT_THAT(titles(resolve(probes)), ElementsAre("krt::Box::open"));
  probes.title = "box {1}!";
  EXPECT_THAT(titles(resolve(probes)), ElementsAre("box open!"));
  probes.title = "box";
  EXPECT_THAT(titles(resolve(probes)), ElementsAre("box"));
}

// Words that the mangled name spells otherwise must not hide a function.
TEST_F(ResolveTest, FindsFunctionsWhoseNamesAreAbbreviatedInTheSymbol) {
  for (const char* glob : {"krt::Box::operator()", "krt::Box::operator<", "krt::Box::operator bool",
                           "krt::twice<unsigned long>", "krt::(anonymous namespace)::hidden"}) {
    const Resolution found = resolve(function({glob}));
    EXPECT_THAT(titles(found), ElementsAre(glob));
    EXPECT_THAT(found.missing, IsEmpty());
  }
  EXPECT_THAT(titles(resolve(function({"krt::twice*"}))),
              ElementsAre("krt::twice<int>", "krt::twice<unsigned long>"));
}

TEST_F(ResolveTest, NamesWhatIsMissing) {
  const Resolution found =
      resolve(function({"krt::Box::nope", "krt::Box::open", "no_such_thing::*"}));
  EXPECT_THAT(found.missing, ElementsAre("krt::Box::nope: no such function in self-1",
                                         "no_such_thing::*: no such function in self-1"));
  EXPECT_EQ(found.probes.size(), 1U);
}

TEST(ParameterList, IsWhatTheNameIsCalledWith) {
  EXPECT_EQ(parameter_list("f(int, char const*) const"), "int, char const*");
  EXPECT_EQ(parameter_list("int a::f<int (*)(int)>(std::vector<int> const&)"),
            "std::vector<int> const&");
  EXPECT_EQ(parameter_list("a::operator()(int)"), "int");
  EXPECT_EQ(parameter_list("f()"), "");
  EXPECT_EQ(parameter_list("f() [clone .part.0]"), "");
  EXPECT_EQ(parameter_list("plain"), "");
  EXPECT_EQ(parameter_list(""), "");
  EXPECT_EQ(parameter_list(")("), "");
}

TEST_F(ResolveTest, TakesTheCapturesThatAFormOfTheFunctionHas) {
  FunctionProbes probes = function({"krt::taken"});
  probes.captures = {parse_capture("second", "arg1").value()};
  probes.variants = {{"*, int, int", {parse_capture("second", "arg4").value()}},
                     {"std::*, int", {parse_capture("second", "arg2").value()}},
                     {"*, int", {parse_capture("second", "arg3").value()}}};
  std::map<std::string, int> sources;
  for (const ResolvedProbe& probe : resolve(probes).probes)
    sources[probe.symbol] = probe.captures->front().how.source;
  EXPECT_THAT(sources,
              UnorderedElementsAre(Pair("_ZN3krt5takenEii", 3), Pair(HasSubstr("7__cxx11"), 2)));
  probes.variants.resize(1);
  for (const ResolvedProbe& probe : resolve(probes).probes)
    EXPECT_EQ(probe.captures, &pack_.functions.front().captures) << "no variant fits";
}

TEST_F(ResolveTest, LooksOnlyIntoTheLibraryOfThePack) {
  pack_.functions = {function({"krt::Box::open", "nope"})};
  const Resolution found = resolve_pack(pack_, *file_, "libother.so");
  EXPECT_THAT(found.probes, IsEmpty());
  EXPECT_THAT(found.missing, IsEmpty());
}

TEST_F(ResolveTest, MakesOneProbeOfOneAddress) {
  EXPECT_EQ(resolve(function({"krt::Box::open", "krt::Box::o*", "krt::Box::open"})).probes.size(),
            4U);  // open and three operators
  // Also over the tables of one pack.
  pack_.functions = {function({"krt::Box::open"}), function({"krt::Box::open"})};
  pack_.functions[1].title = "second";
  const Resolution found = resolve_pack(pack_, *file_, "self");
  EXPECT_THAT(titles(found), ElementsAre("krt::Box::open"));
}

TEST_F(ResolveTest, LeavesFragmentsOfFunctionsAlone) {
  EXPECT_THAT(titles(resolve(function({"krt::Both::poke"}))), ElementsAre("krt::Both::poke"));
  const Resolution found = resolve(function({"kansoku::capture::*", "krt::*", "testing::Test::*"}));
  EXPECT_GT(found.probes.size(), 10U);
  for (const ResolvedProbe& probe : found.probes) {
    EXPECT_EQ(probe.symbol.find(".cold"), std::string::npos) << probe.symbol;
    EXPECT_FALSE(probe.symbol.starts_with("_ZT")) << probe.symbol;
  }
}

TEST_F(ResolveTest, NeedsTheEntryOnlyForArguments) {
  FunctionProbes probes = function({"krt::Box::operator()"});
  CaptureDef result;
  result.how.source = WIRE_RETURN;
  probes.captures = {result};
  EXPECT_EQ(resolve(probes).probes.size(), 1U);
  CaptureDef argument;
  argument.how.source = WIRE_ARG0;
  probes.captures = {argument};
  const Resolution found = resolve(probes);
  ASSERT_EQ(found.probes.size(), 1U);
  EXPECT_EQ(found.probes[0].symbol, "_ZN3krt3BoxclEi");
}

TEST_F(ResolveTest, FindsTheEndsOfFunctionsThatMayThrow) {
  FunctionProbes probes = function({"krt::Box::open"});
  const Resolution found = resolve(probes);
  ASSERT_EQ(found.probes.size(), 1U);
  ASSERT_FALSE(found.probes[0].exits.empty());
  std::vector<bpf::UprobeSpec> specs;
  found.probes[0].add_specs(7, 0, specs);
  ASSERT_EQ(specs.size(), 1 + found.probes[0].exits.size());
  EXPECT_EQ(specs[0].file_offset, found.probes[0].file_offset);
  EXPECT_EQ(specs[0].cookie, 7 | WIRE_COOKIE_CALL);
  EXPECT_GT(specs[1].file_offset, specs[0].file_offset);
  EXPECT_EQ(specs[1].cookie, found.probes[0].exits[0].exit.cookie(7));
  EXPECT_NE(specs[1].cookie & WIRE_COOKIE_EXIT, 0U);
  probes.never_throws = true;
  EXPECT_THAT(resolve(probes).probes.at(0).exits, IsEmpty());
  probes.never_throws = false;
  probes.kind = ProbeKind::kInstant;
  EXPECT_THAT(resolve(probes).probes.at(0).exits, IsEmpty());
  probes.metric = "alloc";  // metered calls have an end, whatever a recording shows
  EXPECT_FALSE(resolve(probes).probes.at(0).exits.empty());
}

TEST_F(ResolveTest, RefusesAFunctionWhoseEndCannotBeFound) {
  const Resolution found = resolve(function({"krt::run"}));
  EXPECT_THAT(found.probes, IsEmpty());
  EXPECT_THAT(found.missing, IsEmpty());
  EXPECT_THAT(found.refused,
              ElementsAre("krt::run: its end cannot be observed safely in self-1: it never returns "
                          "(if it never throws, set never_throws = true in the pack)"));
}

TEST_F(ResolveTest, CountsByTheExitsWhereTheBeginLiesInALoop) {
  FunctionProbes probes = function({"resolve_loop"});
  const Resolution found = resolve(probes);
  ASSERT_EQ(found.probes.size(), 1U);
  EXPECT_TRUE(found.probes[0].by_exits);
  ASSERT_EQ(found.probes[0].exits.size(), 1U);
  EXPECT_EQ(found.probes[0].file_offset, found.probes[0].exits[0].file_offset);
  EXPECT_EQ(found.probes[0].site.reason, "its first instruction lies in a loop");
  probes.kind = ProbeKind::kInstant;
  EXPECT_TRUE(resolve(probes).probes.at(0).by_exits);
  for (const ProbeKind kind : {ProbeKind::kAnnotate, ProbeKind::kScope}) {
    probes.kind = kind;
    EXPECT_THAT(
        resolve(probes).refused,
        ElementsAre("resolve_loop: its calls cannot be distinguished from iterations of a loop in "
                    "self-1: its first instruction lies in a loop"));
  }
  EXPECT_THAT(
      resolve(function({"resolve_endless"})).refused,
      ElementsAre("resolve_endless: its calls cannot be distinguished from iterations of a loop in "
                  "self-1: its first instruction lies in a loop, and by its exits: it "
                  "never returns"));
}

class ResolveLibcTest : public ResolveTest {
 protected:
  ResolveLibcTest() {
    const auto maps = sys::Procfs().maps(::getpid());
    for (const sys::Mapping& mapping : *maps) {
      if (mapping.path.find("/libc.so.6") != std::string::npos) path_ = mapping.path;
    }
    if (!path_.empty()) file_ = sys::ElfFile::open(path_).value();
  }
  void SetUp() override {
    if (path_.empty()) GTEST_SKIP() << "no libc.so.6 in this process";
  }
  std::string path_;
};

TEST_F(ResolveLibcTest, FindsFunctionsOfC) {
  const Resolution found = resolve(function({"malloc", "qsort", "kansoku_no_such_function"}));
  EXPECT_THAT(titles(found), ElementsAre("malloc", "qsort"));
  EXPECT_THAT(found.missing, ElementsAre("kansoku_no_such_function: no such function in self-1"));
}

TEST_F(ResolveLibcTest, MergesAliasesUnderTheFirstName) {
  ASSERT_EQ(file_->find_symbol("puts")->address, file_->find_symbol("_IO_puts")->address);
  EXPECT_THAT(titles(resolve(function({"puts", "_IO_puts"}))), ElementsAre("puts"));
  EXPECT_THAT(titles(resolve(function({"_IO_puts", "puts"}))), ElementsAre("_IO_puts"));
}

TEST_F(ResolveLibcTest, NamesWhatCannotBeProbed) {
  const sys::Symbol* symbol = file_->find_symbol("strlen");
  if (symbol == nullptr || !symbol->is_ifunc) GTEST_SKIP() << "strlen is no ifunc here";
  const Resolution found = resolve(function({"strlen"}));
  EXPECT_THAT(found.probes, IsEmpty());
  EXPECT_THAT(found.refused, Contains(StartsWith("strlen: ifunc in self-1, its code is chosen at "
                                                 "run time")));
}

TEST(ResolveUsdt, FindsPairsAndInstants) {
  const std::string path = std::string(KANSOKU_SOURCE_DIR) + "/tests/corpus/sys_elf_fuzz/usdt_so";
  const auto file = sys::ElfFile::open(path).value();
  Pack pack;
  pack.usdt = {{"shop*", "shop:open", "", "instant", "c", ""},
               {"shop*", "shop:open", "shop:open", "pair", "c", ""},
               {"shop*", "shop:close", "", "none", "c", ""},
               {"shop*", "shop:open", "shop:close", "half", "c", ""},
               {"other*", "shop:nope", "", "not here", "c", ""}};
  const Resolution found = resolve_pack(pack, *file, "shop.so");
  ASSERT_EQ(found.usdt.size(), 2U);
  EXPECT_EQ(found.usdt[0].source, &pack.usdt[0]);
  EXPECT_NE(found.usdt[0].begin_offset, 0U);
  EXPECT_EQ(found.usdt[0].end_offset, 0U);
  EXPECT_EQ(found.usdt[1].end_offset, found.usdt[0].begin_offset);
  EXPECT_EQ(found.usdt[0].begin_semaphore, 0U);
  EXPECT_THAT(found.missing,
              ElementsAre("usdt shop:close: not in shop.so", "usdt shop:close: not in shop.so"));
  EXPECT_THAT(found.refused, IsEmpty());
}

TEST(ResolveUsdt, RefusesAFiveByteNop) {
  const std::string source = std::string(KANSOKU_SOURCE_DIR) + "/tests/corpus/sys_elf_fuzz/usdt_so";
  Pack pack;
  pack.usdt = {{"shop*", "shop:open", "", "instant", "c", ""}};
  const auto as_made = sys::ElfFile::open(source).value();
  const std::uint64_t offset = resolve_pack(pack, *as_made, "shop.so").usdt.at(0).begin_offset;
  const std::string path = ::testing::TempDir() + "resolve_usdt_nop5." + std::to_string(getpid());
  std::filesystem::copy_file(source, path, std::filesystem::copy_options::overwrite_existing);
  std::fstream changed(path, std::ios::in | std::ios::out | std::ios::binary);
  changed.seekp(static_cast<std::streamoff>(offset));
  changed.write("\x0f\x1f\x44\x00\x00", 5);
  changed.close();
  const auto file = sys::ElfFile::open(path).value();
  std::filesystem::remove(path);
  const Resolution found = resolve_pack(pack, *file, "shop.so");
  EXPECT_THAT(found.usdt, IsEmpty());
  EXPECT_THAT(found.missing, IsEmpty());
  EXPECT_THAT(found.refused, ElementsAre(StartsWith("usdt shop:open: lies on a 5-byte nop")));
}

}  // namespace
}  // namespace kansoku::capture
