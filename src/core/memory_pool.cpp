#include "hybrid_trainer/core/memory_pool.h"

#include <algorithm>
#include <mutex>

#include "hybrid_trainer/core/error.h"
#include "src/core/block_store.h"
#include "src/core/machine.h"

namespace hybrid_trainer {

namespace {

thread_local std::string_view memory_label;

constexpr std::size_t kPage = 4096;

/// Rounds sizes below 4 KiB to cache lines, others to pages, so that similar sizes share blocks.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = bytes < kPage ? kCacheLine : kPage;
  return (bytes + step - 1) / step * step;
}

std::unique_ptr<BlockStore> make_store(const MemorySource& source, BudgetedSource& budgeted) {
  if (source.separates_blocks()) return std::make_unique<SingleBlocks>(budgeted);
  if (source.prefers_slabs()) return std::make_unique<Arena>(budgeted);
  return std::make_unique<BlockCache>(budgeted);
}

/// Returns a remedy. If parameters, which are allocated first, do not fit, the model is too large.
const char* hint(std::string_view what) {
  return what == name_of(MemoryKind::kParameters)
             ? "use a smaller model: lower model.width or model.layers"
             : "lower data.batch_size or data.sequence_length, or set memory.recompute, "
               "memory.activations or memory.optimizer_state";
}

/// Returns the live bytes by kind, largest first: " (activations 5000, parameters 300)", or "".
std::string holders(const MemoryUse& use) {
  std::vector<std::string> texts;
  for (const auto& [bytes, name] : kinds_by_size(use)) texts.push_back(concat(name, " ", bytes));
  return texts.empty() ? "" : " (" + join(texts) + ")";
}

/// Returns the largest blocks: ", the largest 5000 for h.0.mlp bf16 (8, 64), …", or "".
std::string largest(const MemoryShortage& shortage) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> texts;
  for (const MemoryBlock& block : shortage.largest)
    if (texts.size() < kNamed) texts.push_back(concat(block.bytes, " for ", block.text()));
  return texts.empty() ? "" : ", the largest " + join(texts);
}

}  // namespace

const char* name_of(MemoryKind kind) {
  constexpr std::array<const char*, kMemoryKinds> names{
      "parameters", "gradients", "optimizer_state", "activations", "predictor", "snapshot",
      "workspace",  "data",      "master_weights",  "logits"};
  return names[static_cast<std::size_t>(kind)];
}

std::string MemoryBlock::text() const {
  const std::string what = label[0] == 0 ? name_of(kind) : label.data();
  if (content.shape.rank() == 0) return what;
  return concat(what, " ", name_of(content.dtype), " ", content.shape.text());
}

MemoryLabel::MemoryLabel(std::string_view name) : outer_(memory_label) { memory_label = name; }

MemoryLabel::~MemoryLabel() { memory_label = outer_; }

std::string_view MemoryLabel::current() { return memory_label; }

/// Records the live blocks of a pool. Its memory grows only with the peak number of blocks.
class BlockLedger {
 public:
  std::size_t add(const MemoryBlock& block) {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
      free_.reserve(slots_.capacity());
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = block;
    return slot;
  }
  void remove(std::size_t slot) noexcept {
    slots_[slot].bytes = 0;
    free_.push_back(slot);
  }
  MemoryBlock& operator[](std::size_t slot) { return slots_[slot]; }
  std::size_t live() const { return slots_.size() - free_.size(); }

