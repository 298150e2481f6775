// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/node_troubles.h"

#include <fmt/format.h>

#include <utility>

#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

std::string_view Advice(collector::SegmentError error) {
  switch (error) {
    case collector::SegmentError::kOpenFailed:
      return "Give the daemon the right to read the file, and enough file descriptors.";
    case collector::SegmentError::kNotARegularFile:
    case collector::SegmentError::kBadMagic:
      return "Remove the file: another program made it.";
    case collector::SegmentError::kUnknownMajor:
      return "Upgrade the older one of plugin and daemon.";
    case collector::SegmentError::kUnlinkFailed:
      return "Give the daemon the right to remove files there, or mount the directory writable.";
    case collector::SegmentError::kDirectoryUnreadable:
      return "Give the daemon the right to read the directory.";
    case collector::SegmentError::kTooManySegments:
      return "Ask the user to end processes or to remove files.";
    case collector::SegmentError::kLockLost:
      return "Nothing is lost. The job should not close descriptors that it did not open.";
    case collector::SegmentError::kForeignClock:
      return "Let the daemon see the process: hostPID in Kubernetes. Then it knows the clock.";
    case collector::SegmentError::kBadLabels:
      return "Mend it, and rename it into place.";
    case collector::SegmentError::kBadGeometry:
    case collector::SegmentError::kTruncated:
    case collector::SegmentError::kReadFailed:
    case collector::SegmentError::kChangedWhileRead:
    case collector::SegmentError::kCount:
      break;
  }
  return "Remove the file once its process has ended: it is damaged.";
}

// Whether the segment is followed with this fault.
bool IsFollowed(collector::SegmentError error) {
  return error == collector::SegmentError::kLockLost ||
         error == collector::SegmentError::kForeignClock;
}

}  // namespace

std::vector<Finding> UnusableSegments(const collector::NodeSnapshot& node) {
  std::vector<Finding> findings;
  for (const collector::SegmentTrouble& trouble : node.segment_troubles) {
    if (trouble.present == 0) continue;
    const auto& row = RowIn(collector::kSegmentErrors, trouble.error);
    const std::string detail = trouble.detail.empty() ? "" : " (" + Printable(trouble.detail) + ")";
    Finding finding;
    finding.kind = FindingKind::kSegmentsUnusable;
    const bool is_followed = IsFollowed(trouble.error);
    finding.severity = is_followed ? Severity::kInfo : Severity::kWarning;
    finding.uid = trouble.uid.value_or(trouble.file_uid);
    finding.since_realtime_ns = trouble.realtime_ns;
    finding.headline =
        fmt::format("{} of user {} {} since {}: {}{}.", PrintablePath(trouble.file),
                    trouble.file_uid, is_followed ? "is followed with a fault" : "cannot be used",
                    ClockText(trouble.realtime_ns), row.meaning, detail);
    const bool is_of_labels = trouble.error == collector::SegmentError::kBadLabels;
    finding.cost = is_followed || is_of_labels ? "" : "processes of this user may not be monitored";
    finding.evidence = {
        {"reason", std::string(row.name)},
        {"files and directories with this fault now", fmt::format("{}", trouble.present)}};
    finding.next = Advice(trouble.error);
    finding.runbook = "NCCLExporterSegmentsUnusable";
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace nccl_exporter::exporter
