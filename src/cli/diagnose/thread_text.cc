// SPDX-License-Identifier: Apache-2.0
#include "cli/diagnose/thread_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "cli/wiring.h"
#include "common/python_code.h"
#include "common/text.h"

namespace kansoku::cli {
namespace {

using capture::hang::FrameText;
using capture::hang::ThreadText;

constexpr std::size_t kFramesShown = 12;
constexpr std::size_t kNameShown = 100;  // characters; templates have thousands

std::string hang_frame_text(const FrameText& frame) {
  std::string name = frame.function.empty() ? std::string("?") : frame.function;
  if (name.size() > kNameShown) name.replace(kNameShown, std::string::npos, "...");
  return frame.line > 0 ? fmt::format("    {} ({}:{})", name, frame.file, frame.line)
                        : fmt::format("    {} [{}]{}", name, base_name(frame.file),
                                      frame.is_guessed ? " guessed" : "");
}

std::string_view word_of_state(char state) {
  switch (state) {
    case 'R':
      return "runs";
    case 'S':
      return "sleeps";
    case 'D':
      return "waits for a device";
    case 'T':
    case 't':
      return "is stopped";
    default:
      return "is";
  }
}

/// The frames within the interpreter are the Python frames, once more.
std::vector<FrameText> without_interpreter(std::vector<FrameText> frames) {
  const auto is_interpreter = [](const FrameText& frame) {
    const std::string_view file = base_name(frame.file);
    return file.starts_with("python3") || file.starts_with("libpython3");
  };
  frames.erase(std::find_if(frames.begin(), frames.end(), is_interpreter), frames.end());
  return frames;
}

}  // namespace

std::string process_text(std::int32_t rank, std::int32_t pid) {
  return rank < 0 ? fmt::format("process {}", pid) : fmt::format("rank {} (process {})", rank, pid);
}

void print_frames(const std::vector<FrameText>& frames) {
  const auto own = std::find_if(frames.begin(), frames.end(), [](const FrameText& frame) {
    return frame.line > 0 && is_own_python_file(frame.file);
  });
  std::size_t shown = 0;
  for (auto frame = frames.begin(); frame != frames.end(); ++frame) {
    const bool is_marked = frame == own && own != frames.begin();
    if (shown >= kFramesShown && !is_marked) continue;
    ++shown;
    say(stdout, hang_frame_text(*frame) + (is_marked ? "  <- the program's own code" : ""));
  }
  if (frames.size() > shown) say(stdout, fmt::format("    and {} more", frames.size() - shown));
}

Json frames_json(const std::vector<FrameText>& frames, bool is_native) {
  Json out = Json::array();
  for (const FrameText& frame : frames) {
    Json one = Json::object();
    one.set("function", frame.function).set("file", frame.file);
    if (is_native)
      one.set("guessed", frame.is_guessed);
    else
      one.set("line", frame.line);
    out.push(std::move(one));
  }
  return out;
}

void print_threads(const std::vector<ThreadText>& threads) {
  for (const ThreadText& thread : threads) {
    say(stdout, thread.call.empty()
                    ? fmt::format("  thread {} {} here:", thread.tid, word_of_state(thread.state))
                    : fmt::format("  thread {} waits in {} for {:.1f} s", thread.tid, thread.call,
                                  thread.seconds));
    print_frames(thread.python);
    print_frames(thread.python.empty() ? thread.native : without_interpreter(thread.native));
  }
}

Json threads_json(const std::vector<ThreadText>& threads) {
  Json out = Json::array();
  for (const ThreadText& thread : threads)
    out.push(Json::object()
                 .set("thread", thread.tid)
                 .set("call", thread.call)
                 .set("seconds", thread.call.empty() ? Json() : Json(thread.seconds))
                 .set("python", frames_json(thread.python, false))
                 .set("native", frames_json(thread.native, true)));
  return out;
}

}  // namespace kansoku::cli
