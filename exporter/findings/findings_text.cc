// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/findings_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

// Findings that are listed; the page and --json have all of them.
constexpr size_t kMostFindings = 8;

void AddFinding(const Finding& finding, std::string& out) {
  out +=
      fmt::format("{}: {}\n", Capital(RowIn(kSeverities, finding.severity).name), finding.headline);
  if (!finding.cost.empty()) out += fmt::format("  cost: {}\n", finding.cost);
  for (const auto& [name, value] : finding.evidence) out += fmt::format("  {}: {}\n", name, value);
  if (!finding.next.empty()) out += fmt::format("  next: {}\n", finding.next);
}

}  // namespace

std::string FindingsText(const Judgement& judgement) {
  if (judgement.findings.empty()) return NothingFoundText(judgement) + '\n';
  std::string out;
  for (size_t i = 0; i < std::min(kMostFindings, judgement.findings.size()); ++i)
    AddFinding(judgement.findings[i], out);
  if (judgement.findings.size() > kMostFindings)
    out += fmt::format("{} more findings\n", judgement.findings.size() - kMostFindings);
  return out;
}

std::string NothingFoundText(const Judgement& judgement) {
  if (judgement.communicators == 0) return "No communicator is in use.";
  const std::string looked = CountText(judgement.communicators, "communicator");
  if (judgement.seconds == 0)
    return fmt::format("No hang found on {}; late ranks need the daemon's history.", looked);
  std::string text =
      fmt::format("Nothing found in the last {}: {}, {} compared.", DurationText(judgement.seconds),
                  looked, CountText(judgement.compared_operations, "operation"));
  if (judgement.learning_seconds > 0)
    text +=
        fmt::format(" Late ranks can be found in {}.", DurationText(judgement.learning_seconds));
  if (judgement.across_nodes > 0)
    text += fmt::format(
        " Not judged here: bandwidth and network of {} across nodes. The alerts judge them: see "
        "nccl-exporter job.",
        CountText(judgement.across_nodes, "communicator"));
  return text;
}

}  // namespace nccl_exporter::exporter
