#pragma once

#include <string>

namespace hybrid_trainer {

/// Makes threads that wait for work spin briefly and then sleep, so that other programs on the
/// machine get their share of the CPU. By default OpenMP spins for long, and one busy neighbor
/// costs four fifths of the speed. OpenMP reads its environment before main, so this restarts the
/// program once with GOMP_SPINCOUNT set, unless the user set that or OMP_WAIT_POLICY. It also
/// restarts if OpenMP has bound the main thread to one place (OMP_PROC_BIND), since all of the
/// program's threads would run there.
void set_idle_thread_policy(char** arguments);

/// Returns how threads wait according to the environment: "GOMP_SPINCOUNT=1000".
std::string waiting_of_threads();

}  // namespace hybrid_trainer
