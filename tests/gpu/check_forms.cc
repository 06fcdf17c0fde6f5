// SPDX-License-Identifier: Apache-2.0
// Runs the cases that forms.py has written on the software device: every instruction form with
// lanes that differ, with lanes that agree, and under a guard; with every instruction set that the
// machine has.
//
//   check_forms FOLDER              what is wrong, and a count
//   check_forms FOLDER --mutate     puts a wrong handler into each row of the operation table in
//                                   turn; every row must have a case and turn it red
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/isa.h"
#include "common/parse.h"
#include "gpu/exec/executor.h"
#include "gpu/exec/internal/decode/form_table.h"
#include "gpu/exec/internal/warp.h"
#include "gpu/ptx/parser.h"
#include "gpu/ptx/verifier.h"

namespace {

using namespace kansoku;
using namespace kansoku::gpu;

constexpr std::uint64_t kSentinel = 0x5a5a5a5a5a5a5a5a;
constexpr std::size_t kOperandsMax = 4;
// Bytes of a row in memory: its operands; its result, the one under a guard, and from 32 on
// scratch.
constexpr std::size_t kInBytes = 32, kOutBytes = 64;
// Contents of constant memory and of the kernel's parameters in a case; forms.py knows them too.
constexpr std::size_t kTableBytes = 256;
constexpr std::uint8_t table_byte(std::size_t i) {
  return static_cast<std::uint8_t>(i * 37 + 11);
}

struct Row {
  std::vector<std::uint64_t> operands;
  std::uint64_t result{0};
  bool is_nan{false};
};

struct Case {
  std::string name, text;
  std::vector<std::string> types;  // destination first
  std::uint64_t ulp{0};
  std::vector<Row> rows;
};

std::uint32_t bits_of(const std::string& type) {
  if (type == "pred") return 1;
  if (type.ends_with("x2")) return 32;
  const auto bits = parse_int<std::uint32_t>(type.substr(type.find_first_of("0123456789")));
  CHECK(bits.has_value());
  return *bits;
}

std::uint64_t mask_of(std::uint32_t bits) {
  return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

Case read_case(const std::filesystem::path& path) {
  Case out;
  out.name = path.stem().string();
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "ptx") {
      out.text = line.substr(4);
    } else if (word == "types") {
      while (words >> word)
        out.types.push_back(word);
    } else if (word == "ulp") {
      words >> out.ulp;
    } else if (word == "row") {
      Row row;
      while (words >> word) {
        row.is_nan = word == "nan";
        const auto bits = parse_int<std::uint64_t>(row.is_nan ? "0" : word, 16);
        CHECK(bits.has_value());
        row.operands.push_back(*bits);
      }
      row.result = row.operands.back();
      row.operands.pop_back();
      out.rows.push_back(std::move(row));
    }
  }
  CHECK(!out.text.empty() && !out.rows.empty() && out.types.size() >= 2);
  return out;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// The instructions with operands filled in, each under `guard`.
std::string filled(const Case& test, std::string_view guard, std::string_view destination) {
  std::string out;
  std::istringstream parts(test.text);
  for (std::string part; std::getline(parts, part, ';');) {
    if (part.find_first_not_of(' ') == std::string::npos) continue;
    replace_all(part, "%odd_c", "%odd");
    replace_all(part, "%d", destination);
    out += fmt::format("\t{}{};\n", guard, part);
  }
  return out;
}

/// Registers are as narrow as they can be: 8 bits live in 16, or in 32 for every second type.
std::uint32_t register_bits(const std::string& type) {
  return std::max(bits_of(type), 16U);
}

std::string table_text() {
  std::string text;
  for (std::size_t i = 0; i < kTableBytes; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", table_byte(i));
  return text;
}

std::string kernel_text(const Case& test) {
  const std::string& dest = test.types[0];
  const bool is_predicate = dest == "pred";
  std::string text = fmt::format(
      ".version 8.0\n.target sm_80\n.address_size 64\n"
      ".const .align 32 .b8 const_bytes[{0}] = {{{1}}};\n"
      ".visible .entry k(.param .u64 in, .param .u64 out, .param .u32 rows, "
      ".param .align 32 .b8 param_bytes[{0}])\n{{\n"
      "\t.reg .b32 %i, %n, %t, %w, %v;\n\t.reg .b64 %p, %q, %z, %s, %l, %k, %h, %m;\n"
      "\t.reg .pred %over, %odd;\n"
      "\t.shared .align 32 .b8 shared_bytes[1024];\n\t.local .align 32 .b8 local_bytes[32];\n",
      kTableBytes, table_text());
  const std::string_view names[kOperandsMax] = {"%a", "%b", "%c", "%e"};
  for (std::size_t k = 1; k < test.types.size(); ++k)
    text += fmt::format("\t.reg .b{} {};\n", register_bits(test.types[k]), names[k - 1]);
  text += is_predicate ? std::string("\t.reg .pred %d, %g;\n")
                       : fmt::format("\t.reg .b{} %d, %g;\n", register_bits(dest));
  text +=
      "\tmov.u32 %i, %ctaid.x;\n\tmov.u32 %n, %ntid.x;\n\tmov.u32 %t, %tid.x;\n"
      "\tmov.u64 %s, shared_bytes;\n\tmul.wide.u32 %q, %t, 32;\n\tadd.u64 %s, %s, %q;\n"
      "\tmov.u64 %l, local_bytes;\n\tmov.u64 %k, const_bytes;\n\tmov.u64 %h, param_bytes;\n"
      "\tmad.lo.u32 %i, %i, %n, %t;\n\tld.param.u32 %n, [rows];\n"
      "\tsetp.ge.u32 %over, %i, %n;\n\t@%over bra END;\n"
      "\tld.param.u64 %p, [in];\n\tmul.wide.u32 %q, %i, 32;\n\tadd.u64 %p, %p, %q;\n"
      "\tld.param.u64 %z, [out];\n\tmul.wide.u32 %q, %i, 64;\n\tadd.u64 %z, %z, %q;\n"
      "\tld.global.u32 %t, [%p+16];\n\tand.b32 %t, %t, 1;\n\tsetp.ne.u32 %odd, %t, 0;\n";
  for (std::size_t k = 1; k < test.types.size(); ++k) {
    text += fmt::format("\tld.global.b{} {}, [%p+{}];\n", register_bits(test.types[k]),
                        names[k - 1], 8 * (k - 1));
  }
  text += filled(test, "", "%d");
  // selp reads the predicate that the second pass would take as its guard.
  const bool is_guarded = test.text.find("%odd") == std::string::npos;
  if (is_guarded)
    text += "\tsetp.eq.u32 %odd, %n, %n;\n\tand.b32 %t, %i, 3;\n\tsetp.eq.u32 %odd, %t, 1;\n";
  const auto store = [&](std::string_view value, int at) {
    const std::uint32_t bits = register_bits(dest);
    if (is_predicate) {
      text += fmt::format("\tselp.u32 %w, 1, 0, {};\n\tst.global.u32 [%z+{}], %w;\n", value, at);
      text += fmt::format("\tmov.u32 %v, 0;\n\tst.global.u32 [%z+{}], %v;\n", at + 4);
    } else {
      text += fmt::format("\tst.global.b{} [%z+{}], {};\n", bits, at, value);
    }
  };
  store("%d", 0);
  if (is_guarded) {
    text += is_predicate ? std::string("\tsetp.ne.u32 %g, %n, %n;\n")
                         : fmt::format("\tmov.b{} %g, {};\n", register_bits(dest),
                                       kSentinel & mask_of(register_bits(dest)));
    text += filled(test, "@%odd ", "%g");
    store("%g", 8);
  }
  return text + "END:\n\tret;\n}\n";
}

std::uint64_t distance(std::uint64_t a, std::uint64_t b) {
  return a > b ? a - b : b - a;
}

bool is_nan_of(const std::string& type, std::uint64_t bits) {
  if (type == "f32") return (bits & 0x7fffffff) > 0x7f800000;
  return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
}

bool is_right(const Case& test, const Row& row, std::uint64_t got) {
  const std::string& dest = test.types[0];
  got &= mask_of(bits_of(dest));
  if (row.is_nan) return is_nan_of(dest, got);
  if (dest.ends_with("x2"))
    return distance(got & 0xffff, row.result & 0xffff) <= test.ulp &&
           distance(got >> 16, row.result >> 16) <= test.ulp;
  return distance(got, row.result) <= test.ulp;
}

class Device {
 public:
  Device() : memory_(must(exec::Memory::create(std::uint64_t{1} << 24))) {}

  /// The first wrong row; empty: all are right.
  std::string run(const Case& test, const ptx::Module& module, Isa isa) {
    auto program = exec::Program::load(module, memory_, isa);
    if (!program) return program.error().what;
    const std::size_t count = test.rows.size();
    const std::uint64_t in = must(memory_.allocate(count * kInBytes));
    const std::uint64_t out = must(memory_.allocate(count * kOutBytes));
    std::string wrong;
    for (const std::uint32_t width : {32U, 1U}) {
      if (wrong.empty()) wrong = launch(test, *program, in, out, width);
    }
    CHECK(memory_.free(in) && memory_.free(out));
    return wrong;
  }

 private:
  template <class T>
  static T must(Result<T> result) {
    if (!result) fmt::print(stderr, "{}\n", result.error().what);
    CHECK(result.has_value());
    return std::move(*result);
  }

  std::string launch(const Case& test, const exec::Program& program, std::uint64_t in,
                     std::uint64_t out, std::uint32_t width) {
    const std::size_t count = test.rows.size();
    auto* const inputs = reinterpret_cast<std::uint64_t*>(static_cast<std::uintptr_t>(in));
    auto* const outputs = reinterpret_cast<std::uint64_t*>(static_cast<std::uintptr_t>(out));
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < kOperandsMax; ++k)
        inputs[4 * i + k] = k < test.rows[i].operands.size() ? test.rows[i].operands[k] : i;
    }
    std::fill_n(outputs, count * kOutBytes / sizeof *outputs, 0);
    struct {
      std::uint64_t in, out;
      std::uint32_t rows;
      alignas(32) std::array<std::uint8_t, kTableBytes> bytes;
    } params{in, out, static_cast<std::uint32_t>(count), {}};
    for (std::size_t i = 0; i < kTableBytes; ++i)
      params.bytes[i] = table_byte(i);
    exec::LaunchOptions options;
    options.grid[0] = (static_cast<std::uint32_t>(count) + width - 1) / width;
    options.block[0] = width;
    options.params = std::as_bytes(std::span(&params, 1));
    const auto fault = exec::launch(program, 0, memory_, options);
    if (!fault) return fault.error().what;
    if (*fault) return (*fault)->text();
    const bool is_guarded = test.text.find("%odd") == std::string::npos;
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_active = (i & 3) == 1;
      const std::uint64_t* const output = outputs + i * kOutBytes / sizeof *outputs;
      const std::uint64_t guarded = output[1];
      const std::uint64_t left =
          test.types[0] == "pred" ? 0 : kSentinel & mask_of(register_bits(test.types[0]));
      if (!is_right(test, test.rows[i], output[0])) return describe(test, i, output[0], width, "");
      if (is_guarded && (is_active ? !is_right(test, test.rows[i], guarded) : guarded != left))
        return describe(test, i, guarded, width, is_active ? " under a guard" : " past its guard");
    }
    return "";
  }

  static std::string describe(const Case& test, std::size_t i, std::uint64_t got,
                              std::uint32_t width, std::string_view how) {
    std::string text = fmt::format("row {}{}, {} threads a block:", i, how, width);
    for (const std::uint64_t operand : test.rows[i].operands)
      text += fmt::format(" 0x{:x}", operand);
    return text +
           fmt::format(" gave 0x{:x}, not {}", got & mask_of(bits_of(test.types[0])),
                       test.rows[i].is_nan ? "nan" : fmt::format("0x{:x}", test.rows[i].result));
  }

  exec::Memory memory_;
};

