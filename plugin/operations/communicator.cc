// SPDX-License-Identifier: Apache-2.0
#include "plugin/operations/communicator.h"

namespace nccl_exporter::plugin {

void Communicator::Open(TimingSource source, int rank, uint32_t ranks,
                        layout::CommunicatorSlot* slot, layout::SegmentHeader* header,
                        const DriftCauses& causes, bool times_are_on_probation) {
  // Drops what the former communicator's finalize could not: another thread had the lock.
  launch_recorder().judge().Close();
  rank_.store(rank, std::memory_order_relaxed);
  shared().Open(source, slot, header, ranks);
  starter_.Open(causes);
  launch_recorder().Open(times_are_on_probation);
}

void Communicator::Finalize() { completer().Finalize(); }

}  // namespace nccl_exporter::plugin
