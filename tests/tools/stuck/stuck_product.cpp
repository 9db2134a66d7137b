// Preloaded into ranks (check_lost_ranks.sh): a matrix product of oneDNN's never ends once there is a file named by HT_STUCK_WHEN,
// "-" and the rank.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

bool is_to_be_stuck() {
  static const char* const when = std::getenv("HT_STUCK_WHEN");
  static const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (when == nullptr || rank == nullptr) return false;
  static const std::string file = std::string(when) + "-" + rank;
  return access(file.c_str(), F_OK) == 0;
}

}  // namespace

extern "C" int dnnl_primitive_execute(const void* primitive, void* stream, int arguments,
                                      const void* values) {
  using Product = int(const void*, void*, int, const void*);
  static auto* const product =
      reinterpret_cast<Product*>(dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  for (volatile bool spins = is_to_be_stuck(); spins;) {
  }
  return product(primitive, stream, arguments, values);
}
