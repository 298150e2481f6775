// SPDX-License-Identifier: Apache-2.0
// Sockets to listen at.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace nccl_exporter::exporter {

// Owns file descriptors and closes them.
class ListeningSockets {
 public:
  ListeningSockets() = default;
  ~ListeningSockets();
  ListeningSockets(const ListeningSockets&) = delete;
  ListeningSockets& operator=(const ListeningSockets&) = delete;

  // Listens at all addresses, before other threads begin: `host:port` with a name, an IPv4 address
  // or an IPv6 address in brackets, `:port` for all addresses of the host, port 0 for any free one;
  // the path of a Unix socket, at most one, which is for every user of the machine, takes the place
  // of one that nobody serves any more, and is removed by Close(). Returns what is wrong, or an
  // empty string.
  std::string Bind(const std::vector<std::string>& addresses);

  const std::vector<int>& sockets() const { return sockets_; }
  std::vector<int> ports() const;  // 0 for a Unix socket
  std::vector<std::string> names()
      const;  // 127.0.0.1:9828, [::]:9828, or the path of a Unix socket
  void Close();

 private:
  std::string BindOne(const std::string& address);
  std::string BindPath(const std::string& path);

  std::vector<int> sockets_;
  std::string path_;  // of the Unix socket; empty: none
};

// A peer as limits count it: one IPv4 address, however it came in, or the /64 of an IPv6 address,
// of which a host has all the addresses that it wants; "unix" for all peers of a Unix socket.
std::string ClientText(const sockaddr* address);

}  // namespace nccl_exporter::exporter
