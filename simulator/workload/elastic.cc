// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "proto/code_table.h"

namespace nccl_exporter::sim {
namespace {

struct ElasticTraits {
  ElasticKind id;
  std::string_view name;
  int first_release;  // with the call, by the nccl.h.in of each release
  std::string_view help;
};
constexpr std::array<ElasticTraits, kCountOf<ElasticKind>> kChanges{{
    {ElasticKind::kRevoke, "revoke", 22809,
     "the last rank does not call, all revoke the communicator and go on in a new one"},
    {ElasticKind::kShrinkAbort, "shrink-abort", 22703,
     "the last rank does not call, the others go on in a shrunken one (NCCL_SHRINK_ABORT)"},
    {ElasticKind::kShrink, "shrink", 22703,
     "all but the last rank go on in a shrunken one, and the first one stays idle"},
    {ElasticKind::kGrow, "grow", 22902, "the last rank is not in it, and then is in a grown one"},
    {ElasticKind::kSuspend, "suspend", 22907,
     "it is suspended, not called for 50 steps, and resumed"},
}};
static_assert(IsInOrder(kChanges));

}  // namespace

std::optional<ElasticChange> ParseElasticChange(std::string_view text, int nccl_version,
                                                std::string& error) {
  const std::string_view name = text.substr(0, text.find('@'));
  const auto* const row = std::ranges::find(kChanges, name, &ElasticTraits::name);
  if (row == kChanges.end()) {
    error = fmt::format("--elastic {}: there is no such change", name);
    return std::nullopt;
  }
  if (nccl_version < row->first_release) {
    error = fmt::format("--elastic {} needs NCCL {} or later", name, row->first_release);
    return std::nullopt;
  }
  ElasticChange change{.kind = row->id, .step = -1};
  const char* const end = text.data() + text.size();
  const auto [stop, failure] =
      std::from_chars(std::min(end, text.data() + name.size() + 1), end, change.step);
  if (failure != std::errc() || stop != end || change.step < 0) {
    error = fmt::format("--elastic {}: not NAME@STEP", text);
    return std::nullopt;
  }
  return change;
}

std::string ElasticHelp() {
  std::string help = "NAME@STEP: what becomes of the first communicator after this step";
  for (const ElasticTraits& traits : kChanges)
    help += fmt::format("\n  {}: {}", traits.name, traits.help);
  return help;
}

}  // namespace nccl_exporter::sim
