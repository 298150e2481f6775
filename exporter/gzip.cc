// SPDX-License-Identifier: Apache-2.0
// gzip by zlib.
#include "exporter/gzip.h"

#include <zlib.h>

#include <new>

namespace nccl_exporter {

std::string Gzip(std::string_view text) {
  constexpr int kGzipWindow = 15 + 16;  // the greatest window, and 16 for gzip in place of zlib framing
  constexpr int kDefaultMemory = 8;
  // Labels repeat so much that higher levels gain little and cost the node's CPU several times as much.
  constexpr int kLevel = Z_BEST_SPEED;
  z_stream stream{};
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kGzipWindow, kDefaultMemory, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  std::string compressed(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  deflate(&stream, Z_FINISH);  // completes at once: deflateBound() promises the room
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  return compressed;
}

}  // namespace nccl_exporter
