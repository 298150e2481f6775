// SPDX-License-Identifier: Apache-2.0
// Parity of the rules and of the daemon's judge: both judge the same book of a played job, the
// rules as series through promtool. They must name the same ranks in the same evaluations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exporter/ledger/book.h"
#include "tests/detection/rule_set.h"

namespace nccl_exporter::detection {

// Alerts that are compared: those that name a rank.
enum class NamedFor { kLate, kHang, kCount };
inline constexpr size_t kNamedForCount = static_cast<size_t>(NamedFor::kCount);

// Those that an evaluation names: PID and GPU.
using NamedProcesses = std::set<std::pair<std::string, std::string>>;

struct ParityResult {
  size_t evaluations = 0;
  size_t differing = 0;  // an evaluation counts once for each NamedFor
  // One line for each way in which they differ: whom the rules name, whom the judge names, in how
  // many evaluations, and when first.
  std::vector<std::string> differences = {};
};

// The alert series and the judgement of one book after the other. For one thread at a time.
class ParityRecord {
 public:
  // `time_scale` divides all durations, as RuleSet::time_scale.
  explicit ParityRecord(double time_scale);
  ~ParityRecord();

  // Takes the books of one node, at the times 0, 1, 2 ... of steps of the judge. Every
  // kStepsPerEvaluation-th is evaluated. If a step is passed over, the machine was too busy, and
  // nothing after it is compared.
  void Take(std::shared_ptr<const collector::NodeSnapshot> node, int64_t step);
  static constexpr int kStepsPerEvaluation = 3;
  double step_seconds() const;
  // Those that the judge named in any evaluation.
  NamedProcesses EverNamed(NamedFor named_for) const;

  // Lets promtool evaluate the rules in `rules`, with a file in `scratch`. Throws
  // std::runtime_error where promtool does not work.
  ParityResult Compare(const std::string& rules, const std::string& scratch) const;

 private:
  struct Judge;
  std::unique_ptr<Judge> judge_;
  // Values by series and evaluation, as text.
  std::map<std::string, std::map<size_t, std::string>> series_;
  std::vector<std::array<NamedProcesses, kNamedForCount>> named_;  // by evaluation
  double begin_realtime_s_ = 0;
};

// A ParityRecord of a directory of segments, taken by a thread of its own until Stop().
class ParityWatch {
 public:
  ParityWatch(const std::string& segment_directory, const RuleSet& rules);
  ParityResult Stop(const std::string& scratch);

 private:
  void Run(const std::stop_token& stop, const std::string& segment_directory, double retention_s);

  const RuleSet& rules_;
  ParityRecord record_;
  std::jthread thread_;
};

}  // namespace nccl_exporter::detection
