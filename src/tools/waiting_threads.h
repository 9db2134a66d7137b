#pragma once

#include <string>

namespace hybrid_trainer {

/// Makes threads that wait for work spin briefly and then sleep, so that other programs on the
/// machine can use the CPU. By default, OpenMP spins for a long time, and a single other busy
/// program reduces the speed by four fifths. Restarts the program once with GOMP_SPINCOUNT set,
/// because OpenMP reads its environment before main. Does not restart it for this reason if the
/// user has set GOMP_SPINCOUNT or OMP_WAIT_POLICY. Also restarts the program if OpenMP has bound
/// the main thread to one place (OMP_PROC_BIND), because all threads of the program would run
/// there.
void set_idle_thread_policy(char** arguments);

/// Returns the setting of the environment for waiting threads: "GOMP_SPINCOUNT=1000".
std::string waiting_of_threads();

}  // namespace hybrid_trainer
