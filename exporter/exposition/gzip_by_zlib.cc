// SPDX-License-Identifier: Apache-2.0
// gzip by zlib, for Arm: Debian's ISA-L for Arm has text relocations.
#include "exporter/exposition/gzip.h"

#define ZLIB_CONST  // next_in is only read
#include <zlib.h>

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>

namespace nccl_exporter::exporter {
namespace {

// Labels repeat so much that higher levels gain little and cost the node's CPU more.
constexpr int kLevel = 1;
constexpr int kWindowBits = 15 + 16;  // the largest window; 16 asks for a gzip member
constexpr int kMemoryLevel = 8;       // zlib's default: 256 KiB with this window

}  // namespace

std::string Gzip(std::string_view text) {
  if (text.size() > UINT32_MAX) throw std::length_error("too much to compress");
  z_stream stream{};
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kWindowBits, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    throw std::bad_alloc();
  const std::unique_ptr<z_stream, decltype(&deflateEnd)> end(&stream, deflateEnd);
  stream.next_in = reinterpret_cast<const Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  std::string compressed;
  std::array<Bytef, 16384> part;
  int status = Z_OK;
  while (status == Z_OK) {
    stream.next_out = part.data();
    stream.avail_out = static_cast<uInt>(part.size());
    status = deflate(&stream, Z_FINISH);
    compressed.append(reinterpret_cast<const char*>(part.data()), part.size() - stream.avail_out);
  }
  if (status != Z_STREAM_END) throw std::runtime_error("zlib does not compress");
  return compressed;
}

std::optional<std::string> Decompressed(std::string_view compressed, size_t limit_bytes) {
  if (compressed.size() > UINT32_MAX) return std::nullopt;
  z_stream stream{};
  if (inflateInit2(&stream, kWindowBits) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> end(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<const Bytef*>(compressed.data());
  stream.avail_in = static_cast<uInt>(compressed.size());
  std::string text;
  std::array<Bytef, 65536> part;
  while (true) {
    stream.next_out = part.data();
    stream.avail_out = static_cast<uInt>(part.size());
    const int status = inflate(&stream, Z_NO_FLUSH);
    const size_t length = part.size() - stream.avail_out;
    if ((status != Z_OK && status != Z_STREAM_END) || text.size() + length > limit_bytes)
      return std::nullopt;
    text.append(reinterpret_cast<const char*>(part.data()), length);
    if (status != Z_STREAM_END) continue;
    if (stream.avail_in == 0) return text;
    if (inflateReset(&stream) != Z_OK) return std::nullopt;  // the next member
  }
}

}  // namespace nccl_exporter::exporter
