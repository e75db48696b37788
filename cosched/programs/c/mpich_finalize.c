/* An MPI_Finalize for programs with MPICH 4.0 over UCX (Debian 12's 4.0.2), which may hang in its own:
   mpicc.mpich -o program program.c mpich_finalize.c

   There, a rank closes its connections, each with a flush that its peer's library must answer, and then waits in a barrier
   of the process manager, in which it answers nobody. A peer that closes a little later waits for it for ever. (MPICH
   took that barrier out in 2023, pull request 6596.)

   Here all ranks first leave MPI_Barrier, so that no message is on its way any more, then a barrier of the process
   manager, so that none is still in the first one; then each tells the manager that it has finished, in the words of
   PMI 1, and leaves the connections to the kernel. After this, MPI_Finalized still says no. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Say a line to the process manager, and wait for its line. */
static int asked(int fd, const char *words) {
    char c = 0;

    if (write(fd, words, strlen(words)) != (ssize_t)strlen(words))
        return -1;
    while (c != '\n')
        if (read(fd, &c, 1) != 1)
            return -1;
    return 0;
}

int MPI_Finalize(void) {
    const char *manager = getenv("PMI_FD");

    if (!manager)
        return PMPI_Finalize();
    if (PMPI_Barrier(MPI_COMM_WORLD) || asked(atoi(manager), "cmd=barrier_in\n") || asked(atoi(manager), "cmd=finalize\n"))
        return MPI_ERR_OTHER;
    return MPI_SUCCESS;
}
