#pragma once

#include <chrono>

#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// Makes `ranks` ranks in this process, one per thread. Tensors are in host memory. If a
/// communicator is destroyed, other ranks that wait for its rank throw RankLost.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks);

/// Runs `rank` in one thread per rank and waits. If one throws, aborts the others and rethrows.
void run_thread_ranks(int ranks, const std::function<void(Communicator&)>& rank);

/// Returns whether mpirun starts ranks through a process of this name, locally or on other hosts.
bool is_open_mpi_launcher(const std::string& process_name);

/// Kills the launcher (this process's parent) if it has not ended after `patience`, even if this
/// process has. Otherwise, mpirun with unsent data for an unreachable host would wait for the TCP
/// timeout, about 16 min. Does nothing if the parent is not an Open MPI launcher.
void end_launcher_after(std::chrono::milliseconds patience);

/// Returns a communicator of the ranks that mpirun started, or of a single rank. Tensors are in
/// host memory. Only this function loads Open MPI, with the plug-in libhybrid_trainer_mpi.so. One
/// thread makes all MPI calls, and sleeps while it waits, because waiting functions of Open MPI
/// spin. Call it once per process. The destructor waits for all ranks, except during an exception:
/// then mpirun ends them. Throws DeviceError if there is no plug-in or MPI does not start.
std::unique_ptr<Communicator> start_mpi_communicator();

struct RankRendezvous {
  int rank = 0, size = 1;
  std::string address;     // name or IP address of rank 0's host
  std::uint16_t port = 0;  // port that rank 0 opens
  std::string job;         // identifier of the job; callers of other jobs are rejected
  /// True if all ranks are on one machine; rank 0 then listens only on loopback.
  bool is_one_machine = false;
  /// Returns this job's secret, or "" if rank 0 has not published it yet. Called before each try.
  std::function<std::string()> secret{};
  std::chrono::milliseconds limit{60000};  // limit until all ranks have connected
};

/// Connects each process to all other processes over TCP. The processes are the ranks. Tensors are
/// in host memory. abort() ends this process, which the other ranks detect. Collective. Throws
/// DeviceError if rank 0's port is in use, or if the ranks have not connected within the limit.
std::unique_ptr<Communicator> connect_by_sockets(const RankRendezvous& rendezvous);

}  // namespace hybrid_trainer
