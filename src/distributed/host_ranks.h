#pragma once

#include <chrono>
#include <memory>

#include "src/distributed/communicator.h"

namespace hybrid_trainer {

/// `ranks` ranks in this process, one for each thread that is to be one. Tensors lie in host
/// memory. One that is destroyed has ended: others that wait for it throw RankLost.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks);

/// Runs `rank` in a thread for each rank, and returns when all have ended. Where one throws, the
/// others are aborted, and what it threw is thrown on.
void run_thread_ranks(int ranks, const std::function<void(Communicator&)>& rank);

/// Whether a process of this name is one that mpirun starts ranks by, on its own host or on others.
bool is_open_mpi_launcher(const std::string& process_name);

/// Sees to it that the launcher, this process's parent, is killed where it has not ended after
/// `patience`, whether or not this process still is there then: mpirun that has bytes on their way to a host
/// which no longer answers waits for TCP to give up, some 16 min. Nothing where the parent is no
/// launcher of Open MPI's.
void end_launcher_after(std::chrono::milliseconds patience);

/// The processes that mpirun started, as ranks; one process alone is one rank. Tensors lie in host
/// memory. Open MPI is opened here, by the plug-in libhybrid_trainer_mpi.so, and never before. One
/// thread makes all of its calls; while it waits it sleeps, since Open MPI's own waits spin. Once
/// in a process. Its end waits for all ranks, except during an exception: then mpirun ends the
/// other ranks when this process has ended. Throws DeviceError where there is no plug-in, or MPI
/// does not start.
std::unique_ptr<Communicator> start_mpi_communicator();

/// Address at which the ranks of a job find each other.
struct RankMeeting {
  int rank = 0, size = 1;
  std::string address;          // of rank 0's host: a name or a number
  std::uint16_t port = 0;       // that rank 0 opens
  std::string job;              // who says another is turned away
  bool is_one_machine = false;  // so that no other one is listened to
  /// Secret that only this job's ranks know; never sent. Asked before each try: rank 0 may not have
  /// left it yet, which is "".
  std::function<std::string()> secret{};
  std::chrono::milliseconds limit{60000};  // until all have come
};

/// Processes as ranks, connected by TCP each with each. Tensors lie in host memory. abort() ends
/// this process; others notice. A collective of all ranks. Throws DeviceError where rank 0's port
/// is in use, or the ranks have not met within the limit.
std::unique_ptr<Communicator> meet_by_sockets(const RankMeeting& meeting);

}  // namespace hybrid_trainer
