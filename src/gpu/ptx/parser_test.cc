// SPDX-License-Identifier: Apache-2.0
#include "gpu/ptx/parser.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gpu/ptx/printer.h"
#include "gpu/ptx/verifier.h"

namespace kansoku::gpu::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kHead = ".version 8.0\n.target sm_80\n.address_size 64\n";

Module parsed(std::string_view text) {
  auto module = parse_module(text);
  EXPECT_TRUE(module) << (module ? "" : module.error().what);
  return module ? std::move(*module) : Module{};
}

/// A kernel with this body, parsed; checks that printing and parsing again gives the same.
Module body(std::string_view text, std::string_view parameters = ".param .u64 p") {
  const std::string whole =
      fmt::format("{}.visible .entry k({})\n{{\n{}\n}}\n", kHead, parameters, text);
  Module module = parsed(whole);
  const std::string printed = print_module(module);
  const auto again = parse_module(printed);
  EXPECT_TRUE(again) << printed << (again ? "" : again.error().what);
  if (again) {
    EXPECT_EQ(*again, module) << printed;
    EXPECT_EQ(print_module(*again), printed);
  }
  return module;
}

/// The body as it is printed, without declarations.
std::string printed_body(const Module& module) {
  std::string text;
  const Function& function = module.functions.back();
  for (const Instruction& instruction : function.instructions)
    text += print_instruction(module, function, instruction) + "\n";
  return text;
}

std::string error_of(std::string_view text) {
  const auto module = parse_module(text);
  return module ? "" : module.error().what;
}

std::string body_error(std::string_view text) {
  return error_of(fmt::format("{}.visible .entry k(.param .u64 p)\n{{\n{}\n}}\n", kHead, text));
}

TEST(PtxParser, ReadsTheHead) {
  const Module module = parsed(".version 8.5\n.target sm_90a, debug\n.address_size 64\n");
  EXPECT_EQ(module.version_major, 8U);
  EXPECT_EQ(module.version_minor, 5U);
  EXPECT_THAT(module.targets, ElementsAre("sm_90a", "debug"));
  EXPECT_EQ(module.address_bits, 64U);
}

TEST(PtxParser, ReadsAKernel) {
  const Module module = body(R"(
	.reg .pred %p<2>;
	.reg .f32 %f<4>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %ctaid.x;
	mad.lo.s32 %r4, %r1, 256, -7;
	setp.ge.s32 %p1, %r4, 0x10;
	@%p1 bra $L__BB0_2;
	mul.wide.s32 %rd4, %r4, 4;
	ld.global.nc.v2.f32 {%f1, %f2}, [%rd4+-8];
	fma.rn.f32 %f3, %f1, 0f3F800000, %f2;
	st.global.f32 [%rd4+16], %f3;
$L__BB0_2:
	ret;)",
                             ".param .u64 .ptr .global .align 16 p");
  EXPECT_EQ(printed_body(module),
            "ld.param.u64 %rd1, [p];\n"
            "mov.u32 %r1, %ctaid.x;\n"
            "mad.lo.s32 %r4, %r1, 256, -7;\n"
            "setp.ge.s32 %p1, %r4, 16;\n"
            "@%p1 bra $L__BB0_2;\n"
            "mul.wide.s32 %rd4, %r4, 4;\n"
            "ld.global.nc.v2.f32 {%f1, %f2}, [%rd4+-8];\n"
            "fma.rn.f32 %f3, %f1, 0f3F800000, %f2;\n"
            "st.global.f32 [%rd4+16], %f3;\n"
            "ret;\n");
  const Function& kernel = module.functions[0];
  EXPECT_TRUE(kernel.params[0].is_pointer);
  EXPECT_EQ(kernel.params[0].pointee, Space::kGlobal);
  EXPECT_EQ(kernel.params[0].pointee_align, 16U);
  EXPECT_EQ(kernel.labels[0].instruction, 9U);
  EXPECT_EQ(kernel.places[0].line, 11U);
  EXPECT_THAT(verify(module), testing::IsEmpty());
}

