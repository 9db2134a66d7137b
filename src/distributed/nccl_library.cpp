#include "src/distributed/nccl_library.h"

#include <type_traits>

#include "hybrid_trainer/core/cuda_libraries.h"
#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::string nccl_version_text(int version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

NcclLibrary NcclLibrary::open(const WantedLibrary& wanted) {
  NcclLibrary found;
  found.library_ = SharedLibrary::open(wanted);
  const auto ask = found.library_.function<nccl::Result(int*)>("ncclGetVersion");
  if (ask(&found.version_) != nccl::kSuccess || found.version_ < kOldestNccl) {
    throw DeviceError(concat("NCCL: ", found.library_.path(), " is version ",
                             nccl_version_text(found.version_), ", want ",
                             nccl_version_text(kOldestNccl), " or newer; ", wanted.way_out));
  }
  visit_functions(found.functions_, [&](const char* name, auto& function) {
    using Function = std::remove_pointer_t<std::remove_reference_t<decltype(function)>>;
    function = found.library_.function<Function>(name);
  });
  return found;
}

}  // namespace hybrid_trainer
