#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

/// Reads one input. Each target defines this function; fuzz_target.cpp calls it and checks limits.
void read_input(std::string_view input);

/// Calls `f`. Ignores the errors with which a reader rejects a file, so that the target can continue
/// with another reader. kInternal is a bug of the reader and not ignored.
template <class F>
void unless_rejected(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    if (error.code() == ExitCode::kInternal) throw;
  }
}

/// Writes a file to the process's folder in /dev/shm, for readers that take paths. Returns its path.
std::filesystem::path input_file(const std::string& name, std::string_view bytes);
/// Returns the process's folder.
const std::filesystem::path& input_folder();

/// Splits an input at lines "=====", for readers of several files.
std::vector<std::string_view> parts_of(std::string_view input, std::size_t count);

/// Removes the first byte of the input and returns it as a number less than `count`.
std::size_t choice_in(std::string_view& input, std::size_t count);

}  // namespace hybrid_trainer
