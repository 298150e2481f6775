// SPDX-License-Identifier: Apache-2.0
// Finds a function that a loaded library does not export, by the full symbol table of its file.
#pragma once

#include <string>

namespace nccl_exporter {

// Its address in the library that `address_in_library` lies in; null where the file has been
// stripped, or has none of that name.
void* FindLocalSymbol(const void* address_in_library, const std::string& name);

}  // namespace nccl_exporter
