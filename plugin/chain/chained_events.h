// SPDX-License-Identifier: Apache-2.0
// Callbacks of NCCL for two plugins: this one first, then the chained one. They take the place of
// the callbacks in the exported objects if there is a chain. Any thread.
//
// NCCL's descriptor is not copied, since forks have longer ones: its parents are replaced for each
// of the two calls, and put back. NCCL makes one for each call. Only for a plugin of API v4 is it
// copied, field by field.
#pragma once

#include <cstring>

#include "plugin/chain/chain.h"

namespace nccl_exporter::plugin {

template <typename Descriptor>
constexpr bool kHasCalls = requires(Descriptor d) {
  d.collApi;
};

// The field of a task's launch, from v5 on; `none` of other events.
template <typename Descriptor>
void*& LaunchOf(Descriptor& d, void*& none) {
  if constexpr (kHasCalls<Descriptor>) {
    if (d.type == abi::kColl) return d.coll.parentGroup;
    if (d.type == abi::kP2p) return d.p2p.parentGroup;
  }
  return none;
}

template <typename Descriptor>
PairRing RingOf(const Descriptor& d) {
  constexpr uint64_t kParts = abi::kProxyOp | abi::kProxyStep | abi::kProxyCtrl | abi::kKernelCh |
                              abi::kNetPlugin | abi::kKernelPhase;
  if constexpr (kHasCalls<Descriptor>) {
    const bool is_captured = (d.type == abi::kCollApi && d.collApi.graphCaptured) ||
                             (d.type == abi::kP2pApi && d.p2pApi.graphCaptured);
    if (is_captured) return PairRing::kCaptured;
  }
  return (d.type & kParts) != 0 ? PairRing::kParts : PairRing::kTasks;
}

// As NCCL's own (2.30.7 plugin/profiler/profiler_v4.cc), which leaves p2p.nChannels out and sets
// nothing to 0. `launch`: of a task; its parent in v4.
template <typename Descriptor>
abi::DescriptorV4 ConvertToV4(const Descriptor& d, void* launch) {
  abi::DescriptorV4 v4;
  std::memset(static_cast<void*>(&v4), 0, sizeof(v4));
  v4.type = static_cast<uint8_t>(d.type);
  v4.parentObj = (d.type & (abi::kColl | abi::kP2p)) != 0 ? launch : d.parentObj;
  v4.rank = d.rank;
  if (d.type == abi::kColl) {
    v4.coll = d.coll;
  } else if (d.type == abi::kP2p) {
    v4.p2p = d.p2p;
  } else {
    std::memcpy(&v4.proxyOp, &d.proxyOp, sizeof(v4.proxyOp));  // the largest of the others
  }
  return v4;
}

// `Table` is the object that this plugin exports.
template <int kVersion, typename Descriptor, typename Table>
struct ChainedEvents {
  static inline Table ours{};  // as the object was

  static abi::Result Start(void* context, void** handle, Descriptor* descriptor) {
    Chain* const chain = Chain::Get();
    if (chain == nullptr || handle == nullptr || descriptor == nullptr)
      return ours.startEvent(context, handle, descriptor);
    Descriptor& d = *descriptor;
    PairPool& pool = *chain->pool();
    // Another process has called it (PXN): context and parent mean nothing here.
    const bool is_foreign = d.type == abi::kProxyOp && d.proxyOp.pid != chain->pid();
    void* none = nullptr;
    void*& launch_handle = LaunchOf(d, none);
    const Pair in = is_foreign ? Pair{context, context} : pool.FindContext(context);
    const Pair parent = is_foreign ? Pair{d.parentObj, d.parentObj} : pool.FindEvent(d.parentObj);
    const Pair launch = pool.FindEvent(launch_handle);
    const auto show = [&](void* Pair::*whose) {
      d.parentObj = parent.*whose;
      launch_handle = launch.*whose;
    };
    void* const former = *handle;

    show(&Pair::ours);
    ours.startEvent(in.ours, handle, descriptor);
    if (IsPassedOn(*chain, d, in, parent, is_foreign)) {
      show(&Pair::theirs);
      if (void* const theirs = StartTheirs(*chain, in.theirs, d, launch.theirs)) {
        const bool lacks_states = d.type == abi::kProxyStep && parent.theirs == nullptr;
        *handle = pool.Take(RingOf(d), *handle, theirs, lacks_states);
      }
      // NCCL starts a step at every poll until the network takes it, and forgets the former one.
      if (d.type == abi::kProxyStep) pool.Drop(former);
    }
    show(&Pair::handle);
    return abi::kSuccess;
  }

