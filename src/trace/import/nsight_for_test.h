// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kansoku::trace::import {

/// The tables of an export as nsys 2024 declares them, without rows and without the columns that
/// nothing reads.
inline constexpr std::string_view kNsightSchemaForTest = R"(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,
  blockY INTEGER, blockZ INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  value INTEGER, bytes INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  syncType INTEGER NOT NULL, eventId INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, graphId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER NOT NULL);
)";

/// One training step of process 4711 = 0x1267 on GPU 0: 79037464580 is its thread 4, 79037464576
/// its serialized process.
inline constexpr std::string_view kNsightRowsForTest = R"(
INSERT INTO StringIds VALUES (1, 'void gemm<float>(float*)'), (2, 'gemm'),
  (3, 'cudaLaunchKernel_v7000'), (4, 'step 1'), (5, 'pthread_cond_wait'), (6, 'pt_main_thread'),
  (7, 'cuMemcpyHtoD_v2'), (8, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL');
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1000000, 'x', 'y');
INSERT INTO ThreadNames VALUES (6, 0, 79037464580), (5, 0, 5);
INSERT INTO PROCESSES VALUES (79037464576, 4711, '/usr/bin/python3');
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
  (200, 260, 0, 1, 7, 41, 79037464576, 1, 2, 16, 2, 1, 128, 1, 1),
  (270, 300, 0, 1, 20, 42, 79037464576, 8, 8, 8, 1, 1, 512, 1, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (150, 190, 0, 7, 40, 79037464576, 4096, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (191, 195, 0, 7, 39, 79037464576, 0, 512);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (300, 310, 0, 7, 43, 79037464576, 3, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (320, 330, 0, 7, 44, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (120, 125, 0, 79037464580, 41, 3),
  (130, 140, 1, 79037464580, 40, 7);
INSERT INTO NVTX_EVENTS VALUES (100, 350, 59, 'forward', 79037464580, NULL, 0),
  (101, NULL, 34, NULL, 79037464580, 4, 0), (340, NULL, 60, 'tail', 79037464580, NULL, 0),
  (0, NULL, 75, 'a domain', 79037464580, NULL, 0);
INSERT INTO OSRT_API VALUES (141, 149, 79037464580, 0, 5);
)";

/// The bytes of a database file that `sql` fills; aborts on bad SQL.
[[nodiscard]] std::string sqlite_file_for_test(std::string_view sql);

/// An export whose StringIds is a tree of three levels, each of whose pages refers 120 times to the
/// one page below it: some 1.7 million times the rows that it has.
[[nodiscard]] std::string pages_in_circles_for_test();

}  // namespace kansoku::trace::import
