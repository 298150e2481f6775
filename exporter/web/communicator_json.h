// SPDX-License-Identifier: Apache-2.0
// CommunicatorJson(), an element of the communicators of /api/v1/node. Pure functions, for any
// thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "exporter/findings/node_judge.h"
#include "exporter/ledger/local_communicators.h"
#include "exporter/ledger/node_history.h"
#include "exporter/series/labels/series_labels.h"
#include "exporter/text/utf8.h"

namespace nccl_exporter::exporter {

// The time over which rates and means are computed.
inline constexpr double kRecentSeconds = 30;

// Text of another process. Its length is limited, so that one name cannot make the answer large.
inline nlohmann::ordered_json TextJson(std::string_view text) {
  return ValidUtf8(text, kLabelValueLimitBytes);
}

template <typename Value>
nlohmann::ordered_json OrNull(const std::optional<Value>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}
template <typename Value>
nlohmann::ordered_json OrNull(bool is_known, const Value& value) {
  return is_known ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json CommunicatorJson(const CommunicatorOnNode& of, const NodeHistory& history,
                                        const RanksWindow& recent_ranks,
                                        const Judgement& judgement);

}  // namespace nccl_exporter::exporter
