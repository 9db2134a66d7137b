#include "src/distributed/mpi/mpi_engine.h"

#include <mpi.h>
#include <cstring>

namespace hybrid_trainer {

namespace {

constexpr int kTag = 13;
static_assert(sizeof(MPI_Request) <= sizeof(void*));

int start_mpi(int* rank, int* size) {
  int given = 0;
  int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);
  if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(MPI_COMM_WORLD, size);
  return error;
}

int mpi_host_name(char* name, int bytes) {
  char whole[MPI_MAX_PROCESSOR_NAME + 1] = {};
  int length = 0;
  const int error = MPI_Get_processor_name(whole, &length);
  std::strncpy(name, whole, static_cast<std::size_t>(bytes - 1));
  name[bytes - 1] = '\0';
  return error;
}

int begin_mpi_send(const void* data, int bytes, int peer, void** request) {
  MPI_Request begun = MPI_REQUEST_NULL;
  const int error = MPI_Isend(data, bytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &begun);
  std::memcpy(request, &begun, sizeof begun);
  return error;
}

int begin_mpi_receive(void* data, int bytes, int peer, void** request) {
  MPI_Request begun = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(data, bytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &begun);
  std::memcpy(request, &begun, sizeof begun);
  return error;
}

int is_mpi_request_done(void** request, int* done) {
  MPI_Request begun = MPI_REQUEST_NULL;
  std::memcpy(&begun, request, sizeof begun);
  const int error = MPI_Test(&begun, done, MPI_STATUS_IGNORE);
  std::memcpy(request, &begun, sizeof begun);
  return error;
}

void mpi_error_text(int error, char* text, int bytes) {
  char whole[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  MPI_Error_string(error, whole, &length);
  std::strncpy(text, whole, static_cast<std::size_t>(bytes - 1));
  text[bytes - 1] = '\0';
}

int finish_mpi() { return MPI_Finalize(); }

void abort_mpi(int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); }

}  // namespace

}  // namespace hybrid_trainer

extern "C" const hybrid_trainer::MpiEngine* hybrid_trainer_mpi_engine() {
  using namespace hybrid_trainer;
  static constexpr MpiEngine engine{
      .version = MpiEngine::kVersion,
      .start = start_mpi,
      .host_name = mpi_host_name,
      .begin_send = begin_mpi_send,
      .begin_receive = begin_mpi_receive,
      .is_done = is_mpi_request_done,
      .error_text = mpi_error_text,
      .finish = finish_mpi,
      .abort = abort_mpi,
  };
  return &engine;
}
