// SPDX-License-Identifier: Apache-2.0
// The way back from Gzip(), for tests.
#pragma once

#include <string>
#include <string_view>

namespace nccl_exporter {

// Empty where `compressed` is not one whole gzip member.
std::string Gunzip(std::string_view compressed);

}  // namespace nccl_exporter
