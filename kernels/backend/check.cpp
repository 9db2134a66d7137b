#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

namespace {

/// Returns whether kernels on `device` may take the tensor. A simulated device, which reads no
/// memory, also accepts tensors of the real device, to measure the memory of recorded work.
bool reaches(Device device, Device of_tensor) {
  return device == of_tensor ||
         (device.simulated && device.type == of_tensor.type && device.index == of_tensor.index);
}

/// Throws Error if a defined tensor is not on the stream's device. Call it for every tensor.
void check_device(const KernelCall& call, const NamedTensor& argument) {
  const Tensor& tensor = argument.tensor;
  if (!tensor.defined() || reaches(call.device, tensor.device())) return;
  throw Error(ExitCode::kInternal,
              concat(call.kernel, ": ", argument.name, " is on ", name_of(tensor.device()),
                     ", but the stream is on ", name_of(call.device),
                     "; copy it there with wait_for_device"));
}

}  // namespace

void check_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted) {
  check_device(call, argument);
  if (argument.tensor.shape() == wanted && argument.tensor.defined()) return;
  throw_mismatch(call, argument.name, " is ", argument.tensor.shape().text(),
                 argument.tensor.defined() ? "" : " (undefined)", ", want ", wanted.text());
}

void check_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted,
                 DType dtype) {
  check_shape(call, argument, wanted);
  check_dtype(call, argument, dtype);
}

void check_optional_shape(const KernelCall& call, const NamedTensor& argument,
                          const Shape& wanted) {
  if (argument.tensor.defined()) check_shape(call, argument, wanted);
}

void check_optional_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted,
                          DType dtype) {
  if (argument.tensor.defined()) check_shape(call, argument, wanted, dtype);
}

void check_rank(const KernelCall& call, const NamedTensor& argument, int wanted) {
  if (argument.tensor.shape().rank() == wanted) return;
  throw_mismatch(call, argument.name, " is ", argument.tensor.shape().text(), ", want ", wanted,
                 " dimensions");
}

void check_rank(const KernelCall& call, const NamedTensor& argument, int wanted, DType dtype) {
  check_rank(call, argument, wanted);
  check_dtype(call, argument, dtype);
}

void check_dtype(const KernelCall& call, const NamedTensor& argument, DType wanted) {
  check_device(call, argument);
  if (argument.tensor.dtype() == wanted) return;
  throw Error(ExitCode::kInternal,
              concat(call.kernel, ": ", argument.name, " is ", name_of(argument.tensor.dtype()),
                     ", want ", name_of(wanted)));
}

void check_real(const KernelCall& call, const NamedTensor& argument) {
  check_device(call, argument);
  const DType dtype = argument.tensor.dtype();
  if (dtype == DType::kF32 || dtype == DType::kBF16) return;
  throw Error(ExitCode::kInternal, concat(call.kernel, ": ", argument.name, " is ", name_of(dtype),
                                          ", want f32 or bf16"));
}

void check_real(const KernelCall& call, const NamedTensor& argument, int rank) {
  check_rank(call, argument, rank);
  check_real(call, argument);
}

void check_matching(const KernelCall& call, std::initializer_list<NamedTensor> arguments) {
  const Tensor& first = arguments.begin()->tensor;
  for (const NamedTensor& argument : arguments)
    check_shape(call, argument, first.shape(), first.dtype());
}

void check_matching_real(const KernelCall& call, std::initializer_list<NamedTensor> arguments) {
  check_real(call, *arguments.begin());
  check_matching(call, arguments);
}

void check_update(const KernelCall& call, const NamedTensor& w, const NamedTensor& g,
                  const NamedTensor& compute_copy) {
  check_dtype(call, w, DType::kF32);
  check_matching(call, {w, g});
  check_optional_shape(call, compute_copy, w.tensor.shape(), DType::kBF16);
}

}  // namespace hybrid_trainer::kernels
