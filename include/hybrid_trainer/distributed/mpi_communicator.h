#pragma once

#include <memory>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// The processes that mpirun started, as ranks; one process alone is one rank. Tensors lie in host
/// memory. Open MPI is opened here, by the plug-in libhybrid_trainer_mpi.so, and never before. One
/// thread makes all of its calls; while it waits it sleeps, since Open MPI's own waits spin. Once
/// in a process. Its end waits for all ranks, except during an exception: then mpirun ends the
/// other ranks when this process has ended. Throws DeviceError where there is no plug-in, or MPI
/// does not start.
std::unique_ptr<Communicator> start_mpi_communicator();

}  // namespace hybrid_trainer
