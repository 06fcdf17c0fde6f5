// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kansoku::gpu::ptx {

// The result of clang-format is not stable for these macros.
// clang-format off
/// Base opcodes that this toolchain understands: name, and the role of each operand, in order:
///   d  destination              D  destination, maybe a pair `d|p`
///   s  source                   m  address of memory
///   l  label                    c  list of call operands or the called function
///   q  source predicate         ?  from here on operands may be left out
/// Other opcodes of a program are kept as Op::kUnknown with their text.
#define KANSOKU_PTX_OPS(X)                                                                        \
  X(kAdd, "add", "dss") X(kSub, "sub", "dss") X(kMul, "mul", "dss") X(kMad, "mad", "dsss")        \
  X(kFma, "fma", "dsss") X(kDiv, "div", "dss") X(kRem, "rem", "dss") X(kNeg, "neg", "ds")         \
  X(kAbs, "abs", "ds") X(kMin, "min", "dss?s") X(kMax, "max", "dss?s")                            \
  X(kAddc, "addc", "dss") X(kSubc, "subc", "dss") X(kMadc, "madc", "dsss")                        \
  X(kMul24, "mul24", "dss") X(kMad24, "mad24", "dsss") X(kSad, "sad", "dsss")                     \
  X(kPopc, "popc", "ds") X(kClz, "clz", "ds") X(kBfind, "bfind", "ds") X(kFns, "fns", "dsss")     \
  X(kBrev, "brev", "ds") X(kBfe, "bfe", "dsss") X(kBfi, "bfi", "dssss")                           \
  X(kSzext, "szext", "dss") X(kBmsk, "bmsk", "dss") X(kDp4a, "dp4a", "dsss")                      \
  X(kDp2a, "dp2a", "dsss")                                                                        \
  X(kVadd2, "vadd2", "dsss") X(kVsub2, "vsub2", "dsss") X(kVavrg2, "vavrg2", "dsss")              \
  X(kVabsdiff2, "vabsdiff2", "dsss") X(kVmin2, "vmin2", "dsss") X(kVmax2, "vmax2", "dsss")        \
  X(kVset2, "vset2", "dsss") X(kVadd4, "vadd4", "dsss") X(kVsub4, "vsub4", "dsss")                \
  X(kVavrg4, "vavrg4", "dsss") X(kVabsdiff4, "vabsdiff4", "dsss") X(kVmin4, "vmin4", "dsss")      \
  X(kVmax4, "vmax4", "dsss") X(kVset4, "vset4", "dsss")                                           \
  X(kAnd, "and", "dss") X(kOr, "or", "dss") X(kXor, "xor", "dss") X(kNot, "not", "ds")            \
  X(kCnot, "cnot", "ds") X(kShl, "shl", "dss") X(kShr, "shr", "dss") X(kShf, "shf", "dsss")       \
  X(kLop3, "lop3", "Dssss?q") X(kPrmt, "prmt", "dsss")                                            \
  X(kMov, "mov", "ds") X(kLd, "ld", "dm?s") X(kLdu, "ldu", "dm") X(kSt, "st", "ms?s")             \
  X(kCvt, "cvt", "ds?ss") X(kCvta, "cvta", "ds") X(kIsspacep, "isspacep", "ds")                   \
  X(kSet, "set", "dss?q") X(kSetp, "setp", "Dss?q") X(kSelp, "selp", "dssq")                      \
  X(kSlct, "slct", "dsss") X(kCopysign, "copysign", "dss") X(kTestp, "testp", "ds")               \
  X(kRcp, "rcp", "ds") X(kSqrt, "sqrt", "ds") X(kRsqrt, "rsqrt", "ds") X(kSin, "sin", "ds")       \
  X(kCos, "cos", "ds") X(kLg2, "lg2", "ds") X(kEx2, "ex2", "ds") X(kTanh, "tanh", "ds")           \
  X(kBra, "bra", "l") X(kBrx, "brx", "sl") X(kCall, "call", "c?ccc") X(kRet, "ret", "")           \
  X(kExit, "exit", "") X(kTrap, "trap", "") X(kBrkpt, "brkpt", "")                                \
  X(kBar, "bar", "?ssss") X(kBarrier, "barrier", "?ssss") X(kMembar, "membar", "")                \
  X(kFence, "fence", "") X(kAtom, "atom", "dms?ss") X(kRed, "red", "ms?s")                        \
  X(kShfl, "shfl", "Dss?ss") X(kVote, "vote", "dq?s") X(kMatch, "match", "Dss")                   \
  X(kActivemask, "activemask", "d") X(kRedux, "redux", "dss") X(kElect, "elect", "Ds")            \
  X(kNanosleep, "nanosleep", "s") X(kCp, "cp", "?sssss") X(kLdmatrix, "ldmatrix", "dm")           \
  X(kStmatrix, "stmatrix", "ms") X(kMma, "mma", "dsss") X(kPrefetch, "prefetch", "m")             \
  X(kPrefetchu, "prefetchu", "m") X(kPmevent, "pmevent", "s")                                     \
  X(kWmma, "wmma", "") X(kMovmatrix, "movmatrix", "ds") X(kGriddepcontrol, "griddepcontrol", "")

