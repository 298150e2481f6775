// SPDX-License-Identifier: Apache-2.0
// Promises about findings that were received, whatever the answer is: a terminal only shows them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "exporter/findings/findings_json.h"
#include "exporter/testing/text_fuzz.h"

namespace nccl_exporter::exporter::fuzz {
namespace {

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "findings_fuzz: broken promise: %s\n", promise);
  std::abort();
}

void CheckText(const std::string& text) {
  constexpr size_t kMost = 600;
  Require(text.size() <= kMost, "a text is short");
  Require(std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c != 0x7F; }),
          "a text has no control characters");
}

void CheckRanks(const std::vector<FoundRank>& ranks) {
  for (const FoundRank& rank : ranks) {
    Require(rank.standing < Standing::kCount, "a standing is known");
    Require(rank.gpu_index >= -1, "a GPU is a number or not known");
    Require(rank.since_realtime_ns >= 0, "a time is after 1970");
    for (const std::string& text :
         {rank.global_rank, rank.gpu_uuid, rank.host_name, rank.pod, rank.operation})
      CheckText(text);
  }
}

}  // namespace

void CheckInput(std::string_view input) {
  std::string fault;
  const std::optional<ReceivedFindings> received = FindingsFromJson(input, fault);
  Require(received.has_value() == fault.empty(), "no findings have a reason");
  CheckText(fault);
  if (!received) return;
  for (const Finding& finding : received->judgement.findings) {
    Require(finding.severity < Severity::kCount, "a severity is known");
    Require(finding.since_realtime_ns >= 0, "a time is after 1970");
    for (const std::string& text : {finding.communicator_name, finding.job, finding.headline,
                                    finding.cost, finding.next, finding.runbook})
      CheckText(text);
    for (const auto& [name, value] : finding.evidence) {
      CheckText(name);
      CheckText(value);
    }
    CheckRanks(finding.culprits);
    CheckRanks(finding.waiting);
  }
}

}  // namespace nccl_exporter::exporter::fuzz