// Text that compilers paste from inline assembly.
TEST(PtxParser, ReadsScopesGluedToOperands) {
  const Module module = body(R"(
	.reg .b16 %rs<3>;
	.reg .b32 %r<12>;
	{fma.rn.f16x2 %r7,%r8,%r9,%r10;
}
	{ mov.b32 %r8, {%rs1,%rs1};}
	{
	.reg .pred p;
	setp.ne.b32 p, %r1, 0;
	@!p bra LOOP;
LOOP:
	}
	{
	.reg .pred p;
	setp.eq.b32 p, %r1, 0;
	@p bra LOOP;
LOOP:
	}
	ret;)",
                             ".param .u64 q");
  EXPECT_EQ(printed_body(module),
            "fma.rn.f16x2 %r7, %r8, %r9, %r10;\n"
            "mov.b32 %r8, {%rs1, %rs1};\n"
            "setp.ne.b32 p, %r1, 0;\n"
            "@!p bra LOOP;\n"
            "setp.eq.b32 p$2, %r1, 0;\n"
            "@p$2 bra LOOP$2;\n"
            "ret;\n");
}

TEST(PtxParser, ReadsCallsWithParameterScopes) {
  const std::string text = std::string(kHead) + R"(
.extern .func (.param .b32 func_retval0) vprintf
(
	.param .b64 vprintf_param_0,
	.param .b64 vprintf_param_1
)
;
.global .align 1 .b8 _$_str[13] = {104, 101, 0};
.visible .entry k()
{
	.local .align 8 .b8 	__local_depot0[16];
	.reg .b64 %SP, %SPL;
	.reg .b32 %r<3>;
	.reg .b64 %rd<4>;
	mov.u64 %SPL, __local_depot0;
	cvta.local.u64 %SP, %SPL;
	mov.u64 %rd1, _$_str;
	{ // callseq 0, 0
	.param .b64 param0;
	st.param.b64 	[param0], %rd1;
	.param .b64 param1;
	st.param.b64 [param1+0], %SP;
	.param .b32 retval0;
	call.uni (retval0),
	vprintf,
	(
	param0,
	param1
	);
	ld.param.b32 %r1, [retval0+0];
	} // callseq 0
	{ .param .b64 param0; st.param.b64 [param0], 1; }
	ret;
}
)";
  const Module module = parsed(text);
  EXPECT_THAT(printed_body(module), HasSubstr("call.uni (retval0), vprintf, (param0, param1);\n"));
  EXPECT_THAT(printed_body(module), HasSubstr("st.param.b64 [param0$2], 1;\n"));
  EXPECT_THAT(verify(module), testing::IsEmpty());
  EXPECT_EQ(module.variables[0].initial.size(), 3U);
  EXPECT_EQ(module.variables[0].bytes(), 13U);
  EXPECT_EQ(parsed(print_module(module)), module);
}

TEST(PtxParser, ReadsEveryKindOfNumber) {
  const Module module = body(R"(
	.reg .b32 %r<2>;
	.reg .f32 %f<2>;
	.reg .f64 %d<2>;
	mov.u32 %r1, 0x7fU;
	mov.u32 %r1, 0b101;
	mov.u32 %r1, 017;
	mov.b32 %r1, -2147483648;
	mov.f32 %f1, 0fBAAE005B;
	mov.f64 %d1, 0d3FF0000000000000;
	mov.f64 %d1, 1.5;
	mov.f64 %d1, -2.5e-3;
	mov.u64 %r1, 18446744073709551615;)");
  const Function& function = module.functions[0];
  const auto value = [&](std::size_t i) {
    return function.operand(function.instructions[i], 1).value;
  };
  EXPECT_EQ(value(0), 0x7f);
  EXPECT_EQ(value(1), 5);
  EXPECT_EQ(value(2), 15);
  EXPECT_EQ(value(3), -2147483648LL);
  EXPECT_EQ(value(4), 0xBAAE005B);
  EXPECT_EQ(value(5), 0x3FF0000000000000);
  EXPECT_EQ(value(6), 0x3FF8000000000000);
  EXPECT_EQ(value(8), -1);
}

