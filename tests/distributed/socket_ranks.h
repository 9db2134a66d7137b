#pragma once

#include <functional>

#include "src/distributed/host_ranks.h"

namespace hybrid_trainer::testing {

std::uint16_t free_port();

/// Settings for ranks on this machine.
RankRendezvous rendezvous(int rank, int size, std::uint16_t port);

/// Runs `rank` in a thread for each rank, connected by TCP.
void run_sockets(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& rank);
void run_socket_ranks(int ranks, const std::function<void(Communicator&)>& rank);

}  // namespace hybrid_trainer::testing
