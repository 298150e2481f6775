// SPDX-License-Identifier: Apache-2.0
// Credentials of GnuTLS, made when a text they are made of has changed.
#include "exporter/http/tls_context.h"

#include <arpa/inet.h>
#include <gnutls/x509.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

namespace nccl_exporter::exporter {
namespace {

// By the least version.
constexpr std::array<const char*, 4> kPriorities{
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:+VERS-TLS1.1:+VERS-TLS1.0:%SERVER_PRECEDENCE",
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:+VERS-TLS1.1:%SERVER_PRECEDENCE",
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE",
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:%SERVER_PRECEDENCE"};

constexpr const char* kVersionsFault = "TLS versions from min_version on";

gnutls_datum_t Datum(const std::string& text) {
  return {.data = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())),
          .size = static_cast<unsigned>(text.size())};
}

void Require(int status, const std::string& what) {
  if (status < 0) throw std::runtime_error(what + ": " + gnutls_strerror(status));
}

// Whether the certificate of the session's client is valid now, for that purpose, by the
// authorities that the session trusts. False if it has none.
bool IsGoodClient(gnutls_session_t session) {
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
std::string AddressText(const std::string& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  if (bytes.size() == 4 || bytes.size() == 16) {
    inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  }
  return text;
}

// The subject alternative names of a certificate, as text: DNS names, addresses, e-mail addresses
// and URIs.
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

// Whether a certificate in DER has one of the names. Every certificate has if no name is asked for.
bool HasAllowedName(const gnutls_datum_t& der, const std::vector<std::string>& allowed) {
  if (allowed.empty()) return true;
  gnutls_x509_crt_t certificate = nullptr;
  if (gnutls_x509_crt_init(&certificate) < 0) return false;
  std::vector<std::string> names;
  if (gnutls_x509_crt_import(certificate, &der, GNUTLS_X509_FMT_DER) >= 0)
    names = AlternativeNames(certificate);
  gnutls_x509_crt_deinit(certificate);
  return std::ranges::find_first_of(names, allowed) != names.end();
}

// The versions from the least one on. What the system's policy of GnuTLS leaves of them may be too
// little.
std::shared_ptr<gnutls_priority_st> VersionsFrom(TlsVersion least) {
  gnutls_priority_t made = nullptr;
  Require(gnutls_priority_init(&made, kPriorities[static_cast<size_t>(least)], nullptr),
          kVersionsFault);
  return {made, gnutls_priority_deinit};
}

// Every certificate in the files must be readable.
TlsContext::Credentials MakeCredentials(const TlsContext::Files& files,
                                        const TlsContext::Credentials* /*in_force*/) {
  for (const FileText* const file : {&files.certificate, &files.key, &files.client_ca})
    if (!file->unreadable.empty()) throw std::runtime_error(file->unreadable);
  gnutls_certificate_credentials_t made = nullptr;
  Require(gnutls_certificate_allocate_credentials(&made), "TLS credentials");
  TlsContext::Credentials credentials{.config = files.config,
                                      .keys = {made, gnutls_certificate_free_credentials},
                                      .versions = VersionsFrom(files.config.min_version)};
  const gnutls_datum_t chain = Datum(files.certificate.text);
  const gnutls_datum_t key = Datum(files.key.text);
  const int status = gnutls_certificate_set_x509_key_mem(made, &chain, &key, GNUTLS_X509_FMT_PEM);
  if (status == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
    throw std::runtime_error(files.key.path + " does not belong to " + files.certificate.path);
  Require(status, files.certificate.path + " with " + files.key.path);
  if (files.config.client_ca_file.empty()) return credentials;
  const gnutls_datum_t authorities = Datum(files.client_ca.text);
  const int count = gnutls_certificate_set_x509_trust_mem(made, &authorities, GNUTLS_X509_FMT_PEM);
  Require(count == 0 ? GNUTLS_E_NO_CERTIFICATE_FOUND : count, files.client_ca.path);
  return credentials;
}

// Called in a handshake when the client's certificate is in, or should be. 0 lets it in.
int VerifyClient(gnutls_session_t session) {
  const TlsConfig& config =
      static_cast<const TlsContext::Credentials*>(gnutls_db_get_ptr(session))->config;
  unsigned size = 0;
  const gnutls_datum_t* const chain = gnutls_certificate_get_peers(session, &size);
  const bool is_given = chain != nullptr && size != 0;
  return is_given && IsGoodClient(session) && HasAllowedName(chain[0], config.client_allowed_sans)
             ? 0
             : -1;
}

TlsContext::Files ReadFiles(const TlsConfig& config) {
  return {.config = config,
          .certificate = ReadFileText(config.cert_file),
          .key = ReadFileText(config.key_file),
          .client_ca = config.client_ca_file.empty() ? FileText{.path = {}, .text = {}}
                                                     : ReadFileText(config.client_ca_file)};
}

}  // namespace

TlsContext::TlsContext(const TlsConfigSource& source, std::string& error)
    : credentials_(
          "files of TLS", [source] { return ReadFiles(source()); }, MakeCredentials, error) {}

std::shared_ptr<const void> TlsContext::Prepare(gnutls_session_t session) {
  std::shared_ptr<const Credentials> credentials = credentials_.Current();
  Require(gnutls_priority_set(session, credentials->versions.get()), kVersionsFault);
  gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials->keys.get());
  if (!credentials->config.verifies_clients) return credentials;
  gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
  // The place for what a cache of sessions needs, which there is none of. The session's own pointer
  // is the library's.
  gnutls_db_set_ptr(session, const_cast<Credentials*>(credentials.get()));
  gnutls_session_set_verify_function(session, VerifyClient);
  return credentials;
}

}  // namespace nccl_exporter::exporter
