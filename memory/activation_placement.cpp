#include "hybrid_trainer/memory/activation_placement.h"

#include <vector>

#include "scratch_file.h"

namespace hybrid_trainer {
namespace {

/// Keeps activations in another pool: on CUDA in pinned memory, by copies in stream order.
class HostTape final : public PlainTape {
 public:
  HostTape(const Pass& pass, Rebuild rebuild, const Stream& host)
      : PlainTape(pass, rebuild), host_(host) {}

 private:
  Tensor pack(const Activation& activation, const Stream& stream) override;
  Tensor unpack(const Tensor& kept, const Activation& activation, const Stream& stream) override;
  const Stream& host_;
};

/// Keeps activations in a file, one behind the other. Blocks for each; so it cannot be recorded.
class FileTape final : public PlainTape {
 public:
  FileTape(const Pass& pass, Rebuild rebuild, ScratchFile& file)
      : PlainTape(pass, rebuild), file_(file), host_(MemoryPool::create("host")) {}

 private:
  struct Entry {
    Shape shape;
    DType dtype;
    MemoryKind kind;
    std::int64_t at;
  };
  Tensor pack(const Activation& activation, const Stream& stream) override;
  Tensor unpack(const Tensor& kept, const Activation& activation, const Stream& stream) override;
  ScratchFile& file_;
  const Stream host_;  // of the tickets that stand for what lies in the file
  std::vector<Entry> entries_;
  std::int64_t end_ = 0;
};

Tensor HostTape::pack(const Activation& activation, const Stream& stream) {
  const Tensor away = Tensor::empty_like(activation.tensor, MemoryKind::kActivations, host_);
  copy(away, activation.tensor, stream);
  return away;
}

Tensor HostTape::unpack(const Tensor& kept, const Activation&, const Stream& stream) {
  const Tensor back = Tensor::empty_like(kept, MemoryKind::kActivations, stream);
  copy(back, kept, stream);
  return back;
}

Tensor FileTape::pack(const Activation& activation, const Stream& stream) {
  const Tensor& x = activation.tensor;
  file_.wait_for_write(x, end_, stream);
  const Tensor ticket = Tensor::empty({1}, DType::kI32, MemoryKind::kActivations, host_);
  ticket.data<std::int32_t>()[0] = static_cast<std::int32_t>(entries_.size());
  entries_.push_back({x.shape(), x.dtype(), x.kind(), end_});
  end_ += static_cast<std::int64_t>(x.bytes());
  return ticket;
}

Tensor FileTape::unpack(const Tensor& kept, const Activation&, const Stream& stream) {
  const Entry& entry = entries_[static_cast<std::size_t>(kept.data<std::int32_t>()[0])];
  const Tensor back = Tensor::empty(entry.shape, entry.dtype, entry.kind, stream);
  file_.wait_for_read(back, entry.at, stream);
  return back;
}

}  // namespace

ActivationPlacement::ActivationPlacement(const MemoryConfig& config, const Stream& host)
    : on_host_(config.activations == "host"), host_(host) {
  if (config.activations == "file")
    file_ = std::make_unique<ScratchFile>(config.scratch_folder(), "memory.folder");
}

ActivationPlacement::~ActivationPlacement() = default;

std::unique_ptr<PlainTape> ActivationPlacement::make_tape(const Pass& pass, Rebuild rebuild) {
  if (file_) return std::make_unique<FileTape>(pass, rebuild, *file_);
  if (on_host_) return std::make_unique<HostTape>(pass, rebuild, host_);
  return std::make_unique<PlainTape>(pass, rebuild);
}

}  // namespace hybrid_trainer
