/* Malleable MPI programs in C: what cosched.adaptive is for those in Python. C99, POSIX and MPI 3; nothing to link.
 *
 *     cosched_adaptive *job = cosched_adaptive_open(MPI_COMM_WORLD);
 *     for (long step = 0; step < steps && cosched_adaptive_point(job, &step, move, &data); step++)
 *         compute(cosched_adaptive_comm(job), &data);
 *     if (cosched_adaptive_comm(job) != MPI_COMM_NULL) print_result(...);
 *     cosched_adaptive_close(job);
 *
 * At a point the newest map is adopted: `move` is called on all ranks of before and after it, and has the data go from
 * the ones to the others (cosched_adaptive_move_rows); vacated ranks sleep inside the point, and come back from it at
 * the others' step. No message of the program's own may be under way at a point. All ranks are enabled until the first
 * one. The channel and the reasons are in docs/design/adaptive.md. Errors of MPI end the job, as is MPI's default. */
#ifndef COSCHED_ADAPTIVE_H
#define COSCHED_ADAPTIVE_H

#include "cosched_channel.h"

/* --- What moves ---------------------------------------------------------------------------------------------------- */

/* The rows of the index'th of so many ranks: first and count, of blocks that differ by a row at most. */
COSCHED_API void cosched_adaptive_block(long rows, int size, int index, long *first, long *count) {
    long least = rows / size, more = rows % size;
    *first = index * least + (index < more ? index : more);
    *count = least + (index < more);
}

/* The rows that this rank, as index'th of `size`, has in common with another block. */
static long cosched_common(long rows, int size, int index, long first, long count, long *low) {
    long other, length;
    cosched_adaptive_block(rows, size, index, &other, &length);
    *low = first > other ? first : other;
    long high = first + count < other + length ? first + count : other + length;
    return high > *low ? high - *low : 0;
}

static int cosched_index(const int *ranks, int size, int rank) {
    for (int index = 0; index < size; index++)
        if (ranks[index] == rank) return index;
    return -1;
}

/* Move the rows of a block-distributed buffer: `*buffer`, from malloc, is freed, and has this rank's rows after the
 * change; NULL where it has none. Each row goes from its old owner to its new one and nowhere else. */
COSCHED_API void cosched_adaptive_move_rows(const cosched_change *change, void **buffer, long rows, size_t row_bytes) {
    int was = cosched_index(change->old_ranks, change->old_size, change->rank);
    int is = cosched_index(change->new_ranks, change->new_size, change->rank);
    long had_first = 0, had = 0, has_first = 0, has = 0, low, count;
    if (was >= 0) cosched_adaptive_block(rows, change->old_size, was, &had_first, &had);
    if (is >= 0) cosched_adaptive_block(rows, change->new_size, is, &has_first, &has);
    char *old = *buffer, *fresh = has ? malloc((size_t)has * row_bytes) : NULL;
    MPI_Request *requests = malloc((size_t)(change->old_size + change->new_size) * sizeof *requests);
    MPI_Datatype row;
    int asked = 0;
    if ((has && !fresh) || !requests || row_bytes > INT_MAX) MPI_Abort(change->world, 1);
    MPI_Type_contiguous((int)row_bytes, MPI_BYTE, &row);
    MPI_Type_commit(&row);
    for (int index = 0; index < change->old_size; index++) {
        if (!(count = cosched_common(rows, change->old_size, index, has_first, has, &low))) continue;
        char *to = fresh + (size_t)(low - has_first) * row_bytes;
        if (index == was)
            memcpy(to, old + (size_t)(low - had_first) * row_bytes, (size_t)count * row_bytes);
        else
            MPI_Irecv(to, (int)count, row, change->old_ranks[index], COSCHED_TAG_ROWS, change->world, &requests[asked++]);
    }
    for (int index = 0; index < change->new_size; index++) {
        if (index == is || !(count = cosched_common(rows, change->new_size, index, had_first, had, &low))) continue;
        char *from = old + (size_t)(low - had_first) * row_bytes;
        MPI_Isend(from, (int)count, row, change->new_ranks[index], COSCHED_TAG_ROWS, change->world, &requests[asked++]);
    }
    while (asked--) MPI_Wait(&requests[asked], MPI_STATUS_IGNORE);
    MPI_Type_free(&row);
    free(requests);
    free(old);
    *buffer = fresh;
}

