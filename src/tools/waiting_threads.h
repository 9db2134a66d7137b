#pragma once

#include <string>

namespace hybrid_trainer {

/// Makes threads that wait for work spin briefly and then sleep, so that another program on the
/// machine gets its share of the processor and this one the rest: by default OpenMP spins for long,
/// and one busy neighbour costs four fifths of the speed. OpenMP reads its environment before main,
/// so this restarts the program, once, with GOMP_SPINCOUNT set, unless the user set that or
/// OMP_WAIT_POLICY. It also restarts it if OpenMP has bound its main thread to one place
/// (OMP_PROC_BIND): the program's own threads would all run there.
void let_waiting_threads_sleep(char** arguments);

/// How threads wait, according to the environment: "GOMP_SPINCOUNT=1000".
std::string waiting_of_threads();

}  // namespace hybrid_trainer
