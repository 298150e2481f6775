// SPDX-License-Identifier: Apache-2.0
// Report, what a job did in a stretch of time and what it lost by waiting: the one model of text,
// JSON and HTML, filled from Prometheus or from the segments of a node. Plain data. Times are
// seconds since the epoch; texts are as other processes wrote them until they are shown.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/cli/report/jobs.h"
#include "exporter/cli/report/prometheus.h"

namespace nccl_exporter::exporter {

// Version of the JSON: the minor grows with each name that is added.
inline constexpr std::string_view kReportSchema = "2.0";

// Collectives of one kind on the communicators of one name, or their sends or receives, all ranks
// together.
struct ReportTraffic {
  std::string comm_name;     // or the id of one without a name
  std::string collective;    // or Send, Recv
  uint64_t ranks = 0;        // that were seen in it, of each communicator
  uint64_t timed_ranks = 0;  // of these, that have times; known of segments alone
  double operations = 0;
  double timed_operations = 0;
  double bytes = 0;
  double busy_seconds = 0;  // waiting included
  // Mean time of a rank without its waits, which is that of the rank of its communicator with the
  // least. Ranks without times have none; 0 for sends.
  double least_seconds = 0;

  // Share of the time that its ranks waited.
  double waiting_share() const {
    const double least = static_cast<double>(ranks) * least_seconds;
    return busy_seconds > 0 ? std::max(0.0, 1 - least / busy_seconds) : 0;
  }
};

// Time in each step of the job, or of a rank of it.
struct ReportMeasure {
  std::string name;             // "step", "transfer in AllReduce of dp", "waiting in ..."
  std::vector<double> seconds;  // in equal parts of the time, or in all of it
};

// An alert or a finding, or a rank that others waited for.
struct ReportEvent {
  std::string name;  // of the alert, or the kind of the finding; of a rank empty
  std::string severity = {};
  std::string text = {};                              // sentence of a finding
  SampleLabels labels;                                // of the rank or the node that it names
  std::vector<std::pair<double, double>> times = {};  // begin and end of each time that it lasted
  double gpu_seconds = 0;                             // that others waited for the rank

  double begin() const { return times.empty() ? 0 : times.front().first; }
  double end() const { return times.empty() ? 0 : times.back().second; }
};

// A label that processes of the job have, as the version of the plugin, with one of its values.
struct ReportFact {
  std::string name;
  std::string value;
  uint64_t processes = 0;            // 0: not counted
  std::vector<std::string> on = {};  // where few have this value: their ranks and nodes
};

struct ReportLoss {
  std::string cause;
  double operations = 0;
};

struct Report {
  std::string schema{kReportSchema};
  std::string source;  // "Prometheus", or "segments of node-1"
  Job job;
  // From the first to the last moment in which a process lived, of those that were asked for.
  double from = 0;
  double to = 0;
  double gpu_seconds = 0;  // of all GPUs of the job in this time
  uint64_t nodes = 0;
  // Whether the ranks' waits are known. Without times of the GPU only hangs are.
  bool knows_waiting = false;
  double waiting_gpu_seconds = 0;
  // GPUs of the job, and GPUs that wait; from Prometheus only.
  std::vector<Point> gpus = {};
  std::vector<Point> waiting = {};
  std::vector<ReportTraffic> traffic = {};   // the longest first
  std::vector<ReportEvent> waited_for = {};  // ranks, those that cost most first
  std::vector<ReportEvent> events = {};      // by their begin
  std::vector<ReportFact> facts = {};        // by name; the most frequent value first
  std::vector<ReportLoss> losses = {};
  // The operation that counts as a step: "step" as the ledger has them, or "AllReduce of dp";
  // empty: nothing.
  std::string step = {};
  std::vector<ReportMeasure> measures = {};
  std::vector<std::string> warnings = {};  // why it may be incomplete

  double waiting_share() const { return gpu_seconds > 0 ? waiting_gpu_seconds / gpu_seconds : 0; }
};

// Labels of processes, by name and value: who has it.
using FactTable = std::map<std::string, std::map<std::string, std::vector<std::string>>>;
// NCCL's own variables of a process, as its segment has them (proto/identity_variables.h).
using ProcessVariables = std::map<std::string, std::string>;
// Adds those of the processes by their names, as labels. The value is empty where a variable is not
// set. A process without the number of all, whose plugin is older, is left out.
void AddVariables(std::map<std::string, ProcessVariables> processes, FactTable& table);
// "global rank 5", or "pid 1 of trainer-3/main": processes of several pods may have one pid.
std::string ProcessText(const std::string& global_rank, const std::string& pid,
                        const std::string& pod, const std::string& container);
// As Report::facts.
std::vector<ReportFact> FactsOf(FactTable table);
// "AllReduce of dp". All communicators without a name have one: their ids are new in each run.
std::string NameOf(const ReportTraffic& traffic);
// The rarest that is regular: an operation of it is a step where no steps are known. Null without.
const ReportTraffic* RarestOf(const Report& report);

// One line with its line feed. Texts in it become valid UTF-8 that a terminal only shows.
std::string JsonLine(const nlohmann::json& json);
std::string ReportJson(const Report& report);
// A report that ReportJson() wrote, from a file that may be from anybody. Throws std::runtime_error
// with one line where it is none.
Report ReportIn(std::string_view json);
// A list of jobs, as one line likewise.
std::string JobsJson(const std::vector<Job>& jobs, const std::vector<std::string>& warnings);

}  // namespace nccl_exporter::exporter
