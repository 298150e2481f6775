// SPDX-License-Identifier: Apache-2.0
#include "tests/system/exposition.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

namespace nccl_exporter {
namespace {

// Reads a quoted label value that begins at `at`, behind the quote; leaves `at` behind the closing
// one.
std::string ReadQuoted(const std::string& line, size_t* at) {
  std::string value;
  for (; *at < line.size() && line[*at] != '"'; ++*at) {
    if (line[*at] != '\\') {
      value += line[*at];
    } else {
      const char escaped = line[++*at];
      value += escaped == 'n' ? '\n' : escaped;
    }
  }
  ++*at;
  return value;
}

bool ReadSample(const std::string& line, Sample* sample) {
  size_t at = line.find_first_of("{ ");
  if (at == std::string::npos) return false;
  sample->name = line.substr(0, at);
  if (line[at] == '{') {
    ++at;
    while (at < line.size() && line[at] != '}') {
      const size_t equals = line.find("=\"", at);
      if (equals == std::string::npos) return false;
      const std::string key = line.substr(at, equals - at);
      at = equals + 2;
      if (!sample->labels.emplace(key, ReadQuoted(line, &at)).second) return false;
      if (at < line.size() && line[at] == ',') ++at;
    }
    ++at;
  }
  if (at >= line.size() || line[at] != ' ') return false;
  char* end = nullptr;
  sample->value = std::strtod(line.c_str() + at, &end);
  return *end == '\0' && end != line.c_str() + at;
}

}  // namespace

Exposition::Exposition(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    Sample sample;
    if (!ReadSample(line, &sample)) {
      ADD_FAILURE() << "not a sample: " << line;
      continue;
    }
    by_name_.emplace(sample.name, samples_.size());
    samples_.push_back(std::move(sample));
  }
}

std::vector<Sample> Exposition::Find(const std::string& name, const Labels& labels) const {
  std::vector<Sample> found;
  const auto [begin, end] = by_name_.equal_range(name);
  for (auto it = begin; it != end; ++it) {
    const Sample& sample = samples_[it->second];
    bool fits = true;
    for (const auto& [key, value] : labels) {
      const auto own = sample.labels.find(key);
      fits = fits && (own == sample.labels.end() ? std::string() : own->second) == value;
    }
    if (fits) found.push_back(sample);
  }
  return found;
}

std::optional<double> Exposition::Value(const std::string& name, const Labels& labels) const {
  const std::vector<Sample> found = Find(name, labels);
  EXPECT_LE(found.size(), 1u) << "several samples of " << name;
  return found.empty() ? std::nullopt : std::optional(found.front().value);
}

}  // namespace nccl_exporter