TEST(PtxParser, ReadsVariables) {
  const Module module = parsed(std::string(kHead) + R"(
.extern .shared .align 4 .b8 sm[];
.global .align 4 .f32 table[2][3] = {{0f3F800000, 2.0}, {3.0}};
.const .u64 pointers[2] = {generic(table)+4, table};
.visible .global .attribute(.managed) .u32 counter = 7;
.global .v4 .u32 quads[2] = {1, 2, 3, 4, 5};
.global .u16 open[] = {1, 2, 3};
)");
  EXPECT_TRUE(module.variables[0].is_unsized);
  EXPECT_EQ(module.variables[1].initial.size(), 16U);  // the last value is the fourth
  EXPECT_EQ(module.variables[2].relocations.size(), 2U);
  EXPECT_EQ(module.variables[2].relocations[0].addend, 4);
  EXPECT_TRUE(module.variables[3].is_managed);
  EXPECT_EQ(module.variables[4].bytes(), 32U);
  EXPECT_EQ(module.variables[5].bytes(), 6U);
  EXPECT_EQ(parsed(print_module(module)), module);
  EXPECT_THAT(verify(module), testing::IsEmpty());
}

TEST(PtxParser, KeepsWhatItDoesNotKnow) {
  const std::string text = std::string(kHead) + R"(
.global .texref tex;
)";
  EXPECT_THAT(error_of(text), HasSubstr("line 5"));  // a type that is not known is refused
  const Module module = parsed(std::string(kHead) + R"(
.file 1 "kernel.cu"
.alias a, b;
.section .debug_abbrev { .b8 1
.b32 .debug_info }
.visible .entry k() .reqntid 32 .explicitcluster
{
	.reg .b32 %r<9>;
	.loc 1 3 0
	.pragma "nounroll";
	wgmma.fence.sync.aligned;
	tex.2d.v4.f32.f32 {%r1, %r2, %r3, %r4}, [%r5, {%r6, %r7}];
	add.u32.whatever %r1, %r2, %r3;
	ret;
}
)");
  ASSERT_EQ(module.directives.size(), 3U);
  EXPECT_TRUE(module.directives[0].is_known);
  EXPECT_FALSE(module.directives[1].is_known);
  EXPECT_EQ(module.directives[1].text, ".alias a, b;");
  EXPECT_TRUE(module.directives[2].is_known);
  const Function& function = module.functions[0];
  EXPECT_EQ(function.bounds.required_threads[0], 32U);
  EXPECT_EQ(function.directives[0].text, ".explicitcluster");
  EXPECT_EQ(function.directives.size(), 3U);
  EXPECT_EQ(function.instructions[0].op, Op::kUnknown);
  EXPECT_EQ(opcode_text(function, function.instructions[1]), "tex.2d.v4.f32.f32");
  EXPECT_EQ(function.instructions[2].op, Op::kUnknown);
  EXPECT_EQ(parsed(print_module(module)), module);
}

TEST(PtxParser, FunctionsMayBeDefinedAfterTheirUse) {
  const Module module = parsed(std::string(kHead) + R"(
.func (.param .b32 r) f(.param .b32 a);
.func (.param .b32 r) g(.param .b32 a)
{
	call (r), f, (a);
	ret;
}
.func (.param .b32 r) f(.param .b32 a)
{
	call (r), g, (a);
	ret;
}
)");
  ASSERT_EQ(module.functions.size(), 2U);
  EXPECT_TRUE(module.functions[0].has_body);
  EXPECT_EQ(parsed(print_module(module)), module);
}

/// First words of each line that begins an item: ".file", "function f", ...
std::vector<std::string> order_of(const Module& module) {
  std::vector<std::string> order;
  for (const Item& item : module.items) {
    switch (item.kind) {
      case Item::Kind::kDirective:
        order.push_back(module.directives[item.index].text);
        break;
      case Item::Kind::kDeclaration:
        order.push_back("extern " + module.variables[item.index].name);
        break;
      case Item::Kind::kVariable:
        order.push_back("variable " + module.variables[item.index].name);
        break;
      case Item::Kind::kPrototype:
        order.push_back("prototype " + module.functions[item.index].name);
        break;
      case Item::Kind::kFunction:
        order.push_back("function " + module.functions[item.index].name);
        break;
    }
  }
  return order;
}

