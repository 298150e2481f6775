// SPDX-License-Identifier: Apache-2.0
// gzip by ISA-L, but for Arm.
#include "exporter/exposition/gzip.h"

#include <isa-l/igzip_lib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <array>
#include <memory>
#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

// Labels repeat so much that higher levels gain little and cost the node's CPU more.
constexpr uint32_t kLevel = 1;

// Memory that compressing takes beside its input and output: the library's state, and output on its
// way.
struct Workspace {
  isal_zstream stream;
  uint8_t level[ISAL_DEF_LVL1_SMALL];
  uint8_t part[16384];
};

// ISA-L leaves the upper halves of the vector registers dirty, with which all code that follows
// runs at half its speed.
#if defined(__x86_64__)
__attribute__((target("avx"))) void ClearUpperHalves() { _mm256_zeroupper(); }
void LeaveVectorCode() {
  if (__builtin_cpu_supports("avx")) ClearUpperHalves();
}
#else
void LeaveVectorCode() {}
#endif

}  // namespace

std::string Gzip(std::string_view text) {
  if (text.size() > UINT32_MAX) throw std::length_error("too much to compress");
  const auto work = std::make_unique_for_overwrite<Workspace>();
  isal_zstream& stream = work->stream;
  isal_deflate_init(&stream);
  stream.gzip_flag = IGZIP_GZIP;
  stream.level = kLevel;
  stream.level_buf = work->level;
  stream.level_buf_size = sizeof(work->level);
  stream.end_of_stream = 1;
  // The library only reads its input, although next_in is not const.
  stream.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uint32_t>(text.size());
  std::string compressed;
  do {
    stream.next_out = work->part;
    stream.avail_out = sizeof(work->part);
    const int status = isal_deflate(&stream);
    LeaveVectorCode();
    if (status != COMP_OK) throw std::runtime_error("ISA-L does not compress");
    compressed.append(reinterpret_cast<const char*>(work->part),
                      sizeof(work->part) - stream.avail_out);
  } while (stream.internal_state.state != ZSTATE_END);
  return compressed;
}

std::optional<std::string> Decompressed(std::string_view compressed, size_t limit_bytes) {
  if (compressed.size() > UINT32_MAX) return std::nullopt;
  const auto state = std::make_unique<inflate_state>();
  isal_inflate_init(state.get());
  state->crc_flag = ISAL_GZIP;
  state->next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(compressed.data()));
  state->avail_in = static_cast<uint32_t>(compressed.size());
  std::string text;
  const auto part = std::make_unique_for_overwrite<std::array<uint8_t, 65536>>();
  while (true) {
    state->next_out = part->data();
    state->avail_out = static_cast<uint32_t>(part->size());
    const int status = isal_inflate(state.get());
    LeaveVectorCode();
    const size_t length = part->size() - state->avail_out;
    if (status != ISAL_DECOMP_OK || text.size() + length > limit_bytes) return std::nullopt;
    text.append(reinterpret_cast<const char*>(part->data()), length);
    if (state->block_state == ISAL_BLOCK_FINISH) {
      if (state->avail_in == 0) return text;
      isal_inflate_reset(state.get());  // the next member
      state->crc_flag = ISAL_GZIP;
    } else if (length == 0) {
      return std::nullopt;  // the end is missing
    }
  }
}

}  // namespace nccl_exporter::exporter
