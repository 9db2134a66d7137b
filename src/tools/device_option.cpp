#include "src/tools/device_option.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"

namespace hybrid_trainer {

void add_device_option(po::options_description& options, std::string& name) {
  options.add_options()("device", po::value(&name)->value_name("cpu|cuda|cuda:N|auto"),
                        "Where to compute; auto: CUDA where there is one (auto).");
}

const std::string& checked_device_name(const std::string& name) {
  if (!names_a_device(name)) {
    throw UsageError(concat("--device ", name, ": want cpu, cuda, cuda:N or auto",
                            name_hint(name, {"cpu", "cuda", "cuda:0", "auto"})));
  }
  return name;
}

Device device_of_option(const std::string& name) { return find_device(checked_device_name(name)); }

}  // namespace hybrid_trainer
