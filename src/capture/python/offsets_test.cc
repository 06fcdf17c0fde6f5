// SPDX-License-Identifier: Apache-2.0
#include "capture/python/offsets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "capture/python/internal/image_for_test.h"
#include "common/parse.h"

namespace kansoku::capture::python {
namespace {

using ::testing::HasSubstr;

std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 4096> buffer{};
  for (std::size_t got = 1; got > 0;) {
    got = std::fread(buffer.data(), 1, buffer.size(), pipe);
    text.append(buffer.data(), got);
  }
  return ::pclose(pipe) == 0 ? text : std::string();
}

std::map<std::string, std::int64_t> parse_pairs(const std::string& text) {
  std::map<std::string, std::int64_t> pairs;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const std::size_t blank = line.find(' ');
    const auto value = parse_int<std::int64_t>(std::string_view(line).substr(blank + 1));
    if (value) pairs[line.substr(0, blank)] = *value;
    at = end + 1;
  }
  return pairs;
}

/// Folders with the internal headers of 3.`minor`.
std::vector<std::string> header_folders(std::int32_t minor) {
  std::vector<std::string> folders{fmt::format("/usr/include/python3.{}", minor),
                                   fmt::format("/usr/local/include/python3.{}", minor)};
  const char* home = std::getenv("HOME");
  const std::string versions = std::string(home == nullptr ? "" : home) + "/.pyenv/versions";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(versions, error)) {
    folders.push_back(entry.path().string() + fmt::format("/include/python3.{}", minor));
  }
  std::erase_if(folders, [](const std::string& folder) {
    return !std::filesystem::exists(folder + "/internal");
  });
  return folders;
}

class OffsetsOfHeaders : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(OffsetsOfHeaders, EqualTheTable) {
  const std::int32_t minor = GetParam();
  const auto folders = header_folders(minor);
  if (folders.empty()) GTEST_SKIP() << "no internal headers of Python 3." << minor;
  if (output_of("command -v cc").empty()) GTEST_SKIP() << "no C compiler";
  for (const std::string& folder : folders) {
    const std::string program =
        fmt::format("{}/kansoku_offsets_{}_{}", std::filesystem::temp_directory_path().string(),
                    ::getpid(), minor);
    const std::string source = std::string(KANSOKU_SOURCE_DIR) + "/tools/print_python_offsets.c";
    const std::string printed = output_of(
        fmt::format("cc -I{} {} -o {} && {}; rm -f {}", folder, source, program, program, program));
    const auto offsets = parse_pairs(printed);
    ASSERT_EQ(offsets.size(), kLayoutFields.size() + 1) << folder << ": " << printed;
    for (const LayoutField& field : kLayoutFields) {
      EXPECT_EQ(static_layout(minor)->*field.member, offsets.at(std::string(field.name)))
          << field.name << " of " << folder;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Python3, OffsetsOfHeaders, ::testing::Values(8, 9, 10, 11, 12));

TEST(StaticLayout, ExistsUpTo312) {
  EXPECT_EQ(static_layout(7), nullptr);
  for (std::int32_t minor = 8; minor <= 12; ++minor)
    ASSERT_NE(static_layout(minor), nullptr);
  EXPECT_EQ(static_layout(13), nullptr);
}

TEST(DebugOffsets, AreReadFor313And314) {
  const Layout l13 = layout_for_test(13);
  EXPECT_EQ(l13.runtime_interpreters_head, 632);
  EXPECT_EQ(l13.interpreter_threads_head, 7344);
  EXPECT_EQ(l13.gil_locked, 16);
  EXPECT_EQ(l13.gil_holder, 8);
  EXPECT_EQ(l13.thread_native_id, 160);
  EXPECT_EQ(l13.frame_owner, 70);
  EXPECT_EQ(l13.code_bytes, 200);
  EXPECT_EQ(l13.string_ascii_data, 40);
  EXPECT_EQ(l13.string_compact_data, 56);
  const Layout l14 = layout_for_test(14);
  EXPECT_EQ(l14.interpreter_gil, 16);
  EXPECT_EQ(l14.gil_locked, 16);
  EXPECT_EQ(l14.thread_frame, 72);
  EXPECT_EQ(l14.frame_owner, 74);
  EXPECT_EQ(l14.code_first_line, 68);
  EXPECT_EQ(l14.bytes_data, 32);
}

TEST(DebugOffsets, RefuseOtherCookieVersionAndThreading) {
  std::string block = debug_offsets_for_test(13);
  const auto refused = [](const std::string& bytes, std::int32_t minor) {
    const auto layout = parse_debug_offsets(as_bytes(bytes), minor);
    EXPECT_FALSE(layout);
    EXPECT_EQ(layout ? Code::kInternal : layout.error().code, Code::kUnsupported);
    return layout ? std::string() : layout.error().what;
  };
  EXPECT_THAT(refused("xdebugpx" + block.substr(8), 13), HasSubstr("cookie"));
  EXPECT_THAT(refused(block, 14), HasSubstr("version"));
  std::string threaded = block;
  threaded[16] = 1;
  EXPECT_THAT(refused(threaded, 13), HasSubstr("free-threaded"));
  EXPECT_THAT(refused("", 13), HasSubstr("cookie"));
}

TEST(DebugOffsets, RefuseEveryCutAndEveryOffsetBeyondItsStructure) {
  const std::string block = debug_offsets_for_test(13);
  const std::size_t needed = block.size() - 16;  // the last group, gc, is not read
  for (std::size_t length = 0; length < needed; ++length) {
    EXPECT_FALSE(parse_debug_offsets(as_bytes(block.substr(0, length)), 13)) << length;
  }
  EXPECT_TRUE(parse_debug_offsets(as_bytes(block.substr(0, needed)), 13));
  std::string beyond = block;
  beyond[8 + 8 + 8 + 16] = '\xff';  // interpreters_head 632 -> 767: still inside
  EXPECT_TRUE(parse_debug_offsets(as_bytes(beyond), 13));
  beyond[8 + 8 + 8 + 16 + 3] = '\x7f';  // -> 2 G
  EXPECT_FALSE(parse_debug_offsets(as_bytes(beyond), 13));
}

}  // namespace
}  // namespace kansoku::capture::python
