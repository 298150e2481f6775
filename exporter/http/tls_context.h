// SPDX-License-Identifier: Apache-2.0
// TLS as the web configuration wants it, read again for every connection: certificates rotate
// without a restart.
#pragma once

#include <gnutls/gnutls.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "exporter/http/web_config.h"

namespace nccl_exporter::exporter {

// Returns the configuration that is in force now; any thread, at every connection.
using TlsConfigSource = std::function<TlsConfig()>;

class TlsContext {
 public:
  // Reads configuration and files for the first time; a fault is put into `error`, one line.
  TlsContext(TlsConfigSource source, std::string& error);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // Prepares a server's session before its handshake; the session may not outlive what is returned.
  // Reads the files again, and goes on with what they hold; where that is unusable, a key that does
  // not belong to its certificate for one, with what was usable last, and the log says so once.
  // Sessions are not resumed: a client is as good as its certificate is now. Any thread; not after
  // an error at the start.
  std::shared_ptr<const void> Prepare(gnutls_session_t session);
  // Reads the files now; what is wrong with them, empty if they are in force.
  std::string FaultNow();

 private:
  struct PemFiles;
  class Credentials;

  static PemFiles Read(const TlsConfig& config);
  std::shared_ptr<const Credentials> Current();
  static int Verify(gnutls_session_t session);

  const TlsConfigSource source_;
  std::mutex mutex_;                            // guards what follows
  std::unique_ptr<const PemFiles> material_;    // that was tried last
  std::string fault_;                           // of that
  std::shared_ptr<const Credentials> current_;  // that were usable last
};

}  // namespace nccl_exporter::exporter
