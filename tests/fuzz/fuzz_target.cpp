#include "tests/fuzz/fuzz_target.h"

#include <unistd.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>

#include "src/core/messages.h"

/// Absent in programs without the address sanitizer.
extern "C" __attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(
    void (*)(const volatile void*, std::size_t), void (*)(const volatile void*));
extern "C" __attribute__((weak)) std::size_t __sanitizer_get_allocated_size(const volatile void*);

namespace hybrid_trainer {

namespace {

constexpr double kMaxSeconds = 1;                // of processor time; the machine may be busy
constexpr std::int64_t kMaxBytes = 200'000'000;  // of live blocks, without the sanitizer's share

std::int64_t live_bytes = 0;
thread_local bool counts_bytes = false;

[[noreturn]] void fail(const std::string& problem) {
  std::fprintf(stderr, "fuzz target: %s\n", problem.c_str());
  std::abort();
}

void count_allocation(const volatile void*, std::size_t bytes) {
  if (!counts_bytes) return;
  live_bytes += static_cast<std::int64_t>(bytes);
  if (live_bytes <= kMaxBytes) return;
  counts_bytes = false;  // the message allocates, too
  fail(concat("the reader holds ", live_bytes, " bytes"));
}

void count_release(const volatile void* block) {
  if (counts_bytes && block != nullptr)
    live_bytes -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(block));
}

double processor_seconds() {
  std::timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

const std::filesystem::path& input_folder() {
  static const std::filesystem::path folder = [] {
    const std::filesystem::path root =
        std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
    const auto path = root / concat("hybrid-fuzz-", ::getpid());
    std::filesystem::create_directories(path);
    std::atexit([] { std::filesystem::remove_all(input_folder()); });
    return path;
  }();
  return folder;
}

std::filesystem::path input_file(const std::string& name, std::string_view bytes) {
  std::filesystem::path path = input_folder() / name;
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

std::vector<std::string_view> parts_of(std::string_view input, std::size_t count) {
  constexpr std::string_view kLine = "\n=====\n";
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const std::size_t end = input.find(kLine);
    parts.push_back(input.substr(0, end));
    input = end == input.npos ? std::string_view() : input.substr(end + kLine.size());
  }
  parts.push_back(input);
  return parts;
}

std::size_t choice_in(std::string_view& input, std::size_t count) {
  if (input.empty()) return 0;
  const auto byte = static_cast<unsigned char>(input.front());
  input.remove_prefix(1);
  return byte % count;
}

}  // namespace hybrid_trainer

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  hybrid_trainer::send_warnings_to(nullptr);
  hybrid_trainer::input_folder();
  if (__sanitizer_install_malloc_and_free_hooks != nullptr)
    __sanitizer_install_malloc_and_free_hooks(hybrid_trainer::count_allocation,
                                              hybrid_trainer::count_release);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hybrid_trainer;
  const double begin = processor_seconds();
  live_bytes = 0;
  counts_bytes = true;
  try {
    unless_rejected([&] { read_input({reinterpret_cast<const char*>(data), size}); });
  } catch (const std::exception& error) {
    counts_bytes = false;
    fail(concat("an exception that is not an error of the project, or kInternal: ", error.what()));
  }
  counts_bytes = false;
  const double seconds = processor_seconds() - begin;
  if (seconds > kMaxSeconds) fail(concat("the reader took ", brief(seconds), " s"));
  return 0;
}
