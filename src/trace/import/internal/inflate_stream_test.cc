// SPDX-License-Identifier: Apache-2.0
#include "trace/import/internal/inflate_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/rng.h"
#include "trace/import/files_for_test.h"

namespace kansoku::trace::import {
namespace {

using ::testing::HasSubstr;

/// All pieces put together.
Result<std::string> inflated(std::string_view file) {
  TRY(auto stream, InflateStream::open(as_bytes(file)));
  std::string out;
  for (;;) {
    TRY(const std::string_view piece, stream.next());
    if (piece.empty()) return out;
    CHECK(piece.size() <= InflateStream::kPieceBytes);
    out += piece;
  }
}

std::string random_text(std::size_t size) {
  Rng rng(7);
  std::string text(size, ' ');
  for (char& c : text)
    c = static_cast<char>('a' + rng.below(16));
  return text;
}

TEST(InflateStream, PlainBytesPassThrough) {
  EXPECT_EQ(inflated("").value(), "");
  EXPECT_EQ(inflated("\x1f").value(), "\x1f");
  EXPECT_EQ(inflated("plain").value(), "plain");
  const std::string large = random_text(2 * InflateStream::kPieceBytes + 1);
  EXPECT_EQ(inflated(large).value(), large);
}

// Lengths around the piece: the end of the data then falls on the end of a piece.
TEST(InflateStream, InflatesEveryLength) {
  constexpr std::size_t kPiece = InflateStream::kPieceBytes;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kPiece - 1, kPiece, kPiece + 1,
                                 2 * kPiece, 3 * kPiece + 17}) {
    const std::string text = random_text(size);
    EXPECT_EQ(inflated(gzip(text)).value(), text) << size;
    EXPECT_EQ(inflated(gzip(text, 0)).value(), text) << size;
  }
}

TEST(InflateStream, MembersInARowAreOneText) {
  EXPECT_EQ(inflated(gzip("one ") + gzip("") + gzip("two")).value(), "one two");
  const std::string piece = random_text(InflateStream::kPieceBytes);
  EXPECT_EQ(inflated(gzip(piece) + gzip("x")).value(), piece + "x");
  EXPECT_EQ(inflated(gzip("one") + std::string(512, '\0')).value(), "one");  // tape padding
}

TEST(InflateStream, TruncationIsToldAtEveryByte) {
  const std::string file = gzip("a small text that is cut off");
  for (std::size_t size = 2; size < file.size(); ++size) {
    const auto out = inflated(std::string_view(file).substr(0, size));
    ASSERT_FALSE(out.has_value()) << size;
    EXPECT_EQ(out.error().code, Code::kCorrupt);
    EXPECT_THAT(out.error().what, HasSubstr("inflate at offset " + std::to_string(size)));
    EXPECT_THAT(out.error().what, HasSubstr("ends inside"));
  }
}

// gzip ends with a sum over the text: a flipped bit gives an error, or (in the header's time and
// system) no change, but never another text.
TEST(InflateStream, FlippedBitsNeverGiveAnotherText) {
  const std::string text = "a small text with one bit flipped, flipped, flipped";
  const std::string file = gzip(text);
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string bent = file;
    bent[bit / 8] = static_cast<char>(bent[bit / 8] ^ (1 << (bit % 8)));
    if (bit < 16) continue;  // then it is no gzip file
    const auto out = inflated(bent);
    if (out) {
      EXPECT_EQ(*out, text) << "bit " << bit;
    } else {
      EXPECT_EQ(out.error().code, Code::kCorrupt);
      ++refused;
    }
  }
  EXPECT_GT(refused, 7 * (file.size() - 10));
}

// 1000 : 1. The memory held stays one piece, however large the inflated file.
TEST(InflateStream, ABombComesInPieces) {
  const std::string file = gzip(std::string(std::size_t{64} << 20, ' '));
  ASSERT_LT(file.size(), 80'000U);
  auto stream = InflateStream::open(as_bytes(file));
  ASSERT_TRUE(stream.has_value());
  std::size_t pieces = 0, bytes = 0;
  const char* where = nullptr;
  for (;;) {
    const auto piece = stream->next();
    ASSERT_TRUE(piece.has_value());
    if (piece->empty()) break;
    EXPECT_LE(piece->size(), InflateStream::kPieceBytes);
    EXPECT_TRUE(where == nullptr || where == piece->data());  // the same memory again
    where = piece->data();
    ++pieces;
    bytes += piece->size();
  }
  EXPECT_EQ(bytes, std::size_t{64} << 20);
  EXPECT_EQ(pieces, 64U);
}

}  // namespace
}  // namespace kansoku::trace::import
