// SPDX-License-Identifier: Apache-2.0
// Labels of communicators and processes, as docs/metrics.md names them. Pure functions, for any
// thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "collector/node_snapshot.h"
#include "exporter/exposition/exposition.h"

namespace nccl_exporter::exporter {

// Maximum length of a label value. Values come from users and from other processes' memory, and
// each is repeated in every series of a communicator. The limit has room for any pod name that
// occurs in practice, and bounds the size of a scrape.
inline constexpr size_t kLabelValueLimitBytes = 128;

// Maximum length of the label `variables`. Scrapes are refused for a longer value where the limit
// is 1,023, as in Azure's Prometheus.
inline constexpr size_t kNcclVariablesLimitBytes = 1000;

// Labels of a series of nccl_rank_info at most, with its name, `job` and `instance`: Mimir and
// Cortex refuse series of more than 30, and external labels are among these. Variables that find no
// room are left out, the last of proto/identity_variables.h first.
inline constexpr size_t kRankInfoLabelLimit = 29;

// Value of the label `comm` for communicators that have no series of their own.
inline constexpr std::string_view kOtherCommunicator = "other";

// Labels that NCCL_EXPORTER_LABELS of the process requests, as far as proto/user_labels.h allows,
// and as far as those of the site leave room: all series that name the job have these.
Labels UserLabels(const collector::ProcessSnapshot& process);

// Labels of every series of a communicator that has an identity.
Labels CommunicatorLabels(const collector::ProcessSnapshot& process,
                          const collector::CommunicatorSnapshot& communicator);

// Labels of nccl_process_environment_info besides ProcessLabels(): NCCL's own variables as the
// segment has them (proto/identity_variables.h), as far as there is room: "NCCL_*=2~1a2b3c4d
// NCCL_ALGO=Ring NCCL_DEBUG=INFO". None if the plugin recorded no variable.
Labels EnvironmentLabels(const collector::ProcessSnapshot& process);

// Labels of the communicators of a process' job that have no series of their own.
Labels OtherCommunicatorLabels(const collector::ProcessSnapshot& process);

// Labels of every series of a process.
Labels ProcessLabels(const collector::ProcessSnapshot& process);

// Names of a rank beside CommunicatorLabels(), as the rules read them.
Labels RankNameLabels(const collector::ProcessSnapshot& process,
                      const collector::CommunicatorSnapshot& communicator);

// Variable labels of nccl_rank_info and nccl_communicator_info, besides CommunicatorLabels().
// `with_user_labels`: UserLabels() are among them, which the series of the communicator lack then.
Labels RankInfoLabels(const collector::ProcessSnapshot& process,
                      const collector::CommunicatorSnapshot& communicator,
                      bool with_user_labels = true);
Labels CommunicatorInfoLabels(const collector::CommunicatorSnapshot& communicator);

}  // namespace nccl_exporter::exporter
