// SPDX-License-Identifier: Apache-2.0
// TLS as the web configuration wants it, read again for every connection: certificates rotate
// without a restart.
#pragma once

#include <gnutls/gnutls.h>

#include <functional>
#include <memory>
#include <string>

#include "exporter/http/last_usable.h"
#include "exporter/http/web_config.h"

namespace nccl_exporter::exporter {

// Returns the configuration that is in force now; any thread, at every connection.
using TlsConfigSource = std::function<TlsConfig()>;

class TlsContext {
 public:
  // All that credentials are made of.
  struct Files {
    TlsConfig config;
    FileText certificate;
    FileText key;
    FileText client_ca;

    bool operator==(const Files&) const = default;
  };
  struct Credentials {
    TlsConfig config;
    std::shared_ptr<gnutls_certificate_credentials_st> keys;
    std::shared_ptr<gnutls_priority_st> versions;
  };

  // Reads configuration and files for the first time; a fault is put into `error`, one line.
  TlsContext(const TlsConfigSource& source, std::string& error);

  // Prepares a server's session before its handshake; the session may not outlive what is returned.
  // Reads the files again, and goes on with what they hold; where that is unusable, a key that does
  // not belong to its certificate for one, with what was usable last. Sessions are not resumed: a
  // client is as good as its certificate is now. Any thread; not after an error at the start.
  std::shared_ptr<const void> Prepare(gnutls_session_t session);
  // Reads the files now; what is wrong with them, empty if they are in force.
  std::string FaultNow() { return credentials_.FaultNow(); }

 private:
  LastUsable<Files, Credentials> credentials_;
};

}  // namespace nccl_exporter::exporter
