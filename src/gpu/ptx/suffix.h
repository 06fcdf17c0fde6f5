// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kansoku::gpu::ptx {

// The result of clang-format is not stable for these macros.
// clang-format off
/// A word after a dot in an opcode or a declaration. The types come first, in the order of
/// `Type`. Source: NVIDIA's PTX ISA manual, sections 5 and 9 (names only).
#define KANSOKU_PTX_TYPES(X)                                                                      \
  X(kPred, "pred", 1)                                                                             \
  X(kB8, "b8", 8)                                                                                 \
  X(kB16, "b16", 16)                                                                              \
  X(kB32, "b32", 32)                                                                              \
  X(kB64, "b64", 64)                                                                              \
  X(kB128, "b128", 128)                                                                           \
  X(kU8, "u8", 8)                                                                                 \
  X(kU16, "u16", 16)                                                                              \
  X(kU32, "u32", 32)                                                                              \
  X(kU64, "u64", 64)                                                                              \
  X(kS8, "s8", 8)                                                                                 \
  X(kS16, "s16", 16)                                                                              \
  X(kS32, "s32", 32)                                                                              \
  X(kS64, "s64", 64)                                                                              \
  X(kU16x2, "u16x2", 32)                                                                          \
  X(kS16x2, "s16x2", 32)                                                                          \
  X(kF16, "f16", 16)                                                                              \
  X(kF16x2, "f16x2", 32)                                                                          \
  X(kBf16, "bf16", 16)                                                                            \
  X(kBf16x2, "bf16x2", 32)                                                                        \
  X(kTf32, "tf32", 32)                                                                            \
  X(kF32, "f32", 32)                                                                              \
  X(kF64, "f64", 64)

/// Every other word, by its meaning: space, rounding, comparison, and so on.
#define KANSOKU_PTX_WORDS(X)                                                                      \
  X(kGlobal, "global") X(kShared, "shared") X(kLocal, "local") X(kParam, "param")                 \
  X(kConst, "const") X(kSharedCta, "shared::cta") X(kSharedCluster, "shared::cluster")            \
  X(kParamEntry, "param::entry") X(kParamFunc, "param::func")                                     \
  X(kRn, "rn") X(kRz, "rz") X(kRm, "rm") X(kRp, "rp") X(kRna, "rna")                              \
  X(kRni, "rni") X(kRzi, "rzi") X(kRmi, "rmi") X(kRpi, "rpi")                                     \
  X(kFtz, "ftz") X(kSat, "sat") X(kApprox, "approx") X(kFull, "full") X(kRelu, "relu")            \
  X(kNan, "nan") X(kNaN, "NaN") X(kXorsign, "xorsign") X(kAbs, "abs") X(kSatfinite, "satfinite")                 \
  X(kLo, "lo") X(kHi, "hi") X(kWide, "wide") X(kCc, "cc")                                         \
  X(kEq, "eq") X(kNe, "ne") X(kLt, "lt") X(kLe, "le") X(kGt, "gt") X(kGe, "ge")                   \
  X(kLs, "ls") X(kHs, "hs")                                                                       \
  X(kEqu, "equ") X(kNeu, "neu") X(kLtu, "ltu") X(kLeu, "leu") X(kGtu, "gtu") X(kGeu, "geu")       \
  X(kNum, "num")                                                                                  \
  X(kAnd, "and") X(kOr, "or") X(kXor, "xor") X(kMin, "min") X(kMax, "max") X(kAdd, "add")         \
  X(kInc, "inc") X(kDec, "dec") X(kExch, "exch") X(kCas, "cas") X(kPopc, "popc")                  \
  X(kV2, "v2") X(kV4, "v4") X(kV8, "v8")                                                          \
  X(kVolatile, "volatile") X(kRelaxed, "relaxed") X(kAcquire, "acquire")                          \
  X(kRelease, "release") X(kAcqRel, "acq_rel") X(kSc, "sc") X(kWeak, "weak") X(kMmio, "mmio")     \
  X(kCta, "cta") X(kCluster, "cluster") X(kGpu, "gpu") X(kSys, "sys") X(kGl, "gl")                \
  X(kCa, "ca") X(kCg, "cg") X(kCs, "cs") X(kLu, "lu") X(kCv, "cv") X(kWb, "wb") X(kWt, "wt")      \
  X(kNc, "nc")                                                                                    \
  X(kL1EvictNormal, "L1::evict_normal") X(kL1EvictUnchanged, "L1::evict_unchanged")               \
  X(kL1EvictFirst, "L1::evict_first") X(kL1EvictLast, "L1::evict_last")                           \
  X(kL1NoAllocate, "L1::no_allocate") X(kL2Hint, "L2::cache_hint")                                \
  X(kL2B64, "L2::64B") X(kL2B128, "L2::128B") X(kL2B256, "L2::256B")                              \
  X(kTo, "to") X(kUni, "uni") X(kSync, "sync") X(kArrive, "arrive") X(kRed, "red")                \
  X(kWarp, "warp") X(kAligned, "aligned") X(kAll, "all") X(kAny, "any") X(kBallot, "ballot")      \
  X(kUp, "up") X(kDown, "down") X(kBfly, "bfly") X(kIdx, "idx")                                   \
  X(kB4e, "b4e") X(kF4e, "f4e") X(kRc8, "rc8") X(kEcl, "ecl") X(kEcr, "ecr") X(kRc16, "rc16")     \
  X(kShiftamt, "shiftamt") X(kClamp, "clamp") X(kWrap, "wrap") X(kL, "l") X(kR, "r")              \
  X(kFinite, "finite") X(kInfinite, "infinite") X(kNumber, "number")                              \
  X(kNotanumber, "notanumber") X(kNormal, "normal") X(kSubnormal, "subnormal")                    \
  X(kNoftz, "noftz") X(kAsync, "async") X(kBulk, "bulk") X(kCommitGroup, "commit_group")          \
  X(kWaitGroup, "wait_group") X(kWaitAll, "wait_all") X(kProxy, "proxy") X(kAlias, "alias")       \
  X(kRow, "row") X(kCol, "col") X(kTrans, "trans")                                                \
  X(kM16n8k16, "m16n8k16") X(kM16n8k8, "m16n8k8") X(kM16n8k4, "m16n8k4")                          \
  X(kM16n8k32, "m16n8k32") X(kM8n8k4, "m8n8k4") X(kM8n8, "m8n8") X(kX1, "x1") X(kX2, "x2")        \
  X(kX4, "x4") X(kM8n8k16, "m8n8k16") X(kM16n16k16, "m16n16k16") X(kM8n32k16, "m8n32k16")         \
  X(kM32n8k16, "m32n8k16") X(kLoad, "load") X(kStore, "store") X(kMma, "mma") X(kA, "a")          \
  X(kB, "b") X(kC, "c") X(kD, "d") X(kL1, "L1") X(kL2, "L2") X(kL2EvictLast, "L2::evict_last")    \
  X(kL2EvictNormal, "L2::evict_normal") X(kWait, "wait") X(kLaunchDependents, "launch_dependents")