  static abi::Result Stop(void* handle) {
    Chain* const chain = Chain::Get();
    if (chain == nullptr) return ours.stopEvent(handle);
    const Pair pair = chain->pool()->FindEvent(handle);
    ours.stopEvent(pair.ours);
    if (pair.theirs == nullptr) return abi::kSuccess;
    chain->Call<kVersion, &ChainedTable::stop>(PairPool::RingOf(handle), pair.theirs);
    chain->pool()->Drop(handle);
    return abi::kSuccess;
  }

  static abi::Result Record(void* handle, int state, abi::StateArgs* arguments) {
    Chain* const chain = Chain::Get();
    if (chain == nullptr) return ours.recordEventState(handle, state, arguments);
    const Pair pair = chain->pool()->FindEvent(handle);
    ours.recordEventState(pair.ours, state, arguments);
    if (pair.theirs != nullptr && pair.note == 0) {
      chain->Call<kVersion, &ChainedTable::record>(PairPool::RingOf(handle), pair.theirs, state,
                                                   static_cast<void*>(arguments));
    }
    return abi::kSuccess;
  }

  static abi::Result Finalize(void* context) {
    Chain* const chain = Chain::Get();
    if (chain == nullptr) return ours.finalize(context);
    const Pair pair = chain->pool()->FindContext(context);
    ours.finalize(pair.ours);
    if (!pair.is_live) return abi::kSuccess;
    chain->pool()->Drop(context);
    chain->Finalize(kVersion, pair);
    return abi::kSuccess;
  }

 private:
  static bool IsPassedOn(const Chain& chain, const Descriptor& d, const Pair& in,
                         const Pair& parent, bool is_foreign) {
    if (!chain.Passes<kVersion>(d.type)) return false;
    // Announced under a parent with a handle only; by 2.27 a proxy operation as well, where those
    // of Sends and Receives are not announced.
    uint64_t need_parent = abi::kCeSync | abi::kCeBatch;
    if constexpr (kVersion == 4) {
      need_parent |= abi::kColl | abi::kP2p | abi::kProxyStep;
      if (!is_foreign && !chain.Passes<kVersion>(abi::kP2p)) need_parent |= abi::kProxyOp;
    }
    if ((d.type & need_parent) != 0 && parent.theirs == nullptr) return false;
    // The steps of a foreign operation name its context.
    const bool is_step = (d.type & (abi::kProxyStep | abi::kNetPlugin)) != 0;
    return in.is_live || is_foreign ||
           (is_step && in.theirs == nullptr && parent.theirs != nullptr);
  }

  static void* StartTheirs(Chain& chain, void* context, Descriptor& d, void* launch) {
    void* theirs = nullptr;
    const auto start = [&](void* descriptor) {
      chain.Call<kVersion, &ChainedTable::start>(RingOf(d), context, &theirs, descriptor);
    };
    if (kVersion > 4 && chain.VersionFor(kVersion) == 4) {
      abi::DescriptorV4 v4 = ConvertToV4(d, launch);
      start(&v4);
    } else {
      start(&d);
    }
    return theirs;
  }
};

// Puts the callbacks for two plugins into an object that this plugin exports. Before NCCL reads it.
template <int kVersion, typename Descriptor, typename... InitArguments>
void PassOn(abi::Profiler<Descriptor, InitArguments...>& table) {
  using Events = ChainedEvents<kVersion, Descriptor, abi::Profiler<Descriptor, InitArguments...>>;
  Events::ours = table;
  table = {table.name, table.init, Events::Start, Events::Stop, Events::Record, Events::Finalize};
}

}  // namespace nccl_exporter::plugin
