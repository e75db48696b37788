/* An MPI program that ends as it is told: HOW [RANK], HOW one of ok, exit, early, leave, abort, invalid, crash, kill,
   wait (until it is ended, the others in MPI_Barrier), stay (all ranks sleep until they are ended), where (every rank
   tells its host, its processors and some of its environment). */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "ok";
    const char *me = getenv("OMPI_COMM_WORLD_RANK");
    int culprit = argc > 2 ? atoi(argv[2]) : 0, rank, size, sum = 0;

    if (strcmp(how, "early") == 0 && me && atoi(me) == culprit)
        exit(5);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size * (size - 1) / 2)
        return 9;
    if (strcmp(how, "stay") == 0)
        pause();
    if (rank == culprit) {
        if (strcmp(how, "exit") == 0)
            _exit(3);
        if (strcmp(how, "leave") == 0)
            _exit(0);
        if (strcmp(how, "invalid") == 0)
            MPI_Send(&rank, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
        if (strcmp(how, "wait") == 0) {
            puts("waiting");
            fflush(stdout);
            pause();
        }
        if (strcmp(how, "abort") == 0)
            MPI_Abort(MPI_COMM_WORLD, 7);
        if (strcmp(how, "crash") == 0)
            raise(SIGSEGV);
        if (strcmp(how, "kill") == 0)
            raise(SIGKILL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(how, "where") == 0) {
        const char *job = getenv("COSCHED_JOB_ID"), *yields = getenv("OMPI_MCA_mpi_yield_when_idle");
        char host[64] = "";
        cpu_set_t cpus;

        gethostname(host, sizeof host - 1);
        sched_getaffinity(0, sizeof cpus, &cpus);
        printf("%d %s job=%s yields=%s cpus=%d\n", rank, host, job ? job : "", yields ? yields : "", CPU_COUNT(&cpus));
    } else if (rank == 0)
        printf("%d ranks\n", size);
    MPI_Finalize();
    return 0;
}
