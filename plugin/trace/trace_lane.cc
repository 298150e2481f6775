// SPDX-License-Identifier: Apache-2.0
#include "plugin/trace/trace_lane.h"

namespace nccl_exporter::plugin {

bool TraceLane::ClaimInNewChunk(TraceSession& trace, uint64_t session, uint64_t words,
                                uint64_t* place) {
  const TryLock lock{&is_taking_chunk_};
  if (!lock || trace.session() != session) return false;
  // Another thread may have been here meanwhile.
  if (Claim(session, words, place)) return true;
  const bool is_full = LoadRelaxed(word_) == Word(session, 0, kFull);
  if (is_full && records_to_skip_ != 0) return --records_to_skip_, false;
  uint64_t chunk = 0;
  const bool has_chunk =
      trace.TakeChunk(session, trace_ring::OwnerWord(session, slot_, role_), &chunk);
  const uint64_t before = word_.exchange(
      has_chunk ? Word(session, chunk, words) : Word(session, 0, kFull), std::memory_order_acq_rel);
  if (SessionOf(before) == session && OffsetOf(before) != kFull)
    trace.Close(ChunkOf(before), OffsetOf(before));
  if (!has_chunk) records_to_skip_ = kSkippedRecords;
  *place = Word(session, chunk, 0);
  return has_chunk;
}

}  // namespace nccl_exporter::plugin
