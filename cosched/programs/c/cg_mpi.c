/* CG with MPI, any implementation: cg_mpi [ROWS [PROBLEMS]]. Status 0 verified, 1 wrong, 2 bad arguments, 3 a world of
   another size than the job. */
#include "cg.h"

#include <mpi.h>

static void cg_gather(const double *part, double *whole, const int *begins) {
    int ranks, rank;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int lengths[ranks];
    for (int i = 0; i < ranks; i++)
        lengths[i] = begins[i + 1] - begins[i];
    MPI_Allgatherv(part, lengths[rank], MPI_DOUBLE, whole, lengths, begins, MPI_DOUBLE, MPI_COMM_WORLD);
}

static double cg_sum(double value) {
    double sum;

    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

int main(int argc, char **argv) {
    enum { NAME = MPI_MAX_PROCESSOR_NAME };
    int rank, ranks, length, any, wrong = 3;
    char host[NAME] = "";

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_processor_name(host, &length);
    if (cg_expected(ranks)) {
        struct cg cg;
        int problems = argc > 2 ? cg_number(argv[2], 1) : 2;
        char *all = calloc((size_t)ranks, NAME), *hosts = calloc((size_t)ranks, NAME + 4);
        double error;

        cg_init(&cg, argc > 1 ? cg_number(argv[1], 2100) : 20000, rank, ranks);
        error = cg_run(&cg, problems);
        MPI_Gather(host, NAME, MPI_CHAR, all, NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
        for (int i = 0; i < ranks && rank == 0; i++)
            sprintf(hosts + strlen(hosts), "%s\"%s\"", i ? ", " : "", all + (size_t)i * NAME);
        /* Rank 0 alone fails, for all: mpirun ends a job at its first failure, and output on its way may be lost. */
        wrong = !(error <= CG_ALLOWED);
        MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        wrong = rank == 0 ? cg_tell("cg_mpi", &cg, hosts, problems, any && !wrong ? NAN : error) : 0;
    }
    MPI_Finalize();
    return wrong;
}
