// SPDX-License-Identifier: Apache-2.0
// Labels that a site may drop from its scrapes, and families that the rules of deploy/prometheus
// need.
#pragma once

#include <array>
#include <string_view>

#include "proto/metric_catalogue.h"

namespace nccl_exporter {

// A label that a flag can drop. Series that then have the same labels become one series: see
// docs/tune.md.
struct DroppableLabel {
  std::string_view name;
  bool is_needed_by_rules;  // without it, those of deploy/prometheus name no rank, or the wrong one
  std::string_view meaning;  // scope of one series without the label
};
inline constexpr std::array<DroppableLabel, 12> kDroppableLabels{{
    {"comm", true,
     "communicators of the same name; communicators without a slot keep `comm=\"other\"`"},
    {"comm_name", false, "nothing: `comm` distinguishes communicators"},
    {"rank", true,
     "nothing while there is `gpu` or `global_rank`; without them the ranks of a communicator on "
     "the node"},
    {"gpu", false, "nothing while there is `rank`"},
    {"uid", true,
     "users who name the same communicator or process: one can then hide another's hang"},
    {"nccl_job", true, "jobs: nothing while there is `comm`, except for `comm=\"other\"` and P"},
    {"namespace", true, "the same"},
    {"pod", true, "the same"},
    {"container", true, "the same"},
    {"size", true, "all message sizes"},
    {"pid", true, "processes of the same global rank"},
    {"global_rank", true, "nothing while there are `rank` and `pid`"},
}};

}  // namespace nccl_exporter
