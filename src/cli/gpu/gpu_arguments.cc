// SPDX-License-Identifier: Apache-2.0
#include "cli/gpu/gpu_arguments.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <fstream>

#include "cli/gpu/gpu_image.h"
#include "common/parse.h"
#include "common/rng.h"
#include "sys/fd.h"

namespace kansoku::cli {
namespace {

constexpr std::size_t kShownMax = 1000;

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

Error bad_argument(std::string_view text) {
  return Error{Code::kCorrupt, fmt::format("argument {}: not understood", text),
               "i32:7 u64:7 f32:1.5 f64:1.5 zero:4K random:4K file:PATH; >PATH after a buffer "
               "saves its bytes"};
}

Result<GpuArgument> parse_number(std::string_view kind, const std::string& value,
                                 std::string_view text) {
  GpuArgument argument;
  const auto integer = [&](auto zero) {
    const auto number = parse_int<decltype(zero)>(value);
    if (number) argument.bytes = bytes_of(*number);
    return number.has_value();
  };
  bool is_good = false;
  if (kind == "i32") is_good = integer(std::int32_t{0});
  if (kind == "u32") is_good = integer(std::uint32_t{0});
  if (kind == "i64") is_good = integer(std::int64_t{0});
  if (kind == "u64") is_good = integer(std::uint64_t{0});
  if (kind == "f32" || kind == "f64") {
    double number = 0;
    const char* const end = value.data() + value.size();
    const auto [stop, problem] = std::from_chars(value.data(), end, number);
    is_good = problem == std::errc{} && stop == end;
    argument.bytes = kind == "f32" ? bytes_of(static_cast<float>(number)) : bytes_of(number);
  }
  if (!is_good) return bad_argument(text);
  return argument;
}

}  // namespace

Result<GpuArgument> parse_gpu_argument(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return bad_argument(text);
  const std::string_view kind = text.substr(0, colon);
  std::string_view value = text.substr(colon + 1);
  GpuArgument argument;
  if (kind != "zero" && kind != "random" && kind != "file")
    return parse_number(kind, std::string(value), text);
  argument.is_buffer = true;
  if (const std::size_t arrow = value.find('>'); arrow != std::string_view::npos) {
    argument.output = value.substr(arrow + 1);
    value = value.substr(0, arrow);
  }
  if (kind == "file") {
    TRY(argument.bytes, sys::read_file(std::string(value), kGpuFileBytesMax));
  } else {
    const auto bytes = parse_bytes(value);
    if (!bytes || *bytes == 0 || *bytes > kGpuFileBytesMax) return bad_argument(text);
    argument.bytes.assign(*bytes, '\0');
  }
  if (argument.bytes.empty()) return bad_argument(text);
  if (kind == "random") {
    Rng rng(1);  // single-precision numbers below 1, the same every time
    for (std::size_t at = 0; at + sizeof(float) <= argument.bytes.size(); at += sizeof(float)) {
      const auto number = static_cast<float>(rng.uniform());
      std::memcpy(argument.bytes.data() + at, &number, sizeof number);
    }
  }
  return argument;
}

std::vector<cuda::KernelInfo::Parameter> declared_parameters(const gpu::ptx::Function& kernel) {
  std::vector<cuda::KernelInfo::Parameter> parameters;
  std::size_t end = 0;
  for (const gpu::ptx::Variable& param : kernel.params) {
    const std::size_t align = param.alignment();
    const std::size_t offset = (end + align - 1) / align * align;
    parameters.push_back({offset, static_cast<std::size_t>(param.bytes())});
    end = offset + parameters.back().bytes;
  }
  return parameters;
}

Result<cuda::KernelArguments> lay_out_arguments(
    std::string_view kernel, std::span<const cuda::KernelInfo::Parameter> parameters,
    std::span<const GpuArgument> arguments) {
  if (arguments.size() != parameters.size()) {
    return Error{Code::kCorrupt, fmt::format("kernel {} takes {} arguments, {} are given", kernel,
                                             parameters.size(), arguments.size())};
  }
  cuda::KernelArguments laid_out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string bytes =
        arguments[i].is_buffer ? bytes_of(arguments[i].address) : arguments[i].bytes;
    if (bytes.size() != parameters[i].bytes) {
      return Error{Code::kCorrupt,
                   fmt::format("argument {} of kernel {} has {} bytes, {} are given", i, kernel,
                               parameters[i].bytes, bytes.size())};
    }
    if (!laid_out.add_bytes(as_bytes(bytes), parameters[i].offset)) {
      return Error{Code::kCorrupt,
                   fmt::format("parameter {} of kernel {} lies within another one", i, kernel)};
    }
  }
  return laid_out;
}

Result<GpuShown> parse_gpu_shown(std::string_view text, std::span<const GpuArgument> arguments) {
  GpuShown shown;
  const std::size_t colon = text.find(':');
  const auto index = parse_int<std::size_t>(text.substr(0, colon));
  bool is_good = index && *index < arguments.size() && arguments[*index].is_buffer;
  if (is_good) shown.argument = *index;
  if (colon != std::string_view::npos) {
    const std::string_view rest = text.substr(colon + 1);
    const std::size_t second = rest.find(':');
    shown.type = rest.substr(0, second);
    if (second != std::string_view::npos) {
      const auto count = parse_int<std::size_t>(rest.substr(second + 1));
      is_good = is_good && count && *count <= kShownMax;
      shown.count = count.value_or(0);
    }
  }
  const bool is_type =
      shown.type == "f32" || shown.type == "i32" || shown.type == "u32" || shown.type == "f64";
  if (is_good && is_type) return shown;
  return Error{Code::kCorrupt, fmt::format("show {}: not understood", text),
               "give the number of a buffer argument, from 0: 2 or 2:i32 or 2:f32:16"};
}

std::vector<double> numbers_of(const GpuArgument& argument, const GpuShown& shown) {
  const std::size_t size = shown.type == "f64" ? 8 : 4;
  std::vector<double> numbers;
  for (std::size_t i = 0; i < shown.count && (i + 1) * size <= argument.bytes.size(); ++i) {
    const auto value = [&](auto zero) {
      std::memcpy(&zero, argument.bytes.data() + i * size, sizeof zero);
      return static_cast<double>(zero);
    };
    if (shown.type == "f32") numbers.push_back(value(0.0F));
    if (shown.type == "f64") numbers.push_back(value(0.0));
    if (shown.type == "i32") numbers.push_back(value(std::int32_t{0}));
    if (shown.type == "u32") numbers.push_back(value(std::uint32_t{0}));
  }
  return numbers;
}

Result<void> keep_buffers(std::span<const GpuArgument> arguments) {
  for (const GpuArgument& argument : arguments) {
    if (argument.output.empty()) continue;
    std::ofstream file(argument.output, std::ios::binary);
    file.write(argument.bytes.data(), static_cast<std::streamsize>(argument.bytes.size()));
    if (!file) return Error{Code::kPermission, fmt::format("write {}: failed", argument.output)};
  }
  return {};
}

}  // namespace kansoku::cli
