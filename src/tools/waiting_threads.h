#pragma once

#include <string>

namespace hybrid_trainer {

/// Threads that wait for work spin for a moment and then sleep, so that another program on the
/// machine gets the processor, and this one the rest: OpenMP's own default spins for long, and one
/// busy neighbour costs four fifths of the speed. OpenMP reads its environment before main, so that
/// this starts the program anew, once, with GOMP_SPINCOUNT set. Does nothing where the user set
/// that or OMP_WAIT_POLICY, and where the program cannot be started anew.
void let_waiting_threads_sleep(char** arguments);

/// How threads wait, from the environment: "GOMP_SPINCOUNT=1000".
std::string waiting_of_threads();

}  // namespace hybrid_trainer
