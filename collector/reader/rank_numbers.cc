// SPDX-License-Identifier: Apache-2.0
#include "collector/reader/rank_numbers.h"

#include <charconv>
#include <limits>
#include <string>

namespace nccl_exporter::collector {
namespace {

std::optional<uint32_t> Below(uint64_t number_plus_1, uint64_t size) {
  if (number_plus_1 == 0 || number_plus_1 > size) return std::nullopt;
  return static_cast<uint32_t>(number_plus_1 - 1);
}

RankNumbers Checked(uint64_t global_rank_plus_1, uint64_t local_rank_plus_1, uint64_t world_size) {
  if (world_size > std::numeric_limits<int32_t>::max()) return {};
  RankNumbers numbers{.global_rank = Below(global_rank_plus_1, world_size),
                      .local_rank = Below(local_rank_plus_1, world_size),
                      .world_size = static_cast<uint32_t>(world_size)};
  if (!numbers.global_rank) return {};
  return numbers;
}

// 0 if the text is no decimal number.
uint64_t PlusOne(const std::string& text) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, number);
  return fault == std::errc() && stop == end ? uint64_t{number} + 1 : 0;
}

}  // namespace

RankNumbers NumbersOf(const layout::CommunicatorSlot& slot) {
  return Checked(slot.global_rank, slot.local_rank, slot.world_size);
}

RankNumbers NumbersOf(const ProcessSnapshot& process) {
  const uint64_t size_plus_1 = PlusOne(process.Identity("WORLD_SIZE"));
  if (size_plus_1 == 0) return {};
  return Checked(PlusOne(process.Identity("RANK")), PlusOne(process.Identity("LOCAL_RANK")),
                 size_plus_1 - 1);
}

}  // namespace nccl_exporter::collector