TEST(PtxParser, KeepsTheOrderOfItems) {
  // In its printed form already; `handlers` and `start` hold what stands before them.
  const std::string text = R"(.version 8.0
.target sm_80
.address_size 64

.file 1 "a.cu"
.global .u32 first = 1;
.extern .global .u32 later;

.func (
	.param .b32 r
) ahead(
	.param .b32 a
);

.func early()
{
	ret;
}
.global .u64 handlers[2] = {early, generic(first)+4};
.pragma "once";

.visible .entry k(
	.param .u64 p
)
{
	.reg .b64 %rd1, %rd2;
	mov.u64 %rd1, handlers;
	mov.u64 %rd2, later;
	ret;
}
.visible .global .u32 later = 5;
.global .u64 start = k;

.func (
	.param .b32 r
) ahead(
	.param .b32 a
)
{
	ret;
}
.const .u32 last[2] = {8, 9};
)";
  const Module module = parsed(text);
  EXPECT_THAT(order_of(module),
              ElementsAre(".file 1 \"a.cu\"", "variable first", "extern later", "prototype ahead",
                          "function early", "variable handlers", ".pragma \"once\";", "function k",
                          "variable later", "variable start", "function ahead", "variable last"));
  EXPECT_EQ(print_module(module), text);
  EXPECT_EQ(parsed(print_module(module)), module);
  EXPECT_EQ(module.find_variable("later")->linkage, Linkage::kVisible);
  // The same items in another order are another module.
  Module swapped = module;
  std::swap(swapped.items.front(), swapped.items.back());
  EXPECT_FALSE(swapped == module);
  EXPECT_EQ(parsed(print_module(swapped)).items.size(), module.items.size());
}

TEST(PtxParser, KeepsRepeatedDeclarations) {
  const Module module = parsed(std::string(kHead) + R"(
.extern .global .u32 x;
.func f();
.extern .global .u32 x;
.func f();
.global .u32 x = 4, y;
.func f() { ret; }
.func f();
)");
  EXPECT_THAT(order_of(module),
              ElementsAre("extern x", "prototype f", "extern x", "prototype f", "variable x",
                          "variable y", "function f", "prototype f"));
  EXPECT_EQ(parsed(print_module(module)), module);
  const Module undefined = parsed(std::string(kHead) + ".extern .global .u32 x;\n");
  EXPECT_THAT(order_of(undefined), ElementsAre("variable x"));
  EXPECT_EQ(parsed(print_module(undefined)), undefined);
}

TEST(PtxParser, NamesThePlaceOfAnError) {
  EXPECT_EQ(body_error("\tadd.u32 %r1, %r2, %r3;"),
            "ptx line 6 column 10: undeclared name at `%r1`");
  EXPECT_THAT(body_error("\tbra NOWHERE;"), HasSubstr("undefined label"));
  EXPECT_THAT(body_error("\t.reg .b32 a;\n\tadd.u32 a, a, 1"), HasSubstr("expected `;`"));
  EXPECT_THAT(body_error("\t.reg .b32 a;\n\t@a ret;"), HasSubstr("expected a predicate register"));
  EXPECT_THAT(body_error("\tset.eq.and.u32.u32 1, 2, 3, !.;"), HasSubstr("` is not part of PTX"));
  EXPECT_THAT(body_error("\tset.eq.and.u32.u32 1, 2, 3, !\"\";"),
              HasSubstr("expected a predicate"));
  EXPECT_THAT(body_error("\tmov.b32 a, 0f123;"), HasSubstr("undeclared name"));
  EXPECT_THAT(body_error("\t.reg .b32 a;\n\tmov.b32 a, 0f123;"), HasSubstr("8 hexadecimal digits"));
  EXPECT_THAT(body_error("\t/* no end"), HasSubstr("this comment does not end"));
  EXPECT_THAT(body_error("\tcall NOWHERE;"), HasSubstr("undefined label"));
  EXPECT_THAT(body_error("L: L: ret;"), HasSubstr("duplicate label"));
  EXPECT_THAT(body_error("\t`"), HasSubstr("` is not part of PTX"));
  EXPECT_THAT(body_error(std::string(100, '{')), HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of(".visible .entry k() { ret;"), HasSubstr("the end of the text"));
  EXPECT_THAT(error_of(".visible .weak .entry k() { ret; }"),
              HasSubstr("expected a function or a variable"));
  EXPECT_THAT(error_of(".address_size 32"), HasSubstr("32-bit addresses"));
  EXPECT_THAT(error_of(".global .b8 a[18446744073709551615];"), HasSubstr("at most"));
  EXPECT_THAT(error_of(".global .b8 a[1000000][1000000][1000000];"), HasSubstr("too large"));
  EXPECT_THAT(error_of(".global .b8 a[2] = {1, 2, 3};"), HasSubstr("more values than elements"));
  EXPECT_THAT(error_of(".global .b8 a[2][1000000000] = {{1}, {1}};"),
              HasSubstr("an initialiser this large"));
}

