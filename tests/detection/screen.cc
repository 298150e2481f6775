// SPDX-License-Identifier: Apache-2.0
#include "tests/detection/screen.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <regex>
#include <sstream>

namespace nccl_exporter::detection {
namespace {

// The lines between the head and the first empty one, as one.
std::string FindingsOf(const std::string& screen) {
  std::istringstream lines(screen);
  std::string line, text;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.find_first_not_of(' ') != std::string::npos)
    text += line + ' ';
  return text;
}

bool Names(const std::string& text, const std::string& culprit) {
  const size_t at = text.find(culprit);
  return at != std::string::npos && at + culprit.size() < text.size() &&
         std::isdigit(static_cast<unsigned char>(text[at + culprit.size()])) == 0;
}

std::string JoinedBy(const std::string& separator, const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

// The name by which the daemon found the expected rank. A killed process is found without a
// communicator, and named by its rank in the job.
std::optional<std::string> NameOf(const Screen& screen, const Directory& directory) {
  for (const auto& [key, name] : screen.culprits) {
    if (key.first.empty() && name == "global rank " + std::to_string(screen.expected_rank))
      return name;
    const auto found = directory.global_ranks.find(key);
    if (found != directory.global_ranks.end() && found->second == screen.expected_rank) return name;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> LacksOf(const std::string& screen, const std::string& culprit) {
  const std::string findings = FindingsOf(screen);
  const size_t cost = std::min(findings.find("Cost: "), findings.size());
  const std::string about_cost = findings.substr(cost);
  std::vector<std::string> lacks;
  if (!Names(findings.substr(0, cost), culprit)) lacks.emplace_back("rank");
  static const std::regex kAge(R"(since \d\d:\d\d:\d\d UTC \(\d+(\.\d+)? (us|ms|s|min|h)\)\.)");
  if (!std::regex_search(about_cost, kAge)) lacks.emplace_back("age");
  static const std::regex kCost(
      R"(^Cost: (waiting costs (less than )?\d+\.\d GPUs of \d+ |\d+ of \d+ (GPUs?|process(es)?) ))");
  if (!std::regex_search(about_cost, kCost)) lacks.emplace_back("cost");
  return lacks;
}

void JudgeScreens(std::vector<Screen>& screens, const Directory& directory, Verdict& verdict) {
  for (Screen& screen : screens) {
    const std::optional<std::string> name = NameOf(screen, directory);
    if (!name) continue;
    screen.is_asked = true;
    screen.lacks = LacksOf(screen.text, *name);
    ClassVerdict& counts = verdict.classes[screen.size.Class()];
    ++counts.expected;
    if (screen.lacks.empty()) {
      ++counts.met;
      continue;
    }
    verdict.complaints.push_back("missed: " + screen.size.Class() + " (" + screen.moment +
                                 ") lacks " + JoinedBy(", ", screen.lacks) + " of " + *name);
  }
}

}  // namespace nccl_exporter::detection
