// SPDX-License-Identifier: Apache-2.0
// The allowed names live with their context, for as long as the last connection made with it.
#include "exporter/peer_names.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>

namespace nccl_exporter {
namespace {

using Names = std::vector<std::string>;

void FreeNames(void*, void* names, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<Names*>(names); }

int NamesIndex() {
  static const int kIndex = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, FreeNames);
  return kIndex;
}

std::string TextOf(const ASN1_STRING* string) {
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                     static_cast<size_t>(ASN1_STRING_length(string)));
}

std::string AddressOf(const ASN1_STRING* bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  const int length = ASN1_STRING_length(bytes);
  if (length == 4 || length == 16) {
    inet_ntop(length == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(bytes), text, sizeof text);
  }
  return text;
}

}  // namespace

void AllowNames(SSL_CTX* context, const Names& names) {
  delete static_cast<Names*>(SSL_CTX_get_ex_data(context, NamesIndex()));
  SSL_CTX_set_ex_data(context, NamesIndex(), new Names(names));
}

Names AlternativeNames(X509* certificate) {
  Names found;
  auto* const names =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_DNS || name->type == GEN_EMAIL || name->type == GEN_URI) found.push_back(TextOf(name->d.ia5));
    if (name->type == GEN_IPADD) found.push_back(AddressOf(name->d.iPAddress));
  }
  GENERAL_NAMES_free(names);
  return found;
}

int AcceptAllowedName(int is_good, X509_STORE_CTX* verification) {
  if (is_good != 1 || X509_STORE_CTX_get_error_depth(verification) != 0) return is_good;
  const auto* const connection =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto* const allowed = static_cast<Names*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), NamesIndex()));
  if (allowed == nullptr || allowed->empty()) return 1;
  const Names names = AlternativeNames(X509_STORE_CTX_get_current_cert(verification));
  const bool is_allowed = std::ranges::any_of(
      names, [&](const std::string& name) { return std::ranges::find(*allowed, name) != allowed->end(); });
  if (!is_allowed) X509_STORE_CTX_set_error(verification, X509_V_ERR_APPLICATION_VERIFICATION);
  return is_allowed ? 1 : 0;
}

}  // namespace nccl_exporter
