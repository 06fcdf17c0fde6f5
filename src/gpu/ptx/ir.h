// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/ptx/op.h"
#include "gpu/ptx/suffix.h"

namespace kansoku::gpu::ptx {

/// State space of a variable or an access.
enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam, kConst };
/// ".global"; "" for kGeneric.
[[nodiscard]] std::string_view space_name(Space space);

enum class Linkage : std::uint8_t { kInternal, kExtern, kVisible, kWeak, kCommon };

/// A place in an initialiser that holds an address.
struct Relocation {
  std::uint64_t offset{0};  // bytes from the start of the variable
  std::string symbol;       // a module variable or a function
  std::int64_t addend{0};
  bool is_generic{false};  // generic(symbol): the address in generic space
  friend bool operator==(const Relocation&, const Relocation&) = default;
};

/// A variable of the module or of a function, or a parameter.
struct Variable {
  std::string name;
  Space space{Space::kGlobal};
  Type type{Type::kB8};
  std::uint8_t vector{1};  // elements of .v2, .v4
  Linkage linkage{Linkage::kInternal};
  std::uint32_t align{0};           // bytes; 0: that of the type
  std::vector<std::uint64_t> dims;  // [2][3] is {2, 3}; empty: one element
  bool is_unsized{false};           // extern .shared name[]: the launch says how large
  bool is_managed{false};           // .attribute(.managed)
  bool has_initialiser{false};
  std::vector<std::byte> initial;       // may be shorter than the variable: the rest is zero
  std::vector<Relocation> relocations;  // by offset
  bool is_pointer{false};               // .ptr: a kernel parameter that is an address ...
  Space pointee{Space::kGeneric};       // ... into this space
  std::uint32_t pointee_align{0};
  friend bool operator==(const Variable&, const Variable&) = default;

  /// Bytes in memory; 0 if unsized.
  [[nodiscard]] std::uint64_t bytes() const;
  /// Alignment in bytes, given or natural; at least 1.
  [[nodiscard]] std::uint32_t alignment() const;
};

struct Register {
  std::string name;
  Type type{Type::kB32};
  friend bool operator==(const Register&, const Register&) = default;
};

enum class OperandKind : std::uint8_t {
  kNone,
  kRegister,        // index into Function::registers
  kSpecial,         // index is a Special
  kInteger,         // value, as 64 bits in two's complement
  kFloat32,         // 0fXXXXXXXX: bits in value
  kFloat64,         // 0dX...X or a decimal number: bits in value
  kParameter,       // index into Function::params, plus value bytes
  kReturn,          // index into Function::returns, plus value bytes
  kLocalVariable,   // index into Function::variables, plus value bytes
  kModuleVariable,  // index into Module::variables, plus value bytes
  kFunction,        // index into Module::functions
  kLabel,           // index into Function::labels
  kSink,            // _
  kAddress,         // [base + value]; base tells the kind of index
  kVector,          // {a, b, ...}: `count` operands from `index` in Function::operands
  kPair,            // a|b: likewise, two
  kList,            // (a, b, ...): of a call, likewise
  kBrackets,        // [a, b, ...]: of instructions on textures and the like
};

struct Operand {
  OperandKind kind{OperandKind::kNone};
  OperandKind base{OperandKind::kNone};  // of an address: register, symbol, or none for [123]
  bool is_negated{false};                // !%p; also -%r is none of PTX
  std::uint32_t index{0};
  std::uint32_t count{0};
  std::int64_t value{0};
  friend bool operator==(const Operand&, const Operand&) = default;
};

inline constexpr std::size_t kSuffixesMax = 12;
inline constexpr std::uint32_t kNoIndex = 0xffffffff;

/// One instruction. Operands are `operand_count` entries of Function::operands from
/// `first_operand`; the parts of vectors, pairs and lists stand elsewhere in that table.
struct Instruction {
  Op op{Op::kUnknown};
  std::uint8_t suffix_count{0};
  std::uint8_t operand_count{0};
  bool is_guard_negated{false};
  std::uint32_t guard{kNoIndex};  // register; kNoIndex: always
  std::uint32_t first_operand{0};
  std::array<Suffix, kSuffixesMax> suffixes{};
  std::uint32_t text{kNoIndex};  // Op::kUnknown: the whole opcode, index into Function::texts
  friend bool operator==(const Instruction&, const Instruction&) = default;

