// SPDX-License-Identifier: Apache-2.0
// Phases of kernels over symmetric windows. NCCL reports those of a channel together, in their order, between the start
// and the stop of the channel (2.31.2 plugin/profiler.cc profilerFireKernelPhaseEvents): the first begins with the
// channel, each begins where the one before ended, and the last ends with the channel. A phase without length is left
// out. What does not keep to this was overwritten while it was read.
#include <bit>

#include "plugin/channel_events.h"
#include "plugin/communicator.h"

namespace nccl_exporter {
namespace {

void BeginPhases(Operation& operation) {
  StoreRelaxed(operation.phase_channels, 0);
  StoreRelaxed(operation.last_phase_ns, 0);
  for (Word& phase : operation.phase_ns) StoreRelaxed(phase, 0);
  operation.phases_fit.store(true, std::memory_order_relaxed);
  operation.has_phases.store(true, std::memory_order_relaxed);
}

}  // namespace

bool Communicator::StartPhase(uint64_t abbreviated, uint32_t channel, uint32_t phase, uint64_t time_ns) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated), false;
  const uint64_t ticket = TicketOf(state);
  const uint64_t bit = uint64_t{1} << channel;
  if (LoadRelaxed(operation.parts_ticket) != ticket || !(LoadRelaxed(operation.seen) & bit)) {
    return recorder_.CountLoss(Loss::kUnknownHandle), false;
  }
  if (!operation.has_phases.load(std::memory_order_relaxed)) BeginPhases(operation);
  const uint64_t channels = LoadRelaxed(operation.phase_channels);
  const bool continues = (channels & bit) != 0 ? time_ns == LoadRelaxed(operation.phase_stop_ns)
                                               : static_cast<uint32_t>(time_ns) ==
                                                     operation.start_low_ns[channel].load(std::memory_order_relaxed);
  if (!continues || phase >= kKernelPhaseCount) operation.phases_fit.store(false, std::memory_order_relaxed);
  StoreRelaxed(operation.phase_channels, channels | bit);
  StoreRelaxed(operation.phase_start_ns, time_ns);
  StoreRelaxed(operation.phase_stop_ns, 0);
  operation.phase.store(static_cast<uint8_t>(phase < kKernelPhaseCount ? phase : 0), std::memory_order_relaxed);
  return true;
}

void Communicator::StopPhase(uint64_t abbreviated, uint64_t time_ns) {
  Operation& operation = At(abbreviated);
  const uint64_t state = LoadAcquire(operation.state);
  if (!IsActive(state, abbreviated)) return CountStray(state, abbreviated);
  if (LoadRelaxed(operation.parts_ticket) != TicketOf(state) || !operation.has_phases.load(std::memory_order_relaxed)) {
    return recorder_.CountLoss(Loss::kStopWithoutStart);
  }
  const uint64_t start_ns = LoadRelaxed(operation.phase_start_ns);
  if (time_ns <= start_ns || LoadRelaxed(operation.phase_stop_ns) != 0) {
    return operation.phases_fit.store(false, std::memory_order_relaxed);
  }
  AddAlone(operation.phase_ns[operation.phase.load(std::memory_order_relaxed)], time_ns - start_ns);
  StoreRelaxed(operation.phase_stop_ns, time_ns);
  if (time_ns > LoadRelaxed(operation.last_phase_ns)) StoreRelaxed(operation.last_phase_ns, time_ns);
}

void Communicator::TakePhases(const Operation& operation, Completion& completion) {
  const uint64_t seen = LoadRelaxed(operation.seen);
  completion.has_phases = operation.phases_fit.load(std::memory_order_relaxed) &&
                          LoadRelaxed(operation.phase_channels) == seen &&
                          LoadRelaxed(operation.last_phase_ns) == completion.stop_ns;
  if (!completion.has_phases) return recorder_.CountLoss(Loss::kPhaseMismatch);
  const auto channels = static_cast<uint64_t>(std::popcount(seen));
  for (size_t i = 0; i < kKernelPhaseCount; ++i) {
    completion.phase_ns[i] = LoadRelaxed(operation.phase_ns[i]) / channels;
  }
}

}  // namespace nccl_exporter