struct Parsed {
  Case test;
  ptx::Module module;
};

/// The row that is broken now, for the two handlers below: a handler is a plain function.
struct Broken {
  exec::Handler original{nullptr};
  char destination{'i'};
};
Broken& broken() {
  static Broken row;
  return row;
}

/// Does what the row does, then flips a bit of one lane's result: more than any tolerance.
const exec::Code* flip_one_lane(exec::Warp& warp, const exec::Code* code) {
  const exec::Code* const next = broken().original(warp, code);
  constexpr std::uint32_t kLane = 1;
  if (broken().destination == 'p') {
    warp.predicates[code->d] ^= 1U << kLane;
    return next;
  }
  // Uniform results change as a whole: they are one value.
  constexpr std::uint32_t kBit = 32;
  warp.affine[code->d].base ^= kBit;
  std::byte* const lanes = warp.lanes + std::size_t{code->d} * exec::kSlotBytes;
  lanes[kLane * (broken().destination == 'l' ? 8 : 4)] ^= std::byte{kBit};
  return next;
}

const exec::Code* do_nothing(exec::Warp&, const exec::Code* code) {
  return code + 1;
}

struct Tally {
  std::size_t killed{0};
  std::vector<std::string> survivors;
};

/// True if a case of a row turns red with another handler in the place of one of its two.
bool is_killed(Device& device, const std::vector<const Parsed*>& cases, Isa isa,
               exec::Handler& place, exec::Handler handler) {
  broken().original = std::exchange(place, handler);
  const bool is_red = std::any_of(cases.begin(), cases.end(), [&](const Parsed* parsed) {
    return !device.run(parsed->test, parsed->module, isa).empty();
  });
  place = broken().original;
  return is_red;
}

