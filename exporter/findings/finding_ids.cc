// SPDX-License-Identifier: Apache-2.0
#include "exporter/findings/finding_ids.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace nccl_exporter::exporter {
namespace {

constexpr int64_t kSecondNs = 1000000000;
// A user has 64 findings at most, and others only by new jobs or processes every few seconds. The
// ids of further ones may change.
constexpr ptrdiff_t kMostLivesOfUser = 128;

int64_t StartOf(const Finding& finding) { return finding.since_realtime_ns / kSecondNs; }

// Separates findings of one kind and job; most kinds have one per job.
std::string PartOf(const Finding& finding) {
  if (finding.kind == FindingKind::kSegmentsUnusable && !finding.evidence.empty())
    return finding.evidence.front().second;  // the reason
  if (finding.kind != FindingKind::kLateRank || finding.culprits.empty()) return "";
  const FoundRank& rank = finding.culprits.front();
  return fmt::format("{}\n{}\n{}\n{}", rank.pod, rank.pid, rank.gpu_index, rank.gpu_uuid);
}

std::string UserText(const Finding& finding) { return std::to_string(finding.uid) + '\n'; }

std::string AboutText(const Finding& finding) {
  const auto& of = finding.communicator;
  return UserText(finding) + fmt::format("{}\n{}\n{}\n{}", RowIn(kFindingKinds, finding.kind).name,
                                         of ? of->job : finding.job_name,
                                         of ? of->name_space : finding.name_space, PartOf(finding));
}

// FNV-1a: the same in every process and release, unlike std::hash.
uint64_t Hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

}  // namespace

void FindingIds::Record(const std::vector<Finding>& findings, int64_t monotonic_ns) {
  for (const Finding& finding : findings) {
    const std::string user = UserText(finding), about = AboutText(finding);
    constexpr char kBehindNames = '\x7f';  // names of kinds follow
    const auto of_user =
        std::distance(lives_.lower_bound(user), lives_.lower_bound(user + kBehindNames));
    if (of_user >= kMostLivesOfUser && !lives_.contains(about)) continue;
    lives_.try_emplace(about, Life{StartOf(finding)}).first->second.last_seen_ns = monotonic_ns;
  }
  std::erase_if(lives_, [&](const auto& entry) {
    return monotonic_ns - entry.second.last_seen_ns > kept_.count();
  });
}

std::string FindingIds::IdOf(const Finding& finding) const {
  const std::string about = AboutText(finding);
  const auto life = lives_.find(about);
  return fmt::format(
      "{:016x}", Hash(fmt::format("{}\n{}", about,
                                  life == lives_.end() ? StartOf(finding) : life->second.start_s)));
}

}  // namespace nccl_exporter::exporter
