#pragma once

#include <cstdint>
#include <vector>

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// How one number stands in a .npy file.
enum class NpyNumber {
  kBool,
  kUnsigned8,
  kInteger8,
  kUnsigned16,
  kInteger16,
  kUnsigned32,
  kInteger32,
  kUnsigned64,
  kInteger64,
  kFloat16,
  kFloat32,
  kFloat64
};
std::size_t bytes_of(NpyNumber number);
bool is_floating(NpyNumber number);

/// What the header of a .npy file says.
struct NpyForm {
  NpyNumber number = NpyNumber::kFloat32;
  bool is_big_endian = false;
  bool is_column_major = false;  // Fortran's order: the first index runs fastest
  std::vector<std::int64_t> shape{};
  std::size_t offset = 0;  // bytes before the first number
  std::int64_t elements() const;
};

/// Numbers of an array, the last index running fastest.
struct NpyArray {
  NpyForm form;
  std::vector<float> values;
};

/// Reads the header of a .npy file of version 1, 2 or 3. Throws MissingInput; DataError where the file
/// is something else, holds objects, texts, records or complex numbers, or has fewer bytes than its
/// shape wants; IoError.
NpyForm read_npy_form(const FilePart& path);

/// Reads a whole file; numbers that are no f32 are rounded to it. Throws what read_npy_form throws.
NpyArray read_npy(const FilePart& path);

/// The eight bytes by which a .npy file is known are six of these and its version.
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

/// What the file's header says, which is compared with its size. Throws what read_npy_form throws.
NpyForm npy_form_of(const InputFile& file);

}  // namespace hybrid_trainer
