#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// What a launcher says to one of the processes that it started.
struct LaunchedRank {
  std::string launcher;  // "mpirun", "torchrun" or "srun"
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host
  bool speaks_pmix = false;            // so that Open MPI starts in it
  bool operator==(const LaunchedRank&) const = default;
};

/// Reads an environment variable; null where it is not set.
using EnvironmentVariable = std::function<const char*(const char*)>;

/// What this process's launcher said in variables: mpirun's OMPI_COMM_WORLD_…, torchrun's RANK,
/// WORLD_SIZE …, or, where there are neither, those of a step of Slurm; none without a launcher.
/// Throws UsageError where a variable is missing or no number, or mpirun and torchrun disagree.
std::optional<LaunchedRank> launched_rank(const EnvironmentVariable& variable);
std::optional<LaunchedRank> launched_rank();

/// "SLURM_RESTART_COUNT=1" where the launcher has started this job anew: Slurm, which requeued it, or
/// torchrun. Throws UsageError where that is no number.
std::optional<std::string> restart_of_job(const EnvironmentVariable& variable);
std::optional<std::string> restart_of_job();

/// This process as a rank, on a processor: by Open MPI, which mpirun starts, or srun with PMIx.
/// Throws UsageError, which names mpirun, where another launcher did, or where Open MPI counts other
/// ranks than the launcher; DeviceError as start_mpi_communicator.
std::unique_ptr<Communicator> start_launched_rank(const LaunchedRank& launched);

}  // namespace hybrid_trainer
