// Preloaded by check_lost_ranks.sh: a oneDNN matrix product hangs once HT_STUCK_WHEN-RANK exists.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

bool should_hang() {
  static const char* const when = std::getenv("HT_STUCK_WHEN");
  static const char* const rank = std::getenv("RANK");  // set by --ranks
  if (when == nullptr || rank == nullptr) return false;
  static const std::string file = std::string(when) + "-" + rank;
  return access(file.c_str(), F_OK) == 0;
}

template <class Function>
Function* next_or_hang(const char* name) {
  for (volatile bool spins = should_hang(); spins;) {
  }
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int dnnl_primitive_execute(const void* primitive, void* stream, int arguments,
                                      const void* values) {
  using Product = int(const void*, void*, int, const void*);
  return next_or_hang<Product>("dnnl_primitive_execute")(primitive, stream, arguments, values);
}

extern "C" int dnnl_sgemm(char transposes_a, char transposes_b, std::int64_t m, std::int64_t n,
                          std::int64_t k, float alpha, const float* a, std::int64_t lda,
                          const float* b, std::int64_t ldb, float beta, float* c,
                          std::int64_t ldc) {
  using Product = int(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*,
                      std::int64_t, const float*, std::int64_t, float, float*, std::int64_t);
  return next_or_hang<Product>("dnnl_sgemm")(transposes_a, transposes_b, m, n, k, alpha, a, lda, b,
                                             ldb, beta, c, ldc);
}
