// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/operation_starter.h"

namespace nccl_exporter::plugin {

void OperationStarter::NoteUnfollowed(Function function, uint64_t launch_ticket, bool is_followed,
                                      bool had_lock) {
  if (!had_lock) AddRelaxed(shared().uncompared_items(), 1);  // it has no ticket
  if (is_followed) {
    shared().recorder().CountLoss(had_lock ? Loss::kInFlightFull : Loss::kConcurrentStart);
    shared().RejectLaunch(launch_ticket, Loss::kLaunchMemberUntimed);
    completer_.launch_recorder().NoteUnfollowed(function, LoadRelaxed(next_operation_));
  } else if (shared().IsDrifting()) {
    shared().recorder().CountLoss(Loss::kCommunicatorDrifting);
  }
}

}  // namespace nccl_exporter::plugin
