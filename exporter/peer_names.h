// SPDX-License-Identifier: Apache-2.0
// Which names of a client's certificate open the door: client_allowed_sans.
#pragma once

#include <openssl/types.h>

#include <string>
#include <vector>

namespace nccl_exporter {

// Lets connections of the context in whose certificate has one of these subject alternative names, a DNS name, an
// address, an e-mail address or a URI, compared as they are. Empty: any.
void AllowNames(SSL_CTX* context, const std::vector<std::string>& names);

// The context's verify callback: what OpenSSL found good is asked for its names.
int AcceptAllowedName(int is_good, X509_STORE_CTX* verification);

// The subject alternative names of a certificate, of the four kinds above.
std::vector<std::string> AlternativeNames(X509* certificate);

}  // namespace nccl_exporter
