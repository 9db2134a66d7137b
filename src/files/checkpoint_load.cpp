#include <algorithm>

#include "src/core/narrow.h"
#include "src/files/checkpoint_files.h"
#include "src/files/safetensors.h"

namespace hybrid_trainer {

/// Reads tensors from the files of `checkpoint`, opened at first use. It must outlive this object.
class CheckpointTensors {
 public:
  explicit CheckpointTensors(const CheckpointInfo& checkpoint) : checkpoint_(checkpoint) {}
  /// Reads elements [first, first + into.elements()) of a tensor. Throws DataError, IoError.
  void read(const std::string& name, const StoredTensor& tensor, std::int64_t first,
            const Tensor& into);

 private:
  const CheckpointInfo& checkpoint_;
  std::map<std::string, SafetensorsFile> files_;
};

namespace {

DType dtype_of(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  if (const auto dtype = stored_dtype_of(entry.dtype)) return *dtype;
  throw DataError(concat(file.path(), ": tensor \"", entry.name, "\" has dtype ", entry.dtype,
                         ", which checkpoints do not support"));
}

void check_range(const SafetensorsFile& file, const std::string& name, const StoredTensor& tensor,
                 const StoredRange& range) {
  const SafetensorsEntry& entry = file.entry(name);
  const Shape shape = entry.tensor_shape(), want{range.last - range.first};
  if (dtype_of(file, entry) == tensor.dtype && shape == want) return;
  throw DataError(concat(file.path(), ": tensor \"", name, "\" is ", entry.dtype, " ", shape.text(),
                         ", but the manifest declares ", safetensors_name_of(tensor.dtype), " ",
                         want.text()));
}

struct DigestedTensor {
  std::string checksum;
  std::string described;  // dtype and shape
};

/// Returns a tensor's digest. Reads the tensor in parts, so that a large tensor need not fit in
/// memory.
DigestedTensor digest_of_tensor(CheckpointTensors& tensors, const std::string& name,
                                const StoredTensor& stored, const Stream& stream) {
  constexpr std::int64_t kPieceElements = std::int64_t{1} << 21;
  const std::int64_t elements = stored.shape.elements();
  Checksum checksum;
  for (std::int64_t first = 0; first < elements; first += kPieceElements) {
    const Tensor piece = Tensor::empty({std::min(kPieceElements, elements - first)}, stored.dtype,
                                       MemoryKind::kData, stream);
    tensors.read(name, stored, first, piece);
    checksum.add(piece.raw(), piece.bytes());
  }
  return {checksum.text(), concat(safetensors_name_of(stored.dtype), " ", stored.shape.text())};
}

constexpr std::size_t kMaxStateBytes = std::size_t{1} << 30;

MemoryKind kind_of(const std::string& tensor) {
  if (tensor.starts_with("model.")) return MemoryKind::kParameters;
  return tensor.starts_with("optimizer.") ? MemoryKind::kOptimizerState : MemoryKind::kSnapshot;
}

bool is_part(const std::string& tensor, CheckpointPart part) {
  switch (part) {
    case CheckpointPart::kWeights:
      return tensor.starts_with("model.") || tensor.starts_with("snapshot.") ||
             tensor.starts_with(kRoutingState);
    case CheckpointPart::kAverage:
      return tensor.starts_with("average.") || tensor.starts_with(kRoutingState);
    case CheckpointPart::kNumbers: return false;
    case CheckpointPart::kAll: break;
  }
  return true;
}

WantedElements all_of(const StoredTensor& tensor) {
  return {0, tensor.shape.elements(), tensor.shape};
}

State load_numbers(const CheckpointInfo& checkpoint) {
  const std::string path = checkpoint.path + "/" + kStateName;
  const std::string bytes = read_file(path, kMaxStateBytes);
  const auto known = checkpoint.files.find(kStateName);
  if (known == checkpoint.files.end() || checksum_of(bytes) != known->second.checksum)
    throw DataError(path + ": changed while it was read");
  State state;
  read_state_bytes(bytes, state);
  return state;
}

/// Returns the tensors of a checkpoint by name, written by any number of ranks. Throws DataError.
std::map<std::string, StoredTensor> stored_tensors(const CheckpointInfo& checkpoint) {
  if (has_rank_files(checkpoint)) return checkpoint.tensors;
  std::map<std::string, StoredTensor> tensors;
  for (const auto& [name, digest] : checkpoint.files) {
    if (name == kStateName) continue;
    const SafetensorsFile file(checkpoint.path + "/" + name);
    for (const SafetensorsEntry& entry : file.entries()) {
      const Shape shape = entry.tensor_shape();
      tensors[entry.name] = {dtype_of(file, entry), shape, {{name, 0, shape.elements()}}};
    }
  }
  return tensors;
}

template <class IsLoaded, class Wanted>
State load_partial(const CheckpointInfo& checkpoint, const Stream& stream,
                   const IsLoaded& is_loaded, const Wanted& wanted) {
  State state = load_numbers(checkpoint);
  CheckpointTensors tensors(checkpoint);
  for (const auto& [name, stored] : stored_tensors(checkpoint)) {
    if (!is_loaded(name)) continue;
    const WantedElements part = wanted(name, stored);
    require(part.first >= 0 && part.last <= stored.shape.elements() &&
                part.shape.elements() == part.last - part.first,
            "load_checkpoint: want elements of the tensor, and a shape with the same number");
    const Tensor tensor = Tensor::empty(part.shape, stored.dtype, kind_of(name), stream);
    tensors.read(name, stored, part.first, tensor);
    state.tensors[name] = tensor;
  }
  return state;
}

}  // namespace

/// Opens a checkpoint's safetensors file. Throws DataError if it differs from the manifest.
SafetensorsFile open_checkpoint_file(const CheckpointInfo& checkpoint, const std::string& name) {
  SafetensorsFile file(checkpoint.path + "/" + name);
  std::size_t ranges = 0;
  for (const auto& [tensor_name, tensor] : checkpoint.tensors) {
    for (const StoredRange& range : tensor.ranges) {
      if (range.file != name) continue;
      check_range(file, tensor_name, tensor, range);
      ++ranges;
    }
  }
  if (has_rank_files(checkpoint) && ranges != file.entries().size())
    throw DataError(concat(file.path(), ": has ", file.entries().size(),
                           " tensors, but the manifest declares ", ranges));
  return file;
}

void CheckpointTensors::read(const std::string& name, const StoredTensor& tensor,
                             std::int64_t first, const Tensor& into) {
  const Tensor flat = into.view({into.elements()});
  const std::int64_t last = first + into.elements();
  for (const StoredRange& range : tensor.ranges) {
    const std::int64_t begin = std::max(first, range.first), end = std::min(last, range.last);
    if (begin >= end) continue;
    auto file = files_.find(range.file);
    if (file == files_.end())
      file = files_.emplace(range.file, open_checkpoint_file(checkpoint_, range.file)).first;
    file->second.read_elements(name, begin - range.first, flat.rows(begin - first, end - first));
  }
}

namespace {

std::string damage_of_file(const CheckpointInfo& checkpoint, const std::string& name,
                           const FileDigest& want) {
  try {
    const std::string path = checkpoint.path + "/" + name;
    if (const std::size_t bytes = InputFile(path).bytes(); bytes != want.bytes)
      return concat(name, " has ", bytes, " bytes, want ", want.bytes);
    if (const std::string checksum = checksum_of_file(path); checksum != want.checksum)
      return concat(name, " has ", checksum, ", want ", want.checksum);
    if (is_rank_file_name(name)) open_checkpoint_file(checkpoint, name);
    return "";
  } catch (const MissingInput&) {
    return name + " does not exist or cannot be read";
  } catch (const Error& problem) {
    return problem.what();
  }
}

/// Assigns files to the ranks that verify them, the largest first, each to the least loaded rank.
std::map<std::string, int> verifiers(const CheckpointInfo& checkpoint, int ranks) {
  std::vector<std::pair<std::size_t, std::string>> files;
  for (const auto& [name, digest] : checkpoint.files) files.emplace_back(digest.bytes, name);
  std::sort(files.rbegin(), files.rend());
  std::vector<std::size_t> bytes(static_cast<std::size_t>(ranks));
  std::map<std::string, int> by_file;
  for (const auto& [size, name] : files) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    by_file[name] = narrow<int>(least - bytes.begin());
    *least += size;
  }
  return by_file;
}

}  // namespace