  [[nodiscard]] bool has(Suffix suffix) const;
  /// The nth suffix that is a type; Type::kCount if there are fewer.
  [[nodiscard]] Type type(std::size_t nth = 0) const;
  /// Roles of its operands, in the letters of KANSOKU_PTX_OPS: as operand_roles, but for barriers
  /// that reduce a predicate and so have a result, and for wmma, which loads, stores or multiplies.
  [[nodiscard]] std::string_view roles() const;
};

/// A place in the source, for messages and for rewriters that copy the rest of the text. Lines and
/// columns count from 1.
struct Place {
  std::uint32_t line{0};
  std::uint32_t column{0};
  std::uint32_t begin{0}, end{0};  // bytes of the text
};

struct Label {
  std::string name;
  std::uint32_t instruction{0};  // that it stands in front of; may be the count: the end
  friend bool operator==(const Label&, const Label&) = default;
};

/// A directive that is kept as it was written.
struct RawDirective {
  std::string text;              // without trailing blanks
  std::uint32_t instruction{0};  // in a body: in front of this one
  bool is_head{false};           // of a function: stands in front of the body
  bool is_known{false};          // means nothing to an executor: .pragma, .loc and the like
  std::uint32_t line{0};         // not compared
  friend bool operator==(const RawDirective& a, const RawDirective& b) {
    return a.text == b.text && a.instruction == b.instruction && a.is_head == b.is_head &&
           a.is_known == b.is_known;
  }
};

struct LaunchBounds {
  std::array<std::uint32_t, 3> max_threads{};       // .maxntid; 0: not given
  std::array<std::uint32_t, 3> required_threads{};  // .reqntid
  std::uint32_t min_blocks_per_sm{0};
  std::uint32_t max_registers{0};
  friend bool operator==(const LaunchBounds&, const LaunchBounds&) = default;
};

/// A kernel (.entry) or a device function (.func). Names within a body are unique: where scopes
/// reuse one, the later gets a suffix `$2`, `$3`, ... Registers are those that are used, in order
/// of first use.
struct Function {
  std::string name;
  bool is_entry{false};
  bool has_body{false};
  bool does_not_return{false};  // .noreturn
  Linkage linkage{Linkage::kInternal};
  LaunchBounds bounds;
  std::vector<Variable> returns, params, variables;
  std::vector<Register> registers;
  std::vector<Label> labels;
  std::vector<Instruction> instructions;
  std::vector<Operand> operands;
  std::vector<std::string> texts;
  std::vector<RawDirective> directives;  // of the head and of the body, in their order
  std::vector<Place> places;             // of each instruction; not compared
  Place place;                           // of the whole; not compared

  [[nodiscard]] const Operand& operand(const Instruction& instruction, std::size_t nth) const {
    return operands[instruction.first_operand + nth];
  }
  friend bool operator==(const Function& a, const Function& b);
};

/// One element of the text of a module.
struct Item {
  enum class Kind : std::uint8_t {
    kDirective,    // index into Module::directives
    kDeclaration,  // of a variable that is defined further down (extern); index into variables
    kVariable,     // index into Module::variables
    kPrototype,    // of a function; index into Module::functions
    kFunction,     // its body, likewise
  };
  Kind kind{Kind::kVariable};
  std::uint32_t index{0};
  friend bool operator==(const Item&, const Item&) = default;
};

struct Module {
  std::uint32_t version_major{0}, version_minor{0};
  std::vector<std::string> targets;  // sm_80, debug, ...
  std::uint32_t address_bits{64};
  std::vector<Variable> variables;
  std::vector<Function> functions;  // a declaration and its definition are one entry
  std::vector<RawDirective> directives;
  /// All of these in the order of the text, as they are printed. PTX has names declared before
  /// their use: who adds a variable or a function adds its item in front of those that name it.
  std::vector<Item> items;
  friend bool operator==(const Module& a, const Module& b);

  /// Null if there is none.
  [[nodiscard]] const Function* find_function(std::string_view name) const;
  [[nodiscard]] const Variable* find_variable(std::string_view name) const;
};

/// The opcode with its suffixes: "ld.global.v4.f32".
[[nodiscard]] std::string opcode_text(const Function& function, const Instruction& instruction);

}  // namespace kansoku::gpu::ptx
