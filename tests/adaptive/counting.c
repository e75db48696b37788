/* As counting.py: right only if every row met every step exactly once, whoever had it.
 *     counting SECONDS_A_STEP DIRECTORY */
#include <cosched_adaptive.h>

enum { ROWS = 37, COLUMNS = 5 };

static void move(const cosched_change *change, void *rows) {
    cosched_adaptive_move_rows(change, rows, ROWS, COLUMNS * sizeof(double));
}

static void mine(MPI_Comm comm, long *first, long *count) {
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    cosched_adaptive_block(ROWS, size, rank, first, count);
}

static void leave(const char *directory, const char *name, const char *text) {
    char path[4096], fresh[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(fresh, sizeof fresh, "%s/new", directory);
    FILE *file = fopen(strcmp(name, "step") ? path : fresh, "w");
    if (!file || fputs(text, file) < 0 || fclose(file)) MPI_Abort(MPI_COMM_WORLD, 2);
    if (!strcmp(name, "step")) rename(fresh, path);
}

static int is_enough(MPI_Comm comm, const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/enough", directory);
    int enough = !access(path, F_OK);
    MPI_Bcast(&enough, 1, MPI_INT, 0, comm);
    return enough;
}

static void say_step(const cosched_adaptive *job, const char *directory, long step) {
    char text[4096];
    int rank, length = snprintf(text, sizeof text, "%ld %lld", step, (long long)job->number);
    MPI_Comm_rank(job->comm, &rank);
    for (int index = 0; index < job->enabled_size; index++)
        length += snprintf(text + length, sizeof text - (size_t)length, " %d", job->enabled[index]);
    if (!rank) leave(directory, "step", text);
}

int main(int argc, char **argv) {
    long pause_ns = (long)(1e9 * atof(argv[1])), first, count, done = 0;
    const char *directory = argv[2];
    char name[64], text[64];
    int status = 0, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(name, sizeof name, "pid.%d", rank);
    snprintf(text, sizeof text, "%ld", (long)getpid());
    leave(directory, name, text);
    cosched_adaptive *job = cosched_adaptive_open(MPI_COMM_WORLD);
    cosched_adaptive_state(job, &done, sizeof done);
    mine(cosched_adaptive_comm(job), &first, &count);
    double *rows = calloc((size_t)count * COLUMNS, sizeof *rows);
    for (long step = 0; cosched_adaptive_point(job, &step, move, &rows); step++) {
        if (done != step) MPI_Abort(MPI_COMM_WORLD, 3);
        mine(cosched_adaptive_comm(job), &first, &count);
        for (long row = 0; row < count * COLUMNS; row++) rows[row] += (double)(first + row / COLUMNS + 1);
        done++;
        say_step(job, directory, step);
        struct timespec pause = {0, pause_ns};
        nanosleep(&pause, NULL);
        if (is_enough(cosched_adaptive_comm(job), directory)) break;
    }
    MPI_Comm comm = cosched_adaptive_comm(job);
    if (comm != MPI_COMM_NULL) {
        long wrong = 0, all = 0;
        mine(comm, &first, &count);
        for (long row = 0; row < count * COLUMNS; row++)
            wrong += rows[row] != (double)(done * (first + row / COLUMNS + 1));
        MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, comm);
        MPI_Allreduce(&count, &all, 1, MPI_LONG, MPI_SUM, comm);
        MPI_Comm_rank(comm, &rank);
        status = wrong || all != ROWS;
        if (!rank) puts(status ? "wrong" : "right");
    }
    free(rows);
    cosched_adaptive_close(job);
    MPI_Finalize();
    return status;
}
