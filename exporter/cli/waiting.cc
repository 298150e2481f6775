// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/waiting.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "exporter/findings/findings_json.h"
#include "exporter/findings/thresholds.h"
#include "exporter/findings/words.h"

namespace nccl_exporter::exporter {
namespace {

using Json = nlohmann::ordered_json;

bool Is(Awaited awaited, const Finding& finding) {
  const bool has_killed =
      std::ranges::count(finding.culprits, Standing::kKilled, &FoundRank::standing) != 0;
  switch (awaited) {
    case Awaited::kHang:
      return IsHang(finding.kind) && finding.severity == Severity::kCritical;
    case Awaited::kKilled:
      if (IsHang(finding.kind)) return has_killed;
      // As information: the job has ended with it.
      return finding.kind == FindingKind::kProcessKilled && finding.severity != Severity::kInfo;
    default:
      return finding.kind == FindingKind::kLateRank;
  }
}

// `wanted` has names of fields and their values.
bool IsWanted(const Json& finding, const std::map<std::string, std::string>& wanted) {
  return std::ranges::all_of(wanted, [&](const auto& label) {
    const Json& value = finding.at(label.first);
    return (value.is_string() ? value.template get<std::string>() : value.dump()) == label.second;
  });
}

// Nothing if there is no such finding.
std::optional<WaitEnd> EndBy(const WaitRequest& request, const Judgement& judgement) {
  const Json findings = FindingsJson(judgement);
  for (size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = judgement.findings[i];
    if (!IsWanted(findings[i], request.wanted)) continue;
    // The cause of a hang is surer than the hang.
    for (const Awaited awaited : {Awaited::kKilled, Awaited::kHang, Awaited::kLate}) {
      if (std::ranges::count(request.awaited, awaited) != 0 && Is(awaited, finding))
        return WaitEnd{.exit_code = kFirstAwaitedCode + static_cast<int>(awaited),
                       .finding = findings[i].dump() + '\n'};
    }
  }
  return std::nullopt;
}

// `shown`: the latest answer, or why there was none.
std::string TimeOutText(const WaitRequest& request, bool has_answered,
                        const ShownJudgement& shown) {
  const std::string waited = DurationText(Seconds(*request.timeout));
  const std::string& fault = shown.why_not_of_daemon;
  if (!has_answered) return fmt::format("no answer of a daemon in {}: {}", waited, fault);
  std::string text = fmt::format("no finding in {}", waited);
  if (!fault.empty()) return text + "; now " + fault;
  if (std::ranges::count(request.awaited, Awaited::kHang) == 0) return text;
  const Json findings = FindingsJson(shown.judgement);
  for (size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = shown.judgement.findings[i];
    if (IsHang(finding.kind) && IsWanted(findings[i], request.wanted))
      return text + "; not critical yet: " + Printable(finding.headline);
  }
  return text;
}

}  // namespace

WaitEnd Waiting(const WaitRequest& request, const AskDaemon& ask, const WaitSurroundings& outside) {
  const std::chrono::nanoseconds start = outside.now();
  bool has_answered = false;
  std::string fault;  // of the latest question
  for (;;) {
    const ShownJudgement shown = ask();
    if (shown.is_of_daemon) {
      if (const std::optional<WaitEnd> end = EndBy(request, shown.judgement)) return *end;
    } else if (fault.empty()) {
      outside.warn(shown.why_not_of_daemon + "; still waiting");
    }
    has_answered |= shown.is_of_daemon;
    fault = shown.why_not_of_daemon;
    std::chrono::nanoseconds pause = kDaemonInterval;
    if (request.timeout) {
      const std::chrono::nanoseconds left = start + *request.timeout - outside.now();
      if (left.count() <= 0) return {.reason = TimeOutText(request, has_answered, shown)};
      pause = std::min(pause, left);
    }
    outside.sleep(pause);
  }
}

}  // namespace nccl_exporter::exporter
