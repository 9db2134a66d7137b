#include "hybrid_trainer/trainer/interruption.h"

#include <unistd.h>
#include <csignal>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

volatile std::sig_atomic_t requests = 0;  // a signal handler may access nothing else

extern "C" void count_request(int) {
  requests = requests + 1;
  if (requests > 1) _exit(static_cast<int>(ExitCode::kInterrupted));
}

}  // namespace

Interruption::Interruption() {
  requests = 0;
  struct sigaction action {};
  action.sa_handler = count_request;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

Interruption::~Interruption() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool Interruption::requested() const { return requests > 0; }

}  // namespace hybrid_trainer
