// SPDX-License-Identifier: Apache-2.0
// The names in a client's certificate: what client_allowed_sans is compared with.
#pragma once

#include <gnutls/x509.h>

#include <string>
#include <vector>

namespace nccl_exporter::exporter {

// The subject alternative names of a certificate: DNS names, addresses, e-mail addresses and URIs,
// as text.
std::vector<std::string> AlternativeNames(gnutls_x509_crt_t certificate);

}  // namespace nccl_exporter::exporter