std::string checkpoint_damage(const CheckpointInfo& checkpoint) {
  return checkpoint_damage(checkpoint, 0, 1);
}

std::string checkpoint_damage(const CheckpointInfo& checkpoint, int rank, int ranks) {
  const std::map<std::string, int> whose = verifiers(checkpoint, ranks);
  for (const auto& [name, want] : checkpoint.files) {
    if (whose.at(name) != rank) continue;
    if (std::string damage = damage_of_file(checkpoint, name, want); !damage.empty()) return damage;
  }
  return "";
}

CheckpointDigest digest_of(const CheckpointInfo& checkpoint) {
  if (const std::string damage = checkpoint_damage(checkpoint); !damage.empty())
    throw DataError(concat(checkpoint.path, " is damaged: ", damage));
  const Stream stream(make_host_pool());
  CheckpointTensors files(checkpoint);
  CheckpointDigest digest;
  std::string all;
  for (const auto& [name, stored] : stored_tensors(checkpoint)) {
    const DigestedTensor tensor = digest_of_tensor(files, name, stored, stream);
    digest.tensors.push_back({name, tensor.checksum});
    all += concat(name, "\n", tensor.described, "\n", tensor.checksum, "\n");
  }
  digest.all = checksum_of(all);
  return digest;
}

State load_checkpoint(const CheckpointInfo& checkpoint, const Stream& stream, CheckpointPart part) {
  return load_partial(
      checkpoint, stream, [part](const std::string& name) { return is_part(name, part); },
      [](const std::string&, const StoredTensor& stored) { return all_of(stored); });
}

State load_checkpoint(
    const CheckpointInfo& checkpoint, const Stream& stream,
    const std::function<WantedElements(const std::string&, const StoredTensor&)>& wanted) {
  return load_partial(
      checkpoint, stream, [](const std::string&) { return true; }, wanted);
}

}  // namespace hybrid_trainer
