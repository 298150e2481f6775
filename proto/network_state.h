// SPDX-License-Identifier: Apache-2.0
// States that the network time of a communicator is made of, as the segment has them. Append only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "proto/code_table.h"

namespace nccl_exporter {

// Reason for which the oldest step of a proxy operation waits (label `state`).
enum class NetworkState : uint8_t { kGpu, kPeer, kNetwork, kFlush, kCount };
inline constexpr int kNetworkStateCount = static_cast<int>(NetworkState::kCount);
inline constexpr CodeTable<NetworkState> kNetworkStates{{
    {NetworkState::kGpu, "gpu",
     "send: the rank's own GPU writes the data; receive: it reads them, or has not begun"},
    {NetworkState::kPeer, "peer",
     "send: the receiver has given no credit; receive: not posted yet, exported as `gpu`"},
    {NetworkState::kNetwork, "network",
     "send: the adapter has the data; receive: posted, and nothing has come"},
    {NetworkState::kFlush, "flush", "receive: received data are flushed to the GPU's memory"},
}};
static_assert(IsInOrder(kNetworkStates));
constexpr std::string_view NameOf(NetworkState state) { return RowIn(kNetworkStates, state).name; }

// Label `direction`.
enum class NetworkDirection : uint8_t { kSend, kRecv, kCount };
inline constexpr int kNetworkDirectionCount = static_cast<int>(NetworkDirection::kCount);
inline constexpr CodeTable<NetworkDirection> kNetworkDirections{{
    {NetworkDirection::kSend, "send", "data leave the rank's node"},
    {NetworkDirection::kRecv, "recv", "data come from another node"},
}};
static_assert(IsInOrder(kNetworkDirections));
constexpr std::string_view NameOf(NetworkDirection direction) {
  return RowIn(kNetworkDirections, direction).name;
}

}  // namespace nccl_exporter
