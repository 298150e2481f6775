// SPDX-License-Identifier: Apache-2.0
// The moves of a fuzzed session that nobody should make: events without a communicator, handles of
// another kind, NULL.
#include "plugin/fuzz/callback_fuzz_player.h"

namespace nccl_exporter::plugin::fuzz {

void Player::StrayEvent(void* context, uint64_t type) {
  Event event;
  ChooseTask(event, bytes_.OneIn(2));
  event.type = type;
  event.parent = ChooseGarbage(calls_);
  event.launch = ChooseGarbage(launches_);
  const int version = 1 + static_cast<int>(bytes_.Below(kVersions));
  const uint64_t losses = session_.LossesOfAll();
  if (OursOf(Start(version, context, event)) != nullptr)
    Fail("v%d took an event 0x%zx without a communicator", version, type);
  const bool is_known = type <= abi::kP2p || (type <= abi::kP2pApi && version >= 5) || version >= 6;
  if (is_known && session_.LossesOfAll() != 0)
    ExpectLoss(losses, "an event without a communicator");
}

void Player::PlayStray() {
  constexpr uint64_t kTypes[] = {abi::kGroup,   abi::kColl,   abi::kP2p,   abi::kGroupApi,
                                 abi::kCollApi, abi::kP2pApi, abi::kCeColl};
  void* context = bytes_.OneIn(2) ? session_.FormerContext(bytes_.Next())
                                  : reinterpret_cast<void*>(bytes_.Word());
  const int version = 1 + static_cast<int>(bytes_.Below(kVersions));
  switch (bytes_.Below(8)) {
    case 1:
      TableOf(version).Finalize(context);
      ++callbacks_;
      return;
    case 2:
      return Stop(version, ChooseGarbage(groups_));
    case 3:
      return Stop(version, ChooseGarbage(calls_));
    case 4:
      return Stop(version, ChooseGarbage(launches_));
    case 5: {  // an event that was not asked for, or that no version knows
      Event event;
      event.type = bytes_.OneIn(2) ? uint64_t{1} << bytes_.Below(64) & 0x1b0 : abi::kNetPlugin;
      event.parent = ChooseGarbage(calls_);
      const bool is_call_group = event.type == abi::kGroupApi;
      if (!is_call_group && OursOf(Start(version, context, event)) != nullptr &&
          event.type != abi::kKernelCh) {
        Fail("v%d took an event 0x%zx", version, event.type);
      }
      return;
    }
    case 6:
      return Record(version, ChooseGarbage(calls_), ChooseGpuTime());
    default:
      return StrayEvent(context, kTypes[bytes_.Below(7)]);
  }
}

void Player::PlayNull() {
  const int version = 1 + static_cast<int>(bytes_.Below(kVersions));
  const Table& table = TableOf(version);
  Event event;
  event.type = abi::kGroup;
  int mask = 0;
  void* place = reinterpret_cast<void*>(kUnwritten);
  table.Init(nullptr, &mask, {});
  table.Init(&place, nullptr, {});
  table.Start(session_.FormerContext(0), nullptr, &event);
  table.Start(nullptr, &place, nullptr);
  if (place != nullptr) Fail("v%d left the place of a handle as it was", version);
  table.Stop(nullptr);
  table.Record(nullptr, abi::kStateKernelChStop, nullptr);
  table.Record(calls_.Pick(0), abi::kStateKernelChStop, nullptr);
  table.Finalize(nullptr);
  callbacks_ += 8;
}

}  // namespace nccl_exporter::plugin::fuzz
