#include "hybrid_trainer/core/short_turns.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace hybrid_trainer {
namespace {

/// As the system call takes it. Source: sched_setattr(2).
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes), policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 100'000;  // ns: the least that the system takes
  std::uint64_t deadline = 0, period = 0;
};

}  // namespace

bool take_short_turns() noexcept {
  if (sched_getscheduler(0) != SCHED_OTHER) return false;  // somebody wants it otherwise
  SchedulingAttributes attributes;
  attributes.nice = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

}  // namespace hybrid_trainer