/* --- Points -------------------------------------------------------------------------------------------------------- */

/* Do what a change asks: on all ranks of before and after it. Takes `old` and `fresh`, which are the job's then. */
static void cosched_carry_out(
    cosched_adaptive *job, int64_t number, int *old, int old_size, int *fresh, int fresh_size, cosched_move move,
    void *program) {
    cosched_change change = {job->world, job->rank, old_size, fresh_size, old, fresh};
    int same = old_size == fresh_size && !memcmp(old, fresh, (size_t)old_size * sizeof *old);
    int was = cosched_has(old, old_size, job->rank), is = cosched_has(fresh, fresh_size, job->rank);
    int leads = is && fresh[0] == job->rank;
    job->number = number;
    job->enabled = fresh, job->enabled_size = fresh_size;
    if (!same) {
        if (move) move(&change, program);
        if (was) MPI_Comm_free(&job->comm);
        if (is) {
            MPI_Group all, enabled;
            MPI_Comm_group(job->world, &all);
            MPI_Group_incl(all, fresh_size, fresh, &enabled);
            MPI_Comm_create_group(job->world, enabled, COSCHED_TAG_GROUP, &job->comm);
            MPI_Group_free(&enabled);
            MPI_Group_free(&all);
        }
    }
    if (is) MPI_Barrier(job->comm);
    if (was && !is) MPI_Send(NULL, 0, MPI_BYTE, fresh[0], COSCHED_TAG_ASLEEP, job->world);
    for (int index = 0; leads && index < old_size; index++)
        if (!cosched_has(fresh, fresh_size, old[index]))
            MPI_Recv(NULL, 0, MPI_BYTE, old[index], COSCHED_TAG_ASLEEP, job->world, MPI_STATUS_IGNORE);
    job->leads_since_map = leads;
    if (leads) cosched_say_adapted(job);
    free(old);
}

/* Tell a rank that sleeps to wake: what changes, and the program's state. */
static void cosched_wake(cosched_adaptive *job, int rank, long step, const int *fresh, int fresh_size) {
    int64_t word[7] = {COSCHED_CHANGE, job->newest,       step,           job->enabled_size,
                       fresh_size,     job->told_answer, 0};
    word[6] = (int64_t)job->told[0] * 2 + job->told[1];
    MPI_Send(word, 7, MPI_INT64_T, rank, COSCHED_TAG_WORD, job->world);
    MPI_Send(job->enabled, job->enabled_size, MPI_INT, rank, COSCHED_TAG_WORD, job->world);
    MPI_Send(fresh, fresh_size, MPI_INT, rank, COSCHED_TAG_WORD, job->world);
    MPI_Send(job->state, (int)job->state_bytes, MPI_BYTE, rank, COSCHED_TAG_WORD, job->world);
}

/* Whether a map newer than the last one that this rank took part in enables it: the leader may write soon. */
static int cosched_is_hinted(cosched_adaptive *job) {
    if (job->hint_of != job->newest) {
        int *ranks = cosched_room(job, (size_t)job->size * sizeof *ranks);
        job->hint_of = job->newest;
        job->hint = cosched_has(ranks, cosched_enabled(job, ranks), job->rank);
        free(ranks);
    }
    return job->newest > job->number && job->hint;
}

/* Sleep until the leader writes; where it did. It looks the less often the longer it has waited, and begins anew with a
 * hint; MPI makes progress only while it is called, so a connection that is being made takes a few looks. */
