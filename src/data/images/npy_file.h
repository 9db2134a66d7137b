#pragma once

#include <cstdint>
#include <vector>

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// A type of numbers, such as "f4".
struct NpyNumber {
  std::string_view code;
  std::size_t bytes = 0;
  float (*value)(const unsigned char* bytes) = nullptr;  // in the byte order of the machine
  bool is_floating() const { return code.starts_with('f'); }
};

struct NpyForm {
  NpyNumber number{};
  bool is_big_endian = false;
  bool is_column_major = false;  // Fortran order
  std::vector<std::int64_t> shape{};
  std::size_t offset = 0;  // bytes before the first number
  std::int64_t elements() const;
};

/// Numbers of an array, in row-major order.
struct NpyArray {
  NpyForm form;
  std::vector<float> values;
};

/// Reads the header of a .npy file of version 1, 2 or 3. Throws DataError if the file is not a .npy
/// file, contains objects, texts, records or complex numbers, or is too short for its shape. Also
/// throws MissingInput and IoError.
NpyForm read_npy_form(const FilePart& path);

/// Reads a whole file and rounds its numbers to f32. Throws like read_npy_form.
NpyArray read_npy(const FilePart& path);

/// First six bytes of a .npy file. The next two bytes are its version.
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

NpyForm npy_form_of(const InputFile& file);

}  // namespace hybrid_trainer
