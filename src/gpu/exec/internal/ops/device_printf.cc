// SPDX-License-Identifier: Apache-2.0
// Functions that device code calls and the executor has. vprintf(format, arguments): both are
// generic addresses; the arguments lie at their natural alignment, float as double. Prints lane by
// lane and returns the number of arguments.
// __assertfail(condition, file, line, function, bytes of a character): each lane prints its line.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "gpu/exec/internal/ops/access.h"
#include "gpu/exec/internal/ops/control.h"
#include "gpu/exec/internal/warp_context.h"

namespace kansoku::gpu::exec {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{64} * 1024;  // of one call's output
constexpr std::size_t kSpecBytesMax = 32;

/// Reads what one lane printed. Anything unreadable ends the text there.
class Printer {
 public:
  Printer(const Warp& warp, std::uint32_t lane, std::uint64_t format, std::uint64_t arguments)
      : warp_(warp), lane_(lane), format_(format), arguments_(arguments) {}

  std::string print() {
    char c = 0;
    while (text_.size() < kTextBytesMax && read(format_, c) && c != 0) {
      ++format_;
      if (c != '%') {
        text_ += c;
      } else if (!conversion()) {
        break;
      }
    }
    return std::move(text_);
  }
  /// That conversions have taken, which is what CUDA's printf returns.
  [[nodiscard]] std::uint32_t argument_count() const { return argument_count_; }

 private:
  template <class T>
  bool read(std::uint64_t address, T& value) const {
    const std::byte* const place = place_of_generic(warp_, address, sizeof(T), lane_);
    if (place == nullptr) return false;
    std::memcpy(&value, place, sizeof value);
    return true;
  }
  template <class T>
  bool argument(T& value) {
    arguments_ = (arguments_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    if (!read(arguments_, value)) return false;
    arguments_ += sizeof(T);
    ++argument_count_;
    return true;
  }
  template <class T>
  void add(const std::string& spec, T value) {
    std::array<char, 512> buffer{};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const int length = std::snprintf(buffer.data(), buffer.size(), spec.c_str(), value);
#pragma GCC diagnostic pop
    if (length > 0)
      text_.append(buffer.data(),
                   std::min<std::size_t>(static_cast<std::size_t>(length), buffer.size() - 1));
  }

  bool add_string() {
    std::uint64_t address = 0;
    if (!argument(address)) return false;
    char c = 0;
    while (text_.size() < kTextBytesMax && read(address++, c) && c != 0)
      text_ += c;
    return true;
  }

  /// From after the `%`. Flags, width and precision go to the host's printf as they are, lengths do
  /// not: what was written has the width of its type.
  bool conversion() {
    std::string spec = "%";
    bool is_long = false;
    char c = 0;
    while (read(format_, c) && c != 0 && spec.size() < kSpecBytesMax) {
      ++format_;
      if (c == 'l' || c == 'j' || c == 'z' || c == 't') {
        is_long = true;
      } else if (c == 'h' || c == 'L') {
        continue;
      } else if (std::string_view("-+ #0123456789.").find(c) != std::string_view::npos) {
        spec += c;
      } else {
        return finish(spec, c, is_long);
      }
    }
    return false;
  }

  bool finish(std::string& spec, char conversion, bool is_long) {
    switch (conversion) {
      case '%':
        text_ += '%';
        return true;
      case 's':
        return add_string();
      case 'p': {
        std::uint64_t value = 0;
        if (!argument(value)) return false;
        add("%#lx", static_cast<unsigned long>(value));
        return true;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
      case 'c':
        return add_integer(spec, conversion, is_long);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
      case 'a':
      case 'A': {
        double value = 0;
        if (!argument(value)) return false;
        add(spec + conversion, value);
        return true;
      }
      default:
        return false;
    }
  }

  bool add_integer(const std::string& spec, char conversion, bool is_long) {
    if (is_long) {
      long value = 0;
      if (!argument(value)) return false;
      add(spec + 'l' + conversion, value);
    } else {
      int value = 0;
      if (!argument(value)) return false;
      add(spec + conversion, value);
    }
    return true;
  }

  const Warp& warp_;
  std::uint32_t lane_;
  std::uint64_t format_, arguments_;
  std::uint32_t argument_count_{0};
  std::string text_;
};

/// A text of device memory, of one lane; ends where it cannot be read.
std::string text_at(const Warp& warp, std::uint32_t lane, std::uint64_t address) {
  std::string text;
  while (text.size() < kTextBytesMax) {
    const std::byte* const place = place_of_generic(warp, address++, 1, lane);
    if (place == nullptr || *place == std::byte{0}) break;
    text += static_cast<char>(*place);
  }
  return text;
}

/// Arguments of a call in the frame of one lane.
std::byte* frame_of(const Warp& warp, std::uint32_t lane) {
  return warp.local + std::size_t{lane} * warp.local_stride + warp.frame->local_base;
}
std::uint64_t argument_of(const Warp& warp, std::uint32_t lane,
                          const CompiledFunction::Place& place) {
  std::uint64_t value = 0;
  std::memcpy(&value, frame_of(warp, lane) + place.offset,
              std::min<std::size_t>(place.bytes, sizeof value));
  return value;
}

std::string complaint_of(const Warp& warp, std::uint32_t lane,
                         const CompiledFunction::CallSite& site) {
  const auto text = [&](std::size_t nth) {
    return text_at(warp, lane, argument_of(warp, lane, site.arguments[nth]));
  };
  const auto& block = warp.block->index;
  const auto thread = thread_of(warp, lane);
  return fmt::format("{}:{}: {}: block: [{},{},{}], thread: [{},{},{}] Assertion `{}` failed.\n",
                     text(1), argument_of(warp, lane, site.arguments[2]), text(3), block[0],
                     block[1], block[2], thread[0], thread[1], thread[2], text(0));
}

}  // namespace

/// extra: index into CompiledFunction::calls; two arguments of 8 bytes, one result of 4.
const Code* run_printf(Warp& warp, const Code* code) {
  const LaunchState& launch = *warp.block->launch;
  const CompiledFunction::CallSite& site = warp.frame->function->calls[code->extra];
  for (std::uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const std::uint32_t lane = first_lane_of(rest);
    Printer printer(warp, lane, argument_of(warp, lane, site.arguments[0]),
                    argument_of(warp, lane, site.arguments[1]));
    const std::string text = printer.print();
    if (launch.print != nullptr) launch.print(launch.print_context, text.data(), text.size());
    const std::uint32_t result = printer.argument_count();
    for (const CompiledFunction::Place& own : site.results)
      std::memcpy(frame_of(warp, lane) + own.offset, &result,
                  std::min<std::size_t>(own.bytes, sizeof result));
  }
  return code + 1;
}

/// extra: index into CompiledFunction::calls; the five arguments, no result.
const Code* run_assertion(Warp& warp, const Code* code) {
  const LaunchState& launch = *warp.block->launch;
  const CompiledFunction::CallSite& site = warp.frame->function->calls[code->extra];
  for (std::uint32_t rest = warp.mask; rest != 0 && launch.complain != nullptr; rest &= rest - 1) {
    const std::string text = complaint_of(warp, first_lane_of(rest), site);
    launch.complain(launch.print_context, text.data(), text.size());
  }
  return fail(warp, FaultKind::kAssertion, code);
}

}  // namespace kansoku::gpu::exec
