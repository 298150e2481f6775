// SPDX-License-Identifier: Apache-2.0
// Shares of the room for communicators. Pure functions, for any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace nccl_exporter::collector {

// Ranks of communicators by importance, the most important first: in use, those of processes that
// have ended without finalizing them, finalized, and finalized before the process ended.
inline constexpr size_t kRoomRanks = 4;

// The room that the communicators of one file want, by rank.
using RoomWanted = std::array<uint64_t, kRoomRanks>;

// Parts of `room`: each is what is wanted, or an equal part of what smaller wishes leave.
inline std::vector<uint64_t> FairParts(const std::vector<uint64_t>& wanted, uint64_t room) {
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return wanted[i]; });
  std::vector<uint64_t> parts(wanted.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t part = std::min(wanted[order[i]], room / (order.size() - i));
    parts[order[i]] = part;
    room -= part;
  }
  return parts;
}

// Parts of `room` by file: first for the communicators that matter most, of all files, then for the
// next. So if there is no room for all, each file loses the same.
inline std::vector<uint64_t> ShareRoom(const std::vector<RoomWanted>& wanted, uint64_t room) {
  std::vector<uint64_t> shares(wanted.size());
  for (size_t rank = 0; rank < kRoomRanks; ++rank) {
    std::vector<uint64_t> of_rank;
    for (const RoomWanted& file : wanted) of_rank.push_back(file[rank]);
    const std::vector<uint64_t> parts = FairParts(of_rank, room);
    for (size_t i = 0; i < parts.size(); ++i) {
      shares[i] += parts[i];
      room -= parts[i];
    }
  }
  return shares;
}

}  // namespace nccl_exporter::collector
