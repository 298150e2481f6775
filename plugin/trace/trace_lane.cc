// SPDX-License-Identifier: Apache-2.0
#include "plugin/trace/trace_lane.h"

namespace nccl_exporter::plugin {

bool TraceLane::ClaimInNewChunk(TraceSession& trace, uint64_t session, uint64_t words,
                                uint64_t* place) {
  const TryLock lock{&is_taking_chunk_};
  if (!lock) return false;
  // Another thread may have been here meanwhile.
  if (SessionOf(LoadRelaxed(word_)) == session && Claim(trace, session, words, place)) return true;
  uint64_t chunk = 0;
  if (!trace.TakeChunk(session, trace_ring::OwnerWord(session, slot_, role_), &chunk)) {
    StoreRelaxed(word_, Word(session, 0, kFull));
    return false;
  }
  *place = Word(session, chunk, 0);
  StoreRelease(word_, Word(session, chunk, words));
  return true;
}

}  // namespace nccl_exporter::plugin