TEST(PtxParser, VerifierTellsWhatDoesNotFit) {
  const auto first = [](std::string_view text) -> std::string {
    const auto found = verify(parsed(fmt::format(
        "{}.visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred "
        "%p<4>; .reg .b16 %rs<3>;\n{}\n}}\n",
        kHead, text)));
    return found.empty() ? "" : found[0].message;
  };
  EXPECT_EQ(first("add.u32 %r1, %r2, %r3;"), "");
  EXPECT_EQ(first("add.u32 %r1, %rd2, %r3;"),
            "register %rd2 has 64 bits, the opcode takes 32 in `add.u32 %r1, %rd2, %r3;` of k");
  EXPECT_THAT(first("add.u32 %r1, %r2;"), HasSubstr("expected 3 operands, got 2"));
  EXPECT_THAT(first("add.u32 1, %r2, %r3;"), HasSubstr("expected a register to write to"));
  EXPECT_THAT(first("ld.global.u32 %r1, %rd2;"), HasSubstr("expected an address"));
  EXPECT_THAT(first("ld.global.u32 %rs1, [%rd2];"), HasSubstr("at least 32"));
  EXPECT_EQ(first("ld.global.u8 %rs1, [%rd2];"), "");
  EXPECT_EQ(first("mul.wide.u32 %rd1, %r1, %r2;"), "");
  EXPECT_THAT(first("mul.wide.u32 %r1, %r1, %r2;"), HasSubstr("takes 64"));
  EXPECT_THAT(first("selp.b32 %r1, %r1, %r2, %r3;"), HasSubstr("expected a predicate"));
  EXPECT_EQ(first("and.pred %p1, %p2, !%p3;"), "");
  EXPECT_EQ(first("mov.b32 %r1, {%rs1, %rs2};"), "");
  EXPECT_EQ(first("mov.b64 {%r1, _}, %rd1;"), "");
  EXPECT_EQ(first("mov.pred %p1, %p2;"), "");
  EXPECT_THAT(first("mov.b32 %rd1, %r1;"), HasSubstr("takes 32"));
  EXPECT_THAT(first("mov.b32 %rd1, {%rs1, %rs2};"), HasSubstr("takes 32"));
  EXPECT_THAT(first("mov.b64 {%rd1, %r1}, %rd2;"),
              HasSubstr("%rd1 has 64 bits, the opcode takes 32"));
  EXPECT_THAT(first("cvta.to.global.u64 %r1, %rd1;"), HasSubstr("takes 64"));
  EXPECT_THAT(first("shfl.sync.idx.b32 %rd1|%p1, %r1, 0, 31, -1;"), HasSubstr("takes 32"));
  EXPECT_THAT(first("vote.sync.ballot.b32 %p1, %p2, -1;"), HasSubstr("takes 32"));
  EXPECT_THAT(first("match.any.sync.b64 %r1, %r2, -1;"), HasSubstr("takes 64"));
}

/// PTX of clang 19 and by hand: everything is known, sound, and survives printing.
TEST(PtxParser, ReadsTheKernelsOfTheExamples) {
  std::size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(KANSOKU_SOURCE_DIR "/tests/data/ptx")) {
    if (entry.path().extension() != ".ptx") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const Module module = parsed(text.str());
    EXPECT_THAT(verify(module), testing::IsEmpty()) << entry.path();
    EXPECT_EQ(parsed(print_module(module)), module) << entry.path();
    for (const Function& function : module.functions)
      EXPECT_THAT(function.texts, testing::IsEmpty()) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 1U);
}

}  // namespace
}  // namespace kansoku::gpu::ptx
