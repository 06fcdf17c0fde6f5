// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Field numbers of the Perfetto messages that Kansoku writes and reads. Source: Perfetto's
// published protobuf schema.
namespace kansoku::trace::schema {

namespace file {
inline constexpr std::uint32_t kPacket = 1;
}
namespace packet {
inline constexpr std::uint32_t kFtraceEvents = 1, kClockSnapshot = 6, kTimestamp = 8,
                               kSequenceId = 10, kTrackEvent = 11, kInternedData = 12,
                               kSequenceFlags = 13, kCompressedPackets = 50, kTimestampClockId = 58,
                               kDefaults = 59, kTrackDescriptor = 60, kPerfSample = 66,
                               kIncrementalStateCleared = 41;
inline constexpr std::uint32_t kFlagCleared = 1, kFlagNeedsState = 2;
}  // namespace packet
namespace defaults {
inline constexpr std::uint32_t kTrackEvent = 11, kTimestampClockId = 58;
inline constexpr std::uint32_t kTrackUuid = 11;  // in TrackEventDefaults
}  // namespace defaults
namespace clock {
inline constexpr std::uint32_t kClocks = 1, kId = 1, kTime = 2, kIsIncremental = 3, kUnitNs = 4;
inline constexpr std::uint64_t kMonotonic = 3, kBoot = 6,
                               kRelative = 64;  // 64 .. 127 are the sequence's own
}  // namespace clock
namespace event {
inline constexpr std::uint32_t kCategoryIds = 3, kAnnotations = 4, kType = 9, kNameId = 10,
                               kTrackUuid = 11, kCategories = 22, kName = 23, kCounterValue = 30,
                               kDoubleCounterValue = 44, kFlowIds = 47;
inline constexpr std::uint64_t kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4;
}  // namespace event
namespace annotation {
inline constexpr std::uint32_t kNameId = 1, kBool = 2, kUint = 3, kInt = 4, kDouble = 5,
                               kString = 6, kName = 10;
}
namespace track {
inline constexpr std::uint32_t kUuid = 1, kName = 2, kProcess = 3, kThread = 4, kParentUuid = 5,
                               kCounter = 8;
inline constexpr std::uint32_t kPid = 1, kCmdline = 2, kProcessName = 6,
                               kLabels = 8;  // ProcessDescriptor
inline constexpr std::uint32_t kThreadPid = 1, kThreadTid = 2, kThreadName = 5;  // ThreadDescriptor
inline constexpr std::uint32_t kUnitName = 6;  // CounterDescriptor
}  // namespace track
namespace interned {
inline constexpr std::uint32_t kCategories = 1, kEventNames = 2, kAnnotationNames = 3,
                               kFunctionNames = 5, kFrames = 6, kCallstacks = 7, kSourcePaths = 18;
inline constexpr std::uint32_t kId = 1, kText = 2;
inline constexpr std::uint32_t kFrameFunction = 2, kFrameSourcePath = 5, kFrameLine = 6,
                               kStackFrames = 2;
}  // namespace interned
namespace sample {
inline constexpr std::uint32_t kCpu = 1, kPid = 2, kTid = 3, kCallstack = 4, kCpuMode = 5;
inline constexpr std::uint64_t kModeUser = 2;
}  // namespace sample
namespace ftrace {
inline constexpr std::uint32_t kCpu = 1, kEvent = 2, kTime = 1, kPid = 2, kSwitch = 4, kWakeup = 17,
                               kWaking = 20;
inline constexpr std::uint32_t kPrevComm = 1, kPrevPid = 2, kPrevPrio = 3, kPrevState = 4,
                               kNextComm = 5, kNextPid = 6, kNextPrio = 7;
inline constexpr std::uint32_t kWokenComm = 1, kWokenPid = 2, kWokenPrio = 3, kWokenSuccess = 4,
                               kWokenCpu = 5;
}  // namespace ftrace

}  // namespace kansoku::trace::schema
