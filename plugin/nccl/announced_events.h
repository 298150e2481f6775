// SPDX-License-Identifier: Apache-2.0
// Events that NCCL announces to a plugin that asks for some: an event brings those that enclose it.
// Read in src/plugin/profiler.cc of 2.27.7 (API v4), 2.28.9 (v5), 2.30.7 (v6) and of the 2.32 line
// (v7). The releases of one version agree.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "plugin/nccl/profiler_abi.h"

namespace nccl_exporter::plugin {

// Events that a version of the API has, from v4 on.
constexpr uint64_t KnownEvents(int api_version) {
  constexpr uint64_t kFirstUnknown[]{abi::kGroupApi, abi::kCeColl, abi::kKernelPhase,
                                     2 * abi::kKernelPhase};
  return kFirstUnknown[api_version - 4] - 1;
}

// By the number of an event: it is announced if the mask has one of these bits.
constexpr std::array<uint64_t, 16> AskedBy(int api_version) {
  using namespace abi;
  constexpr uint64_t kSteps = kProxyStep | kNetPlugin, kCopies = kCeColl | kCeSync | kCeBatch;
  constexpr uint64_t kKernel = kKernelCh | kKernelPhase;  // phases switch kernel events on
  constexpr uint64_t kParts = kProxyOp | kSteps | kKernel, kTasks = kColl | kP2p | kParts;
  const uint64_t p2p = api_version == 4 ? kTasks & ~(kColl | kNetPlugin) : kTasks & ~kColl;
  constexpr uint64_t kCalls = kGroupApi | kCollApi | kP2pApi | kKernelLaunch;
  return {kGroup | kTasks,
          kColl | kParts,
          p2p,
          kProxyOp | kSteps,
          kSteps,
          kProxyCtrl,
          kKernel,
          kNetPlugin,
          kCalls | kGroup | kTasks | kCopies,
          kCollApi | kColl | kParts | kCopies,
          kP2pApi | kP2p | kParts,
          kKernelLaunch,
          kCopies,
          kCeSync,
          kCeBatch,
          kKernelPhase};
}

template <int kApiVersion>
bool IsAnnounced(uint64_t type, uint64_t mask) {
  static constexpr std::array<uint64_t, 16> kAskedBy = AskedBy(kApiVersion);
  constexpr uint64_t kKnown = KnownEvents(kApiVersion);
  return (type & kKnown) == type && std::has_single_bit(type) &&
         (kAskedBy[static_cast<size_t>(std::countr_zero(type))] & mask & kKnown) != 0;
}

}  // namespace nccl_exporter::plugin
