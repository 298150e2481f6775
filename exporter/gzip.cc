// SPDX-License-Identifier: Apache-2.0
// gzip by libdeflate.
#include "exporter/gzip.h"

#include <libdeflate.h>

#include <memory>
#include <new>

namespace nccl_exporter {

std::string Gzip(std::string_view text) {
  // Labels repeat so much that higher levels gain little and cost the node's CPU up to twice as much.
  constexpr int kLevel = 1;
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
      libdeflate_alloc_compressor(kLevel), libdeflate_free_compressor);
  if (compressor == nullptr) throw std::bad_alloc();
  // Room for the worst case, of which only what is written takes memory.
  const size_t bound = libdeflate_gzip_compress_bound(compressor.get(), text.size());
  const auto room = std::make_unique_for_overwrite<char[]>(bound);
  return {room.get(), libdeflate_gzip_compress(compressor.get(), text.data(), text.size(), room.get(), bound)};
}

}  // namespace nccl_exporter
