// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "exporter/cli/job/job_text.h"
#include "exporter/findings/words.h"
#include "exporter/text/text_table.h"

namespace nccl_exporter::exporter {

std::string WarningText(const Warnings& warnings) {
  std::string text;
  for (const std::string& warning : warnings)
    text += (text.empty() ? "answer is incomplete: " : "; ") + warning;
  return text;
}

std::string JobsScreen(const std::vector<Job>& jobs, const Warnings& warnings,
                       const JobView& view) {
  TextTable table({{.head = "JOB", .is_text = true},
                   {.head = "NAME", .is_text = true, .leave_out = 1},
                   {.head = "NAMESPACE", .is_text = true},
                   {.head = "CLUSTER", .is_text = true, .leave_out = 2},
                   {.head = "USER", .is_text = true},
                   {.head = "PROCESSES"}});
  for (const Job& job : jobs) {
    table.Add({job.nccl_job.empty() ? "-" : Printable(job.nccl_job), job.NamesText(),
               Printable(job.name_space), Printable(job.cluster), Printable(job.uid),
               std::to_string(job.processes)});
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& lines) {
    for (const std::string& line : lines) text += line + '\n';
  };
  if (!warnings.empty()) add(Wrapped(WarningText(warnings), view.columns));
  add(table.Lines(view.columns));
  add(
      Wrapped("Choose one with --job: its id, name, namespace or cluster, or the beginning of its "
              "pods' names; and with --uid: its user. All that is given must be true. With "
              "--job '' the job has no id, namespace or cluster but those given.",
              view.columns));
  return text;
}

}  // namespace nccl_exporter::exporter
