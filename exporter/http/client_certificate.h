// SPDX-License-Identifier: Apache-2.0
// What the certificate of a client is worth: whether one of our authorities signed it for clients,
// and whether it has a name that the web configuration lets in (client_allowed_sans).
#pragma once

#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include <algorithm>
#include <string>
#include <vector>

namespace nccl_exporter::exporter {

// Whether the certificate of the session's client is valid now, for that purpose, by the
// authorities that the session trusts. False if it has none.
inline bool IsGoodClient(gnutls_session_t session) {
  // GnuTLS takes purposes as text that it does not change.
  gnutls_typed_vdata_st purpose{
      .type = GNUTLS_DT_KEY_PURPOSE_OID,
      .data = reinterpret_cast<unsigned char*>(const_cast<char*>(GNUTLS_KP_TLS_WWW_CLIENT)),
      .size = 0};
  unsigned faults = 0;
  return gnutls_certificate_verify_peers(session, &purpose, 1, &faults) == GNUTLS_E_SUCCESS &&
         faults == 0;
}

// An IPv4 or IPv6 address in network byte order, as text; empty if it has another length.
inline std::string AddressText(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  if (bytes.size() == 4 || bytes.size() == 16) {
    inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  }
  return text;
}

// The subject alternative names of a certificate, as text: DNS names, addresses, e-mail addresses
// and URIs.
inline std::vector<std::string> AlternativeNames(gnutls_x509_crt_t certificate) {
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

// Whether a certificate in DER has one of the names. Every certificate has if no name is asked for.
inline bool HasAllowedName(const gnutls_datum_t& der, const std::vector<std::string>& allowed) {
  if (allowed.empty()) return true;
  gnutls_x509_crt_t certificate = nullptr;
  if (gnutls_x509_crt_init(&certificate) < 0) return false;
  std::vector<std::string> names;
  if (gnutls_x509_crt_import(certificate, &der, GNUTLS_X509_FMT_DER) >= 0)
    names = AlternativeNames(certificate);
  gnutls_x509_crt_deinit(certificate);
  return std::ranges::find_first_of(names, allowed) != names.end();
}

}  // namespace nccl_exporter::exporter
