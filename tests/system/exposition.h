// SPDX-License-Identifier: Apache-2.0
// A scrape as a table of samples, parsed from text format 0.0.4, for tests that look values up.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace nccl_exporter {

using Labels = std::map<std::string, std::string>;

struct Sample {
  std::string name;
  Labels labels;
  double value = 0;
};

class Exposition {
 public:
  // Every line must be understood; a line that is not makes the test fail.
  explicit Exposition(const std::string& text);

  const std::vector<Sample>& samples() const { return samples_; }

  // Samples of that name that carry at least these labels.
  std::vector<Sample> Find(const std::string& name, const Labels& labels = {}) const;
  // The only one; the test fails if there are several. Nothing if there is none.
  std::optional<double> Value(const std::string& name, const Labels& labels = {}) const;

 private:
  std::vector<Sample> samples_;
  std::multimap<std::string, size_t> by_name_;
};

}  // namespace nccl_exporter
