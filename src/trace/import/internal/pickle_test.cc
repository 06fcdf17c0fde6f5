// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/pickle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "trace/import/files_for_test.h"

namespace kansoku::trace::import {
namespace {

using namespace std::string_view_literals;
using ::testing::HasSubstr;
using Kind = PlainData::Kind;
using Value = PlainData::Value;

// Output of Python's pickle.dumps(value, protocol) for protocols 0 to 5 of
//   [None, True, False, 0, 255, 256, 65535, 65536, -1, 2**31 - 1, 2**31, -2**63, 2**63 - 1, 1.5,
//    -0.25, "", "ab", (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [7], {},
//    {"k": "v", "n": [1, 2]}]
constexpr std::array<std::string_view, 6> kEveryValue{
    "286c70300a4e614930310a614930300a6149300a61493235350a61493235360a614936353533350a61493635"
    "3533360a61492d310a6149323134373438333634370a614c323134373438333634384c0a614c2d3932323333"
    "37323033363835343737353830384c0a614c393232333337323033363835343737353830374c0a6146312e35"
    "0a61462d302e32350a61560a70310a615661620a70320a612874612849310a7470330a612849310a49320a74"
    "70340a612849310a49320a49330a7470350a612849310a49320a49330a49340a7470360a61286c70370a6128"
    "6c70380a49370a6161286470390a6128647031300a566b0a7031310a56760a7031320a73566e0a7031330a28"
    "6c7031340a49310a6149320a6173612e",
    "5d7100284e4930310a4930300a4b004bff4d00014dffff4a000001004affffffff4affffff7f4c3231343734"
    "38333634384c0a4c2d393232333337323033363835343737353830384c0a4c39323233333732303336383534"
    "3737353830374c0a473ff800000000000047bfd0000000000000580000000071015802000000616271022928"
    "4b01747103284b014b02747104284b014b024b03747105284b014b024b034b047471065d71075d71084b0761"
    "7d71097d710a2858010000006b710b580100000076710c58010000006e710d5d710e284b014b026575652e",
    "80025d7100284e88894b004bff4d00014dffff4a000001004affffffff4affffff7f8a0500000080008a0800"
    "000000000000808a08ffffffffffffff7f473ff800000000000047bfd0000000000000580000000071015802"
    "00000061627102294b018571034b014b028671044b014b024b03877105284b014b024b034b047471065d7107"
    "5d71084b07617d71097d710a2858010000006b710b580100000076710c58010000006e710d5d710e284b014b"
    "026575652e",
    "80035d7100284e88894b004bff4d00014dffff4a000001004affffffff4affffff7f8a0500000080008a0800"
    "000000000000808a08ffffffffffffff7f473ff800000000000047bfd0000000000000580000000071015802"
    "00000061627102294b018571034b014b028671044b014b024b03877105284b014b024b034b047471065d7107"
    "5d71084b07617d71097d710a2858010000006b710b580100000076710c58010000006e710d5d710e284b014b"
    "026575652e",
    "80049595000000000000005d94284e88894b004bff4d00014dffff4a000001004affffffff4affffff7f8a05"
    "00000080008a0800000000000000808a08ffffffffffffff7f473ff800000000000047bfd00000000000008c"
    "00948c02616294294b0185944b014b0286944b014b024b038794284b014b024b034b0474945d945d944b0761"
    "7d947d94288c016b948c0176948c016e945d94284b014b026575652e",
    "80059595000000000000005d94284e88894b004bff4d00014dffff4a000001004affffffff4affffff7f8a05"
    "00000080008a0800000000000000808a08ffffffffffffff7f473ff800000000000047bfd00000000000008c"
    "00948c02616294294b0185944b014b0286944b014b024b038794284b014b024b034b0474945d945d944b0761"
    "7d947d94288c016b948c0176948c016e945d94284b014b026575652e"};
// a = [1]; [a, a]
constexpr std::array<std::string_view, 6> kShared{"286c70300a286c70310a49310a616167310a612e",
                                                  "5d7100285d71014b01616801652e",
                                                  "80025d7100285d71014b01616801652e",
                                                  "80035d7100285d71014b01616801652e",
                                                  "8004950c000000000000005d94285d944b01616801652e",
                                                  "8005950c000000000000005d94285d944b01616801652e"};
// l = []; l.append(l)
constexpr std::array<std::string_view, 6> kListInItself{"286c70300a67300a612e",
                                                        "5d71006800612e",
                                                        "80025d71006800612e",
                                                        "80035d71006800612e",
                                                        "80049506000000000000005d946800612e",
                                                        "80059506000000000000005d946800612e"};
// d = {}; d['me'] = d
constexpr std::array<std::string_view, 6> kDictInItself{
    "286470300a566d650a70310a67300a732e",           "7d710058020000006d6571016800732e",
    "80027d710058020000006d6571016800732e",         "80037d710058020000006d6571016800732e",
    "8004950b000000000000007d948c026d65946800732e", "8005950b000000000000007d948c026d65946800732e"};
// t = ([],); t[0].append(t)
constexpr std::array<std::string_view, 6> kTupleInItself{
    "28286c70300a2867300a7470310a61303067310a2e",
    "285d7100286800747101613168012e",
    "80025d71006800857101613068012e",
    "80035d71006800857101613068012e",
    "8004950b000000000000005d9468008594613068012e",
    "8005950b000000000000005d9468008594613068012e"};
// t = ([], 1, 2, 3); t[0].append(t)
constexpr std::array<std::string_view, 6> kLongTupleInItself{
    "28286c70300a2867300a49310a49320a49330a7470310a6149310a49320a49330a303030303067310a2e",
    "285d71002868004b014b024b03747101614b014b024b033168012e",
    "8002285d71002868004b014b024b03747101614b014b024b033168012e",
    "8003285d71002868004b014b024b03747101614b014b024b033168012e",
    "8004951900000000000000285d942868004b014b024b037494614b014b024b033168012e",
    "8005951900000000000000285d942868004b014b024b037494614b014b024b033168012e"};
// [b'raw', b'y' * 256], protocols 3 to 5
constexpr std::array<std::string_view, 3> kBytes{
    "80035d7100284303726177710142000100007979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "797979797979797979797102652e",
    "80049511010000000000005d9428430372617794420001000079797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "797979797979797979797979797979797994652e",
    "80059511010000000000005d9428430372617794420001000079797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "7979797979797979797979797979797979797979797979797979797979797979797979797979797979797979"
    "797979797979797979797979797979797994652e"};

constexpr std::string_view kEveryValueText =
    "[None, True, False, 0, 255, 256, 65535, 65536, -1, 2147483647, 2147483648, "
    "-9223372036854775808, 9223372036854775807, 1.5, -0.25, '', 'ab', [], [1], [1, 2], [1, 2, 3], "
    "[1, 2, 3, 4], [], [7], {}, {'k': 'v', 'n': [1, 2]}]";

std::string print(const PlainData& pickle, PlainData::Id id, int depth = 0) {
  const Value& value = pickle.at(id);
  if (depth > 8) return "...";
  switch (value.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.integer != 0 ? "True" : "False";
    case Kind::kInt:
      return fmt::format("{}", value.integer);
    case Kind::kFloat:
      return fmt::format("{}", value.real);
    case Kind::kText:
      return fmt::format("'{}'", value.text);
    default:
      break;
  }
  const bool is_dict = value.kind == Kind::kDict;
  std::string out(1, is_dict ? '{' : '[');
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    if (i > 0) out += is_dict && i % 2 == 1 ? ": " : ", ";
    out += print(pickle, value.items[i], depth + 1);
  }
  return out + (is_dict ? '}' : ']');
}

Result<PlainData> read_text(std::string_view bytes, const PlainLimits& limits = {}) {
  return read_pickle(as_bytes(bytes), limits);
}
std::string printed(std::string_view bytes) {
  const auto pickle = read_text(bytes);
  return pickle ? print(*pickle, pickle->root()) : pickle.error().what;
}

TEST(Pickle, ReadsWhatPythonWritesInEveryProtocol) {
  for (const std::string_view hex : kEveryValue)
    EXPECT_EQ(printed(from_hex(hex)), kEveryValueText) << hex;
  for (const std::string_view hex : kBytes)
    EXPECT_EQ(printed(from_hex(hex)), "['raw', '" + std::string(256, 'y') + "']");
}

// The opcodes that pickle.dumps has no use for, or only for long values, one program each.
TEST(Pickle, ReadsEveryOpcodeOfPlainData) {
  const auto eight = [](char c) { return std::string(1, c) + std::string(7, '\0'); };
  const std::pair<std::string, std::string_view> programs[] = {
      {"N.", "None"},
      {"I01\n.", "True"},
      {"I00\n.", "False"},
      {"I-12\n.", "-12"},
      {"L7L\n.", "7"},
      {"L7\n.", "7"},
      {"F1e3\n.", "1000"},
      {"Finf\n.", "inf"},
      {"G\x40\x09\x21\xfb\x54\x44\x2d\x18.", "3.141592653589793"},
      {"J\xfe\xff\xff\xff.", "-2"},
      {"\x8a" + std::string(1, '\0') + ".", "0"},
      {"\x8a\x01\xff.", "-1"},
      {"\x8a\x02\xff" + std::string(1, '\0') + ".", "255"},
      {"\x8b\x02" + std::string(3, '\0') + "\x01\x02.", "513"},
      // 2^64 and -2^64: beyond 64 bits numbers become floats.
      {"\x8a\x09" + std::string(8, '\0') + "\x01.", "1.8446744073709552e+19"},
      {"U\x02hi.", "'hi'"},
      {"C\x02hi.", "'hi'"},
      {"\x8c\x02hi.", "'hi'"},
      {"X\x02" + std::string(3, '\0') + "hi.", "'hi'"},
      {"B\x02" + std::string(3, '\0') + "hi.", "'hi'"},
      {"T\x02" + std::string(3, '\0') + "hi.", "'hi'"},
      {"\x8d" + eight('\x02') + "hi.", "'hi'"},
      {"\x8e" + eight('\x02') + "hi.", "'hi'"},
      {"Vhi\n.", "'hi'"},
      {"S'hi'\n.", "''hi''"},
      {"(K\x01K\x02l.", "[1, 2]"},
      {"(K\x01K\x02t.", "[1, 2]"},
      {"(K\x01K\x02"
       "d.",
       "{1: 2}"},
      {"]K\x01"
       "a.",
       "[1]"},
      {"}K\x01K\x02s.", "{1: 2}"},
      {"K\x05p300\n0g300\n.", "5"},
      {"K\x05q\x09"
       "0h\x09.",
       "5"},
      {"K\x05r\x01\x02\x03\x04"
       "0j\x01\x02\x03\x04.",
       "5"},
      {std::string("K\x05\x94K\x06\x94h\0h\x01\x86.", 12), "[5, 6]"},
      {"K\x01K\x02"
       "0.",
       "1"},
      {"K\x01(K\x02K\x03"
       "1.",
       "1"},
      {"K\x01(0.", "1"},
      {"K\x01"
       "2\x86.",
       "[1, 1]"},
      {"\x80\x05\x95" + eight('\x02') + "N..", "None"},
  };
  for (const auto& [program, expected] : programs)
    EXPECT_EQ(printed(program), expected) << program;
}

TEST(Pickle, SharedValuesAreOneValue) {
  for (const std::string_view hex : kShared) {
    const std::string bytes = from_hex(hex);
    const auto pickle = read_text(bytes);
    ASSERT_TRUE(pickle.has_value()) << hex;
    const Value& root = pickle->at(pickle->root());
    ASSERT_EQ(root.items.size(), 2U);
    EXPECT_EQ(root.items[0], root.items[1]);
    EXPECT_EQ(print(*pickle, pickle->root()), "[[1], [1]]");
  }
}

TEST(Pickle, ValuesMayContainThemselves) {
  for (std::size_t protocol = 0; protocol < 6; ++protocol) {
    const std::string list = from_hex(kListInItself[protocol]);
    const auto in_list = read_text(list);
    ASSERT_TRUE(in_list.has_value()) << protocol << ": " << in_list.error().what;
    EXPECT_EQ(in_list->at(in_list->root()).items, std::vector{in_list->root()});
    const std::string dict = from_hex(kDictInItself[protocol]);
    const auto in_dict = read_text(dict);
    ASSERT_TRUE(in_dict.has_value()) << protocol << ": " << in_dict.error().what;
    const Value& me = in_dict->at(in_dict->root());
    EXPECT_EQ(in_dict->find(me, "me"), &me);
    for (const auto& tuples : {kTupleInItself, kLongTupleInItself}) {
      const std::string tuple = from_hex(tuples[protocol]);
      const auto in_tuple = read_text(tuple);
      ASSERT_TRUE(in_tuple.has_value()) << protocol << ": " << in_tuple.error().what;
      const Value& outer = in_tuple->at(in_tuple->root());
      ASSERT_FALSE(outer.items.empty());
      EXPECT_EQ(in_tuple->at(outer.items[0]).items, std::vector{in_tuple->root()}) << protocol;
    }
  }
}

TEST(Pickle, RefusesEveryOpcodeThatIsMoreThanData) {
  const std::pair<char, std::string_view> refused[] = {
      {'c', "GLOBAL"},
      {'\x93', "STACK_GLOBAL"},
      {'R', "REDUCE"},
      {'b', "BUILD"},
      {'i', "INST"},
      {'o', "OBJ"},
      {'\x81', "NEWOBJ"},
      {'\x92', "NEWOBJ_EX"},
      {'\x82', "EXT1"},
      {'\x83', "EXT2"},
      {'\x84', "EXT4"},
      {'P', "PERSID"},
      {'Q', "BINPERSID"},
      {'\x97', "NEXT_BUFFER"},
      {'\x98', "READONLY_BUFFER"},
      {'\x91', "FROZENSET"},
      {'\x8f', "EMPTY_SET"},
      {'\x90', "ADDITEMS"},
      {'\x96', "BYTEARRAY8"},
  };
  for (const auto& [code, name] : refused) {
    const auto pickle = read_text(std::string("\x80\x02(N") + code + "os\nsystem\n.");
    ASSERT_FALSE(pickle.has_value()) << name;
    EXPECT_EQ(pickle.error().code, Code::kUnsupported) << name;
    EXPECT_THAT(pickle.error().what,
                HasSubstr(fmt::format("read pickle at offset 4: {} refused", name)));
    EXPECT_THAT(pickle.error().hint, HasSubstr("do not load it"));
  }
  // pickle.dumps(os.system, 2): what an attack begins with.
  const auto attack = read_text(
      "\x80\x02"
      "cposix\nsystem\nq\x00."sv);
  ASSERT_FALSE(attack.has_value());
  EXPECT_THAT(attack.error().what, HasSubstr("offset 2: GLOBAL refused"));
}

// Every byte is an opcode of plain data, a refused one, or none at all.
TEST(Pickle, KnowsEveryByte) {
  std::size_t plain = 0, refused = 0, none = 0;
  for (int code = 0; code < 256; ++code) {
    const std::string file = std::string("]](K\x01K\x01") + static_cast<char>(code);
    const auto pickle = read_text(file + std::string(16, '\x01') + "\n.");
    if (!pickle && pickle.error().code == Code::kUnsupported) {
      ++refused;
    } else if (!pickle && pickle.error().what.find("builds no plain data") != std::string::npos &&
               pickle.error().what.find("offset 7:") != std::string::npos) {
      ++none;
    } else {
      ++plain;
    }
  }
  EXPECT_EQ(refused, 19U);
  EXPECT_EQ(plain, 49U);  // of the 68 in the table of CPython 3.8 and later
  EXPECT_EQ(none, 256U - 68U);
}

TEST(Pickle, RefusesBrokenPrograms) {
  for (const std::string_view program : {""sv,
                                         "."sv,
                                         "N"sv,
                                         "("sv,
                                         "(."sv,
                                         "0."sv,
                                         "2."sv,
                                         "1."sv,
                                         "a."sv,
                                         "Na."sv,
                                         "NNa."sv,
                                         "}Na."sv,
                                         "s."sv,
                                         "}Ns."sv,
                                         "]NNs."sv,
                                         "e."sv,
                                         "N(Ne."sv,
                                         "(e."sv,
                                         "u."sv,
                                         "](u."sv,
                                         "}(Nu."sv,
                                         "t."sv,
                                         "(Nd."sv,
                                         "\x85."sv,
                                         "N\x86."sv,
                                         "NN\x87."sv,
                                         "N(\x85."sv,
                                         "N(.\n"sv,
                                         "h\x01."sv,
                                         "g1\n."sv,
                                         "gx\n."sv,
                                         "j\x01\x00\x00\x00."sv,
                                         "q\x00."sv,
                                         "p0\n."sv,
                                         "\x94."sv,
                                         "Ix\n."sv,
                                         "I1"sv,
                                         "Lx\n."sv,
                                         "L99999999999999999999L\n."sv,
                                         "Fx\n."sv,
                                         "F1"sv,
                                         "V"sv,
                                         "K"sv,
                                         "M\x01"sv,
                                         "J\x01\x02\x03"sv,
                                         "G\x01"sv,
                                         "\x8a\x05\x01"sv,
                                         "\x8b\xff\xff\xff\xff"sv,
                                         "\x8b\xff\xff\xff\x7f"sv,
                                         "X\xff\xff\xff\xffx"sv,
                                         "T\xff\xff\xff\xffx"sv,
                                         "\x8d\xff\xff\xff\xff\xff\xff\xff\xffx"sv,
                                         "\x95\xff\xff\xff\xff\xff\xff\xff\xffN."sv,
                                         "\x80\x06N."sv,
                                         "\x80"sv,
                                         "\xffN."sv,
                                         "\x00N."sv}) {
    const auto pickle = read_text(program);
    ASSERT_FALSE(pickle.has_value()) << program;
    EXPECT_EQ(pickle.error().code, Code::kCorrupt) << program;
    EXPECT_THAT(pickle.error().what, HasSubstr("at offset ")) << program;
  }
}

TEST(Pickle, TruncationIsToldAtEveryByte) {
  for (const std::string_view hex : kEveryValue) {
    const std::string file = from_hex(hex);
    for (std::size_t size = 0; size < file.size(); ++size)
      EXPECT_FALSE(read_text(file.substr(0, size)).has_value()) << size;
  }
}

TEST(Pickle, HasLimits) {
  const PlainLimits limits{.values_max = 10, .stack_max = 5};
  const auto values = [](int count) {  // each number is dropped again; the last one stays
    std::string program;
    for (int i = 0; i < count; ++i)
      program += std::string(i == 0 ? "" : "0") + "K\x01";
    return program + ".";
  };
  EXPECT_TRUE(read_text(values(9), limits).has_value());
  EXPECT_TRUE(read_text(values(10), limits).has_value());
  const auto many = read_text(values(11), limits);
  ASSERT_FALSE(many.has_value());
  EXPECT_EQ(many.error().code, Code::kLimit);
  const auto deep = [](int count) {
    return std::string(static_cast<std::size_t>(count), 'N') + ".";
  };
  EXPECT_TRUE(read_text(deep(4), limits).has_value());
  EXPECT_TRUE(read_text(deep(5), limits).has_value());
  EXPECT_EQ(read_text(deep(6), limits).error().code, Code::kLimit);
  // Values that cost no memory of their own: copies on the stack, marks, items of a list.
  EXPECT_FALSE(read_text("N222222.", limits).has_value());
  EXPECT_FALSE(read_text("((((((N.", limits).has_value());
  EXPECT_TRUE(read_text("]q\x01(h\x01h\x01h\x01"
                        "e(h\x01h\x01h\x01"
                        "e(h\x01h\x01h\x01"
                        "e."sv,
                        limits)
                  .has_value());  // 9 items
  EXPECT_FALSE(read_text("]q\x01(h\x01h\x01h\x01"
                         "e(h\x01h\x01h\x01"
                         "e(h\x01h\x01h\x01"
                         "e(h\x01h\x01"
                         "e."sv,
                         limits)
                   .has_value());
}

// In a dict the last of equal keys wins, as in Python; keys that are no texts are never found.
TEST(Pickle, FindsMembers) {
  using pickled::number;
  using pickled::text;
  const std::string file = pickled::file("}(" + text("a") + number(1) + number(5) + number(2) +
                                         text("a") + number(3) + "u");
  const auto pickle = read_text(file);
  ASSERT_TRUE(pickle.has_value());
  const Value& root = pickle->at(pickle->root());
  ASSERT_NE(pickle->find(root, "a"), nullptr);
  EXPECT_EQ(pickle->find(root, "a")->integer, 3);
  EXPECT_EQ(pickle->find(root, "5"), nullptr);
  EXPECT_EQ(pickle->find(root, ""), nullptr);
  EXPECT_EQ(pickle->find(pickle->at(root.items[1]), "a"), nullptr);  // no dict
}

}  // namespace
}  // namespace kansoku::trace::import