// clang-format on
enum class Op : std::uint8_t {
#define KANSOKU_PTX_X(id, text, roles) id,
  KANSOKU_PTX_OPS(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
      kUnknown
};

/// "add"; "" for kUnknown. Any thread.
[[nodiscard]] std::string_view op_name(Op op);
/// kUnknown if the opcode is not one of ours.
[[nodiscard]] Op op_from_name(std::string_view name);
/// Roles of the operands of `op`, in the letters above; "" for kUnknown.
[[nodiscard]] std::string_view operand_roles(Op op);

// clang-format off
/// Predefined read-only registers: name and width in bits.
#define KANSOKU_PTX_SPECIALS(X)                                                                   \
  X(kTidX, "%tid.x", 32) X(kTidY, "%tid.y", 32) X(kTidZ, "%tid.z", 32)                            \
  X(kNtidX, "%ntid.x", 32) X(kNtidY, "%ntid.y", 32) X(kNtidZ, "%ntid.z", 32)                      \
  X(kCtaidX, "%ctaid.x", 32) X(kCtaidY, "%ctaid.y", 32) X(kCtaidZ, "%ctaid.z", 32)                \
  X(kNctaidX, "%nctaid.x", 32) X(kNctaidY, "%nctaid.y", 32) X(kNctaidZ, "%nctaid.z", 32)          \
  X(kLaneid, "%laneid", 32) X(kWarpid, "%warpid", 32) X(kNwarpid, "%nwarpid", 32)                 \
  X(kSmid, "%smid", 32) X(kNsmid, "%nsmid", 32) X(kGridid, "%gridid", 64)                         \
  X(kLanemaskEq, "%lanemask_eq", 32) X(kLanemaskLe, "%lanemask_le", 32)                           \
  X(kLanemaskLt, "%lanemask_lt", 32) X(kLanemaskGe, "%lanemask_ge", 32)                           \
  X(kLanemaskGt, "%lanemask_gt", 32) X(kClock, "%clock", 32) X(kClockHi, "%clock_hi", 32)         \
  X(kClock64, "%clock64", 64) X(kGlobaltimer, "%globaltimer", 64)                                 \
  X(kGlobaltimerLo, "%globaltimer_lo", 32) X(kGlobaltimerHi, "%globaltimer_hi", 32)               \
  X(kTotalSmemSize, "%total_smem_size", 32) X(kDynamicSmemSize, "%dynamic_smem_size", 32)         \
  X(kWarpSize, "WARP_SZ", 32)                                                                     \
  X(kClusteridX, "%clusterid.x", 32) X(kClusteridY, "%clusterid.y", 32)                           \
  X(kClusteridZ, "%clusterid.z", 32) X(kNclusteridX, "%nclusterid.x", 32)                         \
  X(kNclusteridY, "%nclusterid.y", 32) X(kNclusteridZ, "%nclusterid.z", 32)                       \
  X(kClusterCtaidX, "%cluster_ctaid.x", 32) X(kClusterCtaidY, "%cluster_ctaid.y", 32)             \
  X(kClusterCtaidZ, "%cluster_ctaid.z", 32) X(kClusterNctaidX, "%cluster_nctaid.x", 32)           \
  X(kClusterNctaidY, "%cluster_nctaid.y", 32) X(kClusterNctaidZ, "%cluster_nctaid.z", 32)         \
  X(kClusterCtarank, "%cluster_ctarank", 32) X(kClusterNctarank, "%cluster_nctarank", 32)         \
  X(kIsExplicitCluster, "%is_explicit_cluster", 1) X(kAggrSmemSize, "%aggr_smem_size", 32)        \
  X(kReservedSmemBegin, "%reserved_smem_offset_begin", 32)                                        \
  X(kReservedSmemEnd, "%reserved_smem_offset_end", 32)                                            \
  X(kReservedSmemCap, "%reserved_smem_offset_cap", 32)                                            \
  X(kCurrentGraphExec, "%current_graph_exec", 64)                                                 \
  X(kEnvreg0, "%envreg0", 32) X(kEnvreg1, "%envreg1", 32) X(kEnvreg2, "%envreg2", 32)             \
  X(kEnvreg3, "%envreg3", 32) X(kEnvreg4, "%envreg4", 32) X(kEnvreg5, "%envreg5", 32)             \
  X(kEnvreg6, "%envreg6", 32) X(kEnvreg7, "%envreg7", 32) X(kEnvreg8, "%envreg8", 32)             \
  X(kEnvreg9, "%envreg9", 32) X(kEnvreg10, "%envreg10", 32) X(kEnvreg11, "%envreg11", 32)         \
  X(kEnvreg12, "%envreg12", 32) X(kEnvreg13, "%envreg13", 32) X(kEnvreg14, "%envreg14", 32)       \
  X(kEnvreg15, "%envreg15", 32) X(kEnvreg16, "%envreg16", 32) X(kEnvreg17, "%envreg17", 32)       \
  X(kEnvreg18, "%envreg18", 32) X(kEnvreg19, "%envreg19", 32) X(kEnvreg20, "%envreg20", 32)       \
  X(kEnvreg21, "%envreg21", 32) X(kEnvreg22, "%envreg22", 32) X(kEnvreg23, "%envreg23", 32)       \
  X(kEnvreg24, "%envreg24", 32) X(kEnvreg25, "%envreg25", 32) X(kEnvreg26, "%envreg26", 32)       \
  X(kEnvreg27, "%envreg27", 32) X(kEnvreg28, "%envreg28", 32) X(kEnvreg29, "%envreg29", 32)       \
  X(kEnvreg30, "%envreg30", 32) X(kEnvreg31, "%envreg31", 32)

// clang-format on
enum class Special : std::uint8_t {
#define KANSOKU_PTX_X(id, text, bits) id,
  KANSOKU_PTX_SPECIALS(KANSOKU_PTX_X)
#undef KANSOKU_PTX_X
      kCount
};

/// "%tid.x"; any thread.
[[nodiscard]] std::string_view special_name(Special special);
[[nodiscard]] std::uint32_t special_bits(Special special);
/// By the whole name, component included, or nothing.
[[nodiscard]] std::optional<Special> special_from_name(std::string_view name);

}  // namespace kansoku::gpu::ptx
