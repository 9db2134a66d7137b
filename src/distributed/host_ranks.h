#pragma once

#include <chrono>
#include <memory>

#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Makes `ranks` ranks in this process, one per thread. Tensors are in host memory. If a
/// communicator is destroyed, other ranks that wait for its rank throw RankLost.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks);

/// Runs `rank` in one thread per rank, to the end. If one throws, aborts the others and rethrows.
void run_thread_ranks(int ranks, const std::function<void(Communicator&)>& rank);

/// Returns whether mpirun starts ranks through a process of this name, locally or on other hosts.
bool is_open_mpi_launcher(const std::string& process_name);

/// Kills the launcher (this process's parent) if it has not ended after `patience`, even if this
/// process has ended by then. Otherwise, mpirun with data in flight to an unreachable host waits
/// for the TCP timeout, about 16 min. No effect if the parent is not an Open MPI launcher.
void end_launcher_after(std::chrono::milliseconds patience);

/// Returns the processes that mpirun started, as ranks; without mpirun, one rank. Tensors are in
/// host memory. Open MPI is loaded only here, with the plug-in libhybrid_trainer_mpi.so. One thread
/// makes all MPI calls, and sleeps while it waits, because Open MPI's own waits spin. Call it once
/// per process. The destructor waits for all ranks, except during an exception: then mpirun ends
/// the other ranks after this process ends. Throws DeviceError if there is no plug-in or MPI does
/// not start.
std::unique_ptr<Communicator> start_mpi_communicator();

struct RankRendezvous {
  int rank = 0, size = 1;
  std::string address;          // of rank 0's host, a name or a number
  std::uint16_t port = 0;       // opened by rank 0
  std::string job;              // callers of other jobs are rejected
  bool is_one_machine = false;  // listens on loopback only
  /// Returns the secret of this job, which is never sent. Called before each try, because rank 0
  /// may not have published it yet (then "").
  std::function<std::string()> secret{};
  std::chrono::milliseconds limit{60000};  // until all have connected
};

/// Connects processes as ranks, each with all others, over TCP. Tensors are in host memory. abort()
/// ends this process, which the others detect. Collective. Throws DeviceError if rank 0's port is
/// in use, or if the ranks have not connected within the limit.
std::unique_ptr<Communicator> connect_by_sockets(const RankRendezvous& rendezvous);

}  // namespace hybrid_trainer
