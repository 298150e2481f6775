// SPDX-License-Identifier: Apache-2.0
// Numbers of NCCL's profiler interface: event kinds, which are also the bits of the event mask, and
// the states that are played.
#pragma once

#include <cstdint>

namespace nccl_exporter::sim {

enum EventBit : uint32_t {
  kGroup = 1,
  kColl = 2,
  kP2p = 4,
  kProxyOp = 8,
  kProxyStep = 16,
  kKernelCh = 64,
  kNetPlugin = 128,
  kGroupApi = 256,
  kCollApi = 512,
  kP2pApi = 1024,
  kKernelLaunch = 2048,
  kAnyCopyEngine = 4096 | 8192 | 16384,
  kKernelPhase = 32768,
};

enum class EventState : int32_t {
  kProxyOpSendPosted = 0,
  kProxyOpSendRemFifoWait = 1,
  kProxyOpSendTransmitted = 2,
  kProxyOpSendDone = 3,
  kProxyOpRecvPosted = 4,
  kProxyOpRecvReceived = 5,
  kProxyOpRecvTransmitted = 6,
  kProxyOpRecvDone = 7,
  kProxyStepSendGpuWait = 8,
  kProxyStepSendWait = 9,
  kProxyStepRecvWait = 10,
  kProxyStepRecvFlushWait = 11,
  kProxyStepRecvGpuWait = 12,
  kProxyOpInProgress = 19,
  kProxyStepSendPeerWait = 20,
  kKernelChStop = 22,
  kGroupStartApiStop = 23,
  kGroupEndApiStart = 24,
};

}  // namespace nccl_exporter::sim
