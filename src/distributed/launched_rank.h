#pragma once

#include "src/distributed/host_ranks.h"
#include "src/distributed/job_secret.h"

namespace hybrid_trainer {

/// Data that a launcher gives to one of the processes that it started.
struct LaunchedRank {
  std::string launcher;  // "mpirun", "torchrun", "srun", "hybrid --ranks" or who set the variables
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host
  bool speaks_pmix = false;            // so that Open MPI starts in it
  bool operator==(const LaunchedRank&) const = default;
};

/// Reads the variables of this process's launcher: mpirun's OMPI_COMM_WORLD_…, RANK, WORLD_SIZE …
/// of torchrun and of `hybrid --ranks`, or, where there are neither, those of a step of Slurm; else
/// RANK and a WORLD_SIZE above 1 that anybody has set, where LOCAL_RANK may be missing for 0. None
/// without any. Throws UsageError where a variable is missing or no number, or two of them
/// disagree.
std::optional<LaunchedRank> launched_rank(const EnvironmentVariable& variable);
std::optional<LaunchedRank> launched_rank();

/// "SLURM_RESTART_COUNT=1" where the launcher has started this job anew: Slurm, which requeued it, or
/// torchrun. Throws UsageError where that is no number.
std::optional<std::string> restart_of_job(const EnvironmentVariable& variable);
std::optional<std::string> restart_of_job();

/// Where ranks that speak no PMIx meet: MASTER_ADDR and MASTER_PORT, or with torchrun, whose own
/// store has that port, the one after it. Throws UsageError where they are missing.
RankMeeting meeting_of(const LaunchedRank& launched, const EnvironmentVariable& variable);

/// Starts this process as a rank. Ranks of `hybrid --ranks` send by TCP on this machine; others by
/// Open MPI, under mpirun or srun with PMIx. On CUDA devices NCCL sends, and the hosts do so by either.
/// Throws UsageError, which names mpirun, for other launchers' ranks on a processor, or if Open MPI
/// counts other ranks than the launcher; DeviceError as start_mpi_communicator, meet_by_sockets and
/// start_nccl_communicator. By the secret ranks that meet by TCP know each other.
std::unique_ptr<Communicator> start_launched_rank(const LaunchedRank& launched, Device device,
                                                  JobSecret& secret);

/// By which `hybrid --ranks` is told as the launcher; its value is the job's own.
inline constexpr const char* kLocalRanksVariable = "HYBRID_RANKS";

}  // namespace hybrid_trainer
