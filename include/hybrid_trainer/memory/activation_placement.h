#pragma once

#include <memory>

#include "hybrid_trainer/memory/memory_config.h"
#include "hybrid_trainer/nn/activation_tape.h"

namespace hybrid_trainer {

class ScratchFile;

/// Makes the tapes of training steps, which keep activations where memory.activations says.
class ActivationPlacement {
 public:
  /// `host` must outlive it. Throws CannotCreate where there can be no file.
  ActivationPlacement(const MemoryConfig& config, const Stream& host);
  ~ActivationPlacement();
  /// One at a time.
  std::unique_ptr<PlainTape> make_tape(const Pass& pass, Rebuild rebuild);

 private:
  bool on_host_;
  const Stream& host_;
  std::unique_ptr<ScratchFile> file_;  // none unless activations go to one
};

}  // namespace hybrid_trainer
