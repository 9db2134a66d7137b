#include "hybrid_trainer/core/dtype.h"

namespace hybrid_trainer {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kU16:
      return 2;
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kF64:
      return 8;
  }
  return 0;
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kU16:
      return "u16";
    case DType::kU8:
      return "u8";
    case DType::kF64:
      return "f64";
    case DType::kI8:
      return "i8";
  }
  return "?";
}

}  // namespace hybrid_trainer
