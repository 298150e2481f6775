// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/operation_starter.h"

namespace nccl_exporter {

void OperationStarter::NoteUnfollowed(const OperationStart& start, bool is_followed, bool had_lock) {
  if (!had_lock) AddRelaxed(state_.uncompared_items(), 1);  // it has no ticket
  if (is_followed) {
    state_.recorder().CountLoss(had_lock ? Loss::kInFlightFull : Loss::kConcurrentStart);
    state_.RejectLaunch(start.launch, Loss::kCompanion);
    launch_recorder_.NoteUnfollowed(start.function, LoadRelaxed(next_operation_));
  } else if (state_.IsDrifting()) {
    state_.recorder().CountLoss(Loss::kCommunicatorDrifting);
  }
}

}  // namespace nccl_exporter
