// SPDX-License-Identifier: Apache-2.0
// What must hold of the negotiation whatever a client sends.
#pragma once

#include <string_view>

namespace nccl_exporter::fuzz {

// The input's first line is an Accept header, the second Accept-Encoding, the third the scrape timeout. Aborts, saying
// which, where a promise is broken.
void NegotiateAndCheck(std::string_view input);

}  // namespace nccl_exporter::fuzz