/// Breaks every row of the operation table; a row without a case is wrong as well.
int mutate(Device& device, const std::vector<Parsed>& cases, Isa isa) {
  std::map<std::string, const Parsed*> by_name;
  for (const Parsed& parsed : cases)
    by_name.emplace(parsed.test.name, &parsed);
  Tally flipped, skipped;
  std::vector<std::string> without;
  const std::vector<exec::Form> rows = exec::forms(isa);
  for (const exec::Form& row : rows) {
    // Rows of memory begin with a dot: their cases do not.
    const std::string name = row.name[0] == '.' ? row.name.substr(1) : row.name;
    std::vector<const Parsed*> own;
    for (auto found = by_name.lower_bound(name);
         found != by_name.end() && found->first.starts_with(name); ++found)
      own.push_back(found->second);
    if (own.empty()) {
      without.push_back(row.name);
      continue;
    }
    broken().destination = row.shape[0];
    exec::Form& form = exec::form_for_test(isa, row.name);
    for (exec::Handler* const place : {&form.run, &form.combined}) {
      if (*place == nullptr) continue;
      for (auto [tally, handler] :
           {std::pair{&flipped, &flip_one_lane}, std::pair{&skipped, &do_nothing}}) {
        if (is_killed(device, own, isa, *place, handler)) {
          ++tally->killed;
        } else {
          tally->survivors.push_back(row.name + (place == &form.combined ? " combined" : ""));
        }
      }
    }
  }
  for (const std::string& name : without)
    fmt::print("no case of its own: {}\n", name);
  for (const std::string& name : flipped.survivors)
    fmt::print("survived with a bit flipped: {}\n", name);
  for (const std::string& name : skipped.survivors)
    fmt::print("survived without doing anything: {}\n", name);
  fmt::print(
      "mutated {}: {} handlers of {} rows killed with a bit flipped, {} without doing anything; "
      "{} and {} survived; {} rows have no case of their own\n",
      isa_name(isa), flipped.killed, rows.size(), skipped.killed, flipped.survivors.size(),
      skipped.survivors.size(), without.size());
  return flipped.survivors.empty() && skipped.survivors.empty() && without.empty() ? 0 : 1;
}