static int cosched_sleep(cosched_adaptive *job) {
    int found = 0, was_hinted = 0;
    double since_s = cosched_now_s();
    MPI_Status status;
    for (;;) {
        for (int look = 0; look < 3 && !found; look++)
            MPI_Iprobe(MPI_ANY_SOURCE, COSCHED_TAG_WORD, job->world, &found, &status);
        if (found) return status.MPI_SOURCE;
        cosched_poll(job);
        if (cosched_is_hinted(job) && !was_hinted) {
            was_hinted = 1;
            since_s = cosched_now_s();
        }
        double wait_s = 0.002 + 0.02 * (cosched_now_s() - since_s);
        cosched_wait(job, wait_s < COSCHED_TICK_S ? wait_s : COSCHED_TICK_S);
    }
}

/* Sleep until this rank is enabled again, and take part in that change: 1, or 0 if the others have ended. */
static int cosched_asleep(cosched_adaptive *job, long *step, cosched_move move, void *program) {
    int from = cosched_sleep(job);
    int64_t word[7];
    MPI_Recv(word, 7, MPI_INT64_T, from, COSCHED_TAG_WORD, job->world, MPI_STATUS_IGNORE);
    if (word[0] == COSCHED_RELEASE) return 0;
    int old_size = (int)word[3], fresh_size = (int)word[4];
    int *old = cosched_room(job, (size_t)old_size * sizeof *old);
    int *fresh = cosched_room(job, (size_t)fresh_size * sizeof *fresh);
    MPI_Recv(old, old_size, MPI_INT, from, COSCHED_TAG_WORD, job->world, MPI_STATUS_IGNORE);
    MPI_Recv(fresh, fresh_size, MPI_INT, from, COSCHED_TAG_WORD, job->world, MPI_STATUS_IGNORE);
    MPI_Recv(job->state, (int)job->state_bytes, MPI_BYTE, from, COSCHED_TAG_WORD, job->world, MPI_STATUS_IGNORE);
    *step = (long)word[2];
    job->told_answer = (int)word[5], job->told[0] = (int)(word[6] >> 1), job->told[1] = (int)(word[6] & 1);
    free(job->enabled);
    cosched_carry_out(job, word[1], old, old_size, fresh, fresh_size, move, program);
    return 1;
}

/* A safe point: adopt the newest map. 1: go on, at *step, which the others of a rank that slept have reached; 0: this
 * rank slept, and the others have ended, so it has nothing more to do but cosched_adaptive_close. */
COSCHED_API int cosched_adaptive_point(cosched_adaptive *job, long *step, cosched_move move, void *program) {
    int64_t word[5] = {0};
    int *fresh, size = 0;
    if (!job->nodes) return 1;
    cosched_poll(job);
    fresh = cosched_room(job, (size_t)job->size * sizeof *fresh);
    if (job->rank == job->enabled[0]) {
        if (job->newest > job->number) size = cosched_enabled(job, fresh); /* 0: the map is not for this job */
        word[0] = size, word[1] = job->newest;
        word[2] = job->has_answer, word[3] = job->answer[0], word[4] = job->answer[1];
        job->has_answer = 0;
    }
    MPI_Bcast(word, 5, MPI_INT64_T, 0, job->comm);
    if (word[2]) job->told_answer = 1, job->told[0] = (int)word[3], job->told[1] = (int)word[4];
    if (!word[0]) {
        free(fresh);
        return 1;
    }
    size = (int)word[0];
    MPI_Bcast(fresh, size, MPI_INT, 0, job->comm);
    if (job->rank == job->enabled[0])
        for (int index = 0; index < size; index++)
            if (!cosched_has(job->enabled, job->enabled_size, fresh[index]))
                cosched_wake(job, fresh[index], *step, fresh, size);
    cosched_carry_out(job, word[1], job->enabled, job->enabled_size, fresh, size, move, program);
    while (!cosched_is_enabled(job))
        if (!cosched_asleep(job, step, move, program)) return 0;
    return 1;
}

/* --- The rest of what programs call -------------------------------------------------------------------------------- */

