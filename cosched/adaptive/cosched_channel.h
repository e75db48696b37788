/* Of cosched_adaptive.h: what a job knows, its channel to the node's agent, and maps. Programs include that one. */
#ifndef COSCHED_CHANNEL_H
#define COSCHED_CHANNEL_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if defined(__GNUC__)
#define COSCHED_API static __attribute__((unused))
#else
#define COSCHED_API static
#endif

enum { COSCHED_LINE_BYTES = 8192, COSCHED_NODE_BYTES = 256 };
enum { COSCHED_TAG_ROWS = 1, COSCHED_TAG_WORD = 3, COSCHED_TAG_ASLEEP = 4, COSCHED_TAG_GROUP = 5 };
enum { COSCHED_RELEASE = 0, COSCHED_CHANGE = 1 };
#define COSCHED_TICK_S 0.25

/* From the ranks of before (numbers in `world`) to those after it; `rank` is this one's. */
typedef struct {
    MPI_Comm world;
    int rank, old_size, new_size;
    const int *old_ranks, *new_ranks;
} cosched_change;

typedef void (*cosched_move)(const cosched_change *change, void *program);

typedef struct {
    MPI_Comm world, comm;
    int rank, size;                     /* in world */
    int enabled_size, *enabled;         /* the enabled ranks now */
    int64_t number;                     /* of the map in force */
    char (*nodes)[COSCHED_NODE_BYTES];  /* of each rank; NULL for a job that keeps its processes */
    int *places;                        /* of each rank among those of its node */
    void *state;                        /* the program's, given to ranks that wake */
    size_t state_bytes;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)], node[COSCHED_NODE_BYTES];
    int fd;                             /* -1: no agent */
    double again_s;
    int leads_since_map;                /* this rank has said, or says to each agent that comes, what is in force */
    char unread[COSCHED_LINE_BYTES];
    size_t unread_bytes;
    int64_t newest;                     /* number of the newest map heard of, */
    char map[COSCHED_LINE_BYTES];       /* and its nodes */
    int64_t hint_of;                    /* the map by which `hint` says whether it enables this rank */
    int hint;
    int has_answer, answer[2];          /* given, waits; heard and not yet told */
    int told_answer, told[2];
} cosched_adaptive;

static double cosched_now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *cosched_room(cosched_adaptive *job, size_t bytes) {
    void *room = calloc(bytes ? bytes : 1, 1);
    if (!room) {
        fprintf(stderr, "cosched_adaptive: no memory for %zu bytes\n", bytes);
        MPI_Abort(job->world, 1);
    }
    return room;
}

/* --- The channel to this node's agent: never blocks, but in cosched_wait ------------------------------------------ */

static void cosched_hang_up(cosched_adaptive *job) {
    if (job->fd >= 0) close(job->fd);
    job->fd = -1;
    job->unread_bytes = 0;
    job->again_s = cosched_now_s() + 1.0;
}

static void cosched_say(cosched_adaptive *job, const char *line) {
    if (job->fd >= 0 && send(job->fd, line, strlen(line), MSG_NOSIGNAL) != (ssize_t)strlen(line)) cosched_hang_up(job);
}

static void cosched_say_adapted(cosched_adaptive *job) {
    char line[64];
    snprintf(line, sizeof line, "adapted %lld\n", (long long)job->number);
    cosched_say(job, line);
}

static void cosched_connect(cosched_adaptive *job) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char line[64];
    if (!job->path[0] || cosched_now_s() < job->again_s) return;
    job->again_s = cosched_now_s() + 1.0;
    strcpy(address.sun_path, job->path);
    job->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (job->fd < 0) return;
    fcntl(job->fd, F_SETFD, FD_CLOEXEC);
    fcntl(job->fd, F_SETFL, O_NONBLOCK);
    if (connect(job->fd, (struct sockaddr *)&address, sizeof address)) {
        cosched_hang_up(job);
        return;
    }
    snprintf(line, sizeof line, "adaptive 1 %d %d\n", job->rank, job->size);
    cosched_say(job, line);
    if (job->leads_since_map) cosched_say_adapted(job);
}

static void cosched_take(cosched_adaptive *job, const char *line) {
    long long number;
    int given, waits, length = 0;
    if (!strncmp(line, "node ", 5) && strlen(line + 5) < COSCHED_NODE_BYTES) {
        strcpy(job->node, line + 5);
    } else if (sscanf(line, "map %lld %n", &number, &length) == 1 && length && number > job->newest) {
        job->newest = number;
        strcpy(job->map, line + length);
    } else if (sscanf(line, "answer %d %d", &given, &waits) == 2) {
        job->has_answer = 1, job->answer[0] = given, job->answer[1] = waits;
    }
}

/* Connect if there is no connection, and read what is there. */
static void cosched_poll(cosched_adaptive *job) {
    if (job->fd < 0) cosched_connect(job);
    while (job->fd >= 0) {
        size_t room = sizeof job->unread - job->unread_bytes;
        ssize_t got = room ? recv(job->fd, job->unread + job->unread_bytes, room, 0) : 0;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
        if (got <= 0) { /* no agent any more, or a line without end */
            cosched_hang_up(job);
            return;
        }
        job->unread_bytes += (size_t)got;
        char *line = job->unread, *end;
        while ((end = memchr(line, '\n', job->unread_bytes - (size_t)(line - job->unread)))) {
            *end = 0;
            cosched_take(job, line);
            line = end + 1;
        }
        job->unread_bytes -= (size_t)(line - job->unread);
        memmove(job->unread, line, job->unread_bytes);
    }
}

/* Sleep in the kernel until the agent says something, at most so long. */
static void cosched_wait(cosched_adaptive *job, double seconds) {
    struct pollfd waiting = {.fd = job->fd, .events = POLLIN};
    poll(&waiting, job->fd >= 0, (int)(1000 * seconds + 0.5));
}

/* --- Maps ---------------------------------------------------------------------------------------------------------- */

/* How many ranks of a node a map enables; 0 for one that it does not name. */
static long cosched_share(const char *map, const char *node) {
    size_t length = strlen(node);
    for (const char *word = map; *word; word += strcspn(word, " "), word += strspn(word, " "))
        if (!strncmp(word, node, length) && word[length] == '=') return strtol(word + length + 1, NULL, 10);
    return 0;
}

/* The ranks that the newest map enables, ascending, into `ranks` (room for all); how many they are. */
static int cosched_enabled(const cosched_adaptive *job, int *ranks) {
    int count = 0;
    for (int rank = 0; rank < job->size; rank++)
        if (job->places[rank] < cosched_share(job->map, job->nodes[rank])) ranks[count++] = rank;
    return count;
}

static int cosched_has(const int *ranks, int size, int rank) {
    for (int index = 0; index < size; index++)
        if (ranks[index] == rank) return 1;
    return 0;
}

static int cosched_is_enabled(const cosched_adaptive *job) {
    return cosched_has(job->enabled, job->enabled_size, job->rank);
}

#endif
