// SPDX-License-Identifier: Apache-2.0
// TLS as the web configuration wants it, for every handshake anew: certificates rotate without a restart.
#pragma once

#include <openssl/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "exporter/web_config.h"

namespace nccl_exporter {

// What is in force now; any thread, at every handshake.
using TlsConfigSource = std::function<TlsConfig()>;

class TlsContext {
 public:
  // Reads configuration and files for the first time; what is wrong stands in `error`, one line.
  TlsContext(TlsConfigSource source, std::string& error);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // What handshakes begin with. Each reads the files again, and goes on with what they hold; where that is unusable, a
  // key that does not belong to its certificate for one, with what was usable last, and the log says so once. Sessions
  // are not resumed: a client is as good as its certificate is now. Null after an error.
  SSL_CTX* front() const { return front_.get(); }

 private:
  using SharedContext = std::shared_ptr<SSL_CTX>;
  struct Material;

  static Material Read(const TlsConfig& config);
  static SharedContext Make(const Material& material);  // throws what is wrong
  SharedContext Current();
  static int OnClientHello(SSL* connection, int* alert, void* self);

  const TlsConfigSource source_;
  std::mutex mutex_;                          // guards what follows
  std::unique_ptr<const Material> material_;  // that was tried last
  SharedContext current_;                     // that was usable last
  SharedContext front_;
};

}  // namespace nccl_exporter
