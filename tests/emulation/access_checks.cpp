// With the address sanitizer, the compiler makes kernels call one of these functions before each
// access. Device memory is poisoned for the host, but kernels may access it.
#include "tests/emulation/emulated_device.h"

#ifdef HT_POISONED_DEVICE

namespace {

inline void check(void* at, std::size_t bytes, const char* does) {
  using namespace hybrid_trainer::emulation;
  if (reinterpret_cast<std::uintptr_t>(at) - first_device_address < kDeviceAddresses)
    check_access(at, bytes, does);
}

}  // namespace

extern "C" {
void __asan_load1_noabort(void* at) { check(at, 1, "reads"); }
void __asan_load2_noabort(void* at) { check(at, 2, "reads"); }
void __asan_load4_noabort(void* at) { check(at, 4, "reads"); }
void __asan_load8_noabort(void* at) { check(at, 8, "reads"); }
void __asan_load16_noabort(void* at) { check(at, 16, "reads"); }
void __asan_loadN_noabort(void* at, long n) { check(at, static_cast<std::size_t>(n), "reads"); }
void __asan_store1_noabort(void* at) { check(at, 1, "writes"); }
void __asan_store2_noabort(void* at) { check(at, 2, "writes"); }
void __asan_store4_noabort(void* at) { check(at, 4, "writes"); }
void __asan_store8_noabort(void* at) { check(at, 8, "writes"); }
void __asan_store16_noabort(void* at) { check(at, 16, "writes"); }
void __asan_storeN_noabort(void* at, long n) { check(at, static_cast<std::size_t>(n), "writes"); }
}

#endif
