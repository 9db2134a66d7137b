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

/// A name from a file may be very long.
std::string shortened(std::string text) {
  constexpr std::size_t kLongest = 4000;
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // within UTF-8
  return text.substr(0, end) + "…";
}

}  // namespace

void warn(const std::string& where, const std::string& what) {
  const std::lock_guard lock(mutex);
  if (output != nullptr && said.insert(what).second)
    *output << concat("warning: ", where, ": ", shortened(what), "\n") << std::flush;
}

void send_warnings_to(std::ostream* out) {
  const std::lock_guard lock(mutex);
  output = out;
  said.clear();
}

}  // namespace hybrid_trainer
