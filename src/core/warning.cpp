#include "hybrid_trainer/core/warning.h"

#include <iostream>
#include <mutex>
#include <set>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

std::mutex mutex;
std::ostream* output = &std::cerr;
std::set<std::string> said;

}  // namespace

void warn(const std::string& where, const std::string& what) {
  const std::lock_guard lock(mutex);
  if (output != nullptr && said.insert(what).second)
    *output << concat("warning: ", where, ": ", what, "\n") << std::flush;
}

void send_warnings_to(std::ostream* out) {
  const std::lock_guard lock(mutex);
  output = out;
  said.clear();
}

}  // namespace hybrid_trainer
