// SPDX-License-Identifier: Apache-2.0
// The moves of a fuzzed session that are those of NCCL's own threads.
#include <algorithm>
#include <array>

#include "plugin/chain/chain.h"
#include "plugin/fuzz/callback_fuzz_clock.h"
#include "plugin/fuzz/callback_fuzz_player.h"
#include "plugin/fuzz/callback_fuzz_vocabulary.h"

namespace nccl_exporter::plugin::fuzz {
namespace {

constexpr uint32_t kMaxChannels = 64;

}  // namespace

// Mostly the oldest that nothing was reported on yet.
Member::Started& Player::ChooseOperation(Member& member) {
  const uint64_t started = member.started.load();
  uint64_t index = member.reported.load();
  if (index < started && !bytes_.OneIn(8)) {
    index = std::max(index, started - std::min<uint64_t>(started, member.operations.size()));
    member.reported.store(index + 1);
  } else {
    index = started - 1 - bytes_.Below(24);
  }
  return member.operations[index % member.operations.size()];
}

// The network transport takes up a proxy operation.
void Player::Begin(int version, void* proxy) {
  if (version < 4) return;
  TableOf(version).Record(proxy, abi::kStateProxyOpInProgress, nullptr);
  ++callbacks_;
}

// As NCCL reports when nothing is wrong: in order, all channels at the same time, between the call
// and now.
void Player::ReportInOrder(Member& member) {
  const uint64_t index = member.reported.load();
  if (index >= member.started.load() || member.is_mute) return;
  member.reported.store(index + 1);
  const Member::Started& operation = member.operations[index % member.operations.size()];
  Event event;
  event.parent = operation.handle.load();
  event.pid = getpid();
  event.type = member.reports_proxy ? abi::kProxyOp : abi::kKernelCh;
  AdvanceClock(200);
  event.gpu_ns = ClockNs();
  std::array<void*, kMaxChannels> parts;
  const uint32_t channels = std::min<uint32_t>(operation.channels.load(), kMaxChannels);
  for (uint32_t channel = 0; channel < channels; ++channel) {
    event.channel = static_cast<uint8_t>(channel);
    parts[channel] = Start(member.version, member.context, event);
    if (member.reports_proxy) Begin(member.version, parts[channel]);
  }
  AdvanceClock(200);
  abi::StateArgs arguments{.pTimer = ClockNs()};
  for (uint32_t channel = 0; channel < channels; ++channel) {
    TableOf(member.version).Record(parts[channel], abi::kStateKernelChStop, &arguments);
    ++callbacks_;
    Stop(member.version, parts[channel]);
  }
}

void Player::StartParts(Member& member) {
  if (member.is_orderly) return ReportInOrder(member);
  const Member::Started& operation = ChooseOperation(member);
  Event event;
  event.parent = bytes_.OneIn(32) ? ChooseGarbage(parts_) : operation.handle.load();
  event.pid = bytes_.OneIn(32) ? getpid() + 1 : getpid();
  event.type = member.reports_proxy ? abi::kProxyOp : abi::kKernelCh;
  const uint32_t channels = bytes_.OneIn(8) ? bytes_.Below(4) : operation.channels.load();
  for (uint32_t channel = 0; channel < channels && channel < kMaxChannels; ++channel) {
    event.channel = static_cast<uint8_t>(bytes_.OneIn(64) ? bytes_.Next() : channel);
    event.gpu_ns = ChooseGpuTime();
    void* part = Start(member.version, member.context, event);
    owners_[parts_.count % owners_.size()] = member.reports_proxy ? 0 : member.id;
    parts_.Keep(part);
    if (member.reports_proxy && !bytes_.OneIn(8)) Begin(member.version, part);
    if (bytes_.OneIn(8)) continue;  // its stop comes later, or never
    if (!bytes_.OneIn(32)) Record(member.version, part, ChooseGpuTime());
    Stop(member.version, part);
  }
}

void Player::StopPart() {
  const int version = 4 + static_cast<int>(bytes_.Below(4));
  if (bytes_.OneIn(8)) {
    void* garbage = ChooseGarbage(parts_);
    if (!bytes_.OneIn(8)) Record(version, garbage, ChooseGpuTime());
    return Stop(version, garbage);
  }
  const uint32_t choice = bytes_.Next();
  void* part = parts_.Pick(choice);
  if (!bytes_.OneIn(8)) Record(version, part, ChooseGpuTime());
  const uint64_t losses = session_.LossesOfAll();
  Stop(version, part);
  const uint64_t owner = owners_[choice % owners_.size()];
  if (OursOf(part) == nullptr || owner == 0 || session_.IsHere(owner) || Chain::Get() != nullptr)
    return;
  // Channels of an operation that was given up go on until all have stopped
  // (PartTracker::Running()), so one stop may raise nothing. One that has stopped cannot do so
  // again.
  Stop(version, part);
  ExpectLoss(losses, "two stops of a channel whose communicator is gone");
}

void Player::StepAsReporter() {
  if (bytes_.OneIn(4)) return StopPart();
  Member* member =
      session_.berth(ChooseBerth(!role_.IsAlone())).member.load(std::memory_order_acquire);
  if (member == nullptr) return;
  if (bytes_.OneIn(4)) {
    PlayNetwork(*member);
  } else {
    StartParts(*member);
  }
}

}  // namespace nccl_exporter::plugin::fuzz
