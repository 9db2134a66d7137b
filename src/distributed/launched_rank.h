#pragma once

#include "src/distributed/host_ranks.h"
#include "src/distributed/job_secret.h"

namespace hybrid_trainer {

struct LaunchedRank {
  std::string launcher;  // "mpirun", "torchrun", "srun", "hybrid --ranks" or a description
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // rank and number of ranks on this host
  bool supports_pmix = false;          // whether PMIx is available, which Open MPI requires
  bool operator==(const LaunchedRank&) const = default;
};

/// Reads the variables of this process's launcher: OMPI_COMM_WORLD_… of mpirun; RANK, WORLD_SIZE …
/// of torchrun and `hybrid --ranks`; or a Slurm step's variables. Otherwise accepts RANK and a
/// WORLD_SIZE above 1 (default of LOCAL_RANK: 0), else returns nullopt. Throws UsageError if a
/// variable is missing or not a number, or if two disagree.
std::optional<LaunchedRank> launched_rank(const EnvironmentVariable& variable);
std::optional<LaunchedRank> launched_rank();

/// Returns "SLURM_RESTART_COUNT=1" if the launcher has restarted this job: Slurm after requeuing,
/// or torchrun. Throws UsageError if the count is not a number.
std::optional<std::string> restart_of_job(const EnvironmentVariable& variable);
std::optional<std::string> restart_of_job();

/// Returns the rendezvous of ranks without PMIx, at MASTER_ADDR and MASTER_PORT, or with torchrun
/// the next port, because its store uses MASTER_PORT. Throws UsageError if they are missing.
RankRendezvous rendezvous_of(const LaunchedRank& launched, const EnvironmentVariable& variable);

/// Starts this process as a rank. `hybrid --ranks` uses TCP on this machine; mpirun, and srun with
/// PMIx, use Open MPI. CUDA devices communicate by NCCL, and their hosts in the same way. TCP ranks
/// authenticate with `secret`. Throws UsageError, which suggests mpirun, for other launchers on
/// CPUs, or if Open MPI and the launcher disagree on the ranks; DeviceError like
/// start_mpi_communicator, connect_by_sockets and start_nccl_communicator.
std::unique_ptr<Communicator> start_launched_rank(const LaunchedRank& launched, Device device,
                                                  JobSecret& secret);

/// Environment variable that identifies `hybrid --ranks` as the launcher; unique per job.
inline constexpr const char* kLocalRanksVariable = "HYBRID_RANKS";

}  // namespace hybrid_trainer
