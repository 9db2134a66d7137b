#include "hybrid_trainer/memory/away_tape.h"

namespace hybrid_trainer {
namespace {

class AwayTape final : public PlainTape {
 public:
  AwayTape(const Pass& pass, Rebuild rebuild, const Stream& home)
      : PlainTape(pass, rebuild), home_(home) {}

 private:
  Tensor pack(const Activation& activation, const Stream& stream) override {
    const Tensor away = Tensor::empty_like(activation.tensor, MemoryKind::kActivations, home_);
    copy_or_wait(away, activation.tensor, stream);
    return away;
  }
  Tensor unpack(const Tensor& kept, const Activation&, const Stream& stream) override {
    const Tensor back = Tensor::empty_like(kept, MemoryKind::kActivations, stream);
    copy_or_wait(back, kept, stream);
    return back;
  }
  const Stream& home_;
};

}  // namespace

std::unique_ptr<PlainTape> make_tape(const Pass& pass, Rebuild rebuild, const Stream& home,
                                     const Stream& device) {
  if (home.pool() == device.pool()) return std::make_unique<PlainTape>(pass, rebuild);
  return std::make_unique<AwayTape>(pass, rebuild, home);
}

}  // namespace hybrid_trainer
