#pragma once

#include <chrono>
#include <string>

namespace hybrid_trainer {

/// Whether a process of this name is one that mpirun starts ranks by, on its own host or on others.
bool is_open_mpi_launcher(const std::string& process_name);

/// Sees to it that the launcher, this process's parent, is killed where it has not ended after
/// `patience`, whether or not this process still is there then: mpirun that has bytes on their way to a host
/// which no longer answers waits for TCP to give up, some 16 min. Nothing where the parent is no
/// launcher of Open MPI's.
void end_launcher_after(std::chrono::milliseconds patience);

}  // namespace hybrid_trainer
