// SPDX-License-Identifier: Apache-2.0
// Gunzip(), the inverse of Gzip() by zlib, for tests.
#pragma once

#include <zlib.h>

#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

// Empty if `compressed` is not one whole gzip member.
inline std::string Gunzip(std::string_view compressed) {
  constexpr int kGzipOnly = 15 + 16;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return "";
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  std::string text;
  int result = Z_OK;
  while (result == Z_OK) {
    char part[16384];
    stream.next_out = reinterpret_cast<Bytef*>(part);
    stream.avail_out = sizeof part;
    result = inflate(&stream, Z_NO_FLUSH);
    text.append(part, sizeof part - stream.avail_out);
  }
  const bool is_whole = result == Z_STREAM_END && stream.avail_in == 0;
  inflateEnd(&stream);
  return is_whole ? text : "";
}

}  // namespace nccl_exporter::exporter