/// Words that PTX has for other instructions, or not at all: behind the opcode and at its end.
std::vector<std::string> planted(const std::string& text, std::size_t nth) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < nth; ++i)
    begin = text.find(';', begin) + 1;
  begin = text.find_first_not_of(' ', begin);
  if (begin == std::string::npos) return out;
  const std::size_t end = text.find(' ', begin);
  const std::string opcode = text.substr(begin, end - begin);
  const std::size_t dot = opcode.find('.');
  const std::string op = opcode.substr(0, dot);
  std::vector<std::string_view> words{".bfly", ".x4", ".proxy", ".nonsense"};
  if (op != "ld" && op != "st" && op != "atom" && op != "red")
    words.insert(words.end(), {".gpu", ".volatile", ".L1::evict_first"});
  for (const std::string_view word : words) {
    for (const std::size_t at : {dot, opcode.size()})
      out.push_back(std::string(text).insert(begin + std::min(at, opcode.size()), word));
  }
  return out;
}

/// A suffix that is not understood is refused, never passed over.
int plant(const std::vector<Parsed>& cases) {
  auto memory = exec::Memory::create(std::uint64_t{1} << 24);
  CHECK(memory.has_value());
  std::size_t count = 0;
  std::vector<std::string> accepted;
  for (const Parsed& parsed : cases) {
    const std::string& text = parsed.test.text;
    const auto instructions = static_cast<std::size_t>(std::count(text.begin(), text.end(), ';'));
    for (std::size_t i = 0; i < instructions; ++i) {
      for (const std::string& wrong : planted(text, i)) {
        Case test = parsed.test;
        test.text = wrong;
        ++count;
        auto module = ptx::parse_module(kernel_text(test));
        if (!module) continue;
        const auto program = exec::Program::load(std::move(*module), *memory);
        if (program && program->kernels()[0].refusal.empty()) accepted.push_back(wrong);
      }
    }
  }
  for (const std::string& text : accepted)
    fmt::print("accepted: {}\n", text);
  fmt::print("{} suffixes planted, {} accepted\n", count, accepted.size());
  return accepted.empty() && count > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: check_forms FOLDER [--mutate | --plant]\n");
    return 2;
  }
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.path().extension() == ".case") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Parsed> cases;
  std::size_t failed = 0;
  for (const auto& path : paths) {
    Case test = read_case(path);
    auto module = ptx::parse_module(kernel_text(test));
    if (!module || !ptx::verify(*module).empty()) {
      fmt::print("{}: {}\n", test.name,
                 module ? ptx::verify(*module)[0].message : module.error().what);
      ++failed;
      continue;
    }
    cases.push_back({std::move(test), std::move(*module)});
  }
  Device device;
  if (argc > 2 && std::string_view(argv[2]) == "--mutate") return mutate(device, cases, best_isa());
  if (argc > 2 && std::string_view(argv[2]) == "--plant") return plant(cases);
  for (const Isa isa : {Isa::kV2, Isa::kV3, Isa::kV4}) {
    if (isa > best_isa()) continue;
    for (const Parsed& parsed : cases) {
      const std::string wrong = device.run(parsed.test, parsed.module, isa);
      if (wrong.empty()) continue;
      fmt::print("{} ({}): {}\n", parsed.test.name, isa_name(isa), wrong);
      ++failed;
    }
  }
  fmt::print("{} forms, {} failed, best instruction set {}\n", paths.size(), failed,
             isa_name(best_isa()));
  return failed == 0 && !paths.empty() ? 0 : 1;
}
