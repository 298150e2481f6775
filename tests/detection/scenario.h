// SPDX-License-Identifier: Apache-2.0
// A scenario of the detection benchmark: a job, what happens to it and to those that watch it, and
// which alerts must follow. Read from a file; see tests/scenarios/README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nccl_exporter::detection {

// Times are seconds since the scenario began.
struct Job {
  // As NCCL_EXPORTER_JOB: a Kubernetes job in the namespace of all that have a name. Empty: a job of
  // Slurm.
  std::string name = {};
  double from = 0;
  double until = 0;
  int nodes = 4;
  int ranks_per_node = 8;
  std::vector<std::string> options = {};  // of nccl-sim
};

enum class Deed : uint8_t { kRestartDaemon, kHoldDaemon, kRestartPrometheus };

struct Action {
  double at = 0;
  Deed deed = Deed::kRestartDaemon;
  int node = 0;
  double seconds = 0;  // of kHoldDaemon: it answers no scrape
};

struct Expectation {
  std::string alert;              // its class
  std::string name = {};          // of the alert of this class that must come; empty: any
  std::string job = {};           // its label nccl_job; empty: any
  std::string severity = {};      // its label; empty: any
  int rank = -1;                  // global, to be named; -1: none
  int ranks = 1;                  // of its process: any of them may be named
  int node = -1;                  // to be named by the node, or by any of its ranks
  bool is_on_page = true;         // the daemon of the node can find it by itself
  double from = 0;                // not before
  std::optional<double> to = {};  // the trouble ends; nothing: it lasts
};

struct Scenario {
  std::string name;  // of the file
  std::string says;
  double seconds = 0;
  std::vector<Job> jobs = {};
  std::vector<Action> actions = {};
  std::vector<Expectation> expected = {};   // none: a negative run, without alerts
  std::vector<Expectation> tolerated = {};  // that may accompany what is expected

  int nodes() const;
};

// Reads a scenario. Throws its fault as std::runtime_error, with the file's name. The seed chooses
// the victims, which the file calls %v (rank), %n (its node), %w (a rank of another node) and %m
// (that node).
Scenario ReadScenario(const std::string& path, uint64_t seed);

// Paths of all scenarios in a directory and its folders, sorted.
std::vector<std::string> ScenarioFiles(const std::string& directory);

}  // namespace nccl_exporter::detection
