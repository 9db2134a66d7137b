#pragma once

#include <string>

namespace hybrid_trainer {

/// Makes threads that wait for work spin briefly and then sleep, so that other programs on the
/// machine get their share of the CPU. By default, OpenMP spins for long, and one busy neighbor
/// costs four fifths of the speed. Restarts the program once with GOMP_SPINCOUNT set, because
/// OpenMP reads its environment before main. Does not do so if the user has set GOMP_SPINCOUNT or
/// OMP_WAIT_POLICY. Also restarts the program if OpenMP has bound the main thread to one place
/// (OMP_PROC_BIND), because all of the program's threads would run there.
void set_idle_thread_policy(char** arguments);

/// Returns how threads wait according to the environment: "GOMP_SPINCOUNT=1000".
std::string waiting_of_threads();

}  // namespace hybrid_trainer
