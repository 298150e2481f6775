// SPDX-License-Identifier: Apache-2.0
// The last line that the plugin wrote to NCCL's log.
#include <fmt/format.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "exporter/cli/doctor/checks.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

constexpr std::string_view kInfo = "NCCL INFO nccl-exporter", kWarning = "NCCL WARN nccl-exporter";

// A second of reading. The plugin writes when the first communicator is made, so its lines are near
// the beginning, even if the file has everything else that the job prints.
constexpr size_t kLogBytes = 256 << 20;
constexpr size_t kPieceBytes = 1 << 20;
// The plugin's lines have a path and some words. More of a line is not shown.
constexpr size_t kLineBytes = 1024;

// The last line in `text` that begins with the plugin's name after NCCL's prefix, from there on;
// empty if there is none.
std::string_view LastLine(std::string_view text) {
  const auto last_of = [&](std::string_view beginning) {
    const size_t at = text.rfind(beginning);
    return at == std::string_view::npos ? size_t{0} : at + 1;
  };
  const size_t after = std::max(last_of(kInfo), last_of(kWarning));
  if (after == 0) return {};
  const std::string_view line = text.substr(after - 1, kLineBytes);
  return line.substr(0, line.find('\n'));
}

// Reads piece by piece, of which each begins with the end of the one before.
std::string LastLineOfFile(int file) {
  std::string piece, last;
  for (size_t offset = 0; offset < kLogBytes;) {
    piece.erase(0, piece.size() - std::min(piece.size(), kLineBytes));
    const size_t kept = piece.size();
    piece.resize(kept + kPieceBytes);
    const ssize_t size =
        ::pread(file, piece.data() + kept, kPieceBytes, static_cast<off_t>(offset));
    if (size <= 0) break;
    piece.resize(kept + static_cast<size_t>(size));
    offset += static_cast<size_t>(size);
    if (const std::string_view line = LastLine(piece); !line.empty()) last = line;
  }
  return last;
}

bool IsLevel(const std::string& level, std::initializer_list<const char*> levels) {
  return std::ranges::any_of(
      levels, [&](const char* one) { return ::strcasecmp(level.c_str(), one) == 0; });
}

}  // namespace

std::string NcclLogPath(const std::string& pattern, const std::string& host, uint64_t pid) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    switch (const char code = pattern[++i]) {
      case '%':
        path += '%';
        break;
      case 'h':
        path += host.substr(0, host.find('.'));
        break;
      case 'p':
        path += std::to_string(pid);
        break;
      default:
        path += {'%', code};
    }
  }
  return path;
}

Check CheckPluginLog(const Environment& environment, const SeenPath& path,
                     const std::string& name) {
  Check check{.what = "last line of the plugin", .detail = {}, .change = {}};
  const auto level = environment.find("NCCL_DEBUG");
  const bool has_level = level != environment.end() && !IsLevel(level->second, {"", "VERSION"});
  if (!has_level || !IsLevel(level->second, {"INFO", "ABORT", "TRACE"}))
    check.change = "NCCL_DEBUG=INFO in the job's environment shows all of its lines";
  if (!has_level) {
    check.detail = "none: NCCL logs nothing without NCCL_DEBUG";
    return check;
  }
  std::string fault;
  const OpenedFile file = OpenRegular(path, fault);
  const std::string line = file.is_open() ? LastLineOfFile(file.number()) : "";
  if (!line.empty()) {
    check.detail = Printable(line) + ", in " + Printable(name);
    if (line.starts_with(kWarning)) check.verdict = Verdict::kWarn;
  } else if (file.is_open()) {
    check.verdict = Verdict::kWarn;
    check.detail = "none in " + Printable(name);
  } else if (Find(path).is_open()) {
    check.detail = fmt::format(
        "the plugin logs to {}, which cannot be read again: look there for "
        "nccl-exporter",
        Printable(name));
  } else {
    check.verdict = Verdict::kWarn;
    check.detail = fmt::format("the plugin logs to {}: {}", Printable(name), fault);
  }
  return check;
}

}  // namespace nccl_exporter::exporter
