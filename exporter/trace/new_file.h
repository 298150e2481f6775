// SPDX-License-Identifier: Apache-2.0
// WriteNewFile(), which puts a whole file at a path, or nothing. For the first thread.
#pragma once

#include <string>
#include <string_view>

namespace nccl_exporter::exporter {

// Writes a new file beside `path` and gives it that name, in place of a regular file of the name.
// So root may write into a directory of a user: no link is followed, no FIFO is waited for, and a
// full disk or a signal leaves what was there before. Returns why not, or an empty string.
std::string WriteNewFile(const std::string& path, std::string_view content);

}  // namespace nccl_exporter::exporter