// clang-format on
enum class Suffix : std::uint8_t {
#define KANSOKU_PTX_X(id, text, bits) id,
  KANSOKU_PTX_TYPES(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
#define KANSOKU_PTX_X(id, text) id,
      KANSOKU_PTX_WORDS(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
          kCount
};

/// A fundamental type; `static_cast` between Type and Suffix keeps the meaning.
enum class Type : std::uint8_t {
#define KANSOKU_PTX_X(id, text, bits) id,
  KANSOKU_PTX_TYPES(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
      kCount
};

[[nodiscard]] constexpr bool is_type(Suffix suffix) {
  return static_cast<std::uint8_t>(suffix) < static_cast<std::uint8_t>(Type::kCount);
}
[[nodiscard]] constexpr Type as_type(Suffix suffix) {
  return static_cast<Type>(suffix);
}
[[nodiscard]] constexpr Suffix as_suffix(Type type) {
  return static_cast<Suffix>(type);
}

/// Text without the dot; any thread.
[[nodiscard]] std::string_view suffix_name(Suffix suffix);
[[nodiscard]] inline std::string_view type_name(Type type) {
  return suffix_name(as_suffix(type));
}
/// The suffix that is written `word` (without the dot), or nothing.
[[nodiscard]] std::optional<Suffix> suffix_from_name(std::string_view word);

/// Width of a value; 1 for a predicate, 0 for kCount: an opcode that names no type.
[[nodiscard]] std::uint32_t bits_of(Type type);
/// Bytes in memory; 0 for a predicate, which has none.
[[nodiscard]] inline std::uint32_t bytes_of(Type type) {
  return bits_of(type) / 8;
}

[[nodiscard]] constexpr bool is_signed(Type type) {
  return (type >= Type::kS8 && type <= Type::kS64) || type == Type::kS16x2;
}
[[nodiscard]] constexpr bool is_float(Type type) {
  return type >= Type::kF16;
}
[[nodiscard]] constexpr bool is_untyped(Type type) {
  return type >= Type::kB8 && type <= Type::kB128;
}

}  // namespace kansoku::gpu::ptx