  template <class Visit>
  void visit(const Visit& visit) const {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
      if (slots_[slot].bytes > 0) visit(slot, slots_[slot]);
  }
  std::vector<MemoryBlock> largest(std::size_t count) const {
    std::vector<MemoryBlock> blocks;
    visit([&](std::size_t, const MemoryBlock& block) { blocks.push_back(block); });
    const auto end = blocks.begin() + static_cast<std::ptrdiff_t>(std::min(count, blocks.size()));
    std::partial_sort(blocks.begin(), end, blocks.end(),
                      [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    blocks.erase(end, blocks.end());
    return blocks;
  }

 private:
  std::vector<MemoryBlock> slots_;  // 0 bytes: free slot
  std::vector<std::size_t> free_;
};

std::vector<std::pair<std::size_t, const char*>> kinds_by_size(const MemoryUse& use) {
  std::vector<std::pair<std::size_t, const char*>> kinds;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (use.live[kind] > 0)
      kinds.emplace_back(use.live[kind], name_of(static_cast<MemoryKind>(kind)));
  }
  std::sort(kinds.rbegin(), kinds.rend());
  return kinds;
}

struct MemoryPool::Blocks {
  Blocks(MemorySource& from, std::optional<std::size_t> budget_bytes)
      : source(from, budget_bytes), store(make_store(from, source)) {}
  mutable std::mutex mutex;
  BudgetedSource source;
  std::unique_ptr<BlockStore> store;
  MemoryUse use;
  BlockLedger ledger;
  MemoryListener* listener = nullptr;
};

Buffer::~Buffer() {
  if (data_ != nullptr) pool_->release(*this);
}

Device Buffer::device() const { return pool_ ? pool_->device() : Device{}; }

void Buffer::set_kind(MemoryKind kind) {
  pool_->move_kind(*this, kind);
  kind_ = kind;
}

bool Buffer::pinned() const { return pool_ && pool_->pinned(); }

void Buffer::swap(Buffer& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
  std::swap(slot_, other.slot_);
}

std::shared_ptr<MemoryPool> MemoryPool::create(std::string name,
                                               std::optional<std::size_t> budget_bytes,
                                               std::unique_ptr<MemorySource> source) {
  return std::shared_ptr<MemoryPool>(
      new MemoryPool(std::move(name), budget_bytes, std::move(source)));
}

MemoryPool::MemoryPool(std::string name, std::optional<std::size_t> budget_bytes,
                       std::unique_ptr<MemorySource> source)
    : name_(std::move(name)),
      budget_bytes_(budget_bytes),
      source_(std::move(source)),
      blocks_(std::make_unique<Blocks>(*source_, budget_bytes)) {}

MemoryPool::~MemoryPool() { blocks_->store->trim(); }

/// Allocates from the store. If that fails, returns cached memory to the system and retries.
void* MemoryPool::find(std::size_t size) {
  void* data = blocks_->store->allocate(size);
  if (data != nullptr) return data;
  blocks_->store->trim();
  return blocks_->store->allocate(size);
}

void MemoryPool::throw_out_of_memory(const MemoryBlock& asked, const char* what) const {
  const MemoryUse use = use_now();
  const bool over = blocks_->source.would_exceed_budget(asked.bytes);
  const auto shortage = std::make_shared<MemoryShortage>(
      MemoryShortage{.pool = name_,
                     .asked = asked,
                     .budget_bytes = over ? budget_bytes_ : std::nullopt,
                     .use = use,
                     .blocks = blocks_->ledger.live(),
                     .largest = blocks_->ledger.largest(MemoryShortage::kLargest)});
  const std::size_t available =
      budget_bytes_ ? *budget_bytes_ - std::min(*budget_bytes_, use.live_total) : 0;
  throw OutOfMemory(
      concat(name_, " memory: asked for ", asked.bytes, " bytes of ", what,
             asked.content.shape.rank() > 0 ? " (" + asked.text() + ")" : "", ", ", use.live_total,
             " in use", holders(use), largest(*shortage), ", ",
             over ? concat("budget ", *budget_bytes_) : "the system has no more", "; ", hint(what)),
      asked.bytes, available, shortage);
}

Buffer MemoryPool::allocate(std::size_t bytes, MemoryKind kind, const BlockContent& content) {
  const std::size_t wanted = bytes == 0 ? 1 : bytes;
  const std::size_t size = source_->separates_blocks() ? wanted : rounded(wanted);
  MemoryBlock block{.bytes = size, .kind = kind, .content = content, .label = {}};
  std::string_view label = MemoryLabel::current();
  label.remove_prefix(label.size() - std::min(label.size(), MemoryBlock::kMaxLabel));
  std::copy(label.begin(), label.end(), block.label.begin());
  std::lock_guard lock(blocks_->mutex);
  void* data = find(size);
  if (data == nullptr) throw_out_of_memory(block, name_of(kind));
  const std::size_t slot = blocks_->ledger.add(block);
  MemoryUse& use = blocks_->use;
  const auto k = static_cast<std::size_t>(kind);
  use.live[k] += size;
  use.live_total += size;
  use.peak[k] = std::max(use.peak[k], use.live[k]);
  use.peak_total = std::max(use.peak_total, use.live_total);
  Buffer buffer;
  buffer.pool_ = shared_from_this();
  buffer.data_ = data;
  buffer.bytes_ = size;
  buffer.kind_ = kind;
  buffer.slot_ = slot;
  if (blocks_->listener != nullptr) blocks_->listener->allocated(buffer.slot_, block);
  return buffer;
}

void MemoryPool::release(const Buffer& buffer) noexcept {
  std::lock_guard lock(blocks_->mutex);
  blocks_->use.live[static_cast<std::size_t>(buffer.kind_)] -= buffer.bytes_;
  blocks_->use.live_total -= buffer.bytes_;
  BlockLedger& ledger = blocks_->ledger;
  if (blocks_->listener != nullptr) blocks_->listener->released(buffer.slot_, ledger[buffer.slot_]);
  ledger.remove(buffer.slot_);
  blocks_->store->release(buffer.data_, buffer.bytes_);
}

void MemoryPool::move_kind(const Buffer& buffer, MemoryKind to) {
  std::lock_guard lock(blocks_->mutex);
  MemoryUse& use = blocks_->use;
  use.live[static_cast<std::size_t>(buffer.kind_)] -= buffer.bytes_;
  std::size_t& live = use.live[static_cast<std::size_t>(to)];
  std::size_t& peak = use.peak[static_cast<std::size_t>(to)];
  live += buffer.bytes_;
  peak = std::max(peak, live);
  MemoryBlock& block = blocks_->ledger[buffer.slot_];
  MemoryListener* const listener = to == block.kind ? nullptr : blocks_->listener;
  if (listener != nullptr) listener->released(buffer.slot_, block);
  block.kind = to;
  if (listener != nullptr) listener->allocated(buffer.slot_, block);
}

void MemoryPool::set_listener(MemoryListener* listener) {
  std::lock_guard lock(blocks_->mutex);
  blocks_->listener = listener;
  if (listener == nullptr) return;
  blocks_->ledger.visit(
      [&](std::size_t slot, const MemoryBlock& block) { listener->allocated(slot, block); });
}

MemoryUse MemoryPool::use_now() const {
  MemoryUse use = blocks_->use;
  use.cached = blocks_->source.taken_bytes() - use.live_total;
  use.fresh_total = blocks_->source.fresh_bytes();
  use.max_taken = blocks_->source.max_taken_bytes();
  use.extent = blocks_->store->extent();
  return use;
}

MemoryUse MemoryPool::use() const {
  std::lock_guard lock(blocks_->mutex);
  return use_now();
}

void MemoryPool::reset_peaks() {
  std::lock_guard lock(blocks_->mutex);
  blocks_->use.peak = blocks_->use.live;
  blocks_->use.peak_total = blocks_->use.live_total;
}

void MemoryPool::trim() {
  if (source_->prefers_slabs()) return;
  std::lock_guard lock(blocks_->mutex);
  blocks_->store->trim();
}

void MemoryPool::reserve(std::size_t bytes, const char* purpose) {
  std::lock_guard lock(blocks_->mutex);
  if (!blocks_->store->reserve(bytes)) throw_out_of_memory({.bytes = bytes}, purpose);
}

std::shared_ptr<MemoryPool> make_device_pool(Device device,
                                             std::optional<std::size_t> budget_bytes) {
  if (device.simulated) return MemoryPool::create("device", budget_bytes, simulated_memory(device));
  if (device.type == DeviceType::kCpu) return MemoryPool::create("device", budget_bytes);
  return MemoryPool::create("device", budget_bytes, cuda_memory(device));
}

std::shared_ptr<MemoryPool> make_host_pool(Device device, std::optional<std::size_t> budget_bytes) {
  const bool pinned = device.type == DeviceType::kCuda;
  if (device.simulated)
    return MemoryPool::create("host", budget_bytes, simulated_memory({}, pinned));
  if (!pinned) return MemoryPool::create("host", budget_bytes);
  return MemoryPool::create("host", budget_bytes,
                            pinned_memory(machine_memory().available_bytes / 2));
}

std::shared_ptr<MemoryPool> make_file_pool(Device device, const std::string& folder,
                                           const char* key) {
  return MemoryPool::create("scratch file in " + folder, {},
                            device.simulated ? simulated_memory({}) : file_memory(folder, key));
}

}  // namespace hybrid_trainer
