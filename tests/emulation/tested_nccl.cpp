#include "tests/emulation/tested_nccl.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::emulation {
namespace {

const WantedLibrary kFake{
    .title = "NCCL", .files = {HT_FAKE_NCCL}, .folders = {}, .hint = "build the tests"};

FakeNccl& opened() {
  static const SharedLibrary library = SharedLibrary::open(kFake);
  FakeNccl& control = *library.function<FakeNcclFunction>(kFakeNcclFunction)();
  control.enqueue = [](CUstream_st* stream, std::function<void()> work) {
    enqueue(stream, std::move(work));
  };
  control.copy = copy_bytes;
  control.current_device = current_device;
  return control;
}

}  // namespace

FakeNccl& fake_nccl() {
  static FakeNccl& control = opened();
  return control;
}

}  // namespace hybrid_trainer::emulation

namespace hybrid_trainer {

WantedLibrary tested_nccl() {
  emulation::fake_nccl();
  return emulation::kFake;
}

}  // namespace hybrid_trainer
