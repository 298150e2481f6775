// SPDX-License-Identifier: Apache-2.0
// The contents of a file of labels: which processes get which labels. docs/labels.md describes the
// format.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collector/node_snapshot.h"

namespace nccl_exporter::collector {

inline constexpr size_t kLabelFileBytes = 64 * 1024;
inline constexpr size_t kLabelBytes = 64;  // of a name, and of a value

// Ways to name processes. Where several rules fit a process, labels of a later way win.
enum class LabelMatch : uint8_t { kNode, kGpu, kUser, kPod, kSlurmJob, kProcess };

struct LabelTarget {
  LabelMatch match = LabelMatch::kNode;
  std::string value;  // of kPod: namespace, '/' and name; of kProcess: pid, '/' and UUID of a GPU

  auto operator<=>(const LabelTarget&) const = default;
};

// Labels by the processes that get them; name and value.
using SiteLabels = std::vector<std::pair<std::string, std::string>>;
using LabelRules = std::map<LabelTarget, SiteLabels>;

// The rules in `text`. Throws std::runtime_error with what is wrong with it in words.
LabelRules ParseLabelRules(std::string_view text);

// Adds labels of names that `labels` does not have yet.
void AddLabels(const SiteLabels& more, SiteLabels& labels);

// Labels that `rules` give to `process`: at most kMostUserLabels, each name once.
SiteLabels LabelsOf(const ProcessSnapshot& process, const LabelRules& rules);

}  // namespace nccl_exporter::collector
