// SPDX-License-Identifier: Apache-2.0
// One name after the other, until there is none.
#include "exporter/http/peer_names.h"

#include <arpa/inet.h>

namespace nccl_exporter::exporter {
namespace {

std::string AddressText(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  if (bytes.size() == 4 || bytes.size() == 16) {
    inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  }
  return text;
}

}  // namespace

std::vector<std::string> AlternativeNames(gnutls_x509_crt_t certificate) {
  constexpr size_t kLongestName = 4096;  // a longer one counts as none
  std::vector<std::string> names;
  for (unsigned i = 0;; ++i) {
    std::string name(kLongestName, '\0');
    size_t size = name.size();
    const int type =
        gnutls_x509_crt_get_subject_alt_name(certificate, i, name.data(), &size, nullptr);
    if (type == GNUTLS_E_SHORT_MEMORY_BUFFER) continue;
    if (type < 0) return names;
    name.resize(size);
    if (type == GNUTLS_SAN_IPADDRESS) names.push_back(AddressText(name));
    if (type == GNUTLS_SAN_DNSNAME || type == GNUTLS_SAN_RFC822NAME || type == GNUTLS_SAN_URI)
      names.push_back(name);
  }
}

}  // namespace nccl_exporter::exporter
