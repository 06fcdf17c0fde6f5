# SPDX-License-Identifier: Apache-2.0
"""Writes timelines as `nsys export --type sqlite` does; after the published schema."""
import os
import sqlite3

TABLES = """
CREATE TABLE StringIds(id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT(name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_GPU(vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, smCount INTEGER, uuid TEXT);
CREATE TABLE PROCESSES(globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames(nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL,
  gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
  srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);
CREATE TABLE NVTX_EVENTS(start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER,
  text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
"""
RANGE = 59  # NvtxPushPopRange
TO_DEVICE, TO_HOST, PAGEABLE, PINNED, ON_DEVICE = 1, 2, 0, 1, 2


class Export:
    """One file of the processes `ranks`."""

    def __init__(self, path, ranks, has_ranges=True):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.file, self.ids = sqlite3.connect(path), {}
        self.file.executescript(TABLES)
        self.insert("META_DATA_EXPORT", "EXPORT_SCHEMA_VERSION", "3.13.1")
        for rank in ranks:
            self.process(rank)
            for event in rank.events:
                self.event(rank, event, has_ranges)
        self.file.commit()
        self.file.close()

    def insert(self, table, *row):
        self.file.execute(f"INSERT INTO {table} VALUES({','.join('?' * len(row))})", row)

    def text(self, text):
        if text not in self.ids:
            self.ids[text] = len(self.ids) + 1
            self.insert("StringIds", self.ids[text], text)
        return self.ids[text]

    def process(self, rank):
        self.insert("PROCESSES", rank.pid << 24, rank.pid, "/opt/conda/bin/python3.11")
        self.insert("ThreadNames", self.text("python3.11"), 10, rank.pid << 24 | rank.thread)
        self.insert("TARGET_INFO_GPU", 0, rank.device, rank.vendor.device, f"0000:{rank.rank + 1:02x}:00.0", 132, f"GPU-{rank.rank:08x}")

    def event(self, rank, event, has_ranges):
        begin, end, process = round(event.begin * 1000), round((event.begin + event.us) * 1000), rank.pid << 24
        more, thread = event.more, process | (event.lane & 0xffffff)
        if event.kind == "call":
            self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", begin, end, 0, thread, more["correlation"], self.text(event.name + "_v7000"), 0, None)
        elif event.kind == "kernel":
            short = event.name.split("(")[0].split("<")[0].split("::")[-1].removeprefix("void ") or event.name
            self.insert("CUPTI_ACTIVITY_KIND_KERNEL", begin, end, rank.device, 1, None, event.lane, more["correlation"], process,
                        self.text(event.name), self.text(short), None, None, 0, 168, *more["grid"], 128, 1, 1, 98304, 0, more.get("node"))
        elif event.kind == "copy":
            to_device = "HtoD" in event.name
            host = PAGEABLE if "Pageable" in event.name else PINNED
            self.insert("CUPTI_ACTIVITY_KIND_MEMCPY", begin, end, rank.device, 1, None, event.lane, more["correlation"], process, more["bytes"],
                        TO_DEVICE if to_device else TO_HOST, *((host, ON_DEVICE) if to_device else (ON_DEVICE, host)), None)
        elif event.kind == "range" and has_ranges:
            self.insert("NVTX_EVENTS", begin, end, RANGE, None, None, None, event.name.replace("ProfilerStep#", "step "), thread, None, None, 0)