/* The communicator of the enabled ranks now; MPI_COMM_NULL on a rank that was told to leave. */
COSCHED_API MPI_Comm cosched_adaptive_comm(const cosched_adaptive *job) { return job->comm; }

/* What a rank that wakes gets from the leader: small, and the same on all enabled ranks. On all ranks, before points. */
COSCHED_API void cosched_adaptive_state(cosched_adaptive *job, void *state, size_t bytes) {
    job->state = state, job->state_bytes = bytes;
}

/* Ask for so many processes more, or fewer (not 0); on all enabled ranks. What is granted comes as a map. */
COSCHED_API void cosched_adaptive_ask(cosched_adaptive *job, int more) {
    char line[32];
    snprintf(line, sizeof line, "ask %+d\n", more);
    job->told_answer = 0;
    if (job->rank == job->enabled[0]) cosched_say(job, line);
}

/* Whether a point after the last request has brought an answer: how many are given, and whether the rest is waited for. */
COSCHED_API int cosched_adaptive_answer(const cosched_adaptive *job, int *given, int *waits) {
    if (job->told_answer) *given = job->told[0], *waits = job->told[1];
    return job->told_answer;
}

/* Begin on all ranks of a communicator. Without an agent's socket in the environment of each, all are enabled for good. */
COSCHED_API cosched_adaptive *cosched_adaptive_open(MPI_Comm world) {
    cosched_adaptive *job = calloc(1, sizeof *job);
    const char *path = getenv("COSCHED_JOB_SOCKET"), *node = getenv("COSCHED_NODE");
    if (!job) MPI_Abort(world, 1);
    MPI_Comm_dup(world, &job->world);
    MPI_Comm_dup(world, &job->comm);
    MPI_Comm_rank(world, &job->rank);
    MPI_Comm_size(world, &job->size);
    job->fd = -1, job->enabled_size = job->size;
    job->enabled = cosched_room(job, (size_t)job->size * sizeof *job->enabled);
    for (int rank = 0; rank < job->size; rank++) job->enabled[rank] = rank;
    if (path && strlen(path) < sizeof job->path) strcpy(job->path, path);
    for (double until_s = cosched_now_s() + 5; job->path[0] && !job->node[0] && cosched_now_s() < until_s;) {
        cosched_poll(job);
        if (!job->node[0]) cosched_wait(job, 0.05);
    }
    if (job->path[0] && !job->node[0] && node && strlen(node) < sizeof job->node) strcpy(job->node, node);
    job->nodes = cosched_room(job, (size_t)job->size * sizeof *job->nodes);
    MPI_Allgather(job->node, sizeof job->node, MPI_CHAR, job->nodes, sizeof job->node, MPI_CHAR, job->world);
    job->places = cosched_room(job, (size_t)job->size * sizeof *job->places);
    for (int rank = 0; rank < job->size; rank++)
        for (int before = 0; before < rank; before++) job->places[rank] += !strcmp(job->nodes[before], job->nodes[rank]);
    for (int rank = 0; rank < job->size && job->nodes; rank++)
        if (!job->nodes[rank][0]) free(job->nodes), job->nodes = NULL;
    return job;
}

/* End on all ranks: those who sleep are released. */
COSCHED_API void cosched_adaptive_close(cosched_adaptive *job) {
    int64_t word[7] = {COSCHED_RELEASE};
    if (job->comm != MPI_COMM_NULL) {
        MPI_Barrier(job->comm);
        for (int rank = 0; job->rank == job->enabled[0] && rank < job->size; rank++)
            if (!cosched_has(job->enabled, job->enabled_size, rank))
                MPI_Send(word, 7, MPI_INT64_T, rank, COSCHED_TAG_WORD, job->world);
        MPI_Comm_free(&job->comm);
    }
    cosched_hang_up(job);
    MPI_Comm_free(&job->world);
    free(job->enabled);
    free(job->nodes);
    free(job->places);
    free(job);
}

#endif
